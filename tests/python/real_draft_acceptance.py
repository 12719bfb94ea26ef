#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The speculative sampling of transformers, called as its assisted generation calls it, and judged.

    python3 real_draft_acceptance.py PROGRAM FOLDER

Its uniforms are what it takes from torch.rand_like. Its token comes from torch.multinomial, which divides
probabilities by exponential noise and takes the largest; the noise is drawn again from the state that
the generator had there. So a call of it is a row of `op=draft_acceptance`, mode rejection, with recover_noise. Its
honest captures must pass, and those of the same source with one mistake must be refused and named.
Needs torch and transformers, no GPU: 77 where they are missing.
"""

import inspect
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "python"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

try:
    import torch
    from transformers.generation import utils
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)
import numpy as np

from goldenrule_capture import write_capture

SOURCE = "_speculative_sampling"
# Of its source; the same mistakes have names here.
SABOTAGE = {
    "accept_sum": ("((~is_accepted).cumsum(dim=-1) < 1).sum()", "is_accepted.sum()"),
    "accept_shifted": ("p_i = p[:, torch.arange(candidate_length),",
                       "p_i = p[:, 1 + torch.arange(candidate_length),"),
    "residual_is_target": ("torch.clamp((p_n_plus_1 - q_n_plus_1), min=0)", "p_n_plus_1.clone()"),
    "bonus_of_wrong_row": ("p_n_plus_1 = p[:, n_matches, :]\n    if n_matches < gamma:",
                           "p_n_plus_1 = p[:, gamma, :]\n    if False:"),
}
ROWS, S, Z = 200, 5, 60


def variant(name):
    """The function, with the mistake of that name in its source."""
    if name is None:
        return getattr(utils, SOURCE)
    source = inspect.getsource(getattr(utils, SOURCE))
    right, wrong = SABOTAGE[name]
    if right not in source:
        return None
    scope = dict(vars(utils))
    exec(compile(source.replace(right, wrong), f"<{name}>", "exec"), scope)
    return scope[SOURCE]


class Watched:
    """Keeps what the function draws."""

    def __enter__(self):
        self.kept = torch.rand_like, torch.multinomial
        torch.rand_like, torch.multinomial = self.rand_like, self.multinomial
        return self

    def __exit__(self, *_):
        torch.rand_like, torch.multinomial = self.kept

    def rand_like(self, x, **options):
        self.uniforms = self.kept[0](x, **options)
        return self.uniforms

    def multinomial(self, p, num_samples):
        state = torch.Generator()
        state.set_state(torch.get_rng_state())
        self.noise = torch.empty_like(p).exponential_(1, generator=state)[0]
        return self.kept[1](p, num_samples)


def capture(path, function):
    torch.manual_seed(11)
    rows = dict(draft_tokens=[], target_probs=[], draft_probs=[], uniforms=[], recover_noise=[])
    tokens, accepted = np.full((ROWS, S + 1), -1), []
    for n in range(ROWS):
        target = 1.5 * torch.randn(1, S + 1, Z)
        draft = target[:, :S] + 0.7 * torch.randn(1, S, Z)
        q = draft.softmax(dim=-1)
        chosen = torch.multinomial(q[0], 1).T
        with Watched() as watched:
            valid, matches = function(chosen, draft, S, target)
        tokens[n, :valid.shape[1]] = valid[0]
        accepted.append(int(matches))
        for name, x in (("draft_tokens", chosen[0]), ("target_probs", target.softmax(dim=-1)[0]),
                        ("draft_probs", q[0]), ("uniforms", watched.uniforms),
                        ("recover_noise", watched.noise)):
            rows[name].append(x)
    write_capture(path, op="draft_acceptance", mode="rejection", source=f"transformers {SOURCE}",
                  inputs=dict(start=np.arange(ROWS), **{k: torch.stack(v) for k, v in rows.items()}),
                  outputs=dict(tokens=tokens, accepted=np.array(accepted)))


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    failures = 0
    for name in (None, *SABOTAGE):
        function = variant(name)
        if function is None:
            print(f"{name}: not in this release's source")
            continue
        path = folder / f"{name or 'honest'}.h5"
        capture(path, function)
        done = subprocess.run([program, "check", path], capture_output=True, text=True, check=False)
        right = (done.returncode == 0 if name is None
                 else done.returncode == 1 and f"explained by {name}" in done.stdout)
        failures += not right
        print(f"{name or 'honest'}: {'as expected' if right else done.stdout + done.stderr}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
