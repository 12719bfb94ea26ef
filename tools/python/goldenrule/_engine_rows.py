# SPDX-License-Identifier: Apache-2.0
"""The functions of engines and of cuDNN that the recorder knows, and the forms in which they take a call:
tokens of all rows in one axis beside gates without it, q, k and v in one tensor, slots of rows or of
tokens."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._recorded import GIVEN, Row, When

_NORM = {"qk_l2norm": "rsqrt_sum_eps", "l2_eps": 1e-6}
_POOL = {"state_layout": "vk", **_NORM}
_IS_KDA = When({"is_kda": True}, op="kda")
# Every token in fp32, on a state that is read once and rounded once.
_TOKEN_BY_TOKEN = dict(modes=("mtp", "mtp"), norm="use_qk_l2norm_in_kernel", scale="scale",
                       contract="recurrent_f32")


def _host(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.detach().cpu() if hasattr(tensor, "detach") else tensor)


# ---- the other way: inputs of the schema as functions take them

_TOKENS = ("q", "k", "v", "a", "b", "g", "beta")


def one_row(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Packed tokens as [1,total,..]."""
    packed = "cu_seqlens" in inputs and inputs["q"].ndim == 3
    return {name: tensor[None] if packed and name in _TOKENS else tensor
            for name, tensor in inputs.items()}


def flat_bias(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """dt_bias of KDA as [HV*K], too."""
    taken = one_row(inputs)
    return taken | {name: taken[name].reshape(-1) for name in ("dt_bias",) if name in taken}


def _bounds_of_32_bits(inputs: Mapping[str, Any]) -> dict[str, Any]:
    bounds = inputs["cu_seqlens"]
    return {**inputs, "cu_seqlens": bounds.int() if hasattr(bounds, "int") else bounds.astype("i4")}


def _gates_by_token(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """a and b with the token axes of q, which they may have as one, and KDA's channels as an axis."""
    shaped = dict(arguments)
    tokens, K = arguments["q"].shape[:2], arguments["q"].shape[-1]
    heads = arguments["v"].shape[2]
    channels = (K,) if arguments["is_kda"] else ()
    shaped["a"] = arguments["a"].reshape(*tokens, heads, *channels)
    shaped["b"] = arguments["b"].reshape(*tokens, heads)
    return shaped


def _parts_of_qkv(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """mixed_qkv [B, 2HK+HV*V] as q, k and v; the heads of the pool tell where they end."""
    mixed, (HV, V, K) = arguments["mixed_qkv"], arguments["initial_state"].shape[1:]
    B, width = mixed.shape[0], mixed.shape[1] - HV * V
    if width <= 0 or width % (2 * K):
        raise ValueError(f"mixed_qkv: expected 2*H*{K} + {HV * V} columns, actual {mixed.shape[1]}")
    keys, end = (B, 1, width // (2 * K), K), width // 2
    return {**arguments, "q": mixed[:, :end].reshape(keys), "k": mixed[:, end:width].reshape(keys),
            "v": mixed[:, width:].reshape(B, 1, HV, V),
            "a": arguments["a"].reshape(B, 1, HV), "b": arguments["b"].reshape(B, 1, HV)}


# ---- vLLM: slots of rows, or of tokens with the count that was accepted before; block 0 is no state

def vllm_slots(arguments: Mapping[str, Any]) -> dict[str, Any]:
    shaped = dict(arguments)
    slots = shaped["ssm_state_indices"]
    if slots is None:
        return shaped
    if slots.ndim == 1:
        shaped["state_indices"] = shaped.pop("ssm_state_indices")
    elif shaped.get("num_accepted_tokens") is None:
        shaped["state_indices"] = slots[:, 0]
    return shaped


def _vllm_refuses(arguments: Mapping[str, Any]) -> str:
    """What the kernels leave unwritten, and slots that they take from another row."""
    if arguments["ssm_state_indices"] is None:
        return "ssm_state_indices=None takes a token's place for a sequence's"
    slots, bounds = _host(arguments["ssm_state_indices"]), arguments["cu_seqlens"]
    rows, tokens = arguments["q"].shape[:2]
    lengths = np.full(rows, tokens) if bounds is None else np.diff(_host(bounds))
    first = slots if slots.ndim == 1 else slots[:, 0]
    if slots.ndim == 1 and (lengths > 1).any():
        return "ssm_state_indices has one slot for each sequence, and there are some of more tokens"
    accepted = arguments.get("num_accepted_tokens")
    if accepted is not None and slots.ndim == 2:
        accepted = _host(accepted)
        if (accepted[lengths > 0] < 1).any():
            return "num_accepted_tokens has rows of 0, which start from a slot of another row"
        first = slots[np.arange(len(slots)), np.maximum(accepted, 1) - 1]
    if (first[:len(lengths)][lengths > 0] <= 0).any():
        return "ssm_state_indices has rows that start from block 0, whose o is not written"
    return ""


_VLLM_SLOTS = {name: name for name in ("initial_state", "cu_seqlens", "state_indices",
                                       "ssm_state_indices", "num_accepted_tokens")}
_VLLM_RECURRENT = dict(
    outputs=("o", "final_state"), refuses=_vllm_refuses, fixed={"inplace_final_state": (True,)},
    taken=one_row, release="vllm 0.33", **_TOKEN_BY_TOKEN)
_VLLM_GIVEN = {"gate": "log", "beta": "direct", "pad_slot": 0, **_POOL}
_VLLM_TOKENS = {name: name for name in ("q", "k", "v", "g", "beta")}
_VLLM_CHUNK = dict(
    outputs=("o", "final_state"), asks={"final_state": ("output_final_state",)},
    norm="use_qk_l2norm_in_kernel", scale="scale", modes=("prefill", "prefill"),
    convention={"gate": "log", "beta": "direct", **_POOL}, taken=flat_bias, release="vllm 0.33")
_VLLM_SEQUENCES = {name: name for name in ("initial_state", "cu_seqlens")}
_VLLM = "vllm.third_party.flash_linear_attention.ops."


# ---- SGLang: a pool beside a buffer of the states after each draft token

def _sglang_mtp(arguments: Mapping[str, Any]) -> dict[str, Any]:
    shaped = _gates_by_token(arguments)
    if shaped["intermediate_states_buffer"] is None:
        shaped["intermediate_state_indices"] = None
    parents = shaped["retrieve_parent_token"]
    if parents is not None:
        parents = _host(parents).copy()
        parents[:, :1] = -1  # the first token continues the start state, whatever is said of it
        shaped["retrieve_parent_token"] = parents.reshape(shaped["q"].shape[:2])
    return shaped


def _sglang_refuses(arguments: Mapping[str, Any]) -> str:
    """Rows of padding, of which the kernels compute an o that nobody reads; trees whose states are
    rounded on the way."""
    if (_host(arguments["initial_state_indices"]) < 0).any():
        return "initial_state_indices has rows of padding, whose o is made from a state of zeros"
    if arguments.get("retrieve_parent_token") is None:
        return ""
    buffer = arguments["intermediate_states_buffer"]
    if buffer is None or "float32" not in str(buffer.dtype):
        return "retrieve_parent_token rounds states to a buffer that is not float32 between tokens"
    if (_host(arguments["intermediate_state_indices"]) < 0).any():
        return "retrieve_parent_token is not read for rows without a place in the buffer"
    parents = _host(arguments["retrieve_parent_token"])
    if parents.size != arguments["q"].shape[0] * arguments["q"].shape[1]:
        return "retrieve_parent_token has another number of tokens than q"
    return "retrieve_parent_token has a second root" if (parents[:, 1:] < 0).any() else ""


_SGLANG = "sglang.kernels.ops.attention."

# ---- cuDNN: tokens of all sequences in one axis; a safe gate without a_log is one of exp(a_log) = 1


def _cudnn_unit_amplitude(arguments: Mapping[str, Any]) -> dict[str, Any]:
    shaped = dict(arguments)
    if shaped["safe_gate"] and shaped["a_log"] is None:
        shaped["a_log"] = np.zeros(shaped["v"].shape[1], np.float32)
    return shaped


_CUDNN = dict(
    inputs={name: name for name in ("q", "k", "v", "g", "beta", "cu_seqlens", "initial_state",
                                    "state_indices")},
    outputs=("o", "final_state"), scale="scale", norm="use_qk_l2norm_in_kernel",
    asks={"final_state": ("output_final_state", "overwrite_initial_state")},
    convention={"gate": "log", "beta": "direct", **_POOL}, modes=("prefill", "prefill"),
    ignored=("batch_invariant", "plan_name", "checkpoint_dtype"),
    fixed={"checkpoint_every_n_tokens": (0,)}, arranged=_cudnn_unit_amplitude, taken=_bounds_of_32_bits,
    release="nvidia-cudnn-frontend 1.32")
_CUDNN_BETA = (When({"use_beta_sigmoid_in_kernel": True}, {"beta": "sigmoid"}, {"beta": "b"}),
               When({"use_beta_sigmoid_in_kernel": True, "allow_neg_eigval": True},
                    {"beta": "sigmoid2"}),
               When({"gate_domain": "linear"}, {"gate": "linear"}))
_CUDNN_PARAMETERS = {"g": "a", "a_log": "A_log", "dt_bias": "dt_bias"}
_CUDNN_FLAGS = ("batch_invariant", "use_beta_sigmoid_in_kernel", "allow_neg_eigval", "safe_gate")
_CUDNN_LAST = ("gate_domain", "a_log", "dt_bias", "checkpoint_every_n_tokens", "checkpoint_dtype",
               "plan_name", "overwrite_initial_state", "state_indices")
_CUDNN_FIRST = ("q", "k", "v", "g", "beta", "cu_seqlens", "scale", "initial_state",
                "output_final_state", "use_qk_l2norm_in_kernel", *_CUDNN_FLAGS)

_PACKED_DECODE = dict(
    op="gated_delta_rule",
    parameters=("mixed_qkv", "a", "b", "A_log", "dt_bias", "scale", "initial_state", "out",
                "ssm_state_indices", "use_qk_l2norm_in_kernel"),
    inputs={**{name: name for name in ("q", "k", "v", "a", "b", "A_log", "dt_bias", "initial_state")},
            "ssm_state_indices": "state_indices"},
    outputs=("o", "final_state"), norm="use_qk_l2norm_in_kernel", scale="scale",
    arranged=_parts_of_qkv, ignored=("mixed_qkv", "out"), contract="recurrent_f32")

ENGINE_ROWS = (
    Row(_VLLM + "fused_sigmoid_gating.fused_sigmoid_gating_delta_rule_update", "gated_delta_rule",
        ("A_log", "a", "b", "dt_bias", "q", "k", "v", "beta", "threshold", "scale", "initial_state",
         "inplace_final_state", "cu_seqlens", "ssm_state_indices", "num_accepted_tokens",
         "use_qk_l2norm_in_kernel", "is_kda"),
        inputs={**{name: name for name in ("A_log", "a", "b", "dt_bias", "q", "k", "v")}, **_VLLM_SLOTS},
        convention={"pad_slot": 0, **_POOL}, arranged=lambda given: vllm_slots(_gates_by_token(given)),
        when=(_IS_KDA, When({"beta": GIVEN}, attribute="softplus_beta"),
              When({"threshold": GIVEN}, attribute="softplus_threshold")),
        ignored=("is_kda",), **_VLLM_RECURRENT),
    Row(_VLLM + "fused_recurrent.fused_recurrent_gated_delta_rule", "gated_delta_rule",
        ("q", "k", "v", "g", "beta", "scale", "initial_state", "inplace_final_state", "cu_seqlens",
         "ssm_state_indices", "num_accepted_tokens", "use_qk_l2norm_in_kernel"),
        inputs={**_VLLM_TOKENS, **_VLLM_SLOTS}, convention=_VLLM_GIVEN, arranged=vllm_slots,
        **_VLLM_RECURRENT),
    Row(_VLLM + "kda.fused_recurrent_kda", "kda",
        ("q", "k", "v", "g", "beta", "scale", "initial_state", "inplace_final_state",
         "use_qk_l2norm_in_kernel", "cu_seqlens", "ssm_state_indices", "kwargs"),
        # num_accepted_tokens would be among kwargs, which it does not read.
        inputs={**_VLLM_TOKENS, **{name: name for name in _VLLM_SLOTS if name != "num_accepted_tokens"}},
        convention=_VLLM_GIVEN, arranged=vllm_slots, **_VLLM_RECURRENT),
    Row(_VLLM + "fused_recurrent.fused_recurrent_gated_delta_rule_packed_decode", **_PACKED_DECODE,
        convention={"pad_slot": 0, **_POOL}, release="vllm 0.33"),
    Row(_VLLM + "chunk.chunk_gated_delta_rule", "gated_delta_rule",
        ("q", "k", "v", "g", "beta", "scale", "initial_state", "output_final_state", "cu_seqlens",
         "chunk_indices", "chunk_offsets", "use_qk_l2norm_in_kernel", "core_attn_out"),
        inputs={**_VLLM_TOKENS, **_VLLM_SEQUENCES},
        ignored=("chunk_indices", "chunk_offsets", "core_attn_out"), **_VLLM_CHUNK),
    Row(_VLLM + "kda.chunk_kda", "kda",
        ("q", "k", "v", "g", "beta", "scale", "initial_state", "output_final_state",
         "use_qk_l2norm_in_kernel", "cu_seqlens", "kwargs"),
        inputs={**_VLLM_TOKENS, **_VLLM_SEQUENCES}, **_VLLM_CHUNK),
    Row(_VLLM + "kda.chunk_kda_with_fused_gate", "kda",
        ("q", "k", "v", "raw_g", "beta", "A_log", "g_bias", "scale", "initial_state",
         "output_final_state", "lower_bound", "use_qk_l2norm_in_kernel", "cu_seqlens", "kwargs"),
        inputs={**{name: name for name in ("q", "k", "v", "beta", "A_log")}, "raw_g": "a",
                "g_bias": "dt_bias", **_VLLM_SEQUENCES},
        when=(When({"lower_bound": GIVEN}, {"gate": "bounded"}, attribute="lower_bound"),),
        **{**_VLLM_CHUNK, "convention": {"gate": "softplus", "beta": "direct", **_POOL}}),
    Row(_SGLANG + "linear.fused_sigmoid_gating_recurrent.fused_sigmoid_gating_delta_rule_update",
        "gated_delta_rule",
        ("A_log", "a", "dt_bias", "softplus_beta", "softplus_threshold", "q", "k", "v", "b",
         "initial_state_source", "initial_state_indices", "scale", "use_qk_l2norm_in_kernel",
         "cu_seqlens", "is_kda", "lower_bound", "disable_state_update", "intermediate_states_buffer",
         "intermediate_state_indices", "cache_steps", "retrieve_parent_token", "cache_ring",
         "replayssm_rawv", "replayssm_rawk", "replayssm_g", "replayssm_beta", "match_cutedsl_decode"),
        inputs={**{name: name for name in ("A_log", "a", "dt_bias", "q", "k", "v", "b", "cu_seqlens",
                                           "intermediate_state_indices")},
                "initial_state_source": "initial_state", "initial_state_indices": "state_indices",
                "intermediate_states_buffer": "initial_intermediate_states",
                "retrieve_parent_token": "parent_tokens"},
        outputs=("o",), written={"initial_state_source": "final_state",
                                 "intermediate_states_buffer": "intermediate_states"},
        convention=_POOL, arranged=_sglang_mtp, refuses=_sglang_refuses,
        when=(_IS_KDA, When({"softplus_beta": GIVEN}, attribute="softplus_beta"),
              When({"softplus_threshold": GIVEN}, attribute="softplus_threshold"),
              When({"lower_bound": GIVEN}, {"gate": "bounded"}, attribute="lower_bound"),
              When({"disable_state_update": True}, {"disable_state_update": 1})),
        ignored=("is_kda", "cache_steps"), taken=flat_bias,
        fixed={"cache_ring": (False,), "match_cutedsl_decode": (False,)}, release="sglang 0.5.23",
        **_TOKEN_BY_TOKEN),
    Row(_SGLANG + "fla.fused_recurrent.fused_recurrent_gated_delta_rule_packed_decode",
        **_PACKED_DECODE, convention=_POOL, release="sglang 0.5.23"),
    Row(_SGLANG + "fla.chunk.chunk_gated_delta_rule", "gated_delta_rule",
        ("q", "k", "v", "g", "beta", "scale", "initial_state", "initial_state_indices", "cu_seqlens",
         "head_first", "use_qk_l2norm_in_kernel", "inplace_update"),
        inputs={**{name: name for name in ("q", "k", "v", "g", "beta", "initial_state", "cu_seqlens")},
                "initial_state_indices": "state_indices"},
        outputs=("o",), written={"initial_state": "final_state"},
        asks={"final_state": ("inplace_update",)}, norm="use_qk_l2norm_in_kernel", scale="scale",
        convention={"gate": "log", "beta": "direct", **_POOL}, modes=("prefill", "prefill"),
        fixed={"head_first": (False,)}, refuses=_sglang_refuses, taken=one_row, release="sglang 0.5.23"),
    Row("cudnn.linear_attention.ops.gdn.gated_delta_net", "gated_delta_rule",
        (*_CUDNN_FIRST, *_CUDNN_LAST),
        when=(*_CUDNN_BETA, When({"safe_gate": True}, {"gate": "softplus"}, _CUDNN_PARAMETERS)),
        **_CUDNN),
    Row("cudnn.linear_attention.ops.kda.kimi_delta_attention", "kda",
        (*_CUDNN_FIRST, "gate_lower_bound", *_CUDNN_LAST),
        when=(*_CUDNN_BETA, When({"safe_gate": True}, {"gate": "bounded"}, _CUDNN_PARAMETERS),
              When({"safe_gate": True, "gate_lower_bound": GIVEN}, attribute="lower_bound")),
        **_CUDNN),
)
