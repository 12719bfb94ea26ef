# SPDX-License-Identifier: Apache-2.0
"""The GPU library as Python calls it, without torch: the aggregate that is made of arrays and options, and
what is refused (GOLDENRULE_GPU_HOST_LIBRARY, tests/gpu_host). test_device.py judges what it computes."""

import os

import machines
import numpy as np
import operators
import pytest

import goldenrule
from goldenrule import _gpu

@pytest.fixture(scope="module")
def library():
    try:
        return machines.host_library()
    except machines.Absent as why:
        pytest.skip(str(why))


def arrays(call):
    return {name: operators.Array(x) for name, x in call.inputs.items()}


def test_strides_are_passed_as_they_are(library):
    line = "op=gdn mode=decode B=3 H=2 HV=4 K=32 V=16 slots=permuted"
    call, plain = goldenrule.fixture(line).call(), goldenrule.fixture(line).call()
    given = arrays(call)
    for name in ("q", "v", "b", "initial_state", "state_indices"):
        wide = np.zeros((2 * call.inputs[name].shape[0], *call.inputs[name].shape[1:]),
                        call.inputs[name].dtype)[::2]
        wide[:] = call.inputs[name]
        given[name] = operators.Array(wide)
    strided = operators.run(operators.OfArrays(library), call, given)
    dense = operators.run(operators.OfArrays(library), plain, arrays(plain))
    for name in ("o", "final_state"):
        assert np.array_equal(strided[name].array, dense[name].array)


def changed(name, change):
    def call(given, options):
        given[name] = operators.Array(change(given[name].array))
    return call


def option(name, value):
    def call(given, options):
        options[name] = value
    return call


BAD = {
    "shape": (changed("q", lambda x: x[:2]), ValueError, "q: expected the shape [3, 1, 2, 32], actual"),
    "axes": (changed("k", lambda x: x[0]), ValueError, "k: expected the axes B,T,H,K"),
    "pool": (changed("state", lambda x: x[:, :2]), ValueError, "state: expected the shape"),
    "type": (changed("v", lambda x: x.astype("f8")), TypeError, "v: expected one of float32"),
    "index type": (changed("state_indices", lambda x: x.astype("f4")), NotImplementedError,
                   "state_indices.dtype: expected i32 or i64, actual f32"),
    "broadcast": (changed("q", lambda x: np.broadcast_to(x[:1], x.shape)), ValueError,
                  "q.stride[0]: expected 1 or more for 3 elements"),
    "reversed": (changed("q", lambda x: x[..., ::-1]), ValueError, "q: expected a last axis of stride 1"),
    "transposed": (changed("state", lambda x: np.asfortranarray(x)), ValueError, "state: expected a last"),
    "shared": (lambda given, options: given.update(o=given["v"]), ValueError, "memory that nothing else"),
    "name": (option("gate_kind", "sofplus"), ValueError, "gate_kind: expected one of softplus, bounded"),
    "eps": (option("l2_eps", -1.0), ValueError, "l2_eps: expected"),
    "number": (option("pad_slot", 0.5), ValueError, "pad_slot: expected a number of type i64, actual 0.5"),
    "range": (option("pad_slot", 1 << 70), ValueError, "pad_slot: expected a number of type i64"),
    "infinite": (option("scale", 10**400), ValueError, "scale: expected a number of type f64"),
    "missing": (lambda given, options: given.update(A_log=None), ValueError, "A_log"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_refused_is_one_line(library, what):
    change, kind, text = BAD[what]
    call = goldenrule.fixture("op=gdn mode=decode B=3 H=2 HV=4 K=32 V=16 slots=permuted").call()
    _, positional, options = operators.arguments(call, arrays(call))
    given = dict(zip(("q", "k", "v", "gate", "beta", "state"), positional))
    given["o"] = given["v"].new_zeros(given["v"].shape)
    given |= {name: options.pop(name) for name in ("A_log", "dt_bias", "state_indices")}
    o = given["o"].array
    change(given, options)
    with pytest.raises(kind) as caught:
        library.mtp(**given, **options)
    assert text in str(caught.value) and "\n" not in str(caught.value)
    assert not o.any()


WRONG = {
    "name": ((), dict(qq=1), "decode: got an unexpected keyword argument 'qq'"),
    "many": ([None] * 8, {}, "decode: expected 7 positional arguments, actual 8"),
    "twice": ([None], dict(q=1), "decode: got multiple values for q"),
    "number": ([3], {}, "q: expected a tensor, actual 3"),
}


@pytest.mark.parametrize("what", WRONG)
def test_arguments_are_those_of_the_operator(library, what):
    positional, named, text = WRONG[what]
    with pytest.raises(TypeError) as caught:
        library.decode(*positional, **named)
    assert str(caught.value) == text


LINE = "op=kda mode=mtp B=2 T=3 H=1 HV=2 K=32 V=16"


def outputs(library, change=lambda given: None, line=LINE):
    call = goldenrule.fixture(line).call()
    _, positional, options = operators.arguments(call, arrays(call))
    given = dict(zip(("q", "k", "v", "gate", "beta", "state"), positional), **options)
    given["o"] = given["v"].new_zeros(given["v"].shape)
    change(given)
    library.mtp(**given)
    return given["o"].array.reshape(-1), given["state"].array


def reshaped(**shapes):
    def change(given):
        given.update({name: operators.Array(given[name].array.reshape(shape))
                      for name, shape in shapes.items()})
    return change


def test_tokens_come_folded_and_parameters_as_checkpoints_have_them(library):
    plain = outputs(library)
    for change in (reshaped(gate=(6, 2, 32), beta=(6, 2), o=(6, 2, 16), q=(6, 1, 32)),
                   reshaped(A_log=(1, 1, 2, 1), dt_bias=(64,)), reshaped(dt_bias=(1, 2, 32))):
        assert all(np.array_equal(*each) for each in zip(plain, outputs(library, change)))


@pytest.mark.parametrize("name, change", [
    ("gate", reshaped(gate=(3, 2, 2, 32))), ("beta", reshaped(beta=(2, 6))),
    ("dt_bias", reshaped(dt_bias=(32, 2))), ("A_log", lambda given: given.update(
        A_log=operators.Array(np.zeros((4,), "f4")[::2].reshape(1, 2))))])
def test_other_orders_of_the_axes_are_refused(library, name, change):
    with pytest.raises(ValueError, match=f"^{name}: expected the shape"):
        outputs(library, change)


def test_a_fold_that_needs_a_copy_is_refused(library):
    line = "op=gdn mode=prefill lens=6 H=1 HV=2 K=32 V=16"
    call = goldenrule.fixture(line).call()
    _, positional, options = operators.arguments(call, arrays(call))
    rows = [operators.Array(x.array.reshape(2, 3, *x.shape[1:])) for x in positional[:5]]
    o, final = np.zeros((2, 3, 2, 16), "f4"), np.zeros((1, 2, 16, 32), "f4")
    written = dict(o=operators.Array(o), final_state=operators.Array(final))
    library.prefill(*rows, positional[5], **written, **options)
    case = goldenrule.fixture(line)
    assert case.judge({"o": o.reshape(6, 2, 16), "final_state": final}, explain=False).passed
    rows[0] = operators.Array(np.zeros((3, 2, 1, 32), rows[0].array.dtype).swapaxes(0, 1))
    with pytest.raises(ValueError, match=r"q: expected strides that allow the shape \[6, 1, 32\] without"):
        library.prefill(*rows, positional[5], **written, **options)


class Elsewhere(operators.HostDevice):
    """A device that is not the current one, and that is not ready at first."""

    def __init__(self):
        self.asked, self.went = 0, []

    def prepare(self, index):
        self.asked += 1
        return self.asked > 1

    def current(self):
        return 7

    def exchange(self, index):
        self.went.append(index)
        return 7


def test_a_call_runs_on_the_device_of_its_tensors(library):
    device = Elsewhere()
    elsewhere = operators.Host(os.environ["GOLDENRULE_GPU_HOST_LIBRARY"], device)
    for asked in (1, 2, 2):
        outputs(elsewhere)
        assert (device.asked, device.went) == (asked, [0, 7])
        device.went.clear()
    with pytest.raises(ValueError, match="l2_eps: expected"):
        outputs(elsewhere, lambda given: given.update(l2_eps=-1.0))
    assert device.went == [0, 7]


def test_a_library_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setenv("GOLDENRULE_GPU_LIBRARY", "/nowhere/lib.so")
    library = _gpu.Library(operators.HostDevice())
    with pytest.raises(RuntimeError, match="the GPU library is not open"):
        library.initialize()
    with pytest.raises(ImportError, match="goldenrule: /nowhere/lib.so.*set GOLDENRULE_GPU_LIBRARY"):
        library.open()
    monkeypatch.delenv("GOLDENRULE_GPU_LIBRARY")
    monkeypatch.setattr(_gpu, "_NAME", "libnone.so.1")
    with pytest.raises(ImportError, match="this wheel holds none: libnone.so.1.*build the wheel with it"):
        library.open()
