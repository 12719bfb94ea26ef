# SPDX-License-Identifier: Apache-2.0
"""From the arguments of another library's function to those of an operator, by the row that also the
recorder reads it with (goldenrule/_rows.py): one table says what they mean. A value that is not in
the row is refused by its name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .._rows import ROWS

Tensor = torch.Tensor

_ROW_OF = {row.function: row for row in ROWS}
_OPTION_OF = {"gate": "gate_kind", "beta": "beta_kind", "qk_l2norm": "qk_norm"}


@dataclass
class Meaning:
    """Inputs by their names in the schema, the options of an operator, and whether the row calls it
    recurrent: every token in fp32, where other functions may round within chunks."""

    inputs: dict[str, Any]
    options: dict[str, Any]
    recurrent: bool

    def token_inputs(self) -> tuple[Any, ...]:
        """q, k, v, gate, beta."""
        given = self.inputs
        gate, beta = given.get("a", given.get("g")), given.get("b", given.get("beta"))
        if beta is None:
            raise ValueError("beta: expected a tensor, actual None (no operator takes beta = 1 for it)")
        return given["q"], given["k"], given["v"], gate, beta


def meaning_of(function: str, arguments: Mapping[str, Any]) -> Meaning:
    row = _ROW_OF[function]
    call = row.call(arguments, ())
    options: dict[str, Any] = {_OPTION_OF.get(name, name): value
                               for name, value in call.convention.items()}
    if "disable_state_update" in options:
        options["disable_state_update"] = bool(options["disable_state_update"])
    inputs = dict(call.inputs)
    kda = call.op == "kda"
    for name in ("A_log", "dt_bias"):
        if name in inputs:
            options[name] = _parameter(name, inputs.pop(name), inputs["q"], kda and name == "dt_bias")
    return Meaning(inputs, {"op": call.op, **options}, row.contract == "recurrent_f32")


def _parameter(name: str, tensor: Tensor, q: Tensor, by_channel: bool) -> Tensor:
    """A parameter in a checkpoint's shape, [1,1,HV,1] or [HV*K], as [HV] or [HV,K]; never a copy."""
    return viewed(name, tensor, (-1, q.shape[-1]) if by_channel else (-1,))


def viewed(name: str, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    try:
        return tensor.view(shape)
    except RuntimeError as error:
        raise ValueError(f"{name}: expected strides that allow the shape {list(shape)} without a copy, "
                         f"actual shape {list(tensor.shape)}, stride {list(tensor.stride())}") from error


def packed(name: str, tensor: Tensor | None) -> Tensor | None:
    """[B,T,..] as [B*T,..]."""
    if tensor is None:
        return None
    return viewed(name, tensor, (tensor.shape[0] * tensor.shape[1], *tensor.shape[2:]))
