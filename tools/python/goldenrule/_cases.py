# SPDX-License-Identifier: Apache-2.0
"""Generated calls: one line of text is a case, and the library makes its inputs from it, the same
bytes everywhere. A suite is a list of such lines."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import _core
from ._calls import Call, ExpectedCall, text_of, unpacked
from ._report import Report


def as_torch(arrays: Mapping[str, Any], device: Any) -> dict[str, Any]:
    """Arrays as torch tensors; bfloat16 has the type of ml_dtypes, which torch does not know."""
    import numpy as np
    import torch

    def tensor(array: Any) -> Any:
        if array.dtype.name == "bfloat16":
            made = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        else:
            made = torch.from_numpy(array)
        return made if device is None else made.to(device)

    return {name: tensor(array) for name, array in arrays.items()}


class Case:
    """One case. Its tensors are made when they are asked for."""

    def __init__(self, line: str, op: str, mode: str, family: str, stem: str,
                 golden_bytes: int) -> None:
        self.line = line
        self.op = op
        self.mode = mode
        self.family = family
        self.stem = stem  # a short name, legal in any file system
        self.golden_bytes = golden_bytes  # of its exact outputs in float64

    def call(self) -> Call:
        """The call without outputs, made anew: a kernel may write into its arrays."""
        return unpacked(_core.make_call(self.line))

    @property
    def inputs(self) -> dict[str, Any]:
        """NumPy arrays, made anew; bfloat16 has the type of ml_dtypes."""
        return self.call().inputs

    @property
    def convention(self) -> dict[str, Any]:
        return self.call().convention

    def tensors(self, device: Any = None) -> dict[str, Any]:
        """The inputs as torch tensors."""
        return as_torch(self.inputs, device)

    def judge(self, outputs: Mapping[str, Any], **options: Any) -> Report:
        """Judges a kernel's outputs; the options are those of goldenrule.judge."""
        call = self.call()
        call.outputs = dict(outputs)
        return call.judge(**options)

    def expected(self, **options: Any) -> ExpectedCall:
        return self.call().expected(**options)

    def __repr__(self) -> str:
        return f"goldenrule.fixture({self.line!r})"

    def __str__(self) -> str:
        return self.line


def fixture(line: str) -> Case:
    """The case of a line, as "op=gdn mode=decode B=2 H=2 HV=4 K=64 V=64"."""
    rows = _core.cases(text_of("line", line)) if "=" in line else []
    if len(rows) != 1:
        raise ValueError(f"expected one case line, actual {line!r}"
                         + (f", {len(rows)} of them: suite()" if rows else ""))
    return Case(**rows[0])


def suite(name: str, *, op: str | None = None, mode: str | None = None, family: str | None = None,
          max_bytes: int | None = None) -> Iterator[Case]:
    """The cases of a suite, or of a line with braces (B={1,3}), in their order.

    op, mode, family: only these; max_bytes: only cases whose exact outputs, in float64, need no more.
    """
    wanted = {"op": op, "mode": mode, "family": family}
    rows = _core.cases(text_of("name", name))
    for key, value in wanted.items():
        known = {row[key] for row in rows}
        if value is not None and value not in known:
            raise ValueError(f"{key}: expected one of {', '.join(sorted(known))}, actual {value!r}")
    return (Case(**row) for row in rows
            if all(value in (None, row[key]) for key, value in wanted.items())
            and (max_bytes is None or row["golden_bytes"] <= max_bytes))


def cases(name: str, **filters: Any) -> Callable[[Any], Any]:
    """For a test with an argument `case`: it runs once for every case of suite(name, **filters)."""
    import pytest

    found = list(suite(name, **filters))
    if not found:
        raise ValueError(f"{name}: no case is left by {filters}")
    return pytest.mark.parametrize("case", [pytest.param(c, id=c.stem) for c in found])
