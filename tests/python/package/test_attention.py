# SPDX-License-Identifier: Apache-2.0
"""Softmax attention through the package: a right call passes, and a wrong one is named."""

import ml_dtypes
import pytest

import goldenrule

ATTENTION = "op=attention mode=decode lens=4,4 ctx=33,70 H=2 HV=4 K=32 V=16 page=16 pattern=L"


def test_attention_is_judged():
    case = goldenrule.fixture(ATTENTION)
    call, right = case.call(), {n: e.golden for n, e in case.expected().outputs.items()}
    outputs = {"o": right["o"].astype(ml_dtypes.bfloat16), "lse": right["lse"].astype("f4")}
    asked = dict(op="attention", mode="decode", convention=call.convention)
    assert goldenrule.judge(**asked, inputs=call.inputs, outputs=outputs).passed
    seen = dict(call.inputs, kv_lens=call.inputs["kv_lens"] - 1)  # of a kernel that drops the last key
    offset = dict(seen, q_offset=call.inputs["kv_lens"].astype("i8"))
    short = goldenrule.expected(**asked, inputs=offset).outputs
    wrong = {"o": short["o"].golden.astype(ml_dtypes.bfloat16), "lse": short["lse"].golden.astype("f4")}
    report = goldenrule.judge(**asked, inputs=call.inputs, outputs=wrong)
    assert report.verdict == "OUT_OF_BUDGET" and "context_short" in report.explanation
    with pytest.raises(ValueError, match="unknown attribute 'state_layout'"):
        goldenrule.judge(op="attention", mode="decode", convention={"state_layout": "vk"},
                         inputs=call.inputs, outputs=outputs)
