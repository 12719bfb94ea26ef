#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Are the golden values of draft acceptance fixtures right? The definition, in exact fractions.

    test_draft_acceptance.py GOLDENRULE DIR

Generates the cases of the suite into DIR, but for the largest vocabulary, and works out every row: each
probability is a Fraction, each comparison exact. Fixtures are drawn away from what fp32 leaves open,
which is checked here too, by the bounds of the specification: no golden value may be NaN. Two of the
files are then asked the other way round: a uniform is put on an edge, and the numbers that hang on it
must be NaN. Exit code 0: at least 30 cases passed, none failed.
"""

import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import h5py
import numpy as np

LEAST_CASES = 30
DEFAULTS = dict(draft_kind="sampled", accept_rule="le", zero_draft="reject", draft_crop="start",
                pad_token=-1, page_size=1)
U = Fraction(1, 2 ** 24)
OUTPUTS = ("accepted", "committed", "target_len", "draft_len", "next_anchor", "keep", "tokens")


def read(path):
    with h5py.File(path) as file:
        convention = {**DEFAULTS, **dict(file["convention"].attrs)}
        inputs = {name: np.asarray(d[()], np.float64 if d.dtype.kind == "f" else np.int64)
                  for name, d in file["inputs"].items()}
        golden = {name: (d[()], float(d.attrs["radius"])) for name, d in file["golden"].items()}
        return file.attrs["mode"], convention, inputs, golden


class Row:
    def __init__(self, mode, convention, inputs, n):
        self.mode, self.convention, self.inputs, self.n = mode, convention, inputs, n
        self.width = inputs["draft_tokens"].shape[1]
        self.drafts = int(inputs["draft_lens"][n]) if "draft_lens" in inputs else self.width
        self.margin = None  # the nearest that any decision comes to an edge

    def near(self, distance, scale):
        if scale and (self.margin is None or distance / scale < self.margin):
            self.margin = distance / scale

    def accepts(self, i):
        d = int(self.inputs["draft_tokens"][self.n, i])
        if self.mode == "greedy":
            return int(self.inputs["target_tokens"][self.n, i]) == d
        p = Fraction(self.inputs["target_probs"][self.n, i, d])
        one_hot = self.convention["draft_kind"] == "one_hot"
        q = Fraction(1) if one_hot else Fraction(self.inputs["draft_probs"][self.n, i, d])
        u = Fraction(self.inputs["uniforms"][self.n, i])
        if q == 0:
            return self.convention["zero_draft"] == "accept"
        if u not in (0, 1) and q != 1:
            self.near(abs(u * q - p), max(p, u * q))
        return u * q < p if self.convention["accept_rule"] == "lt" else u * q <= p

    def token(self, a):
        if self.mode == "greedy":
            return int(self.inputs["target_tokens"][self.n, a])
        if a == self.drafts and "bonus_tokens" in self.inputs:
            return int(self.inputs["bonus_tokens"][self.n])
        r = [Fraction(p) for p in self.inputs["target_probs"][self.n, a]]
        if a < self.drafts:
            if self.convention["draft_kind"] == "one_hot":
                r[int(self.inputs["draft_tokens"][self.n, a])] = Fraction(0)
            else:
                r = [max(x - Fraction(q), Fraction(0))
                     for x, q in zip(r, self.inputs["draft_probs"][self.n, a])]
        if "recover_noise" in self.inputs:
            scores = [x / Fraction(noise) for x, noise in zip(r, self.inputs["recover_noise"][self.n])]
            first, second = sorted(scores)[-1:-3:-1]
            self.near(first - second, first)
            return scores.index(first)
        threshold = Fraction(self.inputs["recover_uniforms"][self.n]) * sum(r)
        total = Fraction(0)
        for x, share in enumerate(r):
            below, total = total, total + share
            if total > threshold:
                if below:
                    self.near(threshold - below, sum(r))
                if threshold:  # u = 0 is exact
                    self.near(total - threshold, sum(r))
                return x
        raise AssertionError("no sum is above the threshold")

    def returned(self):
        start = int(self.inputs["start"][self.n])
        pad = int(self.convention["pad_token"])
        block = self.width + 1
        if start == -1:
            return dict(tokens=[pad] * block, keep=[0] * block, accepted=0, committed=0, target_len=-1,
                        draft_len=-1, next_anchor=pad, release_from=-1)
        a = 0
        while a < self.drafts and self.accepts(a):
            a += 1
        emitted = [int(d) for d in self.inputs["draft_tokens"][self.n, :a]] + [self.token(a)]
        stops = set(self.inputs.get("stop_tokens", np.array([], int)).tolist())
        for i, token in enumerate(emitted):
            if token in stops:
                emitted = emitted[:i + 1]
                break
        c = len(emitted)
        page = int(self.convention["page_size"])
        new_start = self.convention["draft_crop"] == "new_start"
        return dict(tokens=emitted + [pad] * (block - c), keep=[1] * c + [0] * (block - c), accepted=a,
                    committed=c, target_len=start + c, draft_len=start + c if new_start else start,
                    next_anchor=emitted[-1], release_from=-(-(start + c) // page))


def check(path):
    """(numbers compared, what is wrong, the nearest that a decision came to an edge)."""
    mode, convention, inputs, golden = read(path)
    compared, wrong, nearest = 0, [], Fraction(1)
    for n in range(inputs["start"].shape[0]):
        row = Row(mode, convention, inputs, n)
        for name, exact in row.returned().items():
            value, radius = golden[name]
            compared += np.size(exact)
            if radius != 0 or not np.array_equal(value[n], np.asarray(exact, float)):
                wrong.append(f"{name}[{n}]: golden {value[n]}, exact {exact}")
        nearest = min(nearest, row.margin if row.margin is not None else nearest)
    return compared, wrong, nearest


def undefined_counts(program, capture):
    """The undefined numbers of each output in the report of a capture, by name."""
    done = subprocess.run([program, "check", "--json", "/dev/stdout", capture], check=False,
                          capture_output=True, text=True)
    counts = {}
    for name in OUTPUTS:
        text = f'"name": "{name}"'
        if text in done.stdout:
            part = done.stdout[done.stdout.index(text):]
            counts[name] = int(part[part.index('"undefined": ') + 13:].split(",")[0])
    return counts or f"no output in the report: {done.stdout[:500]} {done.stderr}"


def open_edges(program, folder):
    """What hangs on an edge must be open: one draft, an edge of acceptance and one of the token."""
    wrong = []
    line = "op=draft_acceptance mode=rejection B=2 S=1 Z=9 io=f32 pattern=N"
    subprocess.run([program, "generate", line, "-o", folder], check=True, stdout=subprocess.DEVNULL)
    [path] = folder.glob("*.h5")
    _, convention, inputs, _ = read(path)
    d = inputs["draft_tokens"][:, 0]
    p, q = inputs["target_probs"], inputs["draft_probs"]
    edge = np.float32(p[0, 0, d[0]] / q[0, 0, d[0]])
    r = np.maximum(p[1, 0] - q[1, 0], 0)
    first, second, *others = [x for x in range(9) if r[x] > 0]
    step = np.float32(r[first] / r.sum())

    def capture(token):
        """Both rows at their edges; row 1, which rejects its draft, returns this token."""
        made = folder / f"edges_{token}.h5"
        with h5py.File(path) as source, h5py.File(made, "w") as file:
            for name in ("schema", "op", "mode"):
                file.attrs[name] = source.attrs[name]
            source.copy("convention", file)
            source.copy("inputs", file)
            for name in ("uniforms", "recover_uniforms"):
                del file[f"inputs/{name}"].attrs["sha256"]
            file["inputs/uniforms"][0, 0] = edge
            file["inputs/recover_uniforms"][1] = step
            for name, golden in source["golden"].items():
                file[f"outputs/{name}"] = golden[()].astype(np.int64)
            file["outputs/tokens"][1, 0] = token
            file["outputs/next_anchor"][1] = token
        return made

    # Row 0 hangs on its draft; of row 1 the token is open: both of row 0 and the one of row 1.
    open_numbers = dict(accepted=1, committed=1, target_len=1, draft_len=0, next_anchor=2, keep=1,
                        tokens=3)
    # A token that no rounding chooses is no open number: row 1 is wrong.
    settled = open_numbers | dict(next_anchor=1, tokens=2)
    for token, expected in ((first, open_numbers), (second, open_numbers), (others[0], settled)):
        found = undefined_counts(program, capture(token))
        if found != expected:
            wrong.append(f"open numbers with token {token}: expected {expected}, actual {found}")
    return wrong


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    for old in folder.glob("**/*.h5"):
        old.unlink()
    lines = subprocess.run([program, "list", "draft_acceptance"], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    passed, failed, compared, nearest = 0, 0, 0, Fraction(1)
    for line in lines:
        if "mode=rejection" in line and "Z=151936" in line:
            continue
        subprocess.run([program, "generate", line, "-o", folder], check=True,
                       stdout=subprocess.DEVNULL)
    for path in sorted(folder.glob("*.h5")):
        count, wrong, near = check(path)
        compared += count
        nearest = min(nearest, near)
        passed += not wrong
        failed += bool(wrong)
        for text in wrong[:3]:
            print(f"{path.name}: {text}")
    edges = folder / "edges"
    edges.mkdir(parents=True, exist_ok=True)
    wrong = open_edges(program, edges)
    for text in wrong:
        print(f"edges: {text}")
    print(f"{passed} cases passed, {failed} failed, {compared} numbers compared; the nearest decision "
          f"is {float(nearest / U):.0f} u from its edge")
    return 0 if passed >= LEAST_CASES and not failed and not wrong and nearest > 400 * U else 1


if __name__ == "__main__":
    sys.exit(main())
