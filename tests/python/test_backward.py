#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Are the golden values of backward fixtures right? The forward rule with a complex step.

    test_backward.py GOLDENRULE DIR [--random N] [--seed S]

Generates LINES (or N random lines) into DIR, twice: in the arithmetic that the program chooses, and
in doubles. Elements of every gradient are compared with exact_gradients.py: all of a tensor below
40, else 12 drawn and printed. Demanded of each, x exact, y golden, r the radius of the file:

    |y - x| <= r,   and but for doubles   |y - x| <= 1e-14 max |y| + 2^-1074.

A sequence without tokens must hand dfinal_state on bit for bit, and beta = 0 must give dv = dk = 0
and some dbeta. The comparison itself is tested: it must refuse a golden value that is off by 1e-12,
and a loss without one of its terms. Exit code 0: at least 40 lines passed, all conventions among
them, none failed.
"""

import argparse
import hashlib
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
from mpmath import mpf, nstr

from exact_gradients import Call

LEAST_LINES = 40
WHOLE = 40  # tensors of fewer elements are compared completely
DRAWN = 12  # elements of the others
CONVENTIONS = dict(
    gate=("softplus", "bounded", "log", "log2", "linear", "none"),
    beta=("sigmoid", "sigmoid2", "direct"),
    qk_l2norm=("rsqrt_sum_eps", "none", "max_norm_eps", "norm_plus_eps"),
    state_layout=("vk", "kv"), head_map=("grouped", "tiled"), gate_head=("v", "qk"))
BRANCHES = [(what, taken) for what in ("norm above eps", "softplus beyond its threshold")
            for taken in (False, True)]
LINES = """
gdn lens=7,0,1,4 H=1 HV=2 K=4 V=3 h0=1 dstate=1 io=f32
kda lens=7,0,1,4 H=1 HV=2 K=4 V=3 h0=1 dstate=1 io=f32
gdn lens=12 H=1 HV=3 K=6 V=5 io=f16 beta=sigmoid2 gate_head=qk dstate=1 h0=1 pattern=E
kda lens=12 H=1 HV=3 K=6 V=5 beta=sigmoid2 gate_head=qk h0=1 pattern=E
gdn lens=6,5 H=2 HV=4 K=4 V=2 head_map=tiled gate_head=qk h0=1 dstate=1 state_layout=kv
kda lens=6,5 H=2 HV=4 K=4 V=2 head_map=tiled gate_head=qk h0=1 dstate=1 state_layout=kv
kda lens=5,3 H=2 HV=6 K=3 V=3 head_map=tiled io=f16 gate=bounded gate_head=qk dstate=1
gdn lens=5,3 H=2 HV=6 K=3 V=3 gate=bounded gate_head=qk lower_bound=-2 h0=1 io=f32
gdn lens=9 H=1 HV=2 K=5 V=4 gate=log beta=direct qk_l2norm=none h0=1 dstate=1 io=f32 grad=channel
kda lens=9 H=1 HV=2 K=5 V=4 gate=log beta=direct qk_l2norm=none h0=1 dstate=1 grad=channel
gdn lens=8,1 H=1 HV=1 K=6 V=3 gate=log2 qk_l2norm=max_norm_eps l2_eps=0.9 dstate=1 grad=ones
kda lens=8,1 H=1 HV=1 K=6 V=3 gate=log2 qk_l2norm=max_norm_eps l2_eps=1.001 dstate=1 pattern=production
gdn lens=10 H=1 HV=2 K=4 V=4 gate=linear qk_l2norm=norm_plus_eps grad=last scale=1 h0=1 dstate=1
kda lens=10 H=1 HV=2 K=4 V=4 gate=linear qk_l2norm=norm_plus_eps grad=last scale=-0.5 dstate=1
gdn lens=10 H=1 HV=2 K=4 V=4 gate=none qk_l2norm=rsqrt_sum_eps grad=early h0=1
kda lens=10 H=1 HV=2 K=4 V=4 gate=none beta=direct grad=early dstate=1 io=f16
gdn lens=8,3 H=1 HV=2 K=4 V=3 gate=linear pattern=Derase h0=1 dstate=1
kda lens=8,3 H=1 HV=2 K=4 V=3 gate=linear pattern=Derase h0=1 dstate=1
gdn lens=8,3 H=1 HV=2 K=4 V=3 gate=log pattern=Derase h0=1 dstate=1 io=f32
kda lens=8,3 H=1 HV=2 K=4 V=3 gate=log pattern=Derase h0=1 dstate=1 beta=sigmoid2
kda lens=8,3 H=1 HV=2 K=4 V=3 pattern=Derase h0=1 dstate=1
gdn lens=8,0 H=1 HV=2 K=4 V=3 beta=direct pattern=C000 h0=1 dstate=1 gate=log io=f32
kda lens=8,0 H=1 HV=2 K=4 V=3 beta=direct pattern=C000 h0=1 dstate=1 state_layout=kv
kda lens=8,0 H=1 HV=2 K=4 V=3 pattern=C000 h0=1
gdn lens=9 H=1 HV=2 K=4 V=3 pattern=J20p h0=1 dstate=1 io=f32
kda lens=9 H=1 HV=2 K=4 V=3 pattern=J20p h0=1 dstate=1 softplus_beta=0.25 softplus_threshold=6
gdn lens=9 H=1 HV=2 K=4 V=3 pattern=J20m h0=1 dstate=1 io=f32
kda lens=9 H=1 HV=2 K=4 V=3 pattern=J20m h0=1 dstate=1 gate=bounded io=f32
gdn lens=9 H=1 HV=2 K=4 V=3 pattern=J100 gate=bounded h0=1 dstate=1 io=f32
kda lens=9 H=1 HV=2 K=4 V=3 pattern=J100 h0=1 io=f32
gdn lens=7,2 H=1 HV=2 K=4 V=3 softplus_beta=2 softplus_threshold=0.5 pattern=Dprod h0=1 dstate=1
kda lens=7,2 H=1 HV=2 K=4 V=3 softplus_beta=0.5 softplus_threshold=0.2 pattern=Dprod h0=1 dstate=1
gdn lens=6 H=2 HV=2 K=5 V=3 pattern=I io=f32 dstate=1
kda lens=6 H=2 HV=2 K=5 V=3 pattern=I qk_l2norm=norm_plus_eps l2_eps=0.001 h0=1 dstate=1
gdn lens=6 H=1 HV=2 K=5 V=3 pattern=I qk_l2norm=max_norm_eps l2_eps=0.001 h0=1 dstate=1 io=f32
kda lens=6 H=1 HV=2 K=5 V=3 pattern=I l2_eps=1e-12 h0=1 dstate=1 io=f16
gdn lens=1,0,11 H=1 HV=2 K=6 V=3 pattern=production h0=1 dstate=1 state_layout=kv
kda lens=0,11,1 H=1 HV=2 K=6 V=3 pattern=production dstate=1 grad=last
gdn lens=12 H=1 HV=2 K=6 V=2 pattern=G qk_l2norm=none beta=sigmoid2 h0=1 dstate=1
kda lens=12 H=1 HV=2 K=6 V=2 pattern=B999 beta=sigmoid2 h0=1 dstate=1
gdn lens=0,0 H=1 HV=2 K=3 V=2 h0=1 dstate=1
kda lens=5,0 H=1 HV=1 K=1 V=1 h0=1 dstate=1
gdn lens=1 H=3 HV=3 K=1 V=5 head_map=tiled io=f32 dstate=1 state=bf16 h0=1
kda lens=11 H=1 HV=2 K=6 V=5 gate=log pattern=Dmixed h0=1 dstate=1 grad=ones
gdn lens=12 H=1 HV=2 K=4 V=3 pattern=Dprod h0=1 dstate=1 qk_l2norm=norm_plus_eps
kda lens=12 H=1 HV=2 K=4 V=3 pattern=Dprod gate=log2 h0=1 dstate=1
gdn lens=9 H=1 HV=2 K=4 V=3 gate=log pattern=Dgrow h0=1 dstate=1
kda lens=10 H=1 HV=2 K=4 V=3 pattern=L h0=1 dstate=1 grad=channel
kda lens=4 H=1 HV=1 K=64 V=2 gate=linear beta=direct qk_l2norm=none scale=1 pattern=K dstate=1
""".split("\n")[1:-1]


def whole_line(line):
    op, rest = line.split(" ", 1)
    return f"op={op}_backward mode=prefill {rest}"


def random_lines(count, seed):
    """Small cases over every key; some combinations do not exist."""
    rng, lines = Random(seed), []
    patterns = ("A A E production J20p J20m J100 Derase C000 C100 I Dslow Dbound Dmixed Dprod Dzero "
                "Dgrow Dinside G L H F B95 B16").split()
    for n in range(count):
        H = rng.randint(1, 2)
        lens = [rng.choice((0, 1, 2, 3, 5)) for _ in range(rng.randint(1, 3))] + [rng.randint(1, 5)]
        keys = dict(lens=",".join(map(str, lens)), H=H, HV=H * rng.randint(1, 3),
                    K=rng.randint(1, 6), V=rng.randint(1, 5), h0=rng.randint(0, 1),
                    dstate=rng.randint(0, 1), io=rng.choice(("bf16", "f16", "f32")), seed=n,
                    grad=rng.choice(("normal", "last", "early", "channel", "ones")),
                    pattern=rng.choice(patterns))
        keys.update({name: rng.choice(values) for name, values in CONVENTIONS.items()})
        if keys["gate"] == "softplus":
            keys.update(softplus_beta=rng.choice((0.5, 1, 3)), softplus_threshold=rng.choice((0.2, 20)))
        keys.update(rng.choice(({}, dict(scale=rng.choice((1, -2.5, 0.01))))))
        keys.update(rng.choice(({}, dict(l2_eps=rng.choice((1e-12, 1e-3, 0.7))))))
        op = rng.choice(("gdn", "kda"))
        lines.append(f"{op} " + " ".join(f"{name}={value}" for name, value in keys.items()))
    return lines


def generate(program, line, folder, *options):
    """The one file of a line, or None with the program's complaint."""
    for old in folder.glob("*.h5"):
        old.unlink()
    done = subprocess.run([program, "generate", whole_line(line), "-o", folder, *options],
                          check=False, capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.strip()
    [path] = folder.glob("*.h5")
    return path, ""


def chosen(name, shape, case, seed):
    """Indices to compare: each hangs on seed, case line, tensor and a counter alone."""
    places = list(np.ndindex(shape))
    if len(places) < WHOLE:
        return places

    def rank(n):
        return hashlib.sha256(f"{seed} {case} {name} {n}".encode()).digest()

    return [places[n] for n in sorted(sorted(range(len(places)), key=rank)[:DRAWN])]


def derivatives(call, seed, names=None):
    """{(gradient, index): exact value} of the elements to compare."""
    return {(name, index): call.derivative(name[1:], index)
            for name in names or call.golden
            for index in chosen(name, call.golden[name][0].shape, call.case, seed)}


def compare(golden, exact, figures, doubles=False):
    """What is wrong. Figures: the worst errors, in radii and in the largest of the tensor."""
    wrong = []
    for (name, index), x in exact.items():
        values, radius = golden[name]
        largest = mpf(float(np.abs(values).max()))
        error = abs(mpf(float(values[index])) - x)
        if radius:
            figures["radii"] = max(figures["radii"], float(error / mpf(radius)))
        if largest:
            figures["of the largest"] = max(figures["of the largest"], float(error / largest))
        tight = doubles or error <= mpf(1e-14) * largest + mpf(2) ** -1074
        if not (error <= mpf(radius) and tight):
            wrong.append(f"{name}{list(index)}: {float(values[index])!r}, exact {nstr(x, 20)}, "
                         f"radius {radius:.3g}")
    return wrong


def edges(call, found):
    """What must hold exactly: which gradients there are, sequences without tokens, and beta = 0."""
    wrong = []
    if set(call.golden) != {"d" + name for name in call.inputs if name not in ("do", "dfinal_state")}:
        wrong.append(f"gradients are {', '.join(call.golden)}")
    golden = {name: values for name, (values, _) in call.golden.items()}
    handed = call.inputs.get("dfinal_state")
    for n, (begin, end) in enumerate(zip(call.bounds, call.bounds[1:])):
        if begin == end:
            expected = 0 * golden["dinitial_state"][n] if handed is None else handed[n].astype(float)
            found["T = 0"] += handed is not None
            if golden["dinitial_state"][n].tobytes() != expected.tobytes():
                wrong.append(f"dinitial_state[{n}] of no tokens is not dfinal_state")
    if "beta" in call.inputs and call.inputs["beta"].size and not call.inputs["beta"].any():
        found["beta = 0"] += 1
        if golden["dv"].any() or golden["dk"].any() or not golden["dbeta"].any():
            wrong.append("beta = 0: dv, dk or dbeta")
    if call.convention["gate"] == "linear":
        found["alpha = 0"] += any(a == 0 for a in call.inputs["g"].flat)
    found.update(call.branches)
    return wrong


def self_test(program, folder, seed):
    """Mistakes that the comparison must see: a message for each that it does not."""
    wrong, figures = [], Counter()
    line = "kda lens=4,3 H=1 HV=2 K=3 V=2 h0=1 dstate=1 io=f32"
    path, complaint = generate(program, line, folder)
    if path is None:
        return [complaint]
    call = Call(path)
    exact = derivatives(call, seed)
    if compare(call.golden, exact, figures):
        wrong.append("a right file fails")
    for name, (values, radius) in call.golden.items():
        largest = max((index for n, index in exact if n == name), key=lambda i: abs(values[i]))
        changed = values.copy()
        changed[largest] *= 1 + 1e-12
        if not compare({**call.golden, name: (changed, radius)}, exact, Counter()):
            wrong.append(f"{name} off by 1e-12 passes")
        if not compare({**call.golden, name: (changed, 1.0)}, exact, Counter()):
            wrong.append(f"{name} off by 1e-12 passes within a large radius")
    for name, place in (("dfinal_state", np.s_[1]), ("do", np.s_[3]), ("dfinal_state", np.s_[:, 1])):
        call = Call(path)
        call.inputs[name][place] = mpf(0)
        if not compare(call.golden, derivatives(call, seed, ["dk", "dinitial_state"]), Counter()):
            wrong.append(f"a loss without {name}[{place}] passes")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--random", type=int, default=0, help="this many random lines instead")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    seed, folders = arguments.seed, [arguments.folder / name for name in ("chosen", "doubles")]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    lines = random_lines(arguments.random, seed) if arguments.random else LINES
    wrong = [f"self-test: {text}" for text in self_test(arguments.program, folders[0], seed)]
    passed, refused, compared, found = 0, [], 0, Counter()
    worst, worst_doubles = Counter(), Counter()
    for line in lines:
        path, complaint = generate(arguments.program, line, folders[0])
        doubles, _ = generate(arguments.program, line, folders[1], "--precision", "double")
        if path is None or doubles is None:
            refused.append(f"{line}: {complaint}")
            continue
        call = Call(path)
        exact = derivatives(call, seed)
        compared += len(exact)
        found.update((name, call.convention[name], call.per_channel) for name in CONVENTIONS)
        figures = Counter()
        bad = compare(call.golden, exact, figures) + edges(call, found)
        worst |= figures
        bad += ["doubles: " + text
                for text in compare(Call(doubles).golden, exact, worst_doubles, doubles=True)]
        passed += not bad
        drawn = {name: [int(np.ravel_multi_index(i, values.shape)) for n, i in exact if n == name]
                 for name, (values, _) in call.golden.items() if values.size >= WHOLE}
        print(f"{line}: {len(exact)}, worst {figures['radii']:.3f} radii; drawn", *(
            f"{name} {','.join(map(str, places))}" for name, places in drawn.items()))
        wrong += [f"{line}: {text}" for text in bad[:5]]
    if not arguments.random:
        wrong += [f"refused: {text}" for text in refused]
        wrong += [f"no line has {name}={value}, {'kda' if kda else 'gdn'}" for name in CONVENTIONS
                  for value in CONVENTIONS[name] for kda in (False, True)
                  if not found[name, value, kda]]
        wrong += [f"no line has {name}" for name in
                  ("T = 0", "beta = 0", "alpha = 0", *BRANCHES) if not found[name]]
    for text in wrong[:30]:
        print("WRONG:", text)
    print(f"{passed} lines passed, {len(refused)} refused, {compared} derivatives, seed {seed}; worst: "
          + "; ".join(f"{how} " + ", ".join(f"{x:.3g} {unit}" for unit, x in figures.items())
                      for how, figures in (("chosen", worst), ("doubles", worst_doubles))))
    return 1 if wrong or passed < LEAST_LINES else 0


if __name__ == "__main__":
    sys.exit(main())
