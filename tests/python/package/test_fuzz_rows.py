# SPDX-License-Identifier: Apache-2.0
"""Whatever an engine passes to a recorded function, its call is judged or refused with one exception of a
kind that says what was wrong (test_fuzz.py has the same of what a user passes)."""

import sys

import numpy as np
import stand_ins
import test_engine_rows
import test_rows
from hypothesis import given, settings
from hypothesis import strategies as some
from test_fuzz import PROFILE, REFUSALS, anything, types

import goldenrule

CALLS = [(function, line, test_engine_rows.arguments, test_engine_rows.results)
         for function, line in test_engine_rows.CALLS]
CALLS += [(function, line, lambda _, case, form=form: form(case), test_rows.results)
          for function, form, line in test_rows.CALLS]
FORMS = [lambda x: x[:1], lambda x: x[..., ::-1], lambda x: x.reshape(-1), np.asfortranarray,
         lambda x: x[..., :0], lambda x: np.broadcast_to(x, (2, *x.shape))]


@some.composite
def changed_calls(draw):
    """(function, what it returns, its arguments, of which one or two are replaced)."""
    function, line, arguments, results = draw(some.sampled_from(CALLS))
    case = goldenrule.fixture(line)
    given = arguments(function, case)
    for _ in range(draw(some.integers(1, 2))):
        name = draw(some.sampled_from(stand_ins.row(function).parameters))
        name, value = "more" if name == "kwargs" else name, draw(anything)
        present = given.get(name)
        if isinstance(present, np.ndarray) and present.ndim and draw(some.booleans()):
            value = draw(some.sampled_from(FORMS))(present.astype(draw(types)))
        given[name] = value

    def honest(function, arguments, outputs):
        try:
            return results(function, arguments, outputs)
        except Exception:  # what was replaced is no place for a result
            return outputs["o"], outputs.get("final_state")

    return stand_ins.stand_in(function, case, honest), given


@settings(max_examples=60, **PROFILE)
@given(changed_calls())
def test_a_call_of_an_engine_is_judged_or_refused(changed):
    (module, function), arguments = changed
    sys.modules[module.__name__] = module
    try:
        with np.errstate(all="ignore"), goldenrule.record(function, explain=False) as calls:
            calls.function(**arguments)
        assert calls[0].report.verdict in str(calls[0].report)
    except REFUSALS as refusal:
        assert str(refusal) and not calls.passed
    finally:
        del sys.modules[module.__name__]
