# SPDX-License-Identifier: Apache-2.0
"""Fails: run it to see the report."""

import broken_decode
import ml_dtypes

import goldenrule


def test_broken():
    case = goldenrule.fixture("op=gdn mode=decode B=2 H=2 HV=4 K=64 V=64 pattern=production")
    inputs = case.inputs
    o, state = broken_decode.decode(*(inputs[name][:, 0] for name in ("q", "k", "v", "a", "b")),
                                    inputs["A_log"], inputs["dt_bias"], inputs["initial_state"])
    goldenrule.assert_delta_rule(
        case, outputs={"o": o[:, None].astype(ml_dtypes.bfloat16), "final_state": state})
