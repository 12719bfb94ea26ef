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
