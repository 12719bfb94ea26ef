# SPDX-License-Identifier: Apache-2.0
"""Writing calls as workloads of FlashInfer-Trace (trace.py)."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import _tables
from ._calls import Call, packed, unpacked
from ._trace_files import read_json, read_lines, replace, saved
from ._trace_forms import BUFFER, COMMON, INPUTS, OUTPUTS, UNKNOWN, Form, form_of, own_forms


def written(call: Call, folder: str | os.PathLike[str], bf16: str | Iterable[str]
            ) -> tuple[Path, dict[str, Any]]:
    """Writes a call: the path of its definition, and the row of its workload."""
    made = unpacked(packed(call, bf16, wants_outputs=False))
    form = _form_to_write(made)
    arguments = _arguments_of(form, made)
    tensors = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    axes = _bind(form, tensors)
    name = form.name(axes)
    kind = form.prefix.partition("_")[0]
    o = made.outputs.get("o", tensors["v"])
    dtypes = {**{name: value.dtype.name for name, value in tensors.items()}, "scale": "float32",
              "output": o.dtype.name}
    state = made.outputs.get("final_state", tensors[_state_of(form)]).dtype.name
    dtypes.update({output: state for output in OUTPUTS[form.mode] if output != "output"})
    definition = form.definition(axes, dtypes, tuple(arguments))
    root = Path(folder)
    at = root / "definitions" / kind / f"{name}.json"
    if at.exists():
        _refuse_other(at, definition, form)
    digest = hashlib.sha256(repr(arguments["scale"]).encode())
    for key, value in sorted(tensors.items()):
        digest.update(f"{key} {value.dtype} {value.shape} ".encode() + value.tobytes())
    uuid = digest.hexdigest()[:32]
    blob = Path("blob") / "workloads" / kind / name / f"{name}_{uuid}.safetensors"
    row = {"definition": name, "solution": None, "evaluation": None, "workload": {
        "uuid": uuid, "axes": {axis: axes[axis] for axis, row in definition["axes"].items()
                               if row["type"] == "var"},
        "inputs": {key: {"type": "scalar", "value": value} if key == "scale" else
                   {"type": "safetensors", "path": str(blob), "tensor_key": key}
                   for key, value in arguments.items()}}}
    lines = root / "workloads" / kind / f"{name}.jsonl"
    for path in (at, root / blob, lines):
        path.parent.mkdir(parents=True, exist_ok=True)
    if not at.exists():
        replace(at, (json.dumps(definition, indent=2) + "\n").encode())
    replace(root / blob, saved(tensors))
    if not lines.exists() or all(old["workload"]["uuid"] != uuid for old in read_lines(lines)):
        with open(lines, "a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
    return at, row


def _form_to_write(call: Call) -> Form:
    """ValueError names the convention that no definition has."""
    convention = {**{row["name"]: row.get("default") for row in _tables.schema()["conventions"]},
                  **call.convention}
    for own in own_forms(call.op, call.mode):
        if all(convention.get(name) == value for name, value in
               {"disable_state_update": 0, **own.convention}.items()):
            return own
    wanted = {**COMMON, "qk_l2norm": ("none", "rsqrt_sum_eps"), "l2_eps": 1e-6,
              "disable_state_update": (0, 1) if call.mode == "mtp" else 0}
    other = next((name for name, value in wanted.items() if convention.get(name) not in
                  (value if isinstance(value, tuple) else (value,))), "convention")
    raise ValueError(f"{other}: expected {wanted.get(other)}, which is what definitions of "
                     f"FlashInfer-Trace have, actual {convention.get(other)}")


def _state_of(form: Form) -> str:
    return next(name for name, value in INPUTS[form.mode].items() if value == "initial_state")


def _arguments_of(form: Form, call: Call) -> dict[str, Any]:
    """What the definition's kernel is called with."""
    inputs = dict(call.inputs)
    convention = call.convention
    pad = int(convention.get("pad_slot", -1))
    rows = len(inputs["cu_seqlens"]) - 1 if form.mode == "prefill" else len(inputs["q"])
    slots = inputs.get("state_indices", np.arange(rows, dtype=np.int32))
    if np.any((slots == pad) | (slots < 0)):
        raise ValueError("state_indices: expected slots of the pool, actual padding, for which "
                         "FlashInfer-Trace has no word")
    if "initial_state" not in inputs:
        k, v = inputs["k"].shape[-1], inputs["v"].shape
        inputs["initial_state"] = np.zeros((rows, v[-2], v[-1], k), np.float32)
    if form.mode == "mtp":
        inputs["state_indices"] = slots.astype(np.int32)
        at = inputs.pop("intermediate_state_indices", np.arange(rows))
        if "initial_intermediate_states" in inputs and not np.array_equal(at, slots):
            raise ValueError("intermediate_state_indices: expected those of state_indices, actual "
                             "others")
    else:
        inputs.pop("state_indices", None)
        inputs["initial_state"] = inputs["initial_state"][slots]
    if form.mode == "prefill":
        inputs["cu_seqlens"] = inputs["cu_seqlens"].astype(np.int64)
    inputs["scale"] = float(convention.get("scale") or inputs["k"].shape[-1] ** -0.5)
    inputs.setdefault("dt_bias", np.zeros(inputs["a"].shape[len(inputs["q"].shape) - 2:], np.float32))
    names = INPUTS[form.mode]
    unknown = sorted(set(inputs) - set(names.values()))
    if unknown:
        raise ValueError(f"{unknown[0]}: expected an input that FlashInfer-Trace has "
                         f"({', '.join(names.values())}), actual {unknown[0]}")
    return {name: inputs[value] for name, value in names.items()
            if value in inputs and not (name == BUFFER and form.mode != "mtp")}


def _bind(form: Form, tensors: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The axes of the tensors; ValueError names one that does not fit the others."""
    axes: dict[str, int] = {}
    for name, value in tensors.items():
        expected = form.shape(name) or []
        if len(expected) != value.ndim:
            raise ValueError(f"{name}: expected the axes {expected}, actual {list(value.shape)}")
        for axis, size in zip(expected, value.shape):
            if axes.setdefault(axis, size) != size:
                raise ValueError(f"{name}: {axis}: expected {axes[axis]}, actual {size}"
                                 + (": K and V are one axis there" if axis == "head_size" else ""))
    return axes


def _refuse_other(path: Path, definition: Mapping[str, Any], form: Form) -> None:
    """A definition that is there must mean what the call means, and have its types."""
    present = read_json(path)
    found = form_of(present)
    if found.convention != form.convention:
        raise ValueError(f"{path}: expected {form.convention}, actual {found.convention}")
    for group in ("axes", "inputs", "outputs"):
        for name, row in definition[group].items():
            there = present[group].get(name, {})
            if any(there.get(key) not in (value, UNKNOWN) for key, value in row.items()):
                raise ValueError(f"{path}: {name}: expected {row}, actual {there}")
