# SPDX-License-Identifier: Apache-2.0
"""Generated calls: one line of text is a case, and the library makes its inputs from it, the same
bytes everywhere. A suite is a list of such lines."""

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, overload

from . import _capture, _core
from ._calls import _OP_OF_LINES, Call, ExpectedCall, mapping, unpacked
from ._report import Report
from ._tables import schema
from ._words import text_of


def as_torch(arrays: Mapping[str, Any], device: Any) -> dict[str, Any]:
    """Arrays as torch tensors; bfloat16 has the type of ml_dtypes, which torch does not know."""
    import numpy as np
    import torch

    require_gpu(device)

    def tensor(array: Any) -> Any:
        if array.dtype.name == "bfloat16":
            made = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        else:
            made = torch.from_numpy(array)
        return made if device is None else made.to(device)

    return {name: tensor(array) for name, array in arrays.items()}


def require_gpu(device: Any) -> None:
    """For a CUDA device where torch sees no GPU: skips the test that pytest runs, elsewhere RuntimeError."""
    import torch

    if not str(device).startswith("cuda") or torch.cuda.is_available():
        return
    reason = (f"device: expected one that torch sees, actual {str(device)!r} on a machine without a "
              "GPU: tensors can be on the CPU alone")
    if "pytest" in sys.modules and "PYTEST_CURRENT_TEST" in os.environ:
        skip_test(reason)
    raise RuntimeError(reason)


def skip_test(reason: str) -> NoReturn:
    __tracebackhide__ = True
    import pytest

    pytest.skip(f"goldenrule: {reason}")


class Case:
    """One case. Its tensors are made when they are asked for."""

    def __init__(self, line: str, op: str, mode: str, pattern: str, stem: str,
                 golden_bytes: int, built_in: frozenset[str] = frozenset()) -> None:
        self.line = line
        self.op = op
        self.mode = mode
        self.pattern = pattern
        self.stem = stem  # a short name, legal in any file system
        self.golden_bytes = golden_bytes  # of its exact outputs in float64
        self.built_in = built_in  # conventions that the kernel has without a parameter: see suite()

    @overload
    def call(self) -> Call: ...
    @overload
    def call(self, kernel: Callable[..., Any], device: Any = None) -> Any: ...
    def call(self, kernel: Callable[..., Any] | None = None, device: Any = None) -> Any:
        """The call without outputs, made anew: a kernel may write into its arrays. With a kernel: what that
        returns, given the inputs by name as NumPy arrays, or on a device as torch tensors.

        Conventions go to the kernel's parameters of their names, and all of them to one named `convention`. Where
        an input has the name (`beta`), the parameter takes the input.
        Raises TypeError for a kernel that does not take an input, or a convention that is not the default and
        that supports=dict(NAME=VALUE) of suite() does not say to be the kernel's own.
        """
        call = unpacked(_core.make_call(self.line))
        if kernel is None:
            return call
        inputs = call.inputs if device is None else as_torch(call.inputs, device)
        return kernel(**taken(kernel, self.line, inputs, call.convention, self.built_in))

    @property
    def inputs(self) -> dict[str, Any]:
        """NumPy arrays, made anew; bfloat16 has the type of ml_dtypes."""
        return self.call().inputs

    @property
    def convention(self) -> dict[str, Any]:
        return self.call().convention

    def tensors(self, device: Any = None) -> dict[str, Any]:
        """The inputs as torch tensors. For "cuda" where torch sees no GPU: skips the test that pytest runs,
        elsewhere RuntimeError."""
        return as_torch(self.inputs, device)

    def gradients(self, device: Any = None) -> dict[str, Any]:
        """The arguments of goldenrule.gradcheck that a case of a backward operation is, made anew as torch
        tensors: inputs, do, dfinal_state (None where nobody uses the final state), op and convention.
        ValueError for a case of another operation; `device` as in tensors()."""
        call = self.call()
        if call.op not in _capture.BACKWARD_OPS:
            raise ValueError(f"gradients: expected a case of {' or '.join(_capture.BACKWARD_OPS)}, actual one of "
                             f"{call.op}")
        inputs = as_torch(call.inputs, device)
        return {"do": inputs.pop("do"), "dfinal_state": inputs.pop("dfinal_state", None), "inputs": inputs,
                "op": call.op.removesuffix("_backward"), "convention": dict(call.convention)}

    def judge(self, outputs: Mapping[str, Any], **options: Any) -> Report:
        """Judges a kernel's outputs; the options are those of goldenrule.judge."""
        call = self.call()
        call.outputs = mapping("outputs", outputs)
        return call.judge(**options)

    def expected(self, **options: Any) -> ExpectedCall:
        return self.call().expected(**options)

    def __repr__(self) -> str:
        return f"goldenrule.fixture({self.line!r})"

    def __str__(self) -> str:
        return self.line


def call_of(case: Any) -> Call:
    """The call of a case, made anew, or a call as it is. TypeError for anything else."""
    if callable(getattr(case, "call", None)):
        return case.call()
    if not hasattr(case, "judge"):
        raise TypeError(f"expected a case (goldenrule.fixture(line), goldenrule.cases(..)) or a goldenrule.Call, "
                        f"actual {type(case).__name__}")
    return case


def fixture(line: str) -> Case:
    """The case of a line, as "op=gdn mode=decode B=2 H=2 HV=4 K=64 V=64"."""
    rows = _core.cases(text_of("line", line)) if "=" in line else []
    if len(rows) != 1:
        raise ValueError(f"expected one case line, actual {line!r}"
                         + (f", {len(rows)} of them: suite()" if rows else ""))
    return Case(**rows[0])


# Inputs of a delta rule on states in the rows of its batch, without slots, buffers or drafts.
_ORDINARY = frozenset(("q", "k", "v", "a", "b", "g", "beta", "A_log", "dt_bias", "initial_state",
                       "cu_seqlens"))
Supports = Mapping[str, Any] | Callable[[Case], bool]


class Cases(list[Case]):
    """Cases in their order; as a decorator of a test with an argument `case`, one run for each."""

    def __call__(self, test: Any) -> Any:
        import pytest

        return pytest.mark.parametrize("case", [pytest.param(c, id=c.stem) for c in self])(test)


def suite(name: str, *, op: str | None = None, mode: str | None = None, pattern: str | None = None,
          max_bytes: int | None = None, supports: Supports | None = None) -> Cases:
    """The cases of a suite, or of a line with braces (B={1,3}), in their order.

    op, mode, pattern: only these; max_bytes: only cases whose exact outputs, in float64, need no more.
    supports: what a kernel takes, as a function of the case, or as a mapping: a convention to its value or
    a tuple of values, `inputs` to the names of further inputs (slots: "state_indices"). Of conventions that
    it does not name only the default is left, and of inputs those that every delta rule has. A convention
    with one value is the kernel's own, for which Case.call asks no parameter.
    """
    wanted = {"op": _OP_OF_LINES.get(op, op), "mode": mode, "pattern": pattern}
    rows = _core.cases(text_of("name", name))
    for key, value in wanted.items():
        known = {row[key] for row in rows}
        if value is not None and value not in known:
            raise ValueError(f"{key}: expected one of {', '.join(sorted(known))}, actual {value!r}")
    served = _served_by(supports)
    named = {} if supports is None or callable(supports) else supports
    built_in = frozenset(name for name, values in named.items() if len(_several(values)) == 1)
    return Cases(case for row in rows
                 if all(value in (None, row[key]) for key, value in wanted.items())
                 and (max_bytes is None or row["golden_bytes"] <= max_bytes)
                 and served(case := Case(**row, built_in=built_in)))


def cases(name: str, *, supports: Supports | None = None, **filters: Any) -> Cases:
    """For a test with an argument `case`: it runs once for every case of suite(name, ..).

    Of a suite, without `supports`: the cases that an ordinary kernel serves, of default conventions and
    without slots. Of a line: all.
    """
    if supports is None and "=" not in name:
        supports = {}
    found = suite(name, supports=supports, **filters)
    if not found:
        raise ValueError(f"{name}: no case is left by {filters} and supports={supports} (of a suite by default "
                         "what an ordinary kernel serves; supports=lambda case: True leaves all)")
    return found


def _served_by(supports: Supports | None) -> Callable[[Case], bool]:
    if supports is None:
        return lambda case: True
    if callable(supports):
        return supports
    taken = dict(supports)
    inputs = taken.pop("inputs", ())
    further = {inputs} if isinstance(inputs, str) else set(inputs)
    defaults = _defaults()
    for name in taken.keys() - defaults.keys():
        raise ValueError(f"supports: expected inputs or one of {', '.join(sorted(defaults))}, "
                         f"actual {name!r}")

    def served(case: Case) -> bool:
        call = case.call()
        values = {**defaults, **taken}
        return (all(value in _several(values[name]) for name, value in call.convention.items())
                and (case.op not in ("gated_delta_rule", "kda")
                     or call.inputs.keys() <= _ORDINARY | further))

    return served


def _several(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, (tuple, list, set, frozenset)) else (values,)


def _defaults() -> dict[str, Any]:
    return {row["name"]: row.get("default") for row in schema()["conventions"]}


def taken(kernel: Callable[..., Any], line: str, inputs: Mapping[str, Any],
           convention: Mapping[str, Any], built_in: frozenset[str]) -> dict[str, Any]:
    """What the kernel is given of a case."""
    if not callable(kernel):
        raise TypeError(f"kernel: expected what can be called, actual {kernel!r}")
    try:
        parameters = inspect.signature(kernel).parameters
    except ValueError:  # of a compiled function that does not say them
        parameters, takes_all = {}, True
    else:
        takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    defaults = _defaults()
    given = {name: value for name, value in convention.items() if name in parameters} | dict(inputs)
    missing = [] if takes_all else [name for name in inputs if name not in parameters]
    if "convention" in parameters:
        given["convention"] = dict(convention)
    else:
        missing += [f"{name}={value!r}" for name, value in convention.items()
                    if name not in {*parameters, *built_in} and value != defaults[name]]
    if missing:
        own = next((name for name in missing if "=" in name), "")
        say = (f"goldenrule.cases(.., supports=dict({own})) says that the kernel does so without one, "
               if own else "")
        raise TypeError(f"{getattr(kernel, '__name__', 'the kernel')}: expected parameters for "
                        f"{', '.join(missing)} of {line}, actual ({', '.join(parameters)}): "
                        f"{say}goldenrule.cases(.., supports=..) leaves such cases out")
    return given
