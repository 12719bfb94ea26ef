# SPDX-License-Identifier: Apache-2.0
"""Whatever an operator is given, it runs or refuses: real kernels on the CPU, tensors of other shapes, types
and strides, the same one twice, indices of any value, options of any kind. That the interpreter lives is
what the test shows by ending."""

import machines
import numpy as np
import operators
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from test_fuzz import PROFILE, numbers, shapes, texts

import goldenrule

REFUSALS = (ValueError, TypeError, NotImplementedError)
CASES = [goldenrule.fixture(line) for line in (
    "op=gdn mode=decode B=3 H=2 HV=4 K=32 V=16 slots=permuted",
    "op=kda mode=mtp B=2 T=3 H=1 HV=2 K=16 V=8 slots=scatter",
    "op=gdn mode=prefill lens=7,0,3 H=1 HV=2 K=16 V=8 slots=permuted checkpoints=after every=2")]
FORMS = [lambda x: x[:1], lambda x: x[..., ::-1], np.asfortranarray, lambda x: x.reshape(-1),
         lambda x: np.broadcast_to(x[:1], x.shape), lambda x: np.concatenate([x, x])[::2],
         lambda x: x[..., :0]]
NUMBERS = ["scale", "l2_eps", "softplus_beta", "softplus_threshold", "lower_bound", "pad_slot"]
NAMES = ["gate", "beta", "qk_l2norm", "head_map", "gate_head", "state_layout", "disable_state_update"]
types = some.sampled_from(["f4", "f2", "f8", "i4", "i8", "u1"])


@some.composite
def calls(draw):
    """(call, its tensors), of which a few things are replaced."""
    case = draw(some.sampled_from(CASES))
    call, tensors = case.call(), case.inputs
    for _ in range(draw(some.integers(1, 3))):
        name = draw(some.sampled_from(sorted(tensors)))
        change = draw(some.sampled_from(["form", "type", "zeros", "another", "values", "number",
                                           "name"]))
        if change == "form":
            tensors[name] = draw(some.sampled_from(FORMS))(np.atleast_1d(tensors[name]))
        elif change == "type":
            tensors[name] = tensors[name].astype(draw(types))
        elif change == "zeros":
            tensors[name] = np.zeros(draw(shapes), draw(types))
        elif change == "another":
            tensors[name] = tensors[draw(some.sampled_from(sorted(tensors)))]
        elif change == "values" and tensors[name].dtype.kind == "i":
            value = draw(some.sampled_from([-1, 0, 1, 7, 1 << 20, 1 << 31, -1 << 40, 1 << 62]))
            tensors[name] = np.full_like(tensors[name], value, dtype="i8")
        elif change == "number":
            call.convention = {**call.convention, draw(some.sampled_from(NUMBERS)): draw(numbers)}
        else:
            value = draw(some.one_of(numbers, texts, some.none(), some.booleans()))
            call.convention = {**call.convention, draw(some.sampled_from(NUMBERS + NAMES)): value}
    return call, {name: operators.Array(x) for name, x in tensors.items()}


@pytest.fixture(scope="module")
def ops():
    try:
        return machines.Arrays().ops
    except machines.Absent as why:
        pytest.skip(str(why))


@settings(max_examples=80, **PROFILE)
@given(changed=calls())
def test_a_call_runs_or_is_refused(ops, changed):
    try:
        with np.errstate(all="ignore"):
            operators.run(ops, *changed)
    except REFUSALS as refusal:
        assert str(refusal)
