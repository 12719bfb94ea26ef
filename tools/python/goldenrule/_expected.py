# SPDX-License-Identifier: Apache-2.0
"""What the outputs of a call must be, as arrays, and how arrays are told in a line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


def told(values: Mapping[str, Any]) -> str:
    """Names with their values, arrays and tensors as their type and shape."""
    return ", ".join(f"{name}={value.dtype}{list(value.shape)}" if hasattr(value, "shape") else
                     f"{name}={value!r}" for name, value in values.items())


@dataclass(frozen=True, repr=False)
class Expected:
    """What an output must be. An element y is right where it has no budget but its own:
    abs(y - golden) <= radius + budget. NaN in golden: no kernel writes the element, or no input that
    reaches it is finite. budget is None where the contract gives none."""

    golden: np.ndarray
    radius: np.ndarray
    budget: np.ndarray | None

    def __repr__(self) -> str:
        return f"Expected({told(vars(self))})"


@dataclass(frozen=True)
class ExpectedCall:
    contract: str
    precision_bits: int
    outputs: dict[str, Expected]

    def __getitem__(self, name: str) -> Expected:
        return self.outputs[name]
