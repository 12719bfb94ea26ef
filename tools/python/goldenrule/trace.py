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
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _core
from ._calls import Call, ExpectedCall
from ._cases import as_torch
from ._report import Report
from ._trace_files import load, read_json, read_lines
from ._trace_forms import BUFFER, INPUTS, OUTPUTS, UNKNOWN, Form, form_of
from ._trace_write import written
from ._words import text_of


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
        return _outputs(self._form, results, BUFFER in self._inputs, self._where)

    def call(self) -> Call:
        """The call without outputs, for assert_delta_rule(workload, outputs=workload.outputs(..))."""
        return _call(self._form, self.arguments(), self._where)

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
        array = load(self._root / str(given.get("path")), str(given.get("tensor_key")))
        dtype = array.dtype.name
        if array.shape != shape or spec["dtype"] not in (dtype, UNKNOWN):
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


def read(definition: str | os.PathLike[str] | Mapping[str, Any],
         workloads: str | os.PathLike[str] | Iterable[Mapping[str, Any]], *,
         root: str | os.PathLike[str] | None = None, seed: int = 0) -> list[Workload]:
    """The workloads of a definition, from its JSON and a file of JSON lines (or what they hold).

    root: the folder that paths of tensors are relative to (default: the one that holds `workloads`, as
    in a trace set; else that of the file). seed: of inputs that the workload leaves to chance.

    Raises ValueError, with the name, for a definition whose meaning is not known, and for what is no
    definition or workload.
    """
    known: Mapping[str, Any] = (definition if isinstance(definition, Mapping)
                                else read_json(Path(definition)))
    if isinstance(workloads, (str, os.PathLike)):
        path = Path(workloads)
        folder = next((parent.parent for parent in path.absolute().parents
                       if parent.name == "workloads"), path.absolute().parent)
        rows, where = read_lines(path), str(path)
    else:
        rows, where, folder = list(workloads), "workloads", Path.cwd()
    try:
        form = form_of(known)
        name = known["name"]
        _constants(known)
        found = []
        for row in rows:
            if row["definition"] != name:
                raise ValueError(f"{where}: expected workloads of {name}, actual of "
                                 f"{row['definition']!r}")
            found.append(Workload(known, form, row["workload"],
                                  Path(root) if root is not None else folder, seed))
    except (KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"{where}: expected a definition and workloads of FlashInfer-Trace, actual "
                         f"{type(error).__name__}: {error}") from error
    return found


def call_of(definition: Mapping[str, Any], arguments: Mapping[str, Any] | Sequence[Any],
            results: Any = None) -> Call:
    """The call of a definition's kernel, as a benchmark that draws inputs itself has it in memory.

    definition: what its JSON holds. arguments: in the definition's order, or by its names; arrays, or
    torch tensors of any device. results: what the kernel returned, if it is to be judged.
    """
    try:
        form, name, parameters = form_of(definition), str(definition["name"]), list(definition["inputs"])
    except (KeyError, AttributeError, TypeError) as error:
        raise ValueError("expected a definition of FlashInfer-Trace, actual "
                         f"{type(error).__name__}: {error}") from error
    if not isinstance(arguments, Mapping):
        if len(arguments) != len(parameters):
            raise ValueError(f"{name}: expected the arguments {', '.join(parameters)}, actual "
                             f"{len(arguments)}")
        arguments = dict(zip(parameters, arguments))
    if set(arguments) != set(parameters):
        raise ValueError(f"{name}: expected the arguments {', '.join(parameters)}, actual "
                         f"{', '.join(map(str, arguments))}")
    call = _call(form, arguments, name)
    if results is not None:
        call.outputs = _outputs(form, results, arguments.get(BUFFER) is not None, name)
    return call


def write(call: Call, folder: str | os.PathLike[str], *, bf16: str | Iterable[str] = ()) -> Workload:
    """Adds a call to the trace set in a folder: its definition where that is new, its tensors as
    safetensors, and a workload, once. Its outputs have no place there.

    Rows on a pool of decode and prefill are written one by one, with the states of their slots.
    ValueError names what FlashInfer-Trace cannot hold.
    """
    at, row = written(call, folder, bf16)
    return read(at, [row], root=folder)[0]


def _constants(definition: Mapping[str, Any]) -> dict[str, int]:
    return _counts({name: row["value"] for name, row in definition["axes"].items()
                    if row["type"] == "const"})


def _counts(axes: Mapping[str, Any]) -> dict[str, int]:
    for name, value in axes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"axes: {name}: expected a number of elements, actual {value!r}")
    return dict(axes)


def _outputs(form: Form, results: Any, has_buffer: bool, where: str) -> dict[str, Any]:
    names = OUTPUTS[form.mode]
    if not isinstance(results, Mapping):
        results = results if isinstance(results, (tuple, list)) else (results,)
        if len(results) != len(names):
            raise ValueError(f"{where}: expected the outputs {', '.join(names)}, actual {len(results)}")
        results = dict(zip(names, results))
    known = {**names, BUFFER: "intermediate_states"} if has_buffer else dict(names)
    if not set(results) <= set(known):
        raise ValueError(f"{where}: expected the outputs {', '.join(known)}, actual "
                         f"{', '.join(map(str, results))}")
    return {known[name]: value for name, value in results.items()}


def _call(form: Form, arguments: Mapping[str, Any], where: str) -> Call:
    convention, names = dict(form.convention), INPUTS[form.mode]
    if arguments["scale"]:  # the references take 0 and None for the default
        convention["scale"] = float(arguments["scale"])
    inputs = {names[name]: value for name, value in arguments.items()
              if value is not None and name != "scale"}
    if "initial_intermediate_states" in inputs:
        inputs["intermediate_state_indices"] = inputs["state_indices"]
    _refuse_disputes(form, inputs, where)
    return Call(op=form.op, mode=form.mode, convention=convention, inputs=inputs, source=where)


def _refuse_disputes(form: Form, inputs: Mapping[str, Any], where: str) -> None:
    """What the reference of the definition answers otherwise than the rule."""
    slots = inputs.get("state_indices")
    if slots is not None and len(slots) and int(slots.min()) < 0:
        raise ValueError(f"{where}: initial_state_indices: expected slots of the pool, actual "
                         f"{int(slots.min())}: its reference takes the last slot for it, where "
                         "engines mean padding")
    cumulated = inputs.get("cu_seqlens")
    state = inputs.get("initial_state")
    if not form.clears or cumulated is None or state is None:
        return
    bounds = cumulated.tolist()
    for n, (begin, end) in enumerate(zip(bounds, bounds[1:])):
        if begin == end and bool((state[n] != 0).any()):
            raise ValueError(f"{where}: sequence {n} has no token and a state that is not "
                             "zero: its reference returns zeros, the rule leaves the state")
