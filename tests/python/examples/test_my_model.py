# SPDX-License-Identifier: Apache-2.0
"""A function that goldenrule does not know is recorded with a row of its own. For those of
transformers and flash-linear-attention, `goldenrule.record(function)` is enough."""

import my_decode
import numpy as np

import goldenrule


def layer(q, k, v, gate, write, state):
    """What an engine calls: log alpha and beta are computed already."""
    a, b = np.log(np.expm1(-gate)), np.log(write / (1 - write))
    zeros = np.zeros(v.shape[2], np.float32)
    o, after = my_decode.decode(*(x[:, 0] for x in (q, k, v, a, b)), zeros, zeros, state)
    return o[:, None], after


ROW = goldenrule.Row(
    function="layer", op="gated_delta_rule",
    parameters=("q", "k", "v", "gate", "write", "state"),
    inputs={"q": "q", "k": "k", "v": "v", "gate": "g", "write": "beta", "state": "initial_state"},
    outputs=("o", "final_state"), convention={"gate": "log", "beta": "direct"})


def model(tokens):
    draw = np.random.default_rng(3)
    state = np.zeros((1, 2, 32, 32), np.float32)
    for _ in range(tokens):
        q, k, v = (draw.standard_normal((1, 1, 2, 32), np.float32) for _ in "qkv")
        gate = -draw.uniform(0.05, 0.5, (1, 1, 2)).astype(np.float32)
        write = draw.uniform(0.1, 0.9, (1, 1, 2)).astype(np.float32)
        o, state = layer(q, k, v, gate, write, state)
    return o


def test_every_call_of_the_model():
    with goldenrule.record(layer, row=ROW, contract="chunk64_f32") as calls:
        model(tokens=4)
    assert len(calls) == 4
    assert calls.passed, calls.reports
