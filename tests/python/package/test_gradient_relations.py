# SPDX-License-Identifier: Apache-2.0
"""Relations between the gradients of related calls of one backward pass: the right one keeps them, a wrong one is
found by the relation that is about what it does."""

import numpy as np
import pytest

import goldenrule

LINE = "op=gdn_backward mode=prefill lens=21,6 H=1 HV=2 K=8 V=4 io=f32 gate=log beta=direct h0=1 dstate=1 seed=5"
SHORT = "op=kda_backward mode=prefill lens=1 H=1 HV=1 K=8 V=4 io=f32 seed=5"


def backward(line, change=None):
    """A kernel: what the oracle expects in float32, and a mistake in it."""
    call = goldenrule.fixture(line).call()

    def kernel(convention, **inputs):
        expected = goldenrule.expected(op=call.op, mode=call.mode, inputs=inputs, convention=convention)
        outputs = {name: output.golden.astype(np.float32) for name, output in expected.outputs.items()}
        if change:
            change(inputs, outputs)
        return outputs

    return kernel


def clipped(inputs, outputs):
    outputs["dv"] = outputs["dv"].clip(-0.5, 0.5)


def start_lost(inputs, outputs):
    outputs["dinitial_state"][...] = 0


def later_dq_kept(inputs, outputs):
    outputs["dq"][-1] += 1e-20


def of_last_sequence(inputs, outputs):
    first = int(inputs["cu_seqlens"][-2])
    outputs["dk"][:first] *= np.float32(1 + 1e-6)


def end_ignored(inputs, outputs):
    outputs["dk"] += outputs["dk"] * np.abs(inputs["dfinal_state"]).mean().astype(np.float32)


def dk_scaled(inputs, outputs):
    outputs["dk"] *= np.float32(1.5)


def dg_negated(inputs, outputs):
    outputs["dg"] *= np.float32(-1)


def dbeta_scaled(inputs, outputs):
    outputs["dbeta"] *= np.float32(1.01)


def norm_of_q_forgotten(inputs, outputs):
    outputs["dq"] += np.float32(0.1) * inputs["q"]


def test_the_right_kernel_keeps_every_relation():
    report = goldenrule.invariant(backward(LINE), goldenrule.fixture(LINE))
    assert report and report.passed, report
    assert {(outcome.over, outcome.relation): outcome.verdict for outcome in report.outcomes} == {
        ("linear", "power_of_two"): "HOLDS", ("linear", "linearity"): "HOLDS", ("euler", "euler"): "HOLDS",
        **{("symmetry", name): "HOLDS" for name in ("query_scale", "key_scale", "state_scale", "rotation")},
        ("symmetry", "parameters"): "SAYS NOTHING",
        ("causal", "later_zero"): "HOLDS", ("causal", "truncated"): "HOLDS", ("batch", "rows_alone"): "HOLDS",
        ("split", "split"): "HOLDS"}


@pytest.mark.parametrize("over, change", [
    ("linear", clipped), ("euler", start_lost), ("causal", later_dq_kept), ("batch", of_last_sequence),
    ("split", end_ignored), ("symmetry", dk_scaled), ("symmetry", dg_negated), ("symmetry", norm_of_q_forgotten)])
def test_each_relation_finds_what_it_is_about(over, change):
    report = goldenrule.invariant(backward(LINE, change), goldenrule.fixture(LINE), over)
    assert not report and "BROKEN" in [outcome.verdict for outcome in report.outcomes], report


def test_without_a_norm_dbeta_is_tied_to_dk_and_dv():
    line = LINE + " qk_l2norm=none"
    report = goldenrule.invariant(backward(line, dbeta_scaled), goldenrule.fixture(line), "symmetry")
    assert {outcome.relation: outcome.verdict for outcome in report.outcomes} == {
        "query_scale": "HOLDS", "key_scale": "BROKEN", "state_scale": "HOLDS", "rotation": "HOLDS",
        "parameters": "SAYS NOTHING"}, report


def test_the_gradients_of_parameters_are_sums():
    def halved(inputs, outputs):
        outputs["dA_log"] *= np.float32(0.99)

    line = "op=kda_backward mode=prefill lens=40,9 H=1 HV=2 K=8 V=4 io=f32 h0=1 seed=5"
    assert goldenrule.invariant(backward(line), goldenrule.fixture(line), "symmetry")
    report = goldenrule.invariant(backward(line, halved), goldenrule.fixture(line), "symmetry")
    broken = [outcome for outcome in report.outcomes if outcome.verdict == "BROKEN"]
    assert [outcome.relation for outcome in broken] == ["parameters"], report
    assert [departure.tensor for departure in broken[0].departures] == ["dA_log"]


def test_only_gradients_that_are_returned_are_compared():
    def leaves_out(inputs, outputs):
        for name in ("dinitial_state", "dk"):
            outputs.pop(name)

    report = goldenrule.invariant(backward(LINE, leaves_out), goldenrule.fixture(LINE), ("linear", "euler", "split"))
    verdicts = {outcome.relation: outcome.verdict for outcome in report.outcomes}
    assert verdicts == {"power_of_two": "HOLDS", "linearity": "HOLDS", "euler": "SAYS NOTHING", "split": "SAYS NOTHING"}


def test_relations_of_other_operations_are_refused_and_one_token_has_no_halves():
    with pytest.raises(ValueError, match="over: expected some of linear, euler, symmetry, causal, batch, split, actual 'order'"):
        goldenrule.invariant(backward(LINE), goldenrule.fixture(LINE), "order")
    report = goldenrule.invariant(backward(SHORT), goldenrule.fixture(SHORT), ("causal", "split", "batch"))
    assert not report and {outcome.applies for outcome in report.outcomes} == {False}
