# SPDX-License-Identifier: Apache-2.0
"""Torch tensors in goldenrule.judge, on the host; test_operators.py has those of a device."""

import kernels
import numpy as np
import pytest

import goldenrule

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


def test_those_without_numbers_are_refused_by_name(case, outputs):
    inputs = case.tensors()
    freed = inputs["q"].clone()
    freed.untyped_storage().resize_(8)
    for q, words in ((freed, "its storage has 8 bytes"), (inputs["q"].float().to_sparse(), "float32"),
                     (inputs["q"].to("meta"), "no data")):
        with pytest.raises(ValueError, match=f"inputs q: expected .*{words}"):
            judged(case, {**inputs, "q": q}, outputs)


@pytest.mark.parametrize("line", [kernels.LINE, "op=gdn mode=mtp B=3 T=2 H=1 HV=2 K=8 V=8"], ids=["decode", "mtp"])
def test_a_kernel_that_returns_states_of_its_rows_keeps_every_relation(line):
    """The states of rows that stand elsewhere in the batch come back into the pool of the call, beside its own."""
    case = goldenrule.fixture(line)

    def kernel(convention, **inputs):
        arrays = {name: x.view(torch.int16).numpy().view("bfloat16") if x.dtype == torch.bfloat16 else x.numpy()
                  for name, x in inputs.items()}
        expected = goldenrule.expected(op=case.op, mode=case.mode, inputs=arrays, convention=convention)
        return {name: torch.from_numpy(output.golden).to(torch.bfloat16 if name == "o" else torch.float32)
                for name, output in expected.outputs.items()}

    report = goldenrule.invariant(kernel, case, ("batch", "order", "repeat", "neighbours"), device="cpu")
    assert report, report
    assert "SAYS NOTHING" not in [outcome.verdict for outcome in report.outcomes]
