# SPDX-License-Identifier: Apache-2.0
"""The operators on every machine that is to be had (machines.py), judged by goldenrule: over boundary
shapes, and in the ways in which an engine calls them. What is said of graphs and streams holds of a
device; elsewhere the same test calls the same kernels again on changed contents."""

import subprocess
import sys
from pathlib import Path

import operators
import pytest

import goldenrule

LINES = [
    "op=gdn mode=decode B=4 H=2 HV=4 K=128 V=128 slots=permuted",
    "op=kda mode=decode B=4 H=2 HV=2 K=128 V=128 slots=permuted",
    "op=gdn mode=mtp B=3 T=4 H=2 HV=4 K=128 V=128",
    "op=gdn mode=prefill lens=100,70,1 H=1 HV=2 K=128 V=128 h0=1",
    "op=kda mode=prefill lens=100,70,1 H=1 HV=2 K=128 V=128 h0=1",
]

CASES = [
    "op=gdn mode=decode B=3 H=2 HV=4 K=128 V=20 slots=padded",
    "op=kda mode=decode B=2 H=1 HV=2 K=37 V=24 state_layout=kv gate=bounded state=bf16",
    "op=gdn mode=decode B=2 H=2 HV=4 K=32 V=16 gate=none beta=direct head_map=tiled scale=0.5 io=f16",
    "op=gdn mode=mtp B=2 T=3 H=1 HV=2 K=64 V=32 slots=scatter",
    "op=kda mode=mtp B=2 T=2 H=1 HV=1 K=64 V=16 slots=permuted qk_l2norm=max_norm_eps",
    "op=gdn mode=mtp B=4 T=4 H=1 HV=2 K=128 V=64 slots=padded ring=io",
    "op=kda mode=mtp B=4 T=2 H=1 HV=2 K=64 V=16 slots=permuted ring=f32 io=f32 index=i32 state_layout=kv",
    "op=gdn mode=mtp lens=3,0,1,8 H=1 HV=2 K=128 V=64 slots=padded accepted=mixed",
    "op=kda mode=mtp lens=3,0,1,8 H=1 HV=2 K=64 V=16 slots=scatter_padded index=i32",
    "op=gdn mode=mtp lens=2,0,5 H=1 HV=2 K=64 V=32 slots=padded ring=io window=9",
    "op=kda mode=mtp B=3 T=7 H=1 HV=2 K=64 V=32 slots=permuted tree=mixed kept=buffer track=mixed",
    "op=gdn mode=mtp lens=4,0,7 H=1 HV=2 K=64 V=16 slots=separate tree=mixed kept=buffer_bf16",
    "op=gdn mode=decode B=4 H=1 HV=2 K=64 V=32 slots=padded track=mixed",
    "op=gdn mode=prefill lens=70,0,3 H=1 HV=2 K=64 V=32 gate=log",
    "op=kda mode=prefill lens=20,9 H=1 HV=2 K=32 V=16 h0=1 checkpoints=after every=8",
]


@pytest.mark.parametrize("line", CASES)
def test_a_case_is_right(machine, line):
    case = goldenrule.fixture(line)
    outputs = operators.run(machine.ops, case.call(), machine.tensors(case))
    machine.wait()
    report = case.judge(outputs, explain=False)
    assert report.passed, str(report)


def rounded(case, names):
    """The exact outputs in the types in which the call stores them."""
    inputs, exact = case.inputs, case.expected().outputs
    states = inputs["initial_state"].dtype if "initial_state" in inputs else "f4"
    return {name: exact[name].golden.astype(inputs["v"].dtype if name == "o" else states)
            for name in names}


@pytest.mark.parametrize("what", ["decode", "mtp", "commit", "prefill"])
def test_boundary_shapes_are_right(machine, what):
    commit = what == "commit"
    passed, others = 0, []
    for case in goldenrule.suite("boundary", mode="mtp" if commit else what, max_bytes=machine.largest):
        call = case.call()
        if not operators.taken(call) or commit and call.convention.get("disable_state_update"):
            continue
        call.outputs = operators.run(machine.ops, call, machine.tensors(case), commit=commit)
        machine.wait()
        asked = dict(explain=False, only="final_state" if commit else ())
        report = call.judge(**asked)
        passed += report.passed
        # A call that says nothing of the exact outputs either says nothing of a kernel.
        if not report.passed and report.verdict != case.judge(rounded(case, call.outputs), **asked).verdict:
            others.append(f"{case}\n{report}")
    assert passed and not others, "\n".join(others)


@pytest.mark.parametrize("line", LINES)
def test_a_replay_computes_what_its_tensors_hold_then(machine, line):
    """Slots, tokens, gates and states change between the replays, and nothing on the host does."""
    case = goldenrule.fixture(line)
    tensors = machine.tensors(case)
    operators.run(machine.ops, case.call(), {name: machine.copy(x) for name, x in tensors.items()})
    machine.wait()
    replay = machine.captured(lambda: operators.run(machine.ops, case.call(), tensors))
    for seed in (11, 12):
        other = goldenrule.fixture(f"{line} seed={seed}")
        for name, x in machine.tensors(other).items():
            machine.fill(tensors[name], x)
        outputs = replay()
        machine.wait()
        report = other.judge({name: machine.copy(x) for name, x in outputs.items()}, explain=False)
        assert report.passed, str(report)


def test_the_first_call_of_a_process_may_lie_in_a_capture(machine, request):
    script = Path(__file__).with_name("first_call.py")
    name = request.node.callspec.params["machine"]
    ran = subprocess.run([sys.executable, "-B", script, name, LINES[0]], capture_output=True, text=True,
                         timeout=300)
    assert ran.stdout.split() == ["WITHIN_BUDGET"], ran.stdout + ran.stderr


def test_a_call_lies_on_the_current_stream(machine):
    """Its inputs are written on that stream, late: a call on another one reads what was there before."""
    case = goldenrule.fixture(LINES[0])
    tensors = machine.tensors(case)
    late = machine.tensors(goldenrule.fixture(f"{LINES[0]} seed=2"))
    machine.wait()
    with machine.busy_stream():
        for name, x in tensors.items():
            machine.fill(late[name], x)
        outputs = operators.run(machine.ops, case.call(), late)
    machine.wait()
    report = case.judge(outputs, explain=False)
    assert report.passed, str(report)
