# SPDX-License-Identifier: Apache-2.0
"""goldenrule in the place of SOL-ExecBench's (1.0.2) comparison, for the gdn_ and kda_ definitions of FlashInfer-Trace
that it runs.

Its driver calls compute_error_stats(output, reference, tolerance) for one output after the other. Here is one call for
all outputs, with what the driver has at that place; the answer has the same two parts:

    correctness, exceeds = check(definition, inputs, user_outputs, ref_outputs, workload.tolerance)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verdicts import judged, package, said

_WHERE = "https://github.com/NVIDIA/SOL-ExecBench"


def check(definition: Any, inputs: Sequence[Any], outputs: Sequence[Any], references: Sequence[Any],
          tolerance: Any) -> tuple[Any, bool]:
    """Their record of the output with the largest error, the verdict in its field `extra`; and whether the solution
    is wrong, which goldenrule alone decides.

    definition: theirs, or what its JSON holds. inputs: copies from before the call, in the definition's order.
    """
    compare = package("sol_execbench.core.bench.correctness", _WHERE).compute_error_stats
    known = definition if isinstance(definition, Mapping) else definition.model_dump(mode="json")
    report = judged(known, inputs, list(outputs))
    records = [compare(output, reference, tolerance)[0] for output, reference in zip(outputs, references)]
    worst = max(records, key=lambda each: (each.has_nan, each.has_inf, each.max_absolute_error))
    worst.extra = {**(worst.extra or {}), "goldenrule": said(report)}
    return worst, not report.passed
