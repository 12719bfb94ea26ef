# SPDX-License-Identifier: Apache-2.0
"""The public functions that the recorder knows: one row for each, for the release that it names."""

from collections.abc import Mapping
from typing import Any

from ._attention_rows import ATTENTION_ROWS
from ._engine_rows import ENGINE_ROWS, flat_bias, vllm_slots
from ._flash_rows import FLASH_ROWS
from ._recorded import GIVEN, Row, When

# Beta and the gate are what the model has computed from its projections: beta itself, and log alpha.
_GIVEN = {"gate": "log", "beta": "direct", "state_layout": "kv"}
_QKV = {"query": "q", "key": "k", "value": "v", "g": "g", "beta": "beta",
        "initial_state": "initial_state"}
# All of them compute in fp32, whatever their tensors are.
_RECURRENT = dict(contract="recurrent_f32", backward_contract="adjoint_f32")
_CHUNKS = dict(contract="chunk64_f32", backward_contract="adjoint_f32", fixed={"chunk_size": (16, 32, 64)})
# Their adjoint where q and k are repeated for the value heads in the type that they come in.
_REPEATS = dict(backward_contract="adjoint_f32_repeated_heads")
# What models hand down for other layers and for their loss: with kernels of another package in the place of
# these functions it is dropped on the way.
_OF_OTHER_LAYERS = (
    "use_cache", "position_ids", "cache_position", "is_causal", "return_dict", "num_items_in_batch",
    "output_attentions", "output_hidden_states", "output_router_logits", "cu_seq_lens_q", "cu_seq_lens_k",
    "max_length_q", "max_length_k", "seq_idx", "logits_to_keep")
_TRANSFORMERS = dict(
    inputs={**_QKV, "cu_seqlens": "cu_seqlens"}, ignored=_OF_OTHER_LAYERS,
    outputs=("o", "final_state"), norm="use_qk_l2norm_in_kernel",
    convention={**_GIVEN, "qk_l2norm": "rsqrt_sum_eps", "l2_eps": 1e-6},
    asks={"final_state": ("output_final_state",)}, release="transformers 5.23")
_FLA = dict(
    inputs={name: name for name in ("q", "k", "v", "g", "beta", "initial_state")},
    outputs=("o", "final_state"), convention={**_GIVEN, "qk_l2norm": "none"}, scale="scale",
    asks={"final_state": ("output_final_state",)}, release="fla-core 0.6")
_MODELS = "transformers.models.*"

# The kernels of flash-linear-attention: gate, beta and layout of the state by flags, some of which
# are among **kwargs.
_FLA_FLAGS = (
    When({"state_v_first": True}, {"state_layout": "vk"}),
    When({"use_beta_sigmoid_in_kernel": True}, {"beta": "sigmoid"}, {"beta": "b"}),
    When({"use_beta_sigmoid_in_kernel": True, "allow_neg_eigval": True}, {"beta": "sigmoid2"}),
    When({"use_gate_in_kernel": True}, {"gate": "softplus"},
         {"g": "a", "A_log": "A_log", "dt_bias": "dt_bias"}))
_FLA_BOUNDED = When({"use_gate_in_kernel": True, "lower_bound": GIVEN}, {"gate": "bounded"},
                    attribute="lower_bound")
_FLA_UNGATED = When({"g": None}, {"gate": "none"})
_FLA_KERNEL = dict(
    inputs={name: name for name in ("q", "k", "v", "g", "beta", "initial_state", "cu_seqlens")},
    outputs=("o", "final_state"), asks={"final_state": ("output_final_state",)}, scale="scale",
    convention={**_GIVEN, "qk_l2norm": "rsqrt_sum_eps", "l2_eps": 1e-6},
    norm="use_qk_l2norm_in_kernel", taken=flat_bias, release="fla-core 0.6")
# Only how it is computed, or a copy of what another argument says. A_log and dt_bias count with
# use_gate_in_kernel, lower_bound too.
_FLA_HOW = ("cu_seqlens_cpu", "chunk_indices", "safe_gate", "disable_recompute", "A_log", "dt_bias",
            "lower_bound")


def _null_slot(arguments: Mapping[str, Any]) -> str:
    """FlashInfer's kernels for bf16 states write slot 0 for a row of padding."""
    pool = arguments.get("initial_state")
    if pool is None or "bfloat16" not in str(pool.dtype):
        return ""
    for name in ("initial_state_indices", "output_state_indices"):
        indices = arguments.get(name)
        if indices is not None and bool((indices < 0).any()):
            return f"{name} has rows of padding, for which kernels of bf16 states write slot 0"
    return ""


def _two_pools(arguments: Mapping[str, Any]) -> str:
    """What stands in the slots of another pool that nobody writes is not an argument."""
    if arguments.get("state_indices") is None or not arguments.get("output_final_state"):
        return ""
    if arguments.get("output_state") is arguments.get("initial_state"):
        return ""
    return "output_state is another pool than initial_state"


_FLASHINFER_ROWS = dict(
    outputs=("o", "final_state"), convention={"state_layout": "vk"}, norm="use_qk_l2norm",
    scale="scale", written={"intermediate_states_buffer": "intermediate_states"},
    room={"output": "o"}, refuses=_null_slot, release="flashinfer 0.7.2")
_FLASHINFER_INPUTS = {**{name: name for name in ("q", "k", "v", "a", "b", "A_log", "dt_bias",
                                                 "initial_state", "output_state_indices")},
                      "initial_state_indices": "state_indices"}
_UPDATE_DISABLED = {"disable_state_update": 1}


def _kda_refuses(arguments: Mapping[str, Any]) -> str:
    """Rows whose place in the pool the kernels make up."""
    slots, accepted = arguments["ssm_state_indices"], arguments["num_accepted_tokens"]
    if arguments["num_spec_tokens"] is not None and slots is None:
        return "num_spec_tokens without ssm_state_indices takes a token's place for a sequence's"
    if slots is not None and bool((slots < 0).any()):
        return "ssm_state_indices has rows of padding, which start from slot 0"
    if accepted is not None and bool((accepted < 1).any()):
        return "num_accepted_tokens has rows of 0, which are taken for 1"
    return ""


ROWS = (
    Row(f"{_MODELS}.torch_chunk_gated_delta_rule", "gated_delta_rule",
        ("query", "key", "value", "g", "beta", "chunk_size", "initial_state", "output_final_state",
         "use_qk_l2norm_in_kernel", "kwargs"), **{**_TRANSFORMERS, **_CHUNKS, **_REPEATS}),
    Row(f"{_MODELS}.torch_recurrent_gated_delta_rule", "gated_delta_rule",
        ("query", "key", "value", "g", "beta", "initial_state", "output_final_state",
         "use_qk_l2norm_in_kernel", "kwargs"), **{**_TRANSFORMERS, **_RECURRENT, **_REPEATS}),
    Row(f"{_MODELS}.chunk_kimi_delta_attention", "kda",
        ("query", "key", "value", "g", "beta", "chunk_size", "initial_state", "output_final_state",
         "use_qk_l2norm_in_kernel", "kwargs"), **_TRANSFORMERS, **_CHUNKS),
    Row(f"{_MODELS}.recurrent_kimi_delta_attention", "kda",
        ("query", "key", "value", "g", "beta", "initial_state", "output_final_state",
         "use_qk_l2norm_in_kernel", "kwargs"), **_TRANSFORMERS, **_RECURRENT),
    Row("fla.ops.gated_delta_rule.naive.naive_recurrent_gated_delta_rule", "gated_delta_rule",
        ("q", "k", "v", "beta", "g", "scale", "initial_state", "output_final_state"), **_FLA, **_RECURRENT),
    Row("fla.ops.gated_delta_rule.naive.naive_chunk_gated_delta_rule", "gated_delta_rule",
        ("q", "k", "v", "g", "beta", "chunk_size", "scale", "initial_state", "output_final_state"),
        **_FLA, **_CHUNKS),
    Row("fla.ops.kda.naive.naive_recurrent_kda", "kda",
        ("q", "k", "v", "g", "beta", "scale", "initial_state", "output_final_state"), **_FLA, **_RECURRENT),
    Row("fla.ops.kda.naive.naive_chunk_kda", "kda",
        ("q", "k", "v", "g", "beta", "scale", "initial_state", "output_final_state", "chunk_size"),
        **_FLA, **_CHUNKS),
    Row("fla.ops.gated_delta_rule.fused_recurrent.fused_recurrent_gated_delta_rule",
        "gated_delta_rule",
        ("q", "k", "v", "g", "gk", "gv", "beta", "scale", "initial_state", "output_final_state",
         "use_qk_l2norm_in_kernel", "use_gate_in_kernel", "A_log", "dt_bias",
         "use_beta_sigmoid_in_kernel", "allow_neg_eigval", "state_v_first", "cu_seqlens", "kwargs"),
        **_FLA_KERNEL, **_RECURRENT, when=(_FLA_UNGATED, *_FLA_FLAGS), ignored=("A_log", "dt_bias")),
    Row("fla.ops.gated_delta_rule.chunk.chunk_gated_delta_rule", "gated_delta_rule",
        ("q", "k", "v", "g", "beta", "scale", "initial_state", "output_final_state",
         "use_qk_l2norm_in_kernel", "use_beta_sigmoid_in_kernel", "allow_neg_eigval", "state_v_first",
         "cu_seqlens", "cu_seqlens_cpu", "chunk_indices", "cp_context", "kwargs"),
        **_FLA_KERNEL, when=_FLA_FLAGS, modes=("prefill", "prefill"), ignored=_FLA_HOW,
        fixed={"chunk_size": (64,)}),
    Row("fla.ops.kda.fused_recurrent.fused_recurrent_kda", "kda",
        ("q", "k", "v", "g", "beta", "A_log", "dt_bias", "scale", "initial_state",
         "output_final_state", "use_qk_l2norm_in_kernel", "use_gate_in_kernel",
         "use_beta_sigmoid_in_kernel", "allow_neg_eigval", "lower_bound", "state_v_first",
         "cu_seqlens", "kwargs"),
        **_FLA_KERNEL, **_RECURRENT, when=(*_FLA_FLAGS, _FLA_BOUNDED),
        ignored=("A_log", "dt_bias", "lower_bound")),
    Row("fla.ops.kda.chunk.chunk_kda", "kda",
        ("q", "k", "v", "g", "beta", "scale", "initial_state", "output_final_state",
         "use_qk_l2norm_in_kernel", "use_gate_in_kernel", "use_beta_sigmoid_in_kernel",
         "allow_neg_eigval", "safe_gate", "lower_bound", "disable_recompute",
         "return_intermediate_states", "state_v_first", "cu_seqlens", "cu_seqlens_cpu", "cp_context",
         "use_graph", "max_num_seqs", "kwargs"),
        **_FLA_KERNEL, when=(*_FLA_FLAGS, _FLA_BOUNDED), modes=("prefill", "prefill"),
        ignored=_FLA_HOW, fixed={"chunk_size": (64,), "return_intermediate_states": (False,),
                                 "use_graph": (False,)}),
    Row("flash_qla.ops.gated_delta_rule.chunk.chunk_gated_delta_rule", "gated_delta_rule",
        ("q", "k", "v", "g", "beta", "scale", "initial_state", "output_final_state",
         "use_qk_l2norm_in_kernel", "cu_seqlens", "head_first", "state_v_first", "auto_cp",
         "enable_fwd_cp_cache", "cp_context", "force_intra_cp"),
        **{**_FLA_KERNEL, "release": "flash-qla 0.1.3"}, when=_FLA_FLAGS[:1],
        modes=("prefill", "prefill"), ignored=("auto_cp", "enable_fwd_cp_cache", "force_intra_cp"),
        fixed={"head_first": (False,)}),
    Row("flashinfer.gdn_decode.gated_delta_rule_decode_pretranspose", "gated_delta_rule",
        ("q", "k", "v", "state", "A_log", "a", "dt_bias", "b", "scale", "output", "use_qk_l2norm",
         "initial_state", "initial_state_indices", "output_state_indices",
         "intermediate_states_buffer", "disable_state_update", "backend"),
        **_FLASHINFER_ROWS, inputs=_FLASHINFER_INPUTS,
        when=(When({"initial_state_indices": None}, inputs={"state": "initial_state"}),
              When({"disable_state_update": True}, _UPDATE_DISABLED)),
        modes=("decode", "mtp"), ignored=("backend",)),
    Row("flashinfer.gdn_decode.gated_delta_rule_decode", "gated_delta_rule",
        ("q", "k", "v", "state", "A_log", "a", "dt_bias", "b", "scale", "output", "use_qk_l2norm",
         "backend"),
        inputs={**{name: name for name in ("q", "k", "v", "a", "b", "A_log", "dt_bias")},
                "state": "initial_state"},
        outputs=("o", "final_state"), convention={"state_layout": "kv"}, norm="use_qk_l2norm",
        scale="scale", room={"output": "o"}, ignored=("backend",), modes=("decode", "mtp"),
        release="flashinfer 0.7.2"),
    Row("flashinfer.gdn_decode.gated_delta_rule_mtp", "gated_delta_rule",
        ("q", "k", "v", "initial_state", "initial_state_indices", "A_log", "a", "dt_bias", "b",
         "scale", "output", "intermediate_states_buffer", "ssm_state_indices", "disable_state_update",
         "use_qk_l2norm", "output_state_indices", "cache_replayssm", "replayssm_rawv",
         "replayssm_rawk", "replayssm_g", "replayssm_beta"),
        **_FLASHINFER_ROWS, inputs={**_FLASHINFER_INPUTS, "ssm_state_indices": "ssm_state_indices"},
        when=(When({"disable_state_update": True}, _UPDATE_DISABLED),
              When({"disable_state_update": None}, _UPDATE_DISABLED)),
        modes=("mtp", "mtp"), fixed={"cache_replayssm": (False,)}),
    Row("flashinfer.kda.recurrent_kda", "kda",
        ("q", "k", "v", "g", "beta", "A_log", "dt_bias", "scale", "initial_state", "output_final_state",
         "use_qk_l2norm_in_kernel", "use_gate_in_kernel", "lower_bound", "cu_seqlens",
         "ssm_state_indices", "num_spec_tokens", "num_accepted_tokens", "output",
         "initial_state_source", "initial_state_indices", "beta_is_logit", "seq_order",
         "prefill_workspace", "state_checkpoints", "checkpoint_cu_starts", "checkpoint_every_n_tokens",
         "checkpoint_state_indices", "disable_state_update", "correction_cache", "kg_cache", "backend"),
        inputs={name: name for name in ("q", "k", "v", "g", "beta", "initial_state", "cu_seqlens",
                                        "state_indices", "ssm_state_indices", "num_accepted_tokens")},
        outputs=("o", "final_state"), asks={"final_state": ("output_final_state",)},
        convention={"state_layout": "vk", "gate": "log", "beta": "direct", "l2_eps": 1e-6,
                    "qk_l2norm": "rsqrt_sum_eps"},
        norm="use_qk_l2norm_in_kernel", scale="scale", room={"output": "o"}, taken=flat_bias,
        when=(When({"use_gate_in_kernel": True}, {"gate": "softplus", "gate_head": "qk"},
                   {"g": "a", "A_log": "A_log", "dt_bias": "dt_bias"}), _FLA_BOUNDED,
              When({"beta_is_logit": True}, {"beta": "sigmoid"}, {"beta": "b"}),
              When({"disable_state_update": True}, _UPDATE_DISABLED),
              When({"num_spec_tokens": GIVEN}, mode="mtp")),
        arranged=vllm_slots, refuses=_kda_refuses,
        ignored=("A_log", "dt_bias", "lower_bound", "seq_order", "prefill_workspace", "backend"),
        fixed={"checkpoint_every_n_tokens": (0,)}, release="flashinfer 0.7.2"),
    Row("flashinfer.gdn_prefill.chunk_gated_delta_rule", "gated_delta_rule",
        ("q", "k", "v", "g", "beta", "scale", "initial_state", "output_final_state", "cu_seqlens",
         "use_qk_l2norm_in_kernel", "output", "output_state", "state_checkpoints",
         "checkpoint_cu_starts", "checkpoint_every_n_tokens", "use_cp", "state_indices",
         "_cp_chunk_len", "backend", "max_seqlen"),
        inputs={name: name for name in ("q", "k", "v", "g", "beta", "initial_state", "cu_seqlens",
                                        "state_indices")},
        outputs=("o", "final_state"), asks={"final_state": ("output_final_state",)},
        convention={"state_layout": "vk", "gate": "linear", "beta": "direct", "l2_eps": 1e-6,
                    "qk_l2norm": "rsqrt_sum_eps"},
        norm="use_qk_l2norm_in_kernel", scale="scale", unscaled=(0.0,),
        when=(When({"g": None}, {"gate": "none"}),), modes=("prefill", "prefill"),
        room={"output": "o", "output_state": "final_state"},
        ignored=("use_cp", "_cp_chunk_len", "backend", "max_seqlen"),
        fixed={"checkpoint_every_n_tokens": (0,)}, refuses=_two_pools, release="flashinfer 0.7.2"),
    *ENGINE_ROWS,
    *ATTENTION_ROWS,
    *FLASH_ROWS,
)
