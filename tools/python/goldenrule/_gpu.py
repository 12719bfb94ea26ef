# SPDX-License-Identifier: Apache-2.0
"""The GPU library (gpu/goldenrule_gpu.h) through ctypes: where it is, and a call of it.

The library sees addresses, strides and extents, and no shapes; what they must be is checked here.
Tensors are whatever has shape, dtype, stride(), data_ptr() and get_device() as torch tensors do, so
that nothing here needs torch. An aggregate is packed into bytes by the layout that the library itself
describes: a newer library has more fields, which keep their defaults.
"""

import ctypes
import math
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import _tables

_NAME = "libgoldenrule_gpu_shared.so.1"
_FORMATS = {"u64": "Q", "i32": "i", "u32": "I", "i64": "q", "f64": "d", "pointer": "Q",
            "tensor": "Q4q2i"}  # data, stride[4], dtype, dense
_TENSOR = 7  # numbers
_MESSAGE = ctypes.c_size_t(512)
_F32, _F16, _BF16, _I64, _I32 = 1, 2, 3, 4, 5
DTYPES = {"float32": _F32, "float16": _F16, "bfloat16": _BF16, "int64": _I64, "int32": _I32}
_FLAGS = {"dependent_launch": 1, "precise": 2, "never_split": 4, "trigger_early": 8}
_NO_OUTPUT = 16
_ERRORS = {1: ValueError, 2: NotImplementedError}  # any other status: RuntimeError


class Layout:
    """An aggregate, as "name type offset" lines of the library say; its numbers in their order."""

    def __init__(self, text: str) -> None:
        head, *lines = text.split("\n")
        self.at: dict[str, int] = {}  # field -> the place of its first number
        self.kinds: dict[str, str] = {}
        form, count = "@", 0
        for line in lines:
            name, kind, offset = line.split(" ")
            letters = _FORMATS[kind]
            if struct.calcsize(form + letters[0]) - struct.calcsize(letters[0]) != int(offset):
                raise RuntimeError(f"{head}: expected {name} at {struct.calcsize(form)}, actual {offset}")
            self.at[name] = count
            self.kinds[name] = kind
            form += letters
            count += _TENSOR if kind == "tensor" else 1
        self.packer = struct.Struct(form + "0q")
        if self.packer.size != int(head.split(" ")[-1]):
            raise RuntimeError(f"{head}: expected {self.packer.size} bytes")
        self.defaults: list[Any] = []

    def ask_defaults(self, function: Callable[..., Any]) -> None:
        room = ctypes.create_string_buffer(self.packer.size)
        function(room, ctypes.c_size_t(self.packer.size))
        self.defaults = list(self.packer.unpack(room.raw))


class Library:
    """The functions of the header. A refusal is an exception with the library's line."""

    def __init__(self, path: str) -> None:
        self._functions = ctypes.CDLL(path)
        self._numbers = _numbers()
        self._recurrent = self._layout("recurrent")
        self._prefill = self._layout("prefill")
        for name in ("recurrent", "prefill"):
            self._function(f"{name}_workspace_size").restype = ctypes.c_size_t

    def _function(self, name: str) -> Any:
        return getattr(self._functions, f"goldenrule_gpu_{name}")

    def _layout(self, call: str) -> Layout:
        describe = self._function(f"{call}_fields")
        describe.restype = ctypes.c_char_p
        layout = Layout(describe().decode())
        layout.ask_defaults(self._function(f"{call}_defaults"))
        return layout

    def _call(self, function: Any, *arguments: Any) -> None:
        message = ctypes.create_string_buffer(512)
        status = function(*arguments, message, _MESSAGE)
        if status != 0:
            raise _ERRORS.get(status, RuntimeError)(message.value.decode(errors="replace"))

    def initialize(self) -> None:
        """Loads every kernel on the current device."""
        self._call(self._functions.goldenrule_gpu_initialize)

    def recurrent(self, tensors: Mapping[str, Any], options: Mapping[str, Any], dtypes: Mapping[Any, int],
                  stream: int) -> None:
        """Decode, verify, replay, and without `o` commit: see `_Call` for tensors and options."""
        call = _Call(self._recurrent, tensors, options, dtypes, self._numbers)
        B, T, H, K, HV, V = call.extents("k", "v", ("B", "T", "H", "K"), ("B", "T", "HV", "V"))
        call.tokens((B, T), H, HV, K, V)
        call.pool(tensors["state"], HV, K, V)
        rows = tensors.get("intermediate_states")
        if rows is not None:
            steps = rows.shape[1] if len(rows.shape) > 1 else T
            call.number("intermediate_rows", steps)
            call.tensor("intermediate_states", (B, steps, HV, *call.state), 4)
        for name in ("state_indices", "output_state_indices", "num_accepted_tokens", "accepted_tokens"):
            call.tensor(name, (B,), 1)
        call.tensor("ssm_state_indices", (B, T), 2)
        if tensors.get("ring_d") is not None:
            call.rings(B, H, HV, K, V)
        call.end(stream, 0 if "o" in tensors else _NO_OUTPUT)
        self._call(self._functions.goldenrule_gpu_recurrent, call.packed())

    def prefill(self, tensors: Mapping[str, Any], options: Mapping[str, Any], dtypes: Mapping[Any, int],
                stream: int, allocate: Callable[[int], Any]) -> None:
        """`allocate(bytes)`: a tensor of bytes, which lives until the call is launched."""
        call = _Call(self._prefill, tensors, options, dtypes, self._numbers)
        total, H, K, HV, V = call.extents("q", "v", ("total", "H", "K"), ("total", "HV", "V"))
        N = max(len_of(tensors["cu_seqlens"]) - 1, 0)
        call.number("N", N)
        call.tokens((total,), H, HV, K, V)
        state = tensors.get("state")
        call.pool(tensors.get("final_state") if state is None else state, HV, K, V, N)
        checkpoints = tensors.get("checkpoints")
        if checkpoints is not None:
            rows = len_of(checkpoints)
            call.number("checkpoint_rows", rows)
            call.tensor("checkpoints", (rows, HV, *call.state), 3)
            call.tensor("cu_checkpoints", (N + 1,), 1)
            call.tensor("checkpoint_offsets", (rows,), 1)
            call.tensor("start_positions", (N,), 1)
        call.tensor("cu_seqlens", (N + 1,), 1)
        for name in ("state_indices", "output_state_indices"):
            call.tensor(name, (N,), 1)
        call.end(stream, 0)
        size = self._functions.goldenrule_gpu_prefill_workspace_size(call.packed())
        workspace = allocate(size + 256) if size else None
        if workspace is not None:
            call.number("workspace_size", size)
            call.number("workspace", (workspace.data_ptr() + 255) & -256)
        self._call(self._functions.goldenrule_gpu_prefill, call.packed())


class _Call:
    """One aggregate in the making. tensors: field -> tensor, None where there is none; options: field
    -> name, number or flag, those that are absent have the library's defaults, and scale is K^-0.5;
    dtypes: type of a tensor -> number of the header."""

    def __init__(self, layout: Layout, tensors: Mapping[str, Any], options: Mapping[str, Any],
                 dtypes: Mapping[Any, int], numbers: Mapping[str, Mapping[str, int]]) -> None:
        self._layout, self._tensors, self._dtypes = layout, tensors, dtypes
        self._at = layout.at
        self._flat = layout.defaults.copy()
        self._device = tensors["k"].get_device()
        self._flags = 0
        self.state: tuple[int, int] = (0, 0)
        self._options = options
        for name, value in options.items():
            named = numbers.get(name)
            if named is not None:
                if value not in named:
                    raise ValueError(f"{name}: expected one of {', '.join(named)}, actual {value!r}")
                value = named[value]
            elif name in _FLAGS:
                self._flags |= _FLAGS[name] if value else 0
                continue
            elif value is None:
                continue
            self._flat[self._at[name]] = value

    def number(self, name: str, value: float) -> None:
        self._flat[self._at[name]] = value

    def tensor(self, name: str, shape: tuple[int, ...], strided: int) -> None:
        """`strided`: so many axes have a stride in the aggregate; the others are without a gap."""
        tensor = self._tensors.get(name)
        if tensor is None:
            return
        actual = tensor.shape
        if actual != shape:
            raise ValueError(f"{name}: expected the shape {list(shape)}, actual {list(actual)}")
        if tensor.get_device() != self._device:
            raise ValueError(f"{name}: expected device {self._device}, actual {tensor.get_device()} "
                             "(-1: the host)")
        dtype = self._dtypes.get(tensor.dtype)
        if dtype is None:
            raise TypeError(f"{name}: expected one of {', '.join(map(str, self._dtypes))}, actual "
                            f"{tensor.dtype}")
        # Without an element the strides are what the maker of the tensor liked.
        stride = tensor.stride() if 0 not in shape else [math.prod(shape[at + 1:]) or 1
                                                         for at in range(len(shape))]
        if strided < len(shape) and stride[-1] != 1 and shape[-1] > 1:
            raise ValueError(f"{name}: expected a last axis of stride 1, actual stride {list(stride)}")
        place = self._at[name]
        self._flat[place:place + 7] = (tensor.data_ptr() or _NOWHERE, *stride[:strided],
                                       *_ZEROS[strided], dtype, 0)

    def extents(self, first: str, second: str, names: tuple[str, ...],
                value_names: tuple[str, ...]) -> list[int]:
        """The extents of a tensor of keys, and then those that values add to them."""
        found: list[int] = []
        for tensor, axes in ((first, names), (second, value_names)):
            shape = self._tensors[tensor].shape
            if len(shape) != len(axes):
                raise ValueError(f"{tensor}: expected the axes {','.join(axes)}, actual the shape "
                                 f"{list(shape)}")
            new = [(name, n) for name, n in zip(axes, shape) if axes is names or name not in names]
            for name, n in new:
                self._flat[self._at[name]] = n
                found.append(n)
        return found

    def tokens(self, rows: tuple[int, ...], H: int, HV: int, K: int, V: int) -> None:
        kda = self._options.get("op") == "kda"
        strided = len(rows) + 1
        heads = H if self._options.get("gate_head") == "qk" else HV
        for name in ("q", "k"):
            self.tensor(name, (*rows, H, K), strided)
        for name in ("v", "o"):
            self.tensor(name, (*rows, HV, V), strided)
        self.tensor("gate", (*rows, HV, K) if kda else (*rows, HV), strided)
        self.tensor("beta", (*rows, HV), strided)
        self.tensor("A_log", (heads,), 1)
        self.tensor("dt_bias", (heads, K) if kda else (heads,), 1)
        if self._options.get("scale") is None and K > 0:
            self._flat[self._at["scale"]] = K**-0.5
        self.state = (K, V) if self._options.get("state_layout") == "kv" else (V, K)

    def rings(self, B: int, H: int, HV: int, K: int, V: int) -> None:
        shape = self._tensors["ring_d"].shape
        rings, places = (shape[0], shape[2]) if len(shape) == 4 else (0, 0)  # refused below
        self._flat[self._at["rings"]], self._flat[self._at["ring_places"]] = rings, places
        channels = self._options.get("op") == "kda" and self._options.get("gate_kind") != "none"
        self.tensor("ring_d", (rings, HV, places, V), 3)
        self.tensor("ring_k", (rings, H, places, K), 3)
        self.tensor("ring_g", (rings, HV, places, K) if channels else (rings, HV, places), 3)
        for name in ("ring_indices", "ring_start", "ring_count", "ring_flush"):
            self.tensor(name, (B,), 1)

    def pool(self, pool: Any, HV: int, K: int, V: int, slots: int = 0) -> None:
        slots = slots if pool is None else len_of(pool)
        self._flat[self._at["slots"]] = slots
        for name in ("state", "final_state"):
            self.tensor(name, (slots, HV, *self.state), 3)

    def end(self, stream: int, flags: int) -> None:
        self._flat[self._at["flags"]] = self._flags | flags
        self._flat[self._at["stream"]] = stream

    def packed(self) -> bytes:
        try:
            return self._layout.packer.pack(*self._flat)
        except (struct.error, OverflowError):
            self._refuse_options()
            raise

    def _refuse_options(self) -> None:
        for name in self._options:
            kind = self._layout.kinds.get(name, "")
            value = self._flat[self._at[name]] if kind else 0
            try:
                struct.pack(_FORMATS.get(kind, "q"), value)
            except (struct.error, OverflowError) as error:
                raise ValueError(f"{name}: expected a number of type {kind}, actual {value!r}") from error


_NOWHERE = 256  # a tensor of no elements has no address, and is there all the same
_ZEROS = tuple((0,) * (4 - n) for n in range(5))


def len_of(tensor: Any) -> int:
    return tensor.shape[0] if len(tensor.shape) else 0


def _numbers() -> dict[str, dict[str, int]]:
    """Option -> its names in the order of the enums: that of the schema, as the header says."""
    of_schema = {row["name"]: row.get("values") for row in _tables.schema()["conventions"]}
    named = {"gate_kind": "gate", "beta_kind": "beta", "qk_norm": "qk_l2norm", "head_map": "head_map",
             "gate_head": "gate_head", "state_layout": "state_layout"}
    values = {option: of_schema[name] for option, name in named.items()}
    values["op"] = [row["name"] for row in _tables.schema()["operations"]]
    values["checkpoint_form"] = ["after", "before"]
    return {option: {name: n for n, name in enumerate(names)} for option, names in values.items()}


def load() -> Library:
    """The library that GOLDENRULE_GPU_LIBRARY names, or else the one beside this file (a wheel that was
    built with CUDA has it), or else that of the system."""
    asked = os.environ.get("GOLDENRULE_GPU_LIBRARY")
    beside = Path(__file__).with_name(_NAME)
    path = asked or (str(beside) if beside.exists() else _NAME)
    try:
        return Library(path)
    except OSError as error:
        raise ImportError(f"the GPU library of goldenrule: {error}; set GOLDENRULE_GPU_LIBRARY to "
                          f"{_NAME}, or build the wheel with it (cmake.define.GOLDENRULE_CUDA=ON)"
                          ) from error
