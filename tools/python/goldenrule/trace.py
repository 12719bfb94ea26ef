# SPDX-License-Identifier: Apache-2.0
"""Workloads of FlashInfer-Trace: what flashinfer-bench runs a kernel on, judged here; and calls of one's
own as workloads that flashinfer-bench runs.

    for workload in goldenrule.trace.read("definitions/gdn/gdn_decode_qk4_v8_d128_k_last.json",
                                          "workloads/gdn/gdn_decode_qk4_v8_d128_k_last.jsonl"):
        report = workload.judge(solution.run(**workload.tensors("cuda")))
        assert report.passed, report

    goldenrule.trace.write(goldenrule.read("mine.h5"), "my_trace_set")

Which definitions are known, and what they mean, stands in one table (_trace_forms.py); others are
refused by name. Needs the package safetensors (`pip install goldenrule[trace]`).
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import _core, _tables
from ._calls import Call, ExpectedCall, packed, text_of, unpacked
from ._cases import as_torch
from ._report import Report
from ._trace_forms import BUFFER, COMMON, INPUTS, OUTPUTS, Form, form_of, own_forms

_DTYPES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64",
           "i32": "int32"}
_UNKNOWN = "unknown"  # FlashInfer writes this for what a call did not pass


class Workload:
    """One workload of a definition. Its tensors are read when they are asked for."""

    def __init__(self, definition: Mapping[str, Any], form: Form, row: Mapping[str, Any], root: Path,
                 seed: int) -> None:
        self.definition = definition
        self.uuid = text_of("uuid", row["uuid"])
        self.axes = {**_constants(definition), **_counts(row["axes"])}
        self._form, self._inputs, self._root, self._seed = form, dict(row["inputs"]), root, seed
        self._where = f"{definition['name']}, workload {self.uuid}"
        missing = [axis for axis in definition["axes"] if axis not in self.axes]
        if missing:
            raise ValueError(f"{self._where}: axes: {missing[0]}: expected a number, actual none")

    def arguments(self) -> dict[str, Any]:
        """What the definition's kernel is called with, in its order: NumPy arrays, made anew; bfloat16
        has the type of ml_dtypes. None: an optional one that the workload leaves out."""
        return {name: self._argument(name, spec)
                for name, spec in self.definition["inputs"].items()}

    def tensors(self, device: Any = None) -> dict[str, Any]:
        """The same as torch tensors."""
        arguments = self.arguments()
        return {**arguments, **as_torch({name: value for name, value in arguments.items()
                                         if isinstance(value, np.ndarray)}, device)}

    def outputs(self, results: Any) -> dict[str, Any]:
        """What the definition's kernel returns (a tuple in its order, or a mapping by its names) by the
        names of the schema. A mapping may have the buffer of intermediate states, too."""
        names = OUTPUTS[self._form.mode]
        if not isinstance(results, Mapping):
            results = results if isinstance(results, (tuple, list)) else (results,)
            if len(results) != len(names):
                raise ValueError(f"{self._where}: expected the outputs {', '.join(names)}, actual "
                                 f"{len(results)}")
            results = dict(zip(names, results))
        known = {**names, BUFFER: "intermediate_states"} if BUFFER in self._inputs else dict(names)
        if not set(results) <= set(known):
            raise ValueError(f"{self._where}: expected the outputs {', '.join(known)}, actual "
                             f"{', '.join(map(str, results))}")
        return {known[name]: value for name, value in results.items()}

    def call(self) -> Call:
        """The call without outputs, for assert_delta_rule(workload, outputs=workload.outputs(..))."""
        arguments = self.arguments()
        convention, scale = dict(self._form.convention), arguments.pop("scale")
        if scale:  # the references take 0 and None for the default
            convention["scale"] = float(scale)
        names = INPUTS[self._form.mode]
        inputs = {names[name]: value for name, value in arguments.items() if value is not None}
        if "initial_intermediate_states" in inputs:
            inputs["intermediate_state_indices"] = inputs["state_indices"]
        self._refuse_disputes(inputs)
        return Call(op=self._form.op, mode=self._form.mode, convention=convention, inputs=inputs,
                    source=self._where)

    def judge(self, results: Any, **options: Any) -> Report:
        """Judges what the definition's kernel returns; the options are those of goldenrule.judge."""
        call = self.call()
        call.outputs = self.outputs(results)
        return call.judge(**options)

    def expected(self, **options: Any) -> ExpectedCall:
        return self.call().expected(**options)

    def __repr__(self) -> str:
        return f"<{self._where}>"

    def _argument(self, name: str, spec: Mapping[str, Any]) -> Any:
        given = self._inputs.get(name)
        if given is None:
            if spec.get("optional") or name == BUFFER:
                return None
            raise ValueError(f"{self._where}: {name}: expected an input, actual none")
        kind = given.get("type") if isinstance(given, Mapping) else given
        if spec["shape"] is None:
            return self._number(name, given, kind)
        shape = tuple(self.axes[axis] for axis in spec["shape"])
        if kind == "random":
            return self._random(name, spec, shape)
        if kind != "safetensors":
            raise ValueError(f"{self._where}: {name}: expected the type safetensors or random, actual "
                             f"{kind!r}")
        array = _load(self._root / str(given.get("path")), str(given.get("tensor_key")))
        dtype = array.dtype.name
        if array.shape != shape or spec["dtype"] not in (dtype, _UNKNOWN):
            raise ValueError(f"{self._where}: {name}: expected {spec['dtype']} {list(shape)}, actual "
                             f"{dtype} {list(array.shape)}")
        return array

    def _number(self, name: str, given: Mapping[str, Any], kind: Any) -> float | None:
        value = given.get("value") if kind == "scalar" else None
        if kind != "scalar" or isinstance(value, bool) or not isinstance(value, int | float | None):
            raise ValueError(f"{self._where}: {name}: expected a scalar, actual {given!r}")
        return value

    def _random(self, name: str, spec: Mapping[str, Any], shape: tuple[int, ...]) -> np.ndarray:
        """Standard normal numbers, as flashinfer-bench draws them, of a counter-based generator."""
        dtype = spec["dtype"]
        if dtype not in ("float32", "float16", "bfloat16"):
            raise ValueError(f"{self._where}: {name}: random numbers of {dtype} are no {name}")
        import ml_dtypes

        _core.admit_tensors(float(np.prod(shape, dtype=float)) * 4)
        words = hashlib.sha256(f"{self._seed} {self.uuid} {name}".encode()).digest()
        generator = np.random.Generator(np.random.Philox(key=int.from_bytes(words[:16], "little")))
        numbers = generator.standard_normal(shape, dtype=np.float32)
        return numbers.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)

    def _refuse_disputes(self, inputs: Mapping[str, Any]) -> None:
        """What the reference of the definition answers otherwise than the rule."""
        slots = inputs.get("state_indices")
        if slots is not None and slots.size and int(slots.min()) < 0:
            raise ValueError(f"{self._where}: initial_state_indices: expected slots of the pool, actual "
                             f"{int(slots.min())}: its reference takes the last slot for it, where "
                             "engines mean padding")
        cumulated = inputs.get("cu_seqlens")
        state = inputs.get("initial_state")
        if not self._form.clears or cumulated is None or state is None:
            return
        for n in np.flatnonzero(np.diff(cumulated) == 0):
            if np.any(state[n]):
                raise ValueError(f"{self._where}: sequence {n} has no token and a state that is not "
                                 "zero: its reference returns zeros, the rule leaves the state")


def read(definition: str | os.PathLike[str] | Mapping[str, Any],
         workloads: str | os.PathLike[str] | Iterable[Mapping[str, Any]], *,
         root: str | os.PathLike[str] | None = None, seed: int = 0) -> list[Workload]:
    """The workloads of a definition, from its JSON and a file of JSON lines (or what they hold).

    root: the folder that paths of tensors are relative to (default: the one that holds `workloads`, as
    in a trace set; else that of the file). seed: of inputs that the workload leaves to chance.

    Raises ValueError, with the name, for a definition whose meaning is not known, and for what is no
    definition or workload.
    """
    if not isinstance(definition, Mapping):
        definition = _json(Path(definition))
    if isinstance(workloads, (str, os.PathLike)):
        path = Path(workloads)
        folder = next((parent.parent for parent in path.absolute().parents
                       if parent.name == "workloads"), path.absolute().parent)
        rows, where = _lines(path), str(path)
    else:
        rows, where, folder = list(workloads), "workloads", Path.cwd()
    try:
        form = form_of(definition)
        name = definition["name"]
        _constants(definition)
        found = []
        for row in rows:
            if row["definition"] != name:
                raise ValueError(f"{where}: expected workloads of {name}, actual of "
                                 f"{row['definition']!r}")
            found.append(Workload(definition, form, row["workload"],
                                  Path(root) if root is not None else folder, seed))
    except (KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"{where}: expected a definition and workloads of FlashInfer-Trace, actual "
                         f"{type(error).__name__}: {error}") from error
    return found


def write(call: Call, folder: str | os.PathLike[str], *, bf16: str | Iterable[str] = ()) -> Workload:
    """Adds a call to the trace set in a folder: its definition where that is new, its tensors as
    safetensors, and a workload, once. Its outputs have no place there.

    Rows on a pool of decode and prefill are written one by one, with the states of their slots.
    ValueError names what FlashInfer-Trace cannot hold.
    """
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
        _replace(at, (json.dumps(definition, indent=2) + "\n").encode())
    _replace(root / blob, _saved(tensors))
    if not lines.exists() or all(old["workload"]["uuid"] != uuid for old in _lines(lines)):
        with open(lines, "a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
    return Workload(_json(at), form, row["workload"], root, 0)


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
    present = _json(path)
    found = form_of(present)
    if found.convention != form.convention:
        raise ValueError(f"{path}: expected {form.convention}, actual {found.convention}")
    for group in ("axes", "inputs", "outputs"):
        for name, row in definition[group].items():
            there = present[group].get(name, {})
            if any(there.get(key) not in (value, _UNKNOWN) for key, value in row.items()):
                raise ValueError(f"{path}: {name}: expected {row}, actual {there}")


def _constants(definition: Mapping[str, Any]) -> dict[str, int]:
    return _counts({name: row["value"] for name, row in definition["axes"].items()
                    if row["type"] == "const"})


def _counts(axes: Mapping[str, Any]) -> dict[str, int]:
    for name, value in axes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"axes: {name}: expected a number of elements, actual {value!r}")
    return dict(axes)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON, actual {error}") from error


def _lines(path: Path) -> list[Any]:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: expected JSON, actual {error}") from error
    return rows


def _safetensors() -> Any:
    import ml_dtypes  # noqa: F401: NumPy knows bfloat16 by its name from here on

    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError("FlashInfer-Trace keeps tensors as safetensors: "
                          "pip install goldenrule[trace]") from error
    return safetensors


def _load(path: Path, key: str) -> np.ndarray:
    library = _safetensors()
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a file of safetensors, actual none")
    with open(path, "rb") as file:
        if file.read(24).startswith(b"version https://git-lfs"):
            raise ValueError(f"{path}: expected safetensors, actual a pointer of Git LFS: git lfs pull")
    try:
        with library.safe_open(path, framework="np") as tensors:
            if key not in tensors.keys():
                raise ValueError(f"{path}: {key}: expected a tensor, actual "
                                 f"{', '.join(sorted(tensors.keys()))}")
            return tensors.get_tensor(key)
    except (library.SafetensorError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: {key}: expected safetensors, actual {error}") from error


def _saved(tensors: Mapping[str, np.ndarray]) -> bytes:
    return _safetensors().numpy.save({name: np.ascontiguousarray(value)
                                      for name, value in tensors.items()})


def _replace(path: Path, data: bytes) -> None:
    partial = path.with_name(f"{path.name}.partial{os.getpid()}")
    partial.write_bytes(data)
    os.replace(partial, path)
