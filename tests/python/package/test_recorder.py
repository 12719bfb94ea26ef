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


def test_a_block_that_calls_the_original_says_so(engine):
    step = engine.step  # a local name
    state, tensors = arguments(engine)
    with goldenrule.record(step, row=row_for(step), only="o", explain=False) as calls:
        step(1, state, **tensors)
    assert not calls.passed
    assert str(calls).startswith("0 calls: a module's name of the function was not called; a renamed or local import")


def test_a_function_of_another_release_is_refused(engine):
    with pytest.raises(ValueError, match=r"engine.step: expected the parameters of engine 1 \(x"):
        with goldenrule.record(engine.step, row=ROW):
            pass
    with pytest.raises(ValueError, match="actual engine.step"):
        with goldenrule.record(engine.step):
            pass


def test_what_cannot_be_judged_is_raised_by_the_end_of_the_block_alone(engine):
    def call(mode):
        state, tensors = arguments(engine)
        return engine.step(1, state, mode=mode, **tensors)

    asked = dict(row=row_for(engine.step), only="o", explain=False)
    with pytest.raises(ValueError, match="^engine.step: 3 calls, 1 EXACT, 2 not judged, because mode='fast' "
                                         "is not in its row$"):
        with goldenrule.record(engine.step, **asked) as calls:
            for mode in ("fast", "plain", "fast"):
                np.testing.assert_array_equal(call(mode), kernels.exact(engine.case)["o"])
    assert not calls.passed and calls.unjudged == [calls[0], calls[2]]
    with goldenrule.record(engine.step, allow_unjudged=True, **asked) as calls:
        call("fast")
    assert not calls.passed and calls[0].reason == "mode='fast' is not in its row"
    with pytest.raises(KeyError, match="its own"):  # what the block raises is not replaced
        with goldenrule.record(engine.step, **asked):
            call("fast")
            raise KeyError("its own")


@pytest.mark.parametrize("error", [MemoryError("none left"), RuntimeError("a full disk")])
def test_what_goes_wrong_in_judging_is_not_raised_into_the_caller(engine, monkeypatch, error):
    def fails(self, **_):
        raise error

    monkeypatch.setattr(goldenrule.Call, "judge", fails)
    with goldenrule.record(engine.step, row=row_for(engine.step), allow_unjudged=True) as calls:
        state, tensors = arguments(engine)
        engine.step(1, state, **tensors)
    assert calls[0].reason == f"{type(error).__name__}: {error}" and not calls.passed


def test_who_interrupts_a_judgement_goes_on(engine, monkeypatch):
    def interrupted(self, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr(goldenrule.Call, "judge", interrupted)
    with pytest.raises(KeyboardInterrupt):
        with goldenrule.record(engine.step, row=row_for(engine.step)) as calls:
            state, tensors = arguments(engine)
            engine.step(1, state, **tensors)
    assert not calls.passed


def test_arguments_that_are_not_read_are_left_out_with_a_note(monkeypatch):
    """What a function takes in its ** and never names cannot reach its mathematics."""
    module = types.ModuleType("engine")
    case = goldenrule.fixture(kernels.LINE)

    def step(q, k, v, a, b, A_log, dt_bias, state, **others):
        return kernels.exact(case)["o"]

    def reading(q, k, v, a, b, A_log, dt_bias, state, **others):
        return kernels.exact(case)["o"] * others.get("factor", 1)

    for function in (step, reading):
        function.__module__ = "engine"
        setattr(module, function.__name__, function)
    monkeypatch.setitem(sys.modules, "engine", module)
    row = ROW.replace(parameters=("q", "k", "v", "a", "b", "A_log", "dt_bias", "state", "others"))
    inputs = case.inputs
    inputs["state"] = inputs.pop("initial_state")
    for function, extended, reason, notes in (
            (step, row, "", ("use_cache=True is not read by engine.step",)),
            (reading, row, "use_cache=True is not in its row", ()),
            (reading, row.replace(ignored=(*row.ignored, "use_cache")), "", ())):
        with goldenrule.record(function, row=extended, only="o", allow_unjudged=True) as calls:
            getattr(module, function.__name__)(**inputs, use_cache=True, mask=None)
        assert calls[0].reason == reason and calls[0].notes == notes
        assert calls.passed == (not reason)


def test_what_a_function_raises_is_passed_on(engine):
    with goldenrule.record(engine.step, row=row_for(engine.step)) as calls:
        with pytest.raises(TypeError):
            engine.step()
        with pytest.raises(TypeError):
            engine.step(1, None)
        state, tensors = arguments(engine)
        with pytest.raises(ValueError):
            engine.step(1, state[:2], **tensors)
    assert not calls and not calls.passed and repr(calls) == "0 calls, 2 more raised TypeError, 1 more raised ValueError"


def test_blocks_of_one_function_may_overlap(engine):
    """As those of two threads do: the first that begins is the first to end."""
    step, user = engine.step, sys.modules["user"]
    blocks = [goldenrule.record(step, row=row_for(step), only="o", explain=False) for _ in range(3)]
    seen = [blocks[0].__enter__()]
    seen.append(blocks[1].__enter__())
    for ended in (*blocks[:2], None):
        state, tensors = arguments(engine)
        user.step(1, state, **tensors)
        if ended:
            ended.__exit__(None, None, None)
    assert [len(calls) for calls in seen] == [1, 2] and all(calls.passed for calls in seen)
    assert engine.step is user.step is step
    with blocks[2] as third:
        pass
    assert not third and engine.step is step


def test_results_may_be_a_list(engine):
    engine.listed = lambda state, **tensors: list(kernels.exact(engine.case).values())
    engine.listed.__module__, engine.listed.__name__, engine.listed.__qualname__ = "engine", "listed", "listed"
    outputs = tuple(kernels.exact(engine.case))
    row = ROW.replace(parameters=("state", "tensors"), outputs=outputs)
    state, tensors = arguments(engine)
    with goldenrule.record(engine.listed, row=row) as calls:
        engine.listed(state, **tensors)
    assert calls.passed


def test_what_makes_no_sense_is_refused_before_the_block(engine):
    bound = functools.partial(engine.step, 1)
    for function, options, words in (
            ("step", {}, "expected a function or a method of a class, actual 'step'"),
            (bound, {}, "engine.step is the function in it"),
            (engine.step, {"precission": "double"}, "options: expected some of contract, .*, actual precission")):
        with pytest.raises(TypeError, match=words), goldenrule.record(function, row=row_for(function), **options):
            raise AssertionError("the block does not begin")
    with pytest.raises(TypeError, match="expected a function"):
        goldenrule.row_of(bound)


def test_a_host_that_watches_torch_sees_its_own_operations_alone(monkeypatch):
    """Modes see every operation of their thread, and may change what it does."""
    torch = pytest.importorskip("torch")
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    case, module, seen = goldenrule.fixture(kernels.LINE), types.ModuleType("engine"), []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    class Dispatched(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    def step(**tensors):
        torch.zeros(3).requires_grad_().sum().backward()
        return torch.from_numpy(kernels.exact(case)["final_state"])

    step.__module__ = "engine"
    module.step = step
    monkeypatch.setitem(sys.modules, "engine", module)
    row = ROW.replace(parameters=("tensors",), inputs={name: name for name in case.inputs}, outputs=("final_state",))
    counts = []
    for record in (False, True):
        seen.clear()
        with Functions(), Dispatched():
            if record:
                with goldenrule.record(step, row=row, only="final_state", gradients=True) as calls:
                    module.step(**case.tensors())
            else:
                case.tensors(), module.step()
        counts.append(len(seen))
    assert counts[0] == counts[1] > 0 and [each.verdict for each in calls.reports] == ["EXACT"]


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
