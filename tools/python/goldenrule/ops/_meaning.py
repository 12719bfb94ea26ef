# SPDX-License-Identifier: Apache-2.0
"""From the arguments of another library's function to those of an operator, by the row that also the
recorder reads it with (goldenrule/_rows.py): one table says what they mean. A value that is not in
the row is refused by its name.

What a call means follows from which arguments are tensors and from the values of the others, and is
looked up from the second call on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .._rows import ROWS

_ROW_OF = {row.function: row for row in ROWS}
_OPTION_OF = {"gate": "gate_kind", "beta": "beta_kind", "qk_l2norm": "qk_norm"}
_TENSOR_OF = {"a": "gate", "g": "gate", "b": "beta", "initial_state": "state"}
_MOST_KNOWN = 256  # meanings of a function, when a number among its arguments is another in each call


@dataclass
class Meaning:
    """Operator's tensor -> the argument that it is, without `state` and cu_seqlens; the options of an
    operator; and whether the row calls the function recurrent: every token in fp32, where others may
    round within chunks."""

    tensors: tuple[tuple[str, str], ...]
    start: str  # the argument that is the start state; empty: none
    options: dict[str, Any]
    recurrent: bool

    def operands(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The tensors and options of an operator, of which the caller names the others."""
        given = self.options.copy()
        for name, argument in self.tensors:
            given[name] = arguments[argument]
        return given


@dataclass
class _Stand:
    """In the place of a tensor, so that it is seen where the row puts it."""

    argument: str
    tensor: torch.Tensor

    @property
    def shape(self) -> torch.Size:
        return self.tensor.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype


def _meaning_of(function: str, arguments: Mapping[str, Any]) -> Meaning:
    row = _ROW_OF[function]
    call = row.call({name: _Stand(name, value) if isinstance(value, torch.Tensor) else value
                     for name, value in arguments.items()}, ())
    options = {_OPTION_OF.get(name, name): value for name, value in call.convention.items()}
    if "disable_state_update" in options:
        options["disable_state_update"] = bool(options["disable_state_update"])
    if not {"b", "beta"} & set(call.inputs):
        raise ValueError("beta: expected a tensor, actual None (no operator takes beta = 1 for it)")
    tensors = {_TENSOR_OF.get(name, name): stand.argument for name, stand in call.inputs.items()}
    tensors.setdefault("gate", "")
    start = tensors.pop("state", "")
    tensors.pop("cu_seqlens", None)
    absent = [name for name, argument in tensors.items() if not argument]
    return Meaning(tuple((name, argument) for name, argument in tensors.items() if argument), start,
                   {"op": call.op, **options, **dict.fromkeys(absent)}, row.contract == "recurrent_f32")


class Meanings:
    """Those of a function, by what they follow from."""

    def __init__(self, function: str) -> None:
        self._function = function
        self._known: dict[tuple[Any, ...], Meaning] = {}

    def of(self, arguments: Mapping[str, Any]) -> Meaning:
        key = tuple([torch.Tensor if isinstance(x, torch.Tensor) else x for x in arguments.values()])
        try:
            known = self._known.get(key)
        except TypeError:  # a list, say, which no row knows
            return _meaning_of(self._function, arguments)
        if known is None:
            known = _meaning_of(self._function, arguments)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = known
        return known
