# SPDX-License-Identifier: Apache-2.0
"""The GPU library (gpu/goldenrule_gpu.h) through ctypes: where it is, and a call of it.

The library sees addresses, strides and extents, and no shapes; what they must be is checked here.
Tensors are whatever has shape, dtype, stride(), data_ptr() and get_device() as torch tensors do, so
that nothing here needs torch. An aggregate is packed into bytes by the layout that the library itself
describes: a newer library has more fields, which keep their defaults.
"""

import ctypes
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import _tables
from ._gpu_args import Call, Layout, len_of

_NAME = "libgoldenrule_gpu_shared.so.1"
_MESSAGE = ctypes.c_size_t(512)
_F32, _F16, _BF16, _I64, _I32 = 1, 2, 3, 4, 5
DTYPES = {"float32": _F32, "float16": _F16, "bfloat16": _BF16, "int64": _I64, "int32": _I32}
_NO_OUTPUT = 16
_ERRORS = {1: ValueError, 2: NotImplementedError}  # any other status: RuntimeError


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
        """Decode, MTP, replay, and without `o` commit: see `Call` for tensors and options."""
        call = Call(self._recurrent, tensors, options, dtypes, self._numbers)
        B, T, H, K, HV, V = call.extents("k", "v", ("B", "T", "H", "K"), ("B", "T", "HV", "V"))
        call.tokens((B, T), H, HV, K, V)
        call.tensor("parent_tokens", (B, T), 2)
        if tensors.get("cu_seqlens") is not None:
            B, T = call.packed_rows(B, T)
        call.pool(tensors["state"], HV, K, V)
        call.kept_states(B, T, HV)
        for name in ("state_indices", "output_state_indices", "num_accepted_tokens", "accepted_tokens",
                     "intermediate_state_indices", "checkpoint_state_indices", "checkpoint_tokens"):
            call.tensor(name, (B,), 1)
        call.tensor("ssm_state_indices", (B, T), 2)
        if tensors.get("ring_d") is not None:
            call.rings(B, H, HV, K, V)
        call.end(stream, 0 if "o" in tensors else _NO_OUTPUT)
        self._call(self._functions.goldenrule_gpu_recurrent, call.packed())

    def prefill(self, tensors: Mapping[str, Any], options: Mapping[str, Any], dtypes: Mapping[Any, int],
                stream: int, allocate: Callable[[int], Any]) -> None:
        """`allocate(bytes)`: a tensor of bytes, which lives until the call is launched."""
        call = Call(self._prefill, tensors, options, dtypes, self._numbers)
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
        none = "" if asked or beside.exists() else "this wheel holds none: "
        raise ImportError(f"the GPU library of goldenrule: {none}{error}; set GOLDENRULE_GPU_LIBRARY to "
                          f"{_NAME}, or build the wheel with it (cmake.define.GOLDENRULE_CUDA=ON)"
                          ) from error
