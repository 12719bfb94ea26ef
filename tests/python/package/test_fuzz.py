# SPDX-License-Identifier: Apache-2.0
"""Whatever Python passes, the answer is a report or one exception of a kind that says what was wrong.
That the interpreter lives is what the test shows by ending; a failing example is printed by
hypothesis, and derandomize makes every run the same."""

import copy
import json
from pathlib import Path

import ml_dtypes
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import goldenrule

REFUSALS = (ValueError, TypeError, MemoryError, OSError, OverflowError)
NAMES = sorted({tensor["name"] for op in goldenrule.schema()["operations"]
                for tensor in op["tensors"]})
CONVENTIONS = {row["name"]: row.get("values") for row in goldenrule.schema()["conventions"]}
CASES = [goldenrule.fixture(line) for line in (
    "op=gdn mode=decode B=3 H=1 HV=2 K=4 V=3 slots=padded",
    "op=kda mode=prefill lens=3,0,2 H=1 HV=1 K=3 V=2 io=f32 checkpoints=after every=2",
    "op=gdn mode=mtp B=2 T=2 H=1 HV=1 K=2 V=3 slots=scatter")]
PROFILE = dict(deadline=None, derandomize=True, database=None,
               suppress_health_check=list(HealthCheck))

texts = some.one_of(some.text(max_size=8), some.sampled_from(["o", "\x00", "\x1b[2J", "a\nb", "é"]))
numbers = some.one_of(some.floats(), some.integers(), some.sampled_from([1 << 63, -1 << 63, 10 ** 400]))
dtypes = some.sampled_from(["f4", ">f4", "f8", "f2", "i4", "i8", "u2", "u1", "c8", "O", "S3", "M8[s]",
                            ml_dtypes.bfloat16, bool])
types = some.sampled_from(["f4", ">f4", "f8", "f2", "i4", "i8", "u2", "c8", ml_dtypes.bfloat16])
shapes = some.lists(some.sampled_from([0, 1, 2, 3, 4]), max_size=5).map(tuple)


@some.composite
def arrays(draw):
    array = np.zeros(draw(shapes), draw(dtypes))
    if array.dtype.kind in "fiu" and draw(some.booleans()):
        array = np.asarray(array + np.array(draw(some.sampled_from([-1, 1, 2, 100]))).astype(array.dtype))
    change = draw(some.sampled_from(["none", "reverse", "transpose", "broadcast", "read-only"]))
    if change == "reverse":
        array = array[..., ::-1] if array.ndim else array
    elif change == "transpose":
        array = array.T
    elif change == "broadcast":
        array = np.broadcast_to(array, (2, *array.shape))
    elif change == "read-only":
        array.flags.writeable = False
    return array


anything = some.one_of(some.none(), texts, numbers, arrays(), some.lists(numbers, max_size=3),
                       some.dictionaries(texts, numbers, max_size=2), some.binary(max_size=4))
conventions = some.dictionaries(
    some.one_of(some.sampled_from(sorted(CONVENTIONS)), texts),
    some.one_of(some.sampled_from([v for values in CONVENTIONS.values() for v in values or ()]),
                numbers, anything), max_size=3)


@some.composite
def calls(draw):
    """A right call in which a few things are replaced."""
    call = draw(some.sampled_from(CASES)).call()
    outputs = {name: e.golden.astype("f4") for name, e in call.expected().outputs.items()}
    asked = dict(op=call.op, mode=call.mode, convention=call.convention, inputs=call.inputs,
                 outputs=outputs, explain=False)
    for _ in range(draw(some.integers(1, 3))):
        group = draw(some.sampled_from(["inputs", "outputs", "convention", "option", "other"]))
        if group in ("inputs", "outputs"):
            name = draw(some.one_of(some.sampled_from(sorted(asked[group]) or NAMES),
                                    some.sampled_from(NAMES), texts))
            value = draw(anything)
            present = asked[group].get(name)
            if isinstance(present, np.ndarray) and draw(some.booleans()):
                value = present.astype(draw(types)) if draw(some.booleans()) else present[:1]
            asked[group] = {**asked[group], name: value}
        elif group == "convention":
            asked[group] = {**asked[group], **draw(conventions)}
        elif group == "option":
            option = draw(some.sampled_from(["contract", "only", "precision", "terms", "bf16",
                                             "source", "case", "name", "explain_seconds", "blind"]))
            asked[option] = draw(anything)
        else:
            asked[draw(some.sampled_from(["op", "mode", "inputs", "outputs"]))] = draw(anything)
            return asked
    return asked


@settings(max_examples=80, **PROFILE)
@given(calls())
def test_a_call_is_judged_or_refused(asked):
    try:
        with np.errstate(all="ignore"):
            report = goldenrule.judge(**asked)
    except REFUSALS as refusal:
        assert str(refusal)
    else:
        assert report.verdict in str(report) and isinstance(report.to_json(), str)


@settings(max_examples=100, **PROFILE)
@given(some.one_of(texts, some.lists(some.sampled_from(
    "op=gdn op=kda mode=decode mode=mtp mode=prefill B=2 B={1,2} T=2 lens=3,1 H=1 HV=1 HV=2 K=2 V=3 "
    "K=-1 V=999999999999 pattern=E gate=none io=f32 { } seed=x P=1 slots=permuted".split()),
    max_size=10).map(" ".join)))
def test_a_case_line_is_a_case_or_refused(line):
    try:
        case = goldenrule.fixture(line)
        if case.golden_bytes < 1 << 16:
            case.call()
    except REFUSALS as refusal:
        assert str(refusal)


SET = Path(__file__).resolve().parent / "trace_set"
DEFINITION = json.loads(next((SET / "definitions" / "gdn").glob("*.json")).read_text())
ROW = json.loads(next((SET / "workloads" / "gdn").glob("*.jsonl")).read_text().splitlines()[0])
values = some.recursive(some.one_of(some.none(), some.booleans(), some.integers(-2, 5), some.floats(),
                                    some.sampled_from([10 ** 12, "random", "float32", "../x", ""]),
                                    texts),
                        lambda inner: some.one_of(some.lists(inner, max_size=2),
                                                  some.dictionaries(texts, inner, max_size=2)),
                        max_leaves=3)


@some.composite
def damaged(draw, tree):
    """A JSON tree with one or two of its values replaced, left out or added."""
    tree = copy.deepcopy(tree)
    for _ in range(draw(some.integers(1, 2))):
        node = tree
        while isinstance(node, dict) and node:
            key = draw(some.sampled_from(sorted(node)))
            if not isinstance(node[key], dict) or draw(some.integers(0, 3)) == 0:
                break
            node = node[key]
        change = draw(some.sampled_from(["replace", "drop", "add"]))
        if not isinstance(node, dict) or not node:
            continue
        if change == "drop":
            del node[key]
        else:
            node[key if change == "replace" else draw(texts)] = draw(values)
    return tree


@settings(max_examples=100, **PROFILE)
@given(some.one_of(some.just(DEFINITION), damaged(DEFINITION)), damaged(ROW))
def test_a_workload_is_read_or_refused(definition, row):
    try:
        for workload in goldenrule.trace.read(definition, [row], root=SET):
            repr(workload), workload.call()
    except REFUSALS as refusal:
        assert str(refusal)
