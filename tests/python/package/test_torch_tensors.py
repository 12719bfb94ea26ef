# SPDX-License-Identifier: Apache-2.0
"""Torch tensors in goldenrule.judge, on the host; test_operators.py has those of a device."""

from contextlib import nullcontext
from types import SimpleNamespace

import kernels
import numpy as np
import pytest

import goldenrule
from goldenrule import _invariance
from goldenrule._cases import as_torch

torch = pytest.importorskip("torch")


@pytest.fixture
def case():
    return goldenrule.fixture(kernels.LINE)


@pytest.fixture
def outputs(case):
    right = kernels.exact(case)
    return {"o": torch.from_numpy(right["o"].view(np.int16)).view(torch.bfloat16),
            "final_state": torch.from_numpy(right["final_state"])}


def judged(case, inputs, outputs):
    call = case.call()
    call.inputs, call.outputs = inputs, outputs
    return call.judge(explain=False)


def test_they_are_taken_as_they_are(case, outputs):
    inputs = case.tensors()
    inputs["q"].requires_grad_()
    inputs["k"] = inputs["k"].transpose(1, 2).contiguous().transpose(1, 2)
    assert judged(case, inputs, outputs).verdict == "EXACT"


class Lying(torch.Tensor):
    """Zeros that say they are what `said` is."""
    said = None

    def detach(self):
        return self.said

    cpu = numpy = contiguous = detach

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return cls.said if "detach" in str(function) else super().__torch_function__(function, types, args, kwargs)


def test_what_a_subclass_holds_is_judged_and_not_what_it_says(case, outputs, monkeypatch):
    monkeypatch.setattr(Lying, "said", outputs["final_state"])
    outputs["final_state"] = torch.zeros_like(Lying.said).as_subclass(Lying)
    assert judged(case, case.tensors(), outputs).verdict == "OUT_OF_BUDGET"


def test_those_without_numbers_are_refused_by_name(case, outputs):
    inputs = case.tensors()
    freed = inputs["q"].clone()
    freed.untyped_storage().resize_(8)
    for q, words in ((freed, "its storage has 8 bytes"), (inputs["q"].float().to_sparse(), "float32"),
                     (inputs["q"].float().to_sparse(), "a tensor whose values can be read"),
                     (inputs["q"].to("meta"), "no data")):
        with pytest.raises(ValueError, match=f"inputs q: expected .*{words}"):
            judged(case, {**inputs, "q": q}, outputs)


def exact_kernel(case):
    def kernel(convention, **inputs):
        arrays = {name: x.view(torch.int16).numpy().view("bfloat16") if x.dtype == torch.bfloat16 else x.numpy()
                  for name, x in inputs.items()}
        expected = goldenrule.expected(op=case.op, mode=case.mode, inputs=arrays, convention=convention)
        return {name: torch.from_numpy(output.golden).to(torch.bfloat16 if name == "o" else torch.float32)
                for name, output in expected.outputs.items()}

    return kernel


@pytest.mark.parametrize("line", [kernels.LINE, "op=gdn mode=mtp B=3 T=2 H=1 HV=2 K=8 V=8"], ids=["decode", "mtp"])
def test_a_kernel_that_returns_states_of_its_rows_keeps_every_relation(line):
    """The states of rows that stand elsewhere in the batch come back into the pool of the call, beside its own."""
    case = goldenrule.fixture(line)
    report = goldenrule.invariant(exact_kernel(case), case, ("batch", "order", "repeat", "neighbours"), device="cpu")
    assert report, report
    assert "SAYS NOTHING" not in [outcome.verdict for outcome in report.outcomes]


@pytest.fixture
def graphs(monkeypatch):
    """CUDA graphs on the host: a replay makes the captured call again, with the inputs as they are by then."""
    captured = []

    class Graph:
        def __init__(self):
            self.call = captured[-1]

        def replay(self):
            made, kernel = self.call
            for name, value in kernel(**made.inputs).items():
                made.replayed[name].copy_(value)

    def capture(made, given):
        captured.append((made, made.kernel))
        return plain(made, given)

    plain = _invariance._Graphed._capture
    monkeypatch.setattr(_invariance._Graphed, "_capture", capture)
    monkeypatch.setattr(_invariance, "require_gpu", lambda device: None)
    monkeypatch.setattr(_invariance, "as_torch", lambda inputs, device: as_torch(inputs, "cpu"))
    stream = SimpleNamespace(wait_stream=lambda other: None)
    for name, value in {"Stream": lambda: stream, "current_stream": lambda: stream, "synchronize": lambda: None,
                        "stream": nullcontext, "graph": nullcontext, "CUDAGraph": Graph}.items():
        monkeypatch.setattr(torch.cuda, name, value)


@pytest.mark.parametrize("line", [kernels.LINE, "op=gdn mode=mtp B=3 T=2 H=1 HV=2 K=8 V=8"], ids=["decode", "mtp"])
def test_replays_of_a_graph_are_compared_with_calls_without_it(graphs, line):
    case = goldenrule.fixture(line)
    right = exact_kernel(case)
    report = goldenrule.invariant(right, case, "cuda_graph")
    assert report and report.outcomes[0].compared > 0, report

    calls = iter(range(1000))

    def counting(convention, **inputs):
        outputs = right(convention, **inputs)
        outputs["o"][-1] += next(calls)  # what a graph keeps of the call that it was captured from
        return outputs

    broken = goldenrule.invariant(counting, case, "cuda_graph")
    assert [departure.tensor for departure in broken.outcomes[0].departures] == ["o"]
    assert broken.outcomes[0].departures[0].first["sequence"] == 2


def test_what_no_graph_can_capture_is_said(graphs, monkeypatch):
    """A kernel that reads a length on the host: the capture ends with that, and then complains once more."""
    case = goldenrule.fixture(kernels.LINE)
    right, captures = exact_kernel(case), []

    class Capture:
        def __init__(self, graph):
            captures.append(graph)

        def __enter__(self):
            captures.append("under way")

        def __exit__(self, *_):
            raise RuntimeError("capture invalidated")

    def waiting(convention, **inputs):
        if "under way" in captures:
            raise RuntimeError("not permitted when the stream is capturing\nmore of it")
        return right(convention, **inputs)

    monkeypatch.setattr(torch.cuda, "graph", Capture)
    with pytest.raises(RuntimeError, match="can capture, actual not permitted when the stream is capturing$"):
        goldenrule.invariant(waiting, case, "cuda_graph")
