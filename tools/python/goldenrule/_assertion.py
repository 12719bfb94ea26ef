# SPDX-License-Identifier: Apache-2.0
"""The assertion of a test. Its failure message is the report; under pytest the plug-in keeps what it
has judged (pytest_plugin.py)."""

from collections.abc import Callable, Mapping
from typing import Any

from ._calls import Call, mapping
from ._cases import Case, skip_test
from ._report import Report

# Called with each call and its report before the assertion is decided; what they return is added to
# the message of a failure.
observers: list[Callable[[Call, Report], str]] = []


def assert_delta_rule(case: Case | Call | None = None, *, outputs: Mapping[str, Any],
                      allow_mistrusted: bool = False, op: str = "", mode: str = "",
                      inputs: Mapping[str, Any] | None = None,
                      convention: Mapping[str, Any] | None = None, source: str = "",
                      **options: Any) -> Report:
    """Asserts that a kernel's outputs pass, of a case of a suite or of the call that is described as
    in goldenrule.judge, whose other options it takes.

    A call that is out of budget, or that the oracle cannot bound, is an AssertionError; so is a pass
    that says nothing (MISTRUSTED) unless that is allowed, and one that an output is missing of, which
    only=("o",) says that nobody wants. One that cannot be judged otherwise (SKIPPED) skips
    the test with the reason.
    """
    __tracebackhide__ = True
    if case is None:
        call = Call(op=op, mode=mode, convention=dict(convention or {}), inputs=dict(inputs or {}))
    elif op or mode or inputs is not None or convention is not None:
        raise TypeError("expected a case or op, mode, inputs and convention, actual both")
    else:
        call = case.call() if hasattr(case, "call") else case
    call.outputs, call.source = mapping("outputs", outputs), source or call.source
    report = call.judge(**options)
    notes = [note for note in (observe(call, report) for observe in observers) if note]
    missing = report.data.get("absent") or []
    if report.verdict == "SKIPPED" and not missing:
        skip_test(report.reason)
    if report.verdict == "SKIPPED":
        notes.insert(0, f"  expected the outputs {', '.join(missing)} as well, or only=({', '.join(map(repr, outputs))},)")
    allowed = report.passed or (allow_mistrusted and report.verdict == "MISTRUSTED")
    if not allowed:
        raise AssertionError("\n".join([str(report), *_replay(case), *notes]))
    return report


def _replay(case: Any) -> list[str]:
    """Of a case: who gives a call of his own may have changed what its line says."""
    return [f"  replay: {case!r}"] if isinstance(getattr(case, "line", None), str) else []
