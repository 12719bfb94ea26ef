# SPDX-License-Identifier: Apache-2.0
"""The tables of the library, as it has them: nothing is written down here."""

import json
from typing import Any

from . import _core


def schema() -> dict[str, Any]:
    """Operations with their tensors, conventions with their values and defaults, contracts."""
    return json.loads(_core.schema())


def suites() -> list[dict[str, Any]]:
    """The suites: name, number of cases, meaning."""
    return json.loads(_core.table("suites"))


def patterns() -> list[dict[str, Any]]:
    """The patterns of inputs: name, meaning."""
    return json.loads(_core.table("patterns"))


def contracts() -> list[dict[str, Any]]:
    """The built-in contracts: name, meaning."""
    return json.loads(_core.table("contracts"))


def mistakes() -> list[dict[str, Any]]:
    """The known mistakes: name, group, where each can be made, meaning, where it was reported."""
    return json.loads(_core.table("mistakes"))


def stages(of: str = "delta") -> list[dict[str, Any]]:
    """Stages of chunked kernels of a family, "delta" or "backward", in the order of the computation: name, shape,
    meaning, forms, not_judged, saved (by one kernel for another: it counts to the verdict), of."""
    return [row for row in json.loads(_core.table("stages")) if row["of"] == of]


def contract(name: str) -> dict[str, Any]:
    """A contract with all its roundings: a built-in one, that of a .json file, or a JSON text."""
    if not isinstance(name, str):
        raise TypeError(f"name: expected a text, actual {type(name).__name__}")
    return json.loads(_core.contract(name))
