# SPDX-License-Identifier: Apache-2.0
"""The rules by which public benchmarks call an output correct, each with the release it was read from.

Arrays go in, what a rule says comes out: in the arithmetic of the rule (fp32; KernelBench compares in the type of
the tensors), element by element, so that the result is the same everywhere. tests/python/package/test_evaluators.py
compares them with flashinfer-bench and torch themselves, where those are installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_F32 = np.float32


@dataclass(frozen=True)
class Said:
    """What a rule says of the outputs of a call."""

    passed: bool
    beyond: float  # the share of elements beyond the tolerance, of the output with most of them

    def __str__(self) -> str:
        whole = 100 * self.beyond
        share = f", {whole:.0f} %" if whole >= 1 else ", < 1 %" if whole else ""
        return ("passes" if self.passed else "caught") + share


@dataclass(frozen=True)
class Rule:
    """A rule: of one output and its reference the share beyond the tolerance; None where it fails anyhow."""

    name: str
    says: str
    beyond: Callable[[np.ndarray, np.ndarray], float | None]
    allowed: float  # the largest share beyond with which it passes

    def __call__(self, outputs: Sequence[np.ndarray], references: Sequence[np.ndarray]) -> Said:
        if len(outputs) != len(references):
            raise ValueError(f"{self.name}: expected {len(references)} outputs, actual {len(outputs)}")
        shares = []
        for number, (output, reference) in enumerate(zip(outputs, references)):
            if (output.shape, output.dtype) != (reference.shape, reference.dtype):
                raise ValueError(f"{self.name}: output {number}: expected {reference.dtype} {reference.shape}, "
                                 f"actual {output.dtype} {output.shape}")
            shares.append(self.beyond(output, reference))
        matched = [None if share is None else min(1.0, max(0.0, 1.0 - share)) for share in shares]
        passed = all(share is not None and share >= 1.0 - self.allowed for share in matched)
        return Said(passed, max(1.0 if share is None else share for share in shares))


def _share(beyond: np.ndarray) -> float:
    return float(np.count_nonzero(beyond)) / beyond.size if beyond.size else 0.0


def _flashinfer_bench(output: np.ndarray, reference: np.ndarray) -> float | None:
    x, y = output.astype(_F32), reference.astype(_F32)
    if not np.isfinite(x).all():
        return None
    error = np.abs(x - y)
    return _share((error > _F32(1e-2)) & (error / (np.abs(y) + _F32(1e-8)) > _F32(1e-2)))


def _sol_execbench(output: np.ndarray, reference: np.ndarray) -> float | None:
    x, y = output.astype(_F32), reference.astype(_F32)
    if not (np.isfinite(x).all() and np.isfinite(y).all()) or (y.any() and not x.any()):
        return None
    return _share(np.abs(x - y) > _F32(1e-2) + _F32(1e-2) * np.abs(y))


def _kernelbench(tolerance: float) -> Callable[[np.ndarray, np.ndarray], float | None]:
    """allclose(reference, candidate): the relative part is of the candidate, each step in their type. torch (on a CPU)
    multiplies by the tolerance in fp32 and adds it in the type of the tensors."""
    def beyond(output: np.ndarray, reference: np.ndarray) -> float | None:
        kind, bound = output.dtype, _F32(tolerance)
        relative = (bound * output.astype(_F32)).astype(kind)
        allowed = (bound.astype(kind).astype(_F32) + np.abs(relative).astype(_F32)).astype(kind)
        error = np.abs((reference.astype(_F32) - output.astype(_F32)).astype(kind))
        return _share(~((error.astype(_F32) <= allowed.astype(_F32)) & np.isfinite(error.astype(_F32))))

    return beyond


RULES: Mapping[str, Rule] = {rule.name: rule for rule in (
    Rule("FlashInfer-Bench 0.1.2", "no element with abs error > 1e-2 and rel error > 1e-2, none of the outputs "
         "with inf or nan", _flashinfer_bench, 0.0),
    Rule("SOL-ExecBench 1.0.2", "99 % of the elements with abs(y - x) <= 1e-2 + 1e-2 abs(x), all finite, no "
         "output of zeros where the reference has others", _sol_execbench, 1.0 - 0.99),
    Rule("KernelBench 0.2.0.dev0, fp32", "allclose with 1e-4, the one output", _kernelbench(1e-4), 0.0),
    Rule("KernelBench 0.2.0.dev0, bf16", "allclose with 1e-2, the one output", _kernelbench(1e-2), 0.0),
    Rule("KernelBench 0.1, fp32", "allclose with 1e-2, the one output", _kernelbench(1e-2), 0.0),
)}
