# SPDX-License-Identifier: Apache-2.0
"""The assertion of a test. Its failure message is the report; under pytest the plug-in keeps what it
has judged (pytest_plugin.py)."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ._calls import Call, mapping
from ._cases import Case, call_of, skip_test
from ._report import Report

if TYPE_CHECKING:
    from ._gradcheck import Gradients

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
        call = Call(op=op, mode=mode, convention=mapping("convention", convention or {}),
                    inputs=mapping("inputs", inputs or {}))
    elif op or mode or inputs is not None or convention is not None:
        raise TypeError("expected a case or op, mode, inputs and convention, actual both")
    else:
        call = call_of(case)
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


def assert_gradients(function: Callable[..., Any], inputs: Mapping[str, Any], do: Any,
                     dfinal_state: Any = None, *, allow_mistrusted: bool = False,
                     **options: Any) -> "Gradients":
    """Asserts that a function's outputs and its gradients by autograd pass: the arguments and exceptions are
    those of goldenrule.gradcheck.

    What is out of budget, or cannot be bounded, is an AssertionError; so are a pass that says nothing
    (MISTRUSTED) unless that is allowed, and a gradient that is not there. Passes that cannot be judged otherwise
    (SKIPPED) skip the test with the reason.
    """
    __tracebackhide__ = True
    from ._gradcheck import gradcheck

    found = gradcheck(function, inputs, do, dfinal_state, **options)
    passes = ((found.forward_call, found.forward), (found.backward_call, found.backward))
    notes = [note for call, report in passes for note in (each(call, report) for each in observers) if note]
    wrong = [report for _, report in passes if not report.passed
             and not (allow_mistrusted and report.verdict == "MISTRUSTED")]
    missing = [name for report in wrong for name in report.data.get("absent") or []]
    if wrong and not missing and not found.unwritten and all(each.verdict == "SKIPPED" for each in wrong):
        skip_test(wrong[0].reason)
    if missing:
        notes.insert(0, f"  expected {', '.join(missing)} as well, or only=(..) without it")
    if wrong or found.unwritten:
        raise AssertionError("\n".join([str(found), *notes]))
    return found


def _replay(case: Any) -> list[str]:
    """Of a case: who gives a call of his own may have changed what its line says."""
    return [f"  replay: {case!r}"] if isinstance(getattr(case, "line", None), str) else []
