# SPDX-License-Identifier: Apache-2.0
"""An evaluator for flashinfer-bench (0.1.2) by which goldenrule judges the solutions of gdn_ and kda_ definitions.

    import flashinfer_bench_evaluator
    flashinfer_bench_evaluator.register()        # at the top level of the script that runs the benchmark

Its workers are new processes, which run the top level of that script again, and so find the evaluator. It takes the
definitions that goldenrule.trace knows; all others keep the evaluators that they had.
"""

from __future__ import annotations

from typing import Any

from goldenrule import trace
from verdicts import copied, judged, package, said

_WHERE = "pip install flashinfer-bench"


class _Recorded:
    """A solution that keeps what it was called with and what it left."""

    def __init__(self, solution: Any, inputs: int) -> None:
        self._solution, self._inputs = solution, inputs
        self.metadata = solution.metadata
        self.arguments: list[Any] = []
        self.results: Any = None

    def __call__(self, *arguments: Any) -> Any:
        self.arguments = copied(arguments[:self._inputs])
        returned = self._solution(*arguments)
        self.results = arguments[self._inputs:] if self.metadata.destination_passing_style else returned
        return returned


def _plain(definition: Any) -> dict[str, Any]:
    """The definition as its JSON has it."""
    return dict(definition.model_dump(mode="json"))


def evaluator() -> type:
    """The class, a subclass of the package's DefaultEvaluator, which runs and times the solution as before."""
    base = package("flashinfer_bench.bench.evaluators", _WHERE).DefaultEvaluator
    make_eval = package("flashinfer_bench.bench.utils", _WHERE).make_eval
    status = package("flashinfer_bench.data", _WHERE).EvaluationStatus

    class GoldenruleEvaluator(base):  # type: ignore[misc]
        """Shapes, types and errors of the solution are told as DefaultEvaluator tells them; the numbers of each
        trial are right where goldenrule says so."""

        @classmethod
        def can_evaluate(cls, definition: Any) -> bool:
            try:
                trace.read(_plain(definition), [])
            except ValueError:
                return False
            return True

        @classmethod
        def check_correctness(cls, definition: Any, sol_runnable: Any, inputs: list[Any], ref_outputs: list[Any],
                              cfg: Any, log_path: str, device: str) -> tuple[Any, Any]:
            known, correctness = _plain(definition), None
            for arguments, expected in zip(inputs, ref_outputs):
                solution = _Recorded(sol_runnable, len(arguments))
                correctness, refused = super().check_correctness(definition, solution, [arguments], [expected],
                                                                 cfg, log_path, device)
                if refused is not None and refused.status != status.INCORRECT_NUMERICAL:
                    return correctness, refused
                report = judged(known, solution.arguments, solution.results)
                correctness.extra = {**(correctness.extra or {}), "goldenrule": said(report)}
                if not report.passed:
                    return correctness, make_eval(status=status.INCORRECT_NUMERICAL, device=device,
                                                  log_path=log_path, correctness=correctness,
                                                  extra_msg=str(report))
            return correctness, None

    return GoldenruleEvaluator


def register() -> type:
    """Puts the evaluator into the package's registry, once, and returns it."""
    registry = package("flashinfer_bench.bench.evaluators.registry", _WHERE)._EVALUATORS
    there = next((each for each in registry if each.__name__ == "GoldenruleEvaluator"), None)
    if there is None:
        there = evaluator()
        registry.append(there)
    return there
