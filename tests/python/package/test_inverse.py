# SPDX-License-Identifier: Apache-2.0
"""Rows of the recorder read from the other side: the arguments that they give for a call are those that the
tests of the recorder spell out, and the recorder reads them back as the same call."""

import types

import numpy as np
import pytest
import stand_ins
import test_attention
import test_engine_rows
import test_rows

import goldenrule
from goldenrule._rows import ROWS

# Their arguments are not tensors of the schema: several in one, or slots whose meaning their axes decide.
TAKEN_APART = {(test_engine_rows.V_PACKED, "k"), (test_engine_rows.S_PACKED, "k")} | {
    (function, "state_indices") for function in (
        test_engine_rows.V_GATING, test_engine_rows.V_RECURRENT, test_engine_rows.V_RECURRENT_KDA)}
CALLS = [
    *((function, line, lambda function, case, spelt=spelt: spelt(case), test_rows.results)
      for function, spelt, line in test_rows.CALLS),
    *((function, line, test_engine_rows.arguments, test_engine_rows.results)
      for function, line in test_engine_rows.CALLS)]
# What a test spells out, and a caller need not say: tokens of all rows in one axis, and defaults.
SPELT_OUT = {"gate_domain": "log", "inplace_final_state": True}


def derived(function, call, spelt):
    row = stand_ins.row(function)
    room = {output: spelt[parameter] for parameter, output in (*row.written.items(), *row.room.items())
            if output != "o" and parameter not in row.inputs and spelt.get(parameter) is not None}
    if "final_state" in room:  # in place
        room["final_state"] = call.inputs["initial_state"]
    return row.arguments(call, room=room)


def is_default(name, value, call):
    scale = name == "scale" and value == call.inputs["q"].shape[-1] ** -0.5
    rows = name == "cu_seqlens" and "cu_seqlens" not in call.inputs
    return value is None or value is False or scale or rows or SPELT_OUT.get(name) == value


def is_taken_apart(function, call):
    return any(function == of and (name == "k" or name in call.inputs and "ssm_state_indices"
                                   not in call.inputs) for of, name in TAKEN_APART)


@pytest.mark.parametrize("function, line, spell, results", CALLS)
def test_arguments_are_those_that_the_recorder_reads(monkeypatch, function, line, spell, results):
    case = goldenrule.fixture(line)
    call, spelt = case.call(), spell(function, case)
    if is_taken_apart(function, call):
        with pytest.raises(ValueError, match="expected inputs that it has a parameter for, actual"):
            derived(function, call, spelt)
        return
    given = derived(function, call, spelt)
    assert not [name for name, value in given.items() if name not in spelt
                and value is not None and value is not False]
    for name, value in spelt.items():
        if given.get(name) is None:
            assert is_default(name, value, call), name
        elif isinstance(value, np.ndarray):
            np.testing.assert_array_equal(given[name].reshape(-1), value.reshape(-1))
        else:
            assert given[name] == value and type(given[name]) is type(value), name
    (seen,) = stand_ins.recorded(monkeypatch, function, given, case, results)
    assert seen.report.passed, str(seen.report)


def test_shapes_and_types_are_those_of_the_function():
    """What values in another order of axes would not show."""
    call = goldenrule.fixture("op=kda mode=prefill lens=5,0,7 H=1 HV=2 K=16 V=8 beta=sigmoid gate=bounded "
                              "h0=1").call()
    fla = stand_ins.row(test_rows.FLA_CHUNK[1]).arguments(call)
    cudnn = stand_ins.row(test_engine_rows.C_KDA).arguments(call)
    assert fla["q"].shape == (1, 12, 1, 16) and cudnn["q"].shape == (12, 1, 16)
    assert fla["dt_bias"].shape == (32,) and cudnn["dt_bias"].shape == (2, 16)
    assert cudnn["cu_seqlens"].dtype == np.int32
    assert cudnn["gate_lower_bound"] == fla["lower_bound"] == -5.0


KDA_HEADS = "H=1 HV=2 K=16 V=8 state_layout=vk gate_head=qk"


@pytest.mark.parametrize("line, spelt", [
    (f"op=kda mode=decode B=3 {KDA_HEADS} gate=softplus", {"beta_is_logit": True}),
    (f"op=kda mode=decode B=3 {KDA_HEADS} gate=bounded lower_bound=-3 beta=direct", {"lower_bound": -3.0}),
    (f"op=kda mode=mtp lens=3,3 {KDA_HEADS} gate=softplus slots=scatter",
     {"beta_is_logit": True, "num_spec_tokens": 2}),
])
def test_recurrent_kda_of_flashinfer(monkeypatch, line, spelt):
    function = "flashinfer.kda.recurrent_kda"
    case = goldenrule.fixture(line)
    call = case.call()
    more = {"num_spec_tokens": 2} if call.mode == "mtp" else {}
    given = stand_ins.row(function).arguments(call, **more)
    renamed = {"a": "g", "b": "beta"}
    expected = {renamed.get(name, name): tensor.reshape(-1) for name, tensor in call.inputs.items()}
    said = {name for name, value in given.items() if value is not None}
    assert said == {*expected, *spelt, "use_gate_in_kernel", "use_qk_l2norm_in_kernel", "output_final_state"}
    for name, value in expected.items():
        np.testing.assert_array_equal(given[name].reshape(-1), value)
    assert {name: given[name] for name in spelt} == spelt

    def results(function, arguments, outputs):
        return outputs["o"].reshape(arguments["v"].shape), outputs["final_state"]

    (seen,) = stand_ins.recorded(monkeypatch, function, given, case, results)
    assert seen.report.passed, str(seen.report)
    assert seen.call.mode == call.mode


def changed(call, **convention):
    return types.SimpleNamespace(op=call.op, convention={**call.convention, **convention},
                                 inputs=dict(call.inputs))


@pytest.mark.parametrize("function, line, convention, words", [
    (test_rows.PREFILL, "gate=linear beta=direct", {"gate": "log"}, "expected a call of gate=linear, actual log"),
    (test_rows.FLA_CHUNK[0], "gate=log beta=direct", {"l2_eps": 1e-3}, "l2_eps=1e-06, actual 0.001"),
    (test_rows.FLA_CHUNK[0], "gate=log beta=direct", {"head_map": "tiled"}, "head_map=grouped, actual tiled"),
    (test_rows.FLA_CHUNK[1], "gate=log beta=direct", {}, "expected a call of op=kda, actual gated_delta_rule"),
    (test_engine_rows.QLA, "gate=log beta=direct slots=permuted", {}, "actual state_indices"),
])
def test_a_call_that_cannot_be_told_is_refused(function, line, convention, words):
    call = goldenrule.fixture(f"op=gdn mode=prefill lens=5,7 H=1 HV=2 K=16 V=8 {line}").call()
    with pytest.raises(ValueError, match=f"{function}: .*{words}"):
        stand_ins.row(function).arguments(changed(call, **convention))


def test_room_and_other_arguments_are_those_of_the_row():
    call = goldenrule.fixture("op=gdn mode=decode B=3 H=1 HV=2 K=16 V=8 state_layout=vk").call()
    row = stand_ins.row(test_rows.DECODE)
    o = np.empty((3, 1, 2, 8), "f4")
    given = row.arguments(call, room={"o": o, "intermediate_states": None}, backend="auto")
    assert given["output"] is o and given["backend"] == "auto"
    assert given["state"] is call.inputs["initial_state"] and given["initial_state"] is None
    with pytest.raises(ValueError, match="room: expected intermediate_states or o, actual checkpoints"):
        row.arguments(call, room={"checkpoints": o})
    with pytest.raises(ValueError, match="expected parameters of flashinfer 0.7.2, actual baked"):
        row.arguments(call, baked=True)


@pytest.mark.parametrize("row", [row for row in ROWS if row.op == "attention"], ids=lambda row: row.function)
def test_rows_of_attention_are_read_in_one_direction(row):
    call = goldenrule.fixture(test_attention.ATTENTION)
    with pytest.raises(ValueError, match="of the delta rule"):
        row.arguments(call.call())
