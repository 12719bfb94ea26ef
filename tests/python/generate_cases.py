# SPDX-License-Identifier: Apache-2.0
"""Generates the fixtures that test_golden.py recomputes: smoke, and a selection of boundary.

    generate_cases.py GOLDENRULE DIR

Python arithmetic is slow, so the selection is by cost: for each operation and mode, the cases
below a limit of work are put in the order of the suite and every n-th is taken, so that all its
sections (extents, slots, types, gates, norms) are met. It depends on nothing but the suite.
"""

import shutil
import subprocess
import sys
from pathlib import Path

EACH = 8  # cases for each operation and mode
MOST_WORK = 70_000  # state elements visited, tokens * HV * K * V


# Prefill on a pool, with states on the way.
PREFILL_STATES = [
    "op=gdn mode=prefill lens=17,0,9,1,20 H=1 HV=2 K=8 V=6 gate=log slots=padded checkpoints=listed",
    "op=kda mode=prefill lens=17,0,9,1,20 H=1 HV=1 K=8 V=6 gate=bounded state_layout=kv "
    "slots=separate_padded checkpoints=before every=4",
    "op=gdn mode=prefill lens=17,5,9 H=2 HV=2 K=8 V=6 state=bf16 pad_slot=0 slots=padded "
    "checkpoints=continued every=6",
    "op=kda mode=prefill lens=17,5,9 H=1 HV=1 K=8 V=6 checkpoints=after every=5",
]

# Rows that are new, on slots that are not empty.
NEW_ROWS = [
    "op=gdn mode=prefill lens=17,0,9,1,20 H=1 HV=2 K=8 V=6 gate=log slots=padded fresh=mixed",
    "op=kda mode=prefill lens=9,12 H=1 HV=1 K=8 V=6 gate=bounded h0=1 fresh=mixed state_layout=kv",
    "op=gdn mode=decode B=5 H=1 HV=2 K=8 V=6 slots=separate fresh=mixed",
]

# Drafts: rows of unequal length, trees, second slots, and rings of pending tokens.
DRAFTS = [
    "op=gdn mode=mtp lens=3,0,1,6 H=1 HV=2 K=8 V=6 slots=padded accepted=mixed",
    "op=kda mode=mtp B=4 T=6 H=1 HV=2 K=8 V=6 slots=padded tree=mixed gate=bounded",
    "op=gdn mode=mtp lens=5,0,7 H=2 HV=2 K=8 V=6 tree=mixed accepted=mixed track=mixed gate=log",
    "op=gdn mode=mtp lens=4,0,3,2 H=1 HV=2 K=8 V=6 slots=padded ring=io window=9",
    "op=kda mode=mtp B=4 T=3 H=2 HV=4 K=8 V=6 slots=separate ring=f32 window=7 gate=bounded "
    "head_map=tiled state_layout=kv",
    "op=gdn mode=mtp B=3 T=4 H=1 HV=2 K=8 V=6 ring=io gate=linear",
]


def keys_of(line):
    return dict(field.split("=") for field in line.split())


def tokens_of(keys):
    if "lens" not in keys:
        return int(keys["B"]) * int(keys.get("T", 1))
    runs = (run.split("x") for run in keys["lens"].split(","))
    return sum(int(run[0]) * (int(run[1]) if len(run) == 2 else 1) for run in runs)


def work_of(keys):
    return tokens_of(keys) * int(keys["HV"]) * int(keys["K"]) * int(keys["V"])


def select(lines):
    chosen = []
    for op in ("gdn", "kda"):
        for mode in ("decode", "mtp", "prefill"):
            cheap = [line for line in lines
                     if (keys := keys_of(line))["op"] == op and keys["mode"] == mode
                     and 0 < work_of(keys) <= MOST_WORK]
            if len(cheap) < EACH:
                raise SystemExit(f"only {len(cheap)} cheap cases for {op} {mode}")
            chosen += [cheap[i * len(cheap) // EACH] for i in range(EACH)]
    return chosen


def main():
    program, folder = sys.argv[1:]
    shutil.rmtree(folder, ignore_errors=True)  # another version's files must not be judged

    def run(*arguments):
        return subprocess.run([program, *arguments], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
    lines = select(run("list", "boundary").splitlines()) + PREFILL_STATES + NEW_ROWS + DRAFTS
    for line in lines:
        run("generate", line, "-o", folder)
    run("generate", "smoke", "-o", folder)
    print("\n".join(lines))
    print(f"{len(list(Path(folder).glob('*.h5')))} fixtures")


if __name__ == "__main__":
    main()
