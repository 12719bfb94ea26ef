# SPDX-License-Identifier: Apache-2.0
"""An aggregate of the GPU library (gpu/goldenrule_gpu.h) in the making: its layout, as the library
describes it, and the tensors and options of one call, whose shapes are checked here."""

import ctypes
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

_FORMATS = {"u64": "Q", "i32": "i", "u32": "I", "i64": "q", "f64": "d", "pointer": "Q",
            "tensor": "Q4q2i"}  # data, stride[4], dtype, dense
_TENSOR = 7  # numbers
_FLAGS = {"dependent_launch": 1, "precise": 2, "never_split": 4, "trigger_early": 8,
          "state_ready": 32}


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


class Call:
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
            elif name == "max_tokens":
                continue
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

    def packed_rows(self, axis: int, total: int) -> tuple[int, int]:
        """B and T of a call with cu_seqlens, whose tokens are [1,total,..]."""
        if axis != 1:
            raise ValueError(f"k: expected a first axis of 1 beside cu_seqlens, actual {axis}")
        B = max(len_of(self._tensors["cu_seqlens"]) - 1, 0)
        slots = self._tensors.get("ssm_state_indices")
        T = self._options.get("max_tokens") or 0
        if slots is not None and len(slots.shape) == 2:
            T = slots.shape[1]
        kept = self._tensors.get("intermediate_states")
        by_rows = kept is not None and self._tensors.get("intermediate_state_indices") is not None
        T = T or min(total, _MOST_TOKENS, *kept.shape[1:2] if by_rows else ())
        for name, number in (("B", B), ("T", T), ("tokens", total)):
            self.number(name, number)
        self.tensor("cu_seqlens", (B + 1,), 1)
        return B, T

    def kept_states(self, B: int, T: int, HV: int) -> None:
        """A state for each token, a buffer of rows, or, without a list of them, packed as the tokens."""
        rows = self._tensors.get("intermediate_states")
        if rows is None:
            return
        slots, steps = tuple(rows.shape[:2]) if len(rows.shape) > 1 else (B, T)
        packed = self._tensors.get("cu_seqlens") is not None
        if self._tensors.get("intermediate_state_indices") is not None:
            self.number("intermediate_slots", slots)
        else:
            slots = 1 if packed else B
        self.number("intermediate_rows", steps)
        self.tensor("intermediate_states", (slots, steps, HV, *self.state), 4)

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


_MOST_TOKENS = 16  # GOLDENRULE_GPU_MAX_T
_NOWHERE = 256  # a tensor of no elements has no address, and is there all the same
_ZEROS = tuple((0,) * (4 - n) for n in range(5))


def len_of(tensor: Any) -> int:
    return tensor.shape[0] if len(tensor.shape) else 0
