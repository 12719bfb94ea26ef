# SPDX-License-Identifier: Apache-2.0
"""The rows of the recorder for the kernels of flash-linear-attention and FlashInfer, on functions in their
place (stand_ins.py)."""

import re

import ml_dtypes
import numpy as np
import pytest
import stand_ins

import goldenrule

GDN, KDA, FI = "fla.ops.gated_delta_rule.", "fla.ops.kda.", "flashinfer.gdn_"
FLA_RECURRENT = (GDN + "fused_recurrent.fused_recurrent_gated_delta_rule",
                 KDA + "fused_recurrent.fused_recurrent_kda")
FLA_CHUNK = GDN + "chunk.chunk_gated_delta_rule", KDA + "chunk.chunk_kda"
DECODE = FI + "decode.gated_delta_rule_decode_pretranspose"
MTP = FI + "decode.gated_delta_rule_mtp"
PREFILL = FI + "prefill.chunk_gated_delta_rule"
HEADS = "H=1 HV=2 K=16 V=8"
ONE, LENGTHS = "mode=decode B=3", "mode=prefill lens=5,0,7"
RAW = "gate=softplus beta=sigmoid state_layout=vk"
GIVEN = "gate=log beta=direct qk_l2norm=none state_layout=kv h0=1"


def fla(case):
    """The arguments of flash-linear-attention's kernels: gate and beta by flags, [1,T,..] packed."""
    call = case.call()
    c, x = call.convention, call.inputs
    arguments = {"q": x["q"], "k": x["k"], "v": x["v"], "g": x.get("a", x.get("g")),
                 "beta": x.get("b", x.get("beta"))}
    if call.mode == "prefill":
        arguments = {name: value[None] for name, value in arguments.items()}
        arguments["cu_seqlens"] = x["cu_seqlens"]
    arguments |= dict(initial_state=x.get("initial_state"), output_final_state=True,
                      use_qk_l2norm_in_kernel=c.get("qk_l2norm") != "none",
                      use_beta_sigmoid_in_kernel=c.get("beta", "sigmoid") != "direct",
                      allow_neg_eigval=c.get("beta") == "sigmoid2",
                      state_v_first=c.get("state_layout", "vk") == "vk")
    if "A_log" in x:
        arguments |= dict(use_gate_in_kernel=True, A_log=x["A_log"],
                          dt_bias=x["dt_bias"].reshape(-1))
    if c.get("gate") == "bounded":
        arguments |= dict(lower_bound=c.get("lower_bound", -5.0))
    return arguments


def flashinfer(case):
    """Those of FlashInfer: without a pool `state`, with one `initial_state` and its indices."""
    call = case.call()
    x = {name: value for name, value in call.inputs.items() if name != "state_indices"}
    c = call.convention
    if call.mode == "prefill":
        return x | dict(output_final_state=True, state_indices=call.inputs.get("state_indices"),
                        use_qk_l2norm_in_kernel=c.get("qk_l2norm") != "none",
                        output_state=x["initial_state"] if "state_indices" in call.inputs else None)
    if "state_indices" in call.inputs:
        x["initial_state_indices"] = call.inputs["state_indices"]
        x.setdefault("state", None)
    else:
        x["state"] = x.pop("initial_state")
    x["use_qk_l2norm"] = c.get("qk_l2norm") != "none"
    if call.mode == "mtp":
        x.pop("state", None)
        x["disable_state_update"] = bool(c.get("disable_state_update", 0))
        if "ssm_state_indices" not in x:
            B, T = x["q"].shape[:2]
            x["intermediate_states_buffer"] = np.full((B, T, *x["initial_state"].shape[1:]), np.nan, "f4")
    return x


def results(function, arguments, outputs):
    if arguments.get("cu_seqlens") is not None and arguments["q"].ndim == 4:
        outputs["o"] = outputs["o"][None]
    buffer = arguments.get("intermediate_states_buffer")
    if buffer is not None:
        buffer[:] = outputs["intermediate_states"]
    pool = arguments.get("initial_state")
    pool = arguments.get("state") if pool is None else pool
    if function.startswith("flashinfer") and pool is not None:
        pool[:] = outputs.get("final_state", pool)
        return outputs["o"], pool
    return outputs["o"], outputs["final_state"] if arguments["output_final_state"] else None


CALLS = [
    *((f, fla, f"{op} {line}") for f, op in zip(FLA_RECURRENT, ("op=gdn", "op=kda")) for line in (
        f"{ONE} {HEADS} gate=log beta=direct state_layout=kv", f"{ONE} {HEADS} {RAW}",
        f"{LENGTHS} {HEADS} {GIVEN}", f"{LENGTHS} {HEADS} {RAW} h0=1")),
    *((f, fla, f"{op} {line}") for f, op in zip(FLA_CHUNK, ("op=gdn", "op=kda")) for line in (
        f"{LENGTHS} {HEADS} {GIVEN}", f"{LENGTHS} {HEADS} {RAW} h0=1",
        f"mode=prefill lens=1,1 {HEADS} gate=softplus beta=sigmoid2 state_layout=vk")),
    (FLA_CHUNK[1], fla, f"op=kda {LENGTHS} {HEADS} gate=bounded lower_bound=-3 h0=1"),
    (FLA_RECURRENT[1], fla, f"op=kda {ONE} {HEADS} gate=bounded"),
    (DECODE, flashinfer, f"op=gdn {ONE} {HEADS}"),
    (DECODE, flashinfer, f"op=gdn {ONE} {HEADS} slots=padded qk_l2norm=none"),
    (DECODE, flashinfer, f"op=gdn {ONE} {HEADS} slots=separate"),
    (MTP, flashinfer, f"op=gdn mode=mtp B=3 T=3 {HEADS} slots=permuted"),
    (MTP, flashinfer, f"op=gdn mode=mtp B=3 T=3 {HEADS} slots=padded disable_state_update=1"),
    (PREFILL, flashinfer, f"op=gdn {LENGTHS} {HEADS} gate=linear beta=direct h0=1"),
    (PREFILL, flashinfer, f"op=gdn {LENGTHS} {HEADS} gate=linear beta=direct qk_l2norm=none"),
    (PREFILL, flashinfer, f"op=gdn {LENGTHS} {HEADS} gate=linear beta=direct slots=permuted"),
]


def recorded(monkeypatch, function, arguments, case, **more):
    return stand_ins.recorded(monkeypatch, function, arguments, case, results, **more)


@pytest.mark.parametrize("function, form, line", CALLS)
def test_a_call_is_the_call_of_the_schema(monkeypatch, function, form, line):
    case = goldenrule.fixture(line)
    (seen,) = recorded(monkeypatch, function, form(case), case)
    assert seen.report.passed, str(seen.report)
    # It is the same call, in every convention that its op and mode use: its exact outputs are the same.
    expected, found = case.expected().outputs, seen.call.expected().outputs
    assert set(found) == set(expected)
    for name, output in expected.items():
        np.testing.assert_array_equal(found[name].golden, output.golden)

    def spoil(outputs):
        outputs["o"][-1] += ml_dtypes.bfloat16(1.0)

    calls = recorded(monkeypatch, function, form(case), case, spoil=spoil)
    assert not calls.passed and calls.reports[0].tensors["o"].verdict == "OUT_OF_BUDGET"


@pytest.mark.parametrize("function, form, line", CALLS[::3])
def test_another_convention_is_another_call(monkeypatch, function, form, line):
    """The flag for the norm says the opposite of what was computed."""
    case = goldenrule.fixture(line)
    arguments = form(case)
    flag = stand_ins.row(function).norm
    arguments[flag] = not arguments[flag]
    assert not recorded(monkeypatch, function, arguments, case).passed


def test_states_that_are_not_asked_for_are_not_judged(monkeypatch):
    for function, form, line in (CALLS[0], CALLS[-3]):
        case = goldenrule.fixture(line)
        arguments = {**form(case), "output_final_state": False}
        if form is flashinfer:
            arguments["initial_state"] = arguments["initial_state"].copy()
        (seen,) = recorded(monkeypatch, function, arguments, case)
        assert seen.report.passed and list(seen.report.tensors) == ["o"]
    (seen,) = recorded(monkeypatch, CALLS[0][0], fla(goldenrule.fixture(CALLS[0][2])),
                       goldenrule.fixture(CALLS[0][2]), spoil=lambda o: o.update(final_state=None))
    assert not seen.report.passed  # asked for, and not returned


REFUSED = [
    (FLA_CHUNK[0], fla, CALLS[8][2], dict(chunk_size=32), "chunk_size=32"),
    (FLA_CHUNK[0], fla, CALLS[8][2], dict(head_first=True), "head_first=True"),
    (FLA_RECURRENT[0], fla, CALLS[0][2], dict(gv=np.ones(3)), "gv="),
    (FLA_CHUNK[1], fla, CALLS[8][2].replace("gdn", "kda"), dict(return_intermediate_states=True),
     "return_intermediate_states"),
    (MTP, flashinfer, CALLS[-5][2], dict(cache_replayssm=True), "cache_replayssm"),
    (PREFILL, flashinfer, CALLS[-3][2], dict(checkpoint_every_n_tokens=64), "checkpoint_every"),
    (PREFILL, flashinfer, CALLS[-1][2], dict(output_state=np.zeros(3)), "another pool"),
]


@pytest.mark.parametrize("function, form, line, more, words", REFUSED)
def test_what_a_row_cannot_describe_is_refused_by_name(monkeypatch, function, form, line, more, words):
    case = goldenrule.fixture(line)
    with pytest.raises(ValueError,
                       match=f"{re.escape(function)}: 1 call, 1 not judged, because .*{words}"):
        recorded(monkeypatch, function, form(case) | more, case)


def test_padding_on_bf16_states_is_refused(monkeypatch):
    case = goldenrule.fixture(f"op=gdn {ONE} {HEADS} slots=padded state=bf16")
    with pytest.raises(ValueError, match="initial_state_indices has rows of padding"):
        recorded(monkeypatch, DECODE, flashinfer(case), case)


def test_a_scale_of_zero_is_the_default_in_prefill_alone(monkeypatch):
    case = goldenrule.fixture(CALLS[-3][2])
    assert recorded(monkeypatch, PREFILL, flashinfer(case) | dict(scale=0.0), case).passed
    case = goldenrule.fixture(CALLS[-8][2])
    assert not recorded(monkeypatch, DECODE, flashinfer(case) | dict(scale=0.0), case).passed
