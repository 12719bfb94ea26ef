# SPDX-License-Identifier: Apache-2.0
import ml_dtypes
import my_decode
import numpy as np

import goldenrule


def run(inputs):
    """The kernel on the inputs of a call, T = 1."""
    per_token = (inputs[name][:, 0] for name in ("q", "k", "v", "a", "b"))
    o, state = my_decode.decode(*per_token, inputs["A_log"], inputs["dt_bias"],
                                inputs["initial_state"])
    return {"o": o[:, None].astype(ml_dtypes.bfloat16), "final_state": state}


# One call.
def test_one_call():
    case = goldenrule.fixture("op=gdn mode=decode B=8 H=4 HV=8 K=128 V=128")
    goldenrule.assert_delta_rule(case, outputs=run(case.inputs))


# A matrix: braces stand for several values. The name of a suite ("boundary") does as well.
@goldenrule.cases("op=gdn mode=decode B={1,3} H=2 HV=4 K={16,64,100} V={8,33} pattern={A,C050,E}")
def test_a_matrix(case):
    goldenrule.assert_delta_rule(case, outputs=run(case.inputs), contract="recurrent_f32")


# Inputs of one's own.
def test_my_inputs():
    draw = np.random.default_rng(7)
    q, k = (draw.standard_normal((2, 1, 2, 64), np.float32) for _ in "qk")
    v = draw.standard_normal((2, 1, 2, 64), np.float32)
    a, b = (draw.standard_normal((2, 1, 2), np.float32) for _ in "ab")
    state = draw.standard_normal((2, 2, 64, 64), np.float32)
    A_log, dt_bias = np.zeros(2, np.float32), np.ones(2, np.float32)
    o, after = my_decode.decode(q[:, 0], k[:, 0], v[:, 0], a[:, 0], b[:, 0], A_log, dt_bias, state)
    goldenrule.assert_delta_rule(
        op="gated_delta_rule", mode="decode",
        inputs=dict(q=q, k=k, v=v, a=a, b=b, A_log=A_log, dt_bias=dt_bias, initial_state=state),
        outputs=dict(o=o[:, None], final_state=after))
