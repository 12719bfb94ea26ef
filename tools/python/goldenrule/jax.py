# SPDX-License-Identifier: Apache-2.0
"""The GPU kernels of goldenrule as functions of JAX, within jax.jit and outside.

    from goldenrule import jax as ops

    o, pool = ops.decode(q, k, v, a, b, pool, A_log=A_log, dt_bias=dt_bias, state_indices=slots)

Names, shapes and meanings of the arguments are those of goldenrule.ops. An array of JAX does not
change, so what an operator writes comes back as a new array: o first, then each argument that is
written, by its name (`found.state`); one result alone comes without a tuple. Places that the kernel
does not write hold what the argument held. Where that is not wanted, and for o, a
jax.ShapeDtypeStruct in the place of the array is memory that nobody has filled.

A function that is compiled with the states donated (jax.jit(.., donate_argnames=..)) updates them in
place; else XLA copies them first. Shapes, types and options are checked while JAX traces, with the
errors of goldenrule.ops. The program calls the library through XLA's foreign function interface, on
XLA's stream, with no Python in between. Forward only, on one device, and not under jax.vmap.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable
from typing import Any

try:
    import jax
except ImportError as error:
    raise ImportError(f"goldenrule.jax needs jax: {error}") from error
import numpy as np

from . import _core, _gpu

_TARGET = "goldenrule_call"
_TOKENS = ("k", "v", "gate", "beta")
_LEADING = {
    **dict.fromkeys(("decode", "mtp", "replay"), ("q", *_TOKENS, "state")),
    "commit": (*_TOKENS, "state"),
    "prefill": ("q", *_TOKENS, "cu_seqlens"),
    "attention": ("q", "k", "v", "k_cache", "v_cache"),
}
# Beside the pool.
_WRITTEN = ("intermediate_states", "ring_d", "ring_k", "ring_g", "checkpoints", "lse")
_SETTINGS = (bool, int, float, str, np.bool_, np.number)


class _Shape:
    """An array as the library reads one: by shape and type, dense, at an address that nobody reads.
    Those of two arrays lie apart, as what is written may share no memory with the rest."""

    def __init__(self, number: int, array: Any, device: int) -> None:
        self.shape = tuple(array.shape)
        self.dtype = np.dtype(array.dtype).name
        self.number, self._device = number, device

    def stride(self) -> tuple[int, ...]:
        steps = [1]
        for extent in reversed(self.shape[1:]):
            steps.append(steps[-1] * max(extent, 1))
        return tuple(reversed(steps))[:len(self.shape)]

    def data_ptr(self) -> int:
        return (self.number + 1) << 44

    def get_device(self) -> int:
        return self._device


class _Kernels:
    """The library, and the handlers of XLA that call it. on_host: the kernels on the CPU."""

    def __init__(self, path: str | None = None, on_host: bool = False) -> None:
        self.on_host = on_host
        calls = _core.XlaCalls(_gpu.names())
        _gpu.open_library(calls, path)
        self.described: dict[str, Callable[..., Any]] = calls.functions()
        jax.ffi.register_ffi_target(_TARGET, calls.handlers(True), platform="cpu")
        if not on_host:
            jax.ffi.register_ffi_target(_TARGET, calls.handlers(False), platform="CUDA")


@functools.cache
def _kernels() -> _Kernels:
    return _Kernels()


@functools.cache
def _results_of(names: tuple[str, ...]) -> Callable[..., Any]:
    return namedtuple("Results", names)  # noqa: PYI024: the names are those of this call


def _expect_device(name: str, array: Any, on_host: bool) -> None:
    """Of arrays that are there: where a traced one will lie is known when the program runs."""
    if not isinstance(array, jax.Array) or isinstance(array, jax.core.Tracer):
        return
    devices = array.devices()
    if len(devices) != 1:
        raise ValueError(f"{name}: expected an array on one device, actual on {len(devices)}")
    (device,) = devices
    if device.platform != ("cpu" if on_host else "gpu"):
        raise ValueError(f"{name}: expected an array of a CUDA device, actual one of {device}")


def _split(given: dict[str, Any], on_host: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays, shapes of results included, and the other options."""
    arrays, options = {}, {}
    for name, value in given.items():
        if value is None:
            continue
        if isinstance(value, np.ndarray):
            value = jax.numpy.asarray(value)  # in the type that JAX makes of it: int64 may become int32
        if isinstance(value, (jax.Array, jax.ShapeDtypeStruct)):
            _expect_device(name, value, on_host)
            arrays[name] = value
        elif isinstance(value, _SETTINGS):
            options[name] = value
        else:
            raise TypeError(f"{name}: expected an array of JAX, actual {type(value)}")
    return arrays, options


def _written(arrays: dict[str, Any], options: dict[str, Any]) -> list[str]:
    """What the call writes, in the order in which it is returned."""
    pool = "final_state" if "final_state" in arrays else "state"
    names = ["o", *([] if options.get("disable_state_update") else [pool]), *_WRITTEN]
    return [name for name in names if name in arrays]


@functools.lru_cache(maxsize=256)
def _program(kernels: _Kernels, operator: str, names: tuple[str, ...],
             fixed: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    """The call as a function of its arrays alone, so that outside jax.jit it is traced once."""
    return jax.jit(lambda *arrays: _traced(
        kernels, operator, {**dict(zip(names, arrays, strict=True)), **dict(fixed)}), inline=True)


def _call(operator: str, given: dict[str, Any]) -> Any:
    kernels = _kernels()
    arrays, options = _split(given, kernels.on_host)
    names = tuple(name for name, array in arrays.items() if isinstance(array, jax.Array))
    fixed = {**options, **{name: x for name, x in arrays.items() if name not in names}}
    return _program(kernels, operator, names, tuple(fixed.items()))(*(arrays[name] for name in names))


def _traced(kernels: _Kernels, operator: str, given: dict[str, Any]) -> Any:
    arrays, options = _split(given, kernels.on_host)
    written = _written(arrays, options)
    for name, array in arrays.items():
        if name not in written and isinstance(array, jax.ShapeDtypeStruct):
            raise TypeError(f"{name}: expected an array, as the operator reads it, actual {array}")
    device = -1 if kernels.on_host else 0
    shapes = {name: _Shape(place, array, device) for place, (name, array) in enumerate(arrays.items())}
    leading = [shapes.pop(name, None) for name in _LEADING[operator]]
    if operator != "commit":
        leading.append(shapes.pop("o", None))
    aggregate, data, places, workspace = kernels.described[operator](*leading, **shapes, **options)
    operands = {name: array for name, array in arrays.items()
                if name in places and not isinstance(array, jax.ShapeDtypeStruct)}
    results = [jax.ShapeDtypeStruct(arrays[name].shape, arrays[name].dtype) for name in written]
    result_places = [places[name] for name in written]
    if workspace:
        # The kernels want it at a multiple of 256 bytes; the handler goes to the next one.
        results.append(jax.ShapeDtypeStruct((workspace + 256,), np.uint8))
        result_places.append(places["workspace"])
    order = list(operands)
    found = jax.ffi.ffi_call(
        _TARGET, results,
        input_output_aliases={order.index(name): place for place, name in enumerate(written)
                              if name in operands},
    )(*operands.values(), aggregate=np.int32(aggregate), bytes=np.frombuffer(data, np.int64),
      operand_places=np.array([-1 if name in written else places[name] for name in order], np.int64),
      result_places=np.array(result_places, np.int64), on_host=kernels.on_host)
    found = found[:len(written)]
    return found[0] if len(written) == 1 else _results_of(tuple(written))(*found)


def _new(like: Any, shape: tuple[int, ...]) -> jax.ShapeDtypeStruct | None:
    """The shape of o; None of what is no array, which is refused later."""
    return jax.ShapeDtypeStruct(shape, like.dtype) if hasattr(like, "dtype") else None


def _tokens(operator: str, values: tuple[Any, ...], o: Any, options: dict[str, Any]) -> Any:
    given = dict(zip(_LEADING[operator], values, strict=True))
    v = given["v"]
    given["o"] = _new(v, getattr(v, "shape", ())) if o is None else o
    return _call(operator, {**given, **options})


def decode(q: Any, k: Any, v: Any, gate: Any, beta: Any, state: Any, *, o: Any = None,
           **options: Any) -> Any:
    """One token for each row: goldenrule.ops.decode. Returns (o, state)."""
    return _tokens("decode", (q, k, v, gate, beta, state), o, options)


def mtp(q: Any, k: Any, v: Any, gate: Any, beta: Any, state: Any, *, o: Any = None,
        **options: Any) -> Any:
    """T tokens for each row: goldenrule.ops.mtp. Returns (o, state, intermediate_states), of these what
    is given; without `state` where disable_state_update is True."""
    return _tokens("mtp", (q, k, v, gate, beta, state), o, options)


def replay(q: Any, k: Any, v: Any, gate: Any, beta: Any, state: Any, *, o: Any = None,
           **options: Any) -> Any:
    """MTP over rings: goldenrule.ops.replay. Returns (o, state, ring_d, ring_k, ring_g)."""
    return _tokens("replay", (q, k, v, gate, beta, state), o, options)


def commit(k: Any, v: Any, gate: Any, beta: Any, state: Any, **options: Any) -> Any:
    """The states after accepted tokens: goldenrule.ops.commit. Returns state."""
    # Nobody reads the queries, and the aggregate has them: the keys again.
    return _call("commit", dict(q=k, k=k, v=v, gate=gate, beta=beta, state=state, **options))


def prefill(q: Any, k: Any, v: Any, gate: Any, beta: Any, cu_seqlens: Any, *, o: Any = None,
            **options: Any) -> Any:
    """Packed sequences: goldenrule.ops.prefill. Returns (o, state), or (o, final_state) where one is
    given, and checkpoints. Rows of o that belong to no sequence hold what `o` held."""
    return _tokens("prefill", (q, k, v, gate, beta, cu_seqlens), o, options)


def attention(q: Any, k: Any = None, v: Any = None, k_cache: Any = None, v_cache: Any = None, *,
              cu_seqlens_q: Any, o: Any = None, **options: Any) -> Any:
    """Softmax attention: goldenrule.ops.attention. Returns o, and lse where one is given."""
    if o is None:
        values = next((x for x in (v_cache, v, q) if x is not None), q)
        o = _new(q, (*getattr(q, "shape", ())[:-1], *getattr(values, "shape", ())[-1:]))
    return _call("attention", dict(q=q, k=k, v=v, k_cache=k_cache, v_cache=v_cache, o=o,
                                   cu_seqlens_q=cu_seqlens_q, **options))
