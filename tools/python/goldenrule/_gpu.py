# SPDX-License-Identifier: Apache-2.0
"""The GPU library (gpu/goldenrule_gpu.h) from Python: where it is, and its operators as functions.

The functions themselves are compiled (tools/python/extension/gpu_calls.hpp): they take tensors of any
framework, check shapes, fill the aggregate and launch. Nothing here needs torch: what they ask of a
framework while they run stands in a Device.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from . import _core, _tables

_NAME = "libgoldenrule_gpu_shared.so.1"


class Device(Protocol):
    """What a call asks of the framework whose tensors it is given."""

    type: str  # of its devices, "cuda"

    def prepare(self, index: int) -> bool:
        """Before the first calls on a device: opens the library, and loads the kernels. Whether they
        are loaded; else it is asked again."""

    def current(self) -> int:
        """The device on which the thread is."""

    def exchange(self, index: int) -> int:
        """Goes to another device; the one before."""

    def stream(self, index: int) -> int:
        """The handle of the current stream of a device."""

    def empty(self, size: int, like: Any) -> Any:
        """A tensor of bytes on the device of another tensor."""

    def graded(self) -> bool:
        """Whether tensors that ask for gradients would get them."""


def names() -> dict[str, list[str]]:
    """Option -> its names in the order of the enums: that of the schema, as the header says."""
    of_schema = {row["name"]: row.get("values") for row in _tables.schema()["conventions"]}
    own = {"gate_kind": "gate", "beta_kind": "beta", "qk_norm": "qk_l2norm"}
    names = {option: of_schema[own.get(option, option)] for option in (
        *own, "head_map", "gate_head", "state_layout", "mask", "block_base", "block_kv", "kv_layout",
        "lse_base", "lse_layout")}
    return {**names, "op": [row["name"] for row in _tables.schema()["operations"]],
            "checkpoint_form": ["after", "before"]}


class Library:
    """The operators of the GPU library: decode, mtp, replay, commit, prefill, attention."""

    decode: Callable[..., None]
    mtp: Callable[..., None]
    replay: Callable[..., None]
    commit: Callable[..., None]
    prefill: Callable[..., None]
    attention: Callable[..., None]

    def __init__(self, device: Device) -> None:
        self._calls = _core.GpuCalls(names(), device)
        self.initialize: Callable[[], None] = self._calls.initialize
        self.__dict__.update(self._calls.functions())

    def open(self, path: str | None = None) -> None:
        open_library(self._calls, path)


def open_library(calls: Any, path: str | None = None) -> None:
    """Opens the library at that path, or the one that GOLDENRULE_GPU_LIBRARY names, or else the one
    beside this file (a wheel that was built with CUDA has it), or else that of the system."""
    asked = path or os.environ.get("GOLDENRULE_GPU_LIBRARY")
    beside = Path(__file__).with_name(_NAME)
    try:
        calls.open(asked or (str(beside) if beside.exists() else _NAME))
    except OSError as error:
        none = "" if asked or beside.exists() else "this wheel holds none: "
        raise ImportError(f"the GPU library of goldenrule: {none}{error}; set "
                          f"GOLDENRULE_GPU_LIBRARY to {_NAME}, or build the wheel with it "
                          "(cmake.define.GOLDENRULE_CUDA=ON)") from error
