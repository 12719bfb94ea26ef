# SPDX-License-Identifier: Apache-2.0
"""Judging a call, and keeping it in a file.

A user's tensors are brought to the types and shapes of the schema by the module that writes captures
(_capture.py is goldenrule_capture.py of this release), and are copied once, into the library.
"""

import inspect
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from . import _capture, _core
from ._capture import checkpoints_at as checkpoints_at
from ._capture import checkpoints_every as checkpoints_every
from ._expected import Expected, ExpectedCall, told
from ._report import Report
from ._words import contract_text, text_of

_NAME_OF = {np.dtype(t): name for t, name in
            (("<f8", "f64"), ("<f4", "f32"), ("<f2", "f16"), ("<i8", "i64"), ("<i4", "i32"))}
_TYPE_OF = {name: dtype for dtype, name in _NAME_OF.items()}


_OP_OF_LINES = {"gdn": "gated_delta_rule"}  # as a case line says it


@dataclass(repr=False)
class Call:
    """One call: what went in, in which conventions, and what came out."""

    op: str
    mode: str
    convention: dict[str, Any]
    inputs: dict[str, Any]
    outputs: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    contract: str = ""  # that it claims; who judges it chooses another with judge(contract=..)
    case: str = ""
    golden: dict[str, tuple[np.ndarray, float]] = field(default_factory=dict)  # of a fixture's file
    stages: dict[str, Any] = field(default_factory=dict)  # of the kernel, or of a fixture's file
    chunk: int = 0  # tokens of a chunk of the stages, 0: those of the contract
    stage_forms: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.op = _OP_OF_LINES.get(self.op, self.op)

    def __repr__(self) -> str:
        """A line for each group of tensors, which are told by type and shape."""
        lines = [f"{name}: {told(tensors)}" for name, tensors in
                 (("convention", self.convention), ("inputs", self.inputs), ("outputs", self.outputs),
                  ("stages", self.stages)) if tensors]
        said = ", ".join(text for text in (self.source, self.case, self.contract) if text)
        return "\n  ".join([f"Call {self.op} {self.mode}{f' ({said})' if said else ''}", *lines])

    def judge(self, **options: Any) -> Report:
        """The options are those of goldenrule.judge."""
        check_options(options)
        return _judged(self, **options)

    def expected(self, **options: Any) -> ExpectedCall:
        """The options are those of goldenrule.expected."""
        return _expected(self, **options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a capture that `goldenrule check` judges."""
        _core.write(_replaceable(path), packed(self))


def judge(*, op: str, mode: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any],
          convention: Mapping[str, Any] | None = None,
          contract: str | Mapping[str, Any] | None = None, only: str | Iterable[str] = (),
          precision: str = "auto", explain: bool = True, explain_seconds: float | None = None,
          blind: bool = False, terms: str | Iterable[str] = (), bf16: str | Iterable[str] = (),
          stages: Mapping[str, Any] | None = None, chunk: int = 0,
          stage_forms: Mapping[str, str] | None = None,
          source: str = "", case: str = "", name: str = "") -> Report:
    """Judges the outputs of one call, as `goldenrule check` judges a capture of it.

    contract: a built-in one, a .json file or a mapping (default: by mode and types).
    only=("o",): the outputs to judge, where the others are not wanted; precision="auto", double,
    quad or multi; explain=False: do not look for the mistake behind a failure; explain_seconds=N: for
    so many estimated core-seconds at most; blind=True: say what the call cannot show;
    terms=("o[0,0,1,2]",): show budgets of elements;
    bf16=("q",): these uint16 or float32 arrays hold bfloat16; source, case, name: texts.
    stages={"u": u, ..}: intermediate results of a chunked kernel, as goldenrule.stages() lists them, in
    chunks of `chunk` tokens (default: those of the contract), in the forms of stage_forms={"G": "log2"};
    Report.first_bad_stage is the first that its contract does not explain. They never change a verdict.

    Raises ValueError, TypeError, MemoryError (the verdict needs more than there is) with one line
    that names the tensor, what was expected and what is there. Other threads run meanwhile.
    """
    call = Call(op=op, mode=mode, convention=mapping("convention", convention or {}),
                inputs=mapping("inputs", inputs), outputs=mapping("outputs", outputs),
                source=source, case=case)
    return _judged(call, contract=contract, only=only, precision=precision, explain=explain,
                   explain_seconds=explain_seconds, blind=blind, terms=terms, bf16=bf16, name=name,
                   stages=stages, chunk=chunk, stage_forms=stage_forms)


def expected(*, op: str, mode: str, inputs: Mapping[str, Any],
             convention: Mapping[str, Any] | None = None, outputs: Mapping[str, Any] | None = None,
             contract: str | Mapping[str, Any] | None = None, precision: str = "auto",
             bf16: str | Iterable[str] = ()) -> ExpectedCall:
    """Exact outputs, their certified radius and the budget that a contract grants, as arrays.

    Budgets are of the types in which an honest kernel stores, or of those of `outputs`. precision:
    the arithmetic of the exact values, "double" by default.
    """
    call = Call(op=op, mode=mode, convention=mapping("convention", convention or {}),
                inputs=mapping("inputs", inputs), outputs=mapping("outputs", outputs or {}))
    return _expected(call, contract=contract, precision=precision, bf16=bf16)


def capture(path: str | os.PathLike[str], *, op: str, mode: str, inputs: Mapping[str, Any],
            outputs: Mapping[str, Any], convention: Mapping[str, Any] | None = None,
            source: str = "", contract: str = "", case: str = "", bf16: str | Iterable[str] = (),
            stages: Mapping[str, Any] | None = None, chunk: int = 0,
            stage_forms: Mapping[str, str] | None = None) -> None:
    """Writes one call into a file for `goldenrule check`; replaces it completely or not at all. Stages
    are those of goldenrule.judge."""
    call = Call(op=op, mode=mode, convention=mapping("convention", convention or {}),
                inputs=mapping("inputs", inputs), outputs=mapping("outputs", outputs),
                source=source, contract=contract, case=case, stages=mapping("stages", stages or {}),
                chunk=chunk, stage_forms=mapping("stage_forms", stage_forms or {}))
    _core.write(_replaceable(path), packed(call, bf16=bf16))


def read(path: str | os.PathLike[str]) -> Call:
    """A capture or fixture, read as strangers' files are: in a child process with limits."""
    call, golden = _core.read(_encoded(path))
    result = unpacked(call)
    result.golden = {name: (_array(*value), radius) for name, (value, radius) in golden.items()}
    return result


def unpacked(call: Mapping[str, Any]) -> Call:
    """A call as the library gives it. Arrays of bfloat16 have the type of ml_dtypes."""
    tensors = {group: {name: _array(*value) for name, value in call[group].items()}
               for group in ("inputs", "outputs")}
    texts = {name: call[name] for name in ("op", "mode", "source", "contract", "case")}
    tensors["stages"] = {name: _array(*value) for name, value in call.get("stages", {}).items()}
    return Call(convention=dict(call["convention"]), chunk=call.get("stage_chunk", 0),
                stage_forms=dict(call.get("stage_forms", {})), **tensors, **texts)


def _array(dtype: str, shape: tuple[int, ...], data: np.ndarray) -> np.ndarray:
    if dtype == "bf16":
        import ml_dtypes

        return data.view(ml_dtypes.bfloat16).reshape(shape)
    return data.view(_TYPE_OF[dtype]).reshape(shape)


def packed(call: Call, bf16: str | Iterable[str] = (), wants_outputs: bool = True) -> dict[str, Any]:
    """The call as the library takes it. Stages of a fixture are the oracle's, and left out."""
    if call.golden:
        call = replace(call, golden={}, stages={}, chunk=0, stage_forms={})
    _core.admit_tensors(sum(_bytes(tensor) for group in (call.inputs, call.outputs, call.stages)
                            if isinstance(group, Mapping) for tensor in group.values()))
    attributes, convention, groups = _capture.prepared(
        call.op, call.mode, call.inputs, call.outputs, call.convention, call.source, call.contract,
        [name for name in _names("bf16", bf16) if name not in call.stages], wants_outputs)
    text_of("case", call.case)
    attributes = {**attributes, **_packed_stages(call, _names("bf16", bf16))}
    tensors = {group: {name: ("bf16" if is_bf16 else _NAME_OF[array.dtype], array.shape,
                              array.reshape(-1).view(np.uint8))
                       for name, (array, is_bf16) in arrays.items()}
               for group, arrays in groups.items()}
    return {"source": "", "contract": "", "case": call.case, **attributes, "convention": convention,
            **tensors}


def _packed_stages(call: Call, bf16: list[str]) -> dict[str, Any]:
    if not call.stages:
        if call.stage_forms or call.chunk:
            raise ValueError("stages: expected some, actual none, with their chunk or forms")
        return {}
    arrays, chunk, forms = _capture.prepared_stages(call.op, call.stages, call.chunk,
                                                    call.stage_forms, [name for name in bf16 if name in call.stages])
    return {"stages": {name: ("bf16" if is_bf16 else _NAME_OF[array.dtype], array.shape,
                              array.reshape(-1).view(np.uint8))
                       for name, (array, is_bf16) in arrays.items()},
            "stage_chunk": chunk, "stage_forms": forms}


def _bytes(tensor: Any) -> float:
    """Of all elements, which an expanded tensor has not: it is put into one piece."""
    try:
        size = getattr(tensor, "nbytes", 0)
    except RuntimeError:  # of a sparse tensor, which is refused by its name
        return 0.0
    return float(size) if isinstance(size, (int, np.integer)) else 0.0


def _judged(call: Call, *, contract: str | Mapping[str, Any] | None = None,
            only: str | Iterable[str] = (), precision: str = "auto", explain: bool = True,
            explain_seconds: float | None = None, blind: bool = False, terms: str | Iterable[str] = (),
            name: str = "", bf16: str | Iterable[str] = (), stages: Mapping[str, Any] | None = None,
            chunk: int = 0, stage_forms: Mapping[str, str] | None = None) -> Report:
    if stages is not None or chunk or stage_forms:
        call = replace(call, golden={}, stages=mapping("stages", stages or {}), chunk=chunk,
                       stage_forms=mapping("stage_forms", stage_forms or {}))
    taken = packed(call, bf16)
    asked = _core.Asked()
    asked.name = text_of("name", name) or call.case or call.source or f"{call.op} {call.mode}"
    asked.contract = contract_text(contract)
    asked.precision = text_of("precision", precision)
    asked.only, asked.terms = _names("only", only), _names("terms", terms)
    asked.explain, asked.blind = bool(explain), bool(blind)
    asked.explain_seconds = None if explain_seconds is None else _seconds(explain_seconds)
    return Report(*_core.judge(taken, asked))


def check_options(options: Mapping[str, Any]) -> None:
    """Raises TypeError for what judge() has no option for."""
    known = [name for name in inspect.signature(_judged).parameters if name != "call"]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise TypeError(f"options: expected some of {', '.join(known)}, actual {', '.join(unknown)}")


def _expected(call: Call, *, contract: str | Mapping[str, Any] | None = None,
              precision: str = "auto", bf16: str | Iterable[str] = ()) -> ExpectedCall:
    asked = _core.Asked()
    asked.contract = contract_text(contract)
    asked.precision = text_of("precision", precision)
    name, bits, outputs = _core.expected(packed(call, bf16, wants_outputs=False), asked)
    return ExpectedCall(name, bits, {
        output: Expected(golden.reshape(shape), radius.reshape(shape),
                         None if budget is None else budget.reshape(shape))
        for output, (shape, golden, radius, budget) in outputs.items()})


def mapping(what: str, values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise TypeError(f"{what}: expected {{name: value}}, actual {type(values).__name__}")
    return dict(values)


def _names(what: str, names: Any) -> list[str]:
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, Iterable):
        raise TypeError(f"{what}: expected names, actual {type(names).__name__}")
    return [text_of(what, name) for name in names]


def _seconds(seconds: Any) -> float:
    if not isinstance(seconds, int | float) or not seconds >= 0:
        raise ValueError(f"explain_seconds: expected a number that is at least 0, actual {seconds!r}")
    return float(seconds)


def _replaceable(path: str | os.PathLike[str]) -> bytes:
    """A path at which there is nothing, or a file, which is replaced: never a device."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"{os.fsdecode(path)}: expected a file or nothing at this path, actual another "
                      "kind of thing")
    return _encoded(path)


def _encoded(path: str | os.PathLike[str]) -> bytes:
    """The system reads a path up to its first null byte: that would be another file."""
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise ValueError(f"{path!r}: expected a path without null bytes")
    return encoded
