# SPDX-License-Identifier: Apache-2.0
"""goldenrule.jax, where jax is: on the kernels on the CPU (GOLDENRULE_GPU_HOST_LIBRARY) through handlers for
programs of the host, and on a CUDA device. Each result is judged, of a call and of a compiled one."""

import functools
import os

import ml_dtypes
import numpy as np
import operators
import pytest
import test_device
import test_operators_attention

import goldenrule

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from goldenrule import jax as ops  # noqa: E402

jax.config.update("jax_enable_x64", True)  # cases have indices of 64 bits
DECODE = "op=gdn mode=decode B=3 H=2 HV=4 K=64 V=32 slots=permuted"
PREFILL = "op=kda mode=prefill lens=20,0,9 H=1 HV=2 K=64 V=32 h0=1"
# Those of LINES take a workspace, those of CASES none.
CASES = [*test_device.CASES, *(line for line in test_device.LINES if "mode=prefill" in line)]


@pytest.fixture
def host(monkeypatch):
    """The kernels on the CPU as the library of goldenrule.jax."""
    path = os.environ.get("GOLDENRULE_GPU_HOST_LIBRARY", "")
    if not path:
        pytest.skip("GOLDENRULE_GPU_HOST_LIBRARY is not set: no kernels on the CPU were built")
    kernels = ops._Kernels(path, on_host=True)
    monkeypatch.setattr(ops, "_kernels", lambda: kernels)
    return jax.devices("cpu")[0]


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    """Where new arrays lie."""
    if request.param == "cpu":
        found = request.getfixturevalue("host")
    else:
        try:
            (found, *_) = jax.devices("cuda")
            ops._kernels()
        except RuntimeError as why:
            pytest.skip(f"cuda: JAX sees no CUDA device: {why}")
        except ImportError as why:
            pytest.skip(f"cuda: {why}")
    with jax.default_device(found):
        yield found


def called(operator, given, *, compiled=False):
    """The results by name; what is no array is fixed before the function is compiled."""
    arrays = {name: x for name, x in given.items() if isinstance(x, jax.Array)}
    rest = {name: x for name, x in given.items() if name not in arrays}
    function = functools.partial(getattr(ops, operator), **rest)
    found = (jax.jit(function) if compiled else function)(**arrays)
    return found._asdict() if hasattr(found, "_asdict") else {"o": found}


def arguments(case):
    """(operator, arguments by name) of a call of the delta rule, with room for what it returns."""
    call = case.call()
    operator, leading, options = operators.arguments(
        call, {name: jnp.asarray(x) for name, x in call.inputs.items()})
    given = {**dict(zip(ops._LEADING[operator], leading, strict=True)), **options}
    K, V = given["q"].shape[-1], given["v"].shape[-1]
    state = (given["v"].shape[-2], *((K, V) if given["state_layout"] == "kv" else (V, K)))
    if operator == "prefill" and "state" not in given:
        given["final_state"] = jax.ShapeDtypeStruct((len(given["cu_seqlens"]) - 1, *state), jnp.float32)
    if operator == "prefill" and "checkpoint_offsets" in given:
        pool = given.get("final_state", given.get("state"))
        given["checkpoints"] = jnp.zeros((len(given["checkpoint_offsets"]), *pool.shape[1:]), pool.dtype)
    if operator == "mtp" and not {"ssm_state_indices", "intermediate_states"} & set(given):
        given["intermediate_states"] = jnp.zeros((*given["q"].shape[:2], *state), given["state"].dtype)
    return operator, given


def outputs(case, found):
    """As the case names them, and in its shapes."""
    call = case.call()
    if "final_state" not in found and "state" in found:
        found["final_state"] = found.pop("state")
    if operators.is_packed(call):
        for name in ("o", "intermediate_states"):
            if name in found and "initial_" + name not in call.inputs:
                found[name] = found[name][0]
    return {name: np.asarray(x) for name, x in found.items()}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("line", CASES)
def test_a_case_is_right(device, line, compiled):
    case = goldenrule.fixture(line)
    operator, given = arguments(case)
    before = {name: np.asarray(x) for name, x in given.items() if isinstance(x, jax.Array)}
    report = case.judge(outputs(case, called(operator, given, compiled=compiled)), explain=False)
    assert report.passed, str(report)
    for name, x in before.items():  # no argument was written
        assert np.array_equal(x.view("u1"), np.asarray(given[name]).view("u1")), name


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("line", test_operators_attention.CASES)
def test_a_case_of_attention_is_right(device, line, compiled):
    case = goldenrule.fixture(line)
    given, options = test_operators_attention.arguments(
        case, {name: jnp.asarray(x) for name, x in case.inputs.items()})
    total, heads = given["q"].shape[:2]
    rows = (heads, total) if options.get("lse_layout") == "ht" else (total, heads)
    found = called("attention", {**given, **options, "lse": jax.ShapeDtypeStruct(rows, jnp.float32)},
                   compiled=compiled)
    assert list(found) == ["o", "lse"]
    report = case.judge({name: np.asarray(x) for name, x in found.items()}, explain=False)
    assert report.passed, str(report)


def test_accepted_tokens_are_committed(device):
    case = goldenrule.fixture("op=gdn mode=mtp B=2 T=3 H=1 HV=2 K=64 V=32 slots=permuted accepted=mixed")
    operator, given = arguments(case)
    given.pop("intermediate_states", None)
    verified = called(operator, given)["state"]
    del given["q"]
    assert np.array_equal(ops.commit(**given), verified)


def test_what_a_call_returns(device):
    _, given = arguments(goldenrule.fixture(DECODE))
    assert ops.decode(**given)._fields == ("o", "state")
    given["disable_state_update"] = True
    o = ops.decode(**given)
    assert isinstance(o, jax.Array) and o.shape == given["v"].shape
    _, given = arguments(goldenrule.fixture(PREFILL))
    given["final_state"] = given["state"] + 1
    assert ops.prefill(**given)._fields == ("o", "final_state")


def test_rows_of_no_sequence_hold_what_o_held(device):
    _, given = arguments(goldenrule.fixture("op=gdn mode=prefill lens=5,6 H=1 HV=2 K=32 V=16 h0=1"))
    given["cu_seqlens"] = jnp.asarray([0, 5, 9])
    o = ops.prefill(**given, o=jnp.full(given["v"].shape, 7, given["v"].dtype)).o
    assert (o[9:] == 7).all() and (o[:9] != 7).any()


def test_a_donated_state_is_updated_in_place(device):
    _, given = arguments(goldenrule.fixture(DECODE))
    rest = {name: x for name, x in given.items() if name != "state"}
    step = jax.jit(lambda state: ops.decode(state=state, **rest), donate_argnames="state")
    kept = ops.decode(**given)
    state = jnp.array(given["state"])
    where = state.unsafe_buffer_pointer()
    found = step(state)
    assert state.is_deleted() and found.state.unsafe_buffer_pointer() == where
    assert np.array_equal(found.state, kept.state) and np.array_equal(found.o, kept.o)
    text = jax.jit(ops.decode, static_argnames=[n for n, x in given.items() if not hasattr(x, "dtype")]
                   ).lower(**given).as_text()
    assert "@goldenrule_call" in text
    assert "output_operand_alias<output_tuple_indices = [1], operand_index = 5" in text


def test_steps_within_a_loop_of_jax(device):
    """The state is carried, and each step sees that of the one before."""
    _, given = arguments(goldenrule.fixture(DECODE))
    state = given.pop("state")
    scales = jnp.asarray([0.5, 1.0, 2.0], given["v"].dtype)

    def step(state, scale):
        o, state = ops.decode(**{**given, "v": given["v"] * scale}, state=state)
        return state, o

    last, rows = jax.jit(lambda state: jax.lax.scan(step, state, scales))(state)
    for scale, row in zip(scales, rows, strict=True):
        state, o = step(state, scale)
        assert np.array_equal(o, row)
    assert np.array_equal(last, state)


def test_a_shape_is_enough_to_trace(host):
    _, given = arguments(goldenrule.fixture(DECODE))
    shapes = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in given.items()
              if isinstance(x, jax.Array)}
    rest = {name: x for name, x in given.items() if name not in shapes}
    found = jax.eval_shape(functools.partial(ops.decode, **rest), **shapes)
    assert found.o == jax.ShapeDtypeStruct((3, 1, 4, 32), ml_dtypes.bfloat16)
    assert found.state == shapes["state"]


def test_what_a_program_does_before_a_call_is_done_before_it(device):
    """On XLA's stream: another one reads what a long product has not yet written."""
    _, given = arguments(goldenrule.fixture(DECODE))
    wanted = ops.decode(**given)
    turn = jnp.eye(256, dtype=jnp.float32)[::-1]  # its own inverse

    def late(v):
        rows = jnp.resize(v.astype("f4"), (256, 256))
        rows = jax.lax.fori_loop(0, 50, lambda _, x: turn @ x, rows)
        return jnp.resize(rows, v.shape).astype(v.dtype)

    found = jax.jit(lambda v: ops.decode(**{**given, "v": late(v)}))(given["v"])
    assert np.array_equal(found.o, wanted.o) and np.array_equal(found.state, wanted.state)


def test_a_call_without_rows(device):
    """On a device, arrays without elements may have no address."""
    _, given = arguments(goldenrule.fixture(DECODE))
    rows = {name: x[:0] if name in ("q", "k", "v", "gate", "beta", "state_indices") else x
            for name, x in given.items()}
    found = ops.decode(**rows)
    assert found.o.shape == (0, *given["v"].shape[1:]) and np.array_equal(found.state, given["state"])


BAD_PROGRAMS = {
    "bytes": (dict(bytes=np.zeros(3, np.int64)), r"an aggregate of \d+ bytes, actual 24: .* another release"),
    "aggregate": (dict(aggregate=np.int32(3)), "an aggregate of 0 to 2, actual 3"),
    "operands": (dict(operand_places=np.zeros(0, np.int64)), "places of 1 operands, actual of 0"),
    "results": (dict(result_places=np.zeros(2, np.int64)), "places of 1 results, actual of 2"),
    "beyond": (dict(result_places=np.array([1 << 20])), r"places of results up to \d+, actual 1048576"),
}


@pytest.mark.parametrize("name", BAD_PROGRAMS)
def test_a_program_that_does_not_fit_the_library_is_refused(host, name):
    """As one might that another release has exported."""
    change, text = BAD_PROGRAMS[name]
    _, given = arguments(goldenrule.fixture(DECODE))
    shapes = {n: ops._Shape(place, x, -1) for place, (n, x) in enumerate(given.items()) if hasattr(x, "dtype")}
    rest = {n: x for n, x in given.items() if n not in shapes}
    shapes["o"] = ops._Shape(len(given), given["v"], -1)
    aggregate, data, places, _ = ops._kernels().described["decode"](**shapes, **rest)
    attributes = dict(aggregate=np.int32(aggregate), bytes=np.frombuffer(data, np.int64),
                      operand_places=np.array([places["q"]]), result_places=np.array([places["o"]]), on_host=True)
    call = jax.ffi.ffi_call(ops._TARGET, ops._new(given["v"], given["v"].shape))
    with pytest.raises(Exception, match=f"goldenrule: expected {text}"):
        call(given["q"], **{**attributes, **change}).block_until_ready()


def test_arrays_of_numpy_have_the_types_that_jax_gives_them(device):
    """Indices of 64 bits are of 32 where JAX has no others."""
    _, given = arguments(goldenrule.fixture(DECODE))
    slots = np.asarray(given.pop("state_indices"))
    assert slots.dtype == np.int64
    wanted = ops.decode(**given, state_indices=jnp.asarray(slots))
    with jax.enable_x64(False):
        found = ops.decode(**given, state_indices=slots)
    assert np.array_equal(found.o, wanted.o) and np.array_equal(found.state, wanted.state)


BAD = {
    "shape": ("q", lambda x: x[:2], ValueError, r"q: expected the shape \[3, 1, 2, 64\], actual \[2,"),
    "pool": ("state", lambda x: x[:, :2], ValueError, r"state: expected the shape \[5, 4, 32, 64\]"),
    "type": ("v", lambda x: x.astype("f8"), TypeError, "v: expected one of float32, .*, actual float64"),
    "types": ("state_indices", lambda x: x.astype("f4"), NotImplementedError,
              "state_indices.dtype: expected i32 or i64, actual f32"),
    "absent": ("beta", lambda x: None, ValueError, "beta.data: expected a device pointer, actual NULL"),
    "list": ("k", lambda x: [1], TypeError, "k: expected an array of JAX, actual <class 'list'>"),
    "option": ("gate_kind", lambda x: "tanh", ValueError, "gate_kind: expected one of softplus, .*'tanh'"),
    "name": ("A_Log", lambda x: 1.0, TypeError, "A_Log"),
    "output": ("q", lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), TypeError,
               "q: expected an array, as the operator reads it"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said_while_jax_traces(host, name):
    argument, change, kind, text = BAD[name]
    _, given = arguments(goldenrule.fixture(DECODE))
    with pytest.raises(kind, match=text):
        ops.decode(**{**given, argument: change(given.get(argument))})
    with pytest.raises(kind, match=text):
        jax.eval_shape(lambda: ops.decode(**{**given, argument: change(given.get(argument))}))


def test_arrays_of_the_host_are_refused(host, monkeypatch):
    """With the library of a GPU, in a call and in a program that was compiled for the host."""
    kernels = ops._kernels()
    monkeypatch.setattr(kernels, "on_host", False)
    _, given = arguments(goldenrule.fixture(DECODE))
    with pytest.raises(ValueError, match="q: expected an array of a CUDA device, actual one of cpu:0"):
        ops.decode(**given)
    with pytest.raises(Exception, match="goldenrule: expected arrays of a CUDA device, actual of the host"):
        called("decode", given, compiled=True)["o"].block_until_ready()


def test_without_a_library_of_a_gpu(monkeypatch):
    monkeypatch.setenv("GOLDENRULE_GPU_LIBRARY", "/nowhere/lib.so")
    with pytest.raises(ImportError, match="the GPU library of goldenrule: /nowhere/lib.so"):
        ops._Kernels()


def test_what_jax_cannot_do_with_a_kernel(host):
    _, given = arguments(goldenrule.fixture(DECODE))
    with pytest.raises(ValueError, match="cannot be differentiated"):
        jax.grad(lambda v: ops.decode(**{**given, "v": v}).o.sum().astype("f4"))(given["v"])
    with pytest.raises(NotImplementedError, match="vmap"):
        jax.vmap(lambda v: ops.decode(**{**given, "v": v}).o)(given["v"][None])
