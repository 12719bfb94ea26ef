# SPDX-License-Identifier: Apache-2.0
"""The rows of the recorder for vLLM, SGLang, cuDNN and FlashQLA, on functions in their place
(stand_ins.py), which take a call as these libraries are given one."""

import re

import numpy as np
import pytest
import stand_ins

import goldenrule

VLLM = "vllm.third_party.flash_linear_attention.ops."
V_GATING = VLLM + "fused_sigmoid_gating.fused_sigmoid_gating_delta_rule_update"
V_RECURRENT = VLLM + "fused_recurrent.fused_recurrent_gated_delta_rule"
V_PACKED = V_RECURRENT + "_packed_decode"
V_RECURRENT_KDA, V_CHUNK = VLLM + "kda.fused_recurrent_kda", VLLM + "chunk.chunk_gated_delta_rule"
V_CHUNK_KDA, V_FUSED_GATE = VLLM + "kda.chunk_kda", VLLM + "kda.chunk_kda_with_fused_gate"
SGLANG = "sglang.kernels.ops.attention."
S_GATING = SGLANG + "linear.fused_sigmoid_gating_recurrent.fused_sigmoid_gating_delta_rule_update"
S_PACKED = SGLANG + "fla.fused_recurrent.fused_recurrent_gated_delta_rule_packed_decode"
S_CHUNK = SGLANG + "fla.chunk.chunk_gated_delta_rule"
CUDNN = "cudnn.linear_attention.ops."
C_GDN, C_KDA = CUDNN + "gdn.gated_delta_net", CUDNN + "kda.kimi_delta_attention"
QLA = "flash_qla.ops.gated_delta_rule.chunk.chunk_gated_delta_rule"

HEADS = "H=1 HV=2 K=16 V=8"
GIVEN = "gate=log beta=direct"
CALLS = [
    (V_GATING, f"op=gdn mode=mtp B=3 T=3 {HEADS} slots=scatter pad_slot=0"),
    (V_GATING, f"op=gdn mode=mtp lens=1,3,0,2 {HEADS} slots=scatter pad_slot=0 softplus_beta=2"),
    (V_GATING, f"op=kda mode=mtp B=3 T=1 {HEADS} slots=permuted pad_slot=0 qk_l2norm=none"),
    (V_RECURRENT, f"op=gdn mode=mtp lens=1,3,0,2 {HEADS} slots=scatter pad_slot=0 {GIVEN}"),
    (V_RECURRENT, f"op=gdn mode=mtp B=3 T=1 {HEADS} slots=permuted pad_slot=0 {GIVEN} scale=0.5"),
    (V_RECURRENT_KDA, f"op=kda mode=mtp B=3 T=1 {HEADS} slots=permuted pad_slot=0 {GIVEN}"),
    (V_PACKED, f"op=gdn mode=decode B=3 {HEADS} slots=padded pad_slot=0"),
    (V_CHUNK, f"op=gdn mode=prefill lens=5,0,7 {HEADS} {GIVEN} h0=1"),
    (V_CHUNK_KDA, f"op=kda mode=prefill lens=5,0,7 {HEADS} {GIVEN} h0=1 qk_l2norm=none"),
    (V_FUSED_GATE, f"op=kda mode=prefill lens=5,0,7 {HEADS} beta=direct h0=1"),
    (V_FUSED_GATE, f"op=kda mode=prefill lens=5,0,7 {HEADS} beta=direct gate=bounded lower_bound=-3 h0=1"),
    (S_GATING, f"op=gdn mode=mtp B=3 T=3 {HEADS} slots=permuted kept=buffer disable_state_update=1"),
    (S_GATING, f"op=gdn mode=mtp B=1 T=5 {HEADS} slots=permuted kept=buffer tree=mixed"),
    (S_GATING, f"op=kda mode=mtp lens=1,3,0,2 {HEADS} slots=permuted gate=bounded lower_bound=-3"),
    (S_GATING, f"op=gdn mode=mtp B=3 T=1 {HEADS} slots=permuted qk_l2norm=none softplus_threshold=3"),
    (S_PACKED, f"op=gdn mode=decode B=3 {HEADS} slots=padded scale=0.3"),
    (S_CHUNK, f"op=gdn mode=prefill lens=5,0,7 {HEADS} {GIVEN} slots=permuted"),
    (C_GDN, f"op=gdn mode=prefill lens=5,0,7 {HEADS} {GIVEN} h0=1"),
    (C_GDN, f"op=gdn mode=prefill lens=5,0,7 {HEADS} gate=linear beta=sigmoid2 slots=permuted"),
    (C_GDN, f"op=gdn mode=prefill lens=5,0,7 {HEADS} qk_l2norm=none"),
    (C_KDA, f"op=kda mode=prefill lens=5,0,7 {HEADS} gate=bounded lower_bound=-3 beta=direct h0=1"),
    (QLA, f"op=gdn mode=prefill lens=5,0,7 {HEADS} {GIVEN} state_layout=kv h0=1"),
    (QLA, f"op=gdn mode=prefill lens=5,0,7 {HEADS} {GIVEN} h0=1 qk_l2norm=none"),
]
TOKENS = ("q", "k", "v", "a", "b", "g", "beta")


def arguments(function, case):
    """What the library is given: tokens of all rows in one axis, and the rest by its own names."""
    call = case.call()
    x, c = call.inputs, call.convention
    rows = np.arange(len(x["q"]) + 1, dtype="i4") * x["q"].shape[1]
    given = dict(x, cu_seqlens=x.get("cu_seqlens", rows), use_qk_l2norm_in_kernel=c["qk_l2norm"] != "none",
                 scale=c.get("scale", x["q"].shape[-1] ** -0.5), output_final_state=True)
    total = given["cu_seqlens"][-1]
    packed = "cu_seqlens" in x
    for name in set(TOKENS) & set(x):
        given[name] = x[name] if packed else x[name].reshape(total, *x[name].shape[2:])
        if not function.startswith("cudnn"):
            given[name] = given[name][None]
    {"vllm": vllm, "sglang": sglang, "cudnn": cudnn, "flash_qla": flash_qla}[
        function.partition(".")[0]](function, given, c)
    known = stand_ins.row(function).parameters
    return {name: value for name, value in given.items() if name in known}


def packed_decode(given):
    given["mixed_qkv"] = np.concatenate([given[name].reshape(len(given["b"][0]), -1) for name in "qkv"], 1)
    given["a"], given["b"] = given["a"][0], given["b"][0]
    given["ssm_state_indices"] = given["state_indices"]


def vllm(function, given, c):
    given["inplace_final_state"] = True
    if function == V_PACKED:
        packed_decode(given)
    elif function == V_GATING:
        given |= dict(is_kda=given["a"].ndim == 4, beta=c["softplus_beta"], threshold=c["softplus_threshold"])
    elif function == V_FUSED_GATE:
        bounded = c["lower_bound"] if c["gate"] == "bounded" else None
        given |= dict(raw_g=given["a"], g_bias=given["dt_bias"].reshape(-1), lower_bound=bounded)
    if "state_indices" in given:
        given["ssm_state_indices"] = given["state_indices"]


def sglang(function, given, c):
    if function == S_PACKED:
        packed_decode(given)
    if function == S_CHUNK:
        given |= dict(initial_state_indices=given["state_indices"], inplace_update=True)
    if function != S_GATING:
        return
    kda = given["a"].ndim == 4
    given |= dict(
        is_kda=kda, a=given["a"][0].reshape(given["a"].shape[1], -1), b=given["b"][0],
        dt_bias=given["dt_bias"].reshape(-1), softplus_beta=c["softplus_beta"],
        softplus_threshold=c["softplus_threshold"], initial_state_source=given["initial_state"],
        initial_state_indices=given["state_indices"],
        lower_bound=c["lower_bound"] if c["gate"] == "bounded" else None,
        disable_state_update=bool(c["disable_state_update"]),
        intermediate_states_buffer=given.get("initial_intermediate_states"),
        retrieve_parent_token=given.get("parent_tokens"))


def cudnn(function, given, c):
    given |= dict(gate_domain="log", safe_gate=c["gate"] in ("softplus", "bounded"),
                  use_beta_sigmoid_in_kernel=c["beta"] != "direct", allow_neg_eigval=c["beta"] == "sigmoid2",
                  a_log=given.get("A_log"))
    given.setdefault("g", given.get("a"))
    given.setdefault("beta", given.get("b"))
    if c["gate"] == "linear":
        given["gate_domain"] = "linear"
    if c["gate"] == "bounded":
        given["gate_lower_bound"] = c["lower_bound"]


def flash_qla(function, given, c):
    given["state_v_first"] = c["state_layout"] == "vk"


def results(function, given, outputs):
    library = function.partition(".")[0]
    o, final = outputs["o"], outputs.get("final_state")
    if not function.endswith("packed_decode"):
        o = o.reshape(given["v"].shape)
    buffer = given.get("intermediate_states_buffer")
    if buffer is not None:
        buffer[:] = outputs["intermediate_states"]
    in_place = next((name for name in ("state_indices", "ssm_state_indices", "initial_state_indices")
                     if given.get(name) is not None), None)
    pool = given.get("initial_state_source", given.get("initial_state"))
    if in_place and final is not None:
        pool[:] = final
    if function in (S_GATING, S_CHUNK):
        return o if function == S_GATING else (o, None, "h")
    unasked = np.empty(0, "f4") if library == "cudnn" else None
    asked = given.get("output_final_state", True)
    return o, (pool if in_place else final) if asked else unasked


def recorded(monkeypatch, function, given, case, **more):
    return stand_ins.recorded(monkeypatch, function, given, case, results, **more)


@pytest.mark.parametrize("function, line", CALLS)
def test_a_call_is_the_call_of_the_schema(monkeypatch, function, line):
    case = goldenrule.fixture(line)
    (seen,) = recorded(monkeypatch, function, arguments(function, case), case)
    assert seen.report.passed, str(seen.report)
    expected, found = case.expected().outputs, seen.call.expected().outputs
    assert set(found) == set(expected)
    for name, output in expected.items():
        np.testing.assert_array_equal(found[name].golden.reshape(output.golden.shape), output.golden)
    assert seen.call.convention.get("pad_slot", -1) == case.convention["pad_slot"]

    def spoil(outputs):
        outputs["final_state" if "final_state" in outputs else "intermediate_states"][-1] *= 1.25

    calls = recorded(monkeypatch, function, arguments(function, case), case, spoil=spoil)
    assert calls.reports[0].verdict == "OUT_OF_BUDGET"


LINE_OF = {}
for _function, _line in CALLS:
    LINE_OF.setdefault(_function, _line)


def replaced(name, value):
    def change(given):
        given[name] = value
    return change


def changed(name, place, value):
    def change(given):
        given[name] = given[name].copy()
        given[name][place] = value
    return change


REFUSED = [
    (V_GATING, changed("ssm_state_indices", (0, 2), 0), "start from block 0"),
    (V_GATING, changed("num_accepted_tokens", 1, 0), "num_accepted_tokens has rows of 0"),
    (V_GATING, replaced("ssm_state_indices", np.array([1, 2, 3])), "one slot for each sequence"),
    (V_GATING, replaced("ssm_state_indices", None), "ssm_state_indices=None"),
    (V_RECURRENT, replaced("inplace_final_state", False), "inplace_final_state=False"),
    (V_RECURRENT_KDA, replaced("num_accepted_tokens", np.array([1, 1, 1])), "num_accepted_tokens"),
    (S_GATING, changed("initial_state_indices", 1, -1), "initial_state_indices has rows of padding"),
    (S_GATING, replaced("cache_ring", True), "cache_ring=True"),
    (S_GATING, replaced("retrieve_parent_token", np.zeros((3, 3), "i4")), "without a place in the buffer"),
    (S_CHUNK, changed("initial_state_indices", 0, -1), "initial_state_indices has rows of padding"),
    (C_GDN, replaced("checkpoint_every_n_tokens", 64), "checkpoint_every_n_tokens=64"),
    (QLA, replaced("cp_context", "two cards"), "cp_context='two cards'"),
]


@pytest.mark.parametrize("function, change, words", REFUSED)
def test_what_a_row_cannot_describe_is_refused_by_name(monkeypatch, function, change, words):
    case = goldenrule.fixture(LINE_OF[function])
    given = arguments(function, case)
    change(given)
    with pytest.raises(ValueError,
                       match=f"{re.escape(function)}: 1 call, 1 not judged, because .*{words}"):
        recorded(monkeypatch, function, given, case)


@pytest.mark.parametrize("change, words", [
    (replaced("intermediate_states_buffer", np.zeros((3, 6, 2, 8, 16), "f2")), "rounds states to a buffer"),
    (changed("retrieve_parent_token", (0, 3), -1), "retrieve_parent_token has a second root"),
    (replaced("retrieve_parent_token", np.zeros((1, 6), "i4")), "another number of tokens"),
])
def test_trees_that_no_kernel_computes_are_refused(monkeypatch, change, words):
    case = goldenrule.fixture(f"op=gdn mode=mtp B=1 T=5 {HEADS} slots=permuted kept=buffer tree=mixed")
    given = arguments(S_GATING, case)
    change(given)
    with pytest.raises(ValueError, match=words):
        recorded(monkeypatch, S_GATING, given, case)


@pytest.mark.parametrize("function", [V_CHUNK, S_CHUNK, C_GDN, QLA])
def test_states_that_are_not_asked_for_are_not_judged(monkeypatch, function):
    case = goldenrule.fixture(LINE_OF[function])
    flag = {S_CHUNK: "inplace_update"}.get(function, "output_final_state")
    (seen,) = recorded(monkeypatch, function, arguments(function, case) | {flag: False}, case)
    assert seen.report.passed and list(seen.report.tensors) == ["o"]


def test_a_safe_gate_of_cudnn_without_amplitude_has_the_amplitude_one(monkeypatch):
    case = goldenrule.fixture(f"op=gdn mode=prefill lens=5,0,7 {HEADS}")
    given = arguments(C_GDN, case)
    given["a_log"] = None
    (seen,) = recorded(monkeypatch, C_GDN, given, case)
    assert not seen.report.passed  # the case has others
    assert not seen.call.inputs["A_log"].any()


def test_without_counts_a_row_starts_from_its_first_slot(monkeypatch):
    case = goldenrule.fixture(LINE_OF[V_GATING])
    expected = []
    for accepted in (np.ones(3, "i8"), None):
        given = arguments(V_GATING, case) | {"num_accepted_tokens": accepted}
        (seen,) = recorded(monkeypatch, V_GATING, given, case)
        expected.append(seen.call.expected().outputs)
    for name, output in expected[0].items():
        np.testing.assert_array_equal(expected[1][name].golden, output.golden)
