# SPDX-License-Identifier: Apache-2.0
"""The GPU library as Python calls it, without torch: the aggregate that is made of arrays and options, and
what is refused (GOLDENRULE_GPU_HOST_LIBRARY, tests/gpu_host). test_device.py judges what it computes."""

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
        library.recurrent(given, options, _gpu.DTYPES, 0)
    assert text in str(caught.value) and "\n" not in str(caught.value)
    assert not o.any()


def test_a_layout_that_python_would_not_reproduce_is_refused():
    text = "args 24\nstruct_size u64 0\nop i32 8\nstate i64 16"
    assert _gpu.Layout(text).at == {"struct_size": 0, "op": 1, "state": 2}
    for old, new in (("args 24", "args 32"), ("op i32 8", "op i32 4"), ("state i64 16", "state i64 12")):
        with pytest.raises(RuntimeError, match="args"):
            _gpu.Layout(text.replace(old, new))


def test_a_library_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setenv("GOLDENRULE_GPU_LIBRARY", "/nowhere/lib.so")
    with pytest.raises(ImportError, match="goldenrule: /nowhere/lib.so.*set GOLDENRULE_GPU_LIBRARY"):
        _gpu.load()
    monkeypatch.delenv("GOLDENRULE_GPU_LIBRARY")
    monkeypatch.setattr(_gpu, "_NAME", "libnone.so.1")
    with pytest.raises(ImportError, match="this wheel holds none: libnone.so.1.*build the wheel with it"):
        _gpu.load()
