# SPDX-License-Identifier: Apache-2.0
"""What the adapters of this folder share: a public package where it is installed, and a verdict as a benchmark asks
for it, right or wrong. A call that goldenrule does not judge is no right one: its verdict says why."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import goldenrule
from goldenrule import trace


def package(name: str, where: str) -> Any:
    """A module of public software; ImportError says where it comes from."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{name}: expected the package ({where}), actual {error}") from error


def judged(definition: Mapping[str, Any], arguments: Any, results: Any, **options: Any) -> goldenrule.Report:
    """The report on what the kernel of a definition of FlashInfer-Trace returned for these arguments.

    The arguments are those before the call: where the kernel writes into them, copies.
    """
    return trace.call_of(definition, arguments, results).judge(**options)


def copied(values: Any) -> list[Any]:
    """Arguments as they are now; numbers stay."""
    return [value.clone() if hasattr(value, "clone") else value for value in values]


def said(report: goldenrule.Report) -> dict[str, Any]:
    """The verdict as a record of numbers and texts, for the extra fields of a benchmark's result."""
    return {"verdict": report.verdict, "contract": report.contract, "mistake": report.explanation,
            "error_over_budget": max((tensor.max_ratio for tensor in report.tensors.values()), default=0.0)}
