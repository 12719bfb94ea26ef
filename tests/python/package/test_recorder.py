# SPDX-License-Identifier: Apache-2.0
"""The recorder, on functions of NumPy; test_real_software.py has those of others."""

import functools
import sys
import types

import kernels
import numpy as np
import pytest

import goldenrule

ROW = goldenrule.Row(
    function="engine.step", op="gated_delta_rule", parameters=("x", "state", "options", "mode"),
    inputs={"q": "q", "k": "k", "v": "v", "a": "a", "b": "b", "A_log": "A_log",
            "dt_bias": "dt_bias", "state": "initial_state"},
    outputs=("o",), fixed={"mode": ("plain",)}, ignored=("x", "options"), release="engine 1")


@pytest.fixture
def engine(monkeypatch):
    """A module with a function that updates its state in place, and one that imported it."""
    module, user = types.ModuleType("engine"), types.ModuleType("user")
    case = goldenrule.fixture(kernels.LINE)

    def step(x, state, options=None, mode="plain", **tensors):
        outputs = kernels.exact(case)
        state[:] = outputs["final_state"]
        return outputs["o"] * np.asarray(x, outputs["o"].dtype)

    step.__module__ = "engine"
    module.step = user.step = step
    for each in (module, user):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    module.case = case
    return module


def row_for(function):
    return goldenrule.Row(**{**vars(ROW), "parameters": ("x", "state", "options", "mode", "tensors")})


def arguments(engine):
    inputs = engine.case.inputs
    return inputs.pop("initial_state"), inputs


def test_calls_are_judged_as_they_went_in(engine, tmp_path):
    step, user = engine.step, sys.modules["user"]
    with goldenrule.record(step, row=row_for(step), only="o", keep=tmp_path, explain=False) as calls:
        assert user.step is engine.step is calls.function
        for x in (1, 2):
            state, tensors = arguments(engine)
            user.step(x, state, **tensors)
    assert user.step is engine.step is step
    assert [report.verdict for report in calls.reports] == ["EXACT", "OUT_OF_BUDGET"]
    assert not calls.passed
    for recorded in calls:
        again = goldenrule.read(recorded.file).judge(only="o", explain=False)
        assert again.verdict == recorded.report.verdict


def test_a_function_of_another_release_is_refused(engine):
    with pytest.raises(ValueError, match=r"engine.step: expected the parameters of engine 1 \(x"):
        with goldenrule.record(engine.step, row=ROW):
            pass
    with pytest.raises(ValueError, match="actual engine.step"):
        with goldenrule.record(engine.step):
            pass


def test_an_argument_that_the_row_does_not_know_is_refused(engine):
    state, tensors = arguments(engine)
    with goldenrule.record(engine.step, row=row_for(engine.step), only="o") as calls:
        with pytest.raises(ValueError, match="engine.step: mode='fast' is not in its row"):
            engine.step(1, state, mode="fast", **tensors)
    assert not calls and not calls.passed


def test_what_a_function_raises_is_passed_on(engine):
    with goldenrule.record(engine.step, row=row_for(engine.step)) as calls:
        with pytest.raises(TypeError):
            engine.step()
        with pytest.raises(TypeError):
            engine.step(1, None)
    assert not calls


def test_a_refusal_that_the_engine_catches_is_no_pass(engine, monkeypatch):
    def careful(mode):
        state, tensors = arguments(engine)
        try:
            return engine.step(1, state, mode=mode, **tensors)
        except ValueError:
            return "another kernel"

    with goldenrule.record(engine.step, row=row_for(engine.step), only="o", explain=False) as calls:
        careful("plain")
        assert calls.passed
        assert careful("fast") == "another kernel"
    assert [str(refusal) for refusal in calls.refusals] == [
        "engine.step: mode='fast' is not in its row: this call cannot be judged"]
    assert all(report.passed for report in calls.reports) and not calls.passed

    def interrupted(self, **_):
        raise KeyboardInterrupt

    with goldenrule.record(engine.step, row=row_for(engine.step), only="o", explain=False) as calls:
        careful("plain")
        monkeypatch.setattr(goldenrule.Call, "judge", interrupted)
        with pytest.raises(KeyboardInterrupt):
            careful("plain")
    assert len(calls) == 2 and len(calls.reports) == 1 and not calls.passed


def test_a_compiled_caller_is_recorded(engine):
    torch = pytest.importorskip("torch")
    state, tensors = arguments(engine)

    @torch.compile(backend="eager")
    def model(x):
        o = engine.step(1, state, **tensors)
        return x * 2 + float(o.shape[0])

    with goldenrule.record(engine.step, row=row_for(engine.step), only="o", explain=False) as calls:
        assert model(torch.ones(2)).tolist() == [5.0, 5.0]
    assert calls.passed and len(calls) == 1


def packaged(torch_function, implementation):
    """As transformers wraps its functions: another package's runs where that is installed."""
    @functools.wraps(torch_function)
    def wrapped(*args, **kwargs):
        return implementation(*args, **kwargs)

    return wrapped


@pytest.mark.parametrize("another", [False, True])
def test_what_another_kernel_runs_claims_nothing_of_this_one(monkeypatch, another):
    """A claim that is tighter than what the call implies is honoured: it would be a false alarm."""
    name = "transformers.models.qwen3_next.modeling_qwen3_next"
    module = types.ModuleType(name)
    outputs = np.ones((1, 2, 1, 4), np.float32), np.ones((1, 1, 4, 4), np.float32)

    def torch_chunk_gated_delta_rule(
            query, key, value, g, beta, chunk_size=64, initial_state=None, output_final_state=False,
            use_qk_l2norm_in_kernel=False, **kwargs):
        return outputs

    def chunk_gated_delta_rule(*args, **kwargs):
        return outputs

    own = torch_chunk_gated_delta_rule
    own.__module__, chunk_gated_delta_rule.__module__ = name, "fla.ops.chunk"
    own.__qualname__, chunk_gated_delta_rule.__qualname__ = own.__name__, "chunk_gated_delta_rule"
    module.torch_chunk_gated_delta_rule = packaged(own, chunk_gated_delta_rule if another else own)
    monkeypatch.setitem(sys.modules, name, module)
    vectors, gates = np.ones((1, 2, 1, 4), np.float32), np.zeros((1, 2, 1), np.float32)
    with goldenrule.record(module.torch_chunk_gated_delta_rule, judge=False) as calls:
        module.torch_chunk_gated_delta_rule(vectors, vectors, vectors, gates, gates,
                                            output_final_state=True)
    (recorded,) = calls
    assert recorded.call.contract == ("" if another else "chunk64_f32")
    assert ("ran fla.ops.chunk.chunk_gated_delta_rule" in recorded.call.source) == another
