# SPDX-License-Identifier: Apache-2.0
# Length: one file that users copy beside their kernel; it must need no other.
"""Writes captures of kernels for `goldenrule check`, and reads fixtures (schema goldenrule/1).

In the test of a Triton kernel, ten lines:

    from goldenrule_capture import write_capture

    o, state = my_gdn_decode(q, k, v, a, b, A_log, dt_bias, state0, slots)    # torch tensors
    write_capture(
        "my_gdn_decode.h5", op="gated_delta_rule", mode="decode", source="my kernel, rev 42",
        convention=dict(state_layout="vk", gate="softplus", qk_l2norm="rsqrt_sum_eps",
                        l2_eps=1e-6, scale=q.shape[-1] ** -0.5),
        inputs=dict(q=q, k=k, v=v, a=a, b=b, A_log=A_log, dt_bias=dt_bias,
                    initial_state=state0, state_indices=slots),
        outputs=dict(o=o, final_state=state))

and then `goldenrule check my_gdn_decode.h5`. `initial_state` must be the state *before* the call:
most decode kernels update it in place, so pass a clone.

Tensors are NumPy arrays, torch tensors on any device (torch is never imported here), or anything
that numpy.asarray takes. Storage types stay what they are: float64, float32, float16, int32,
int64, and bfloat16 as torch.bfloat16, as ml_dtypes.bfloat16, or as arrays named in bf16=("q", "k"):
float32 ones, which must hold bfloat16 values exactly, or uint16 ones, which are their bits. Needs
NumPy, and h5py >= 3 for files.

Shapes. B rows (or sequences of equal length), T tokens, N sequences, H query/key heads, HV value
heads (a multiple of H), K and V dimensions, P slots of a state pool. `state` is V,K under
state_layout "vk" and K,V under "kv". In prefill `B,T` is one axis of all tokens, `total`,
the B of indices is N, and R is the number of checkpoints.
Indices are int32 or int64, everything else is of any float type.

    input                  shape                           present
    q, k                   B,T,H,K                         always
    v                      B,T,HV,V                        always
    a                      B,T,HV (kda: B,T,HV,K)          gate softplus, bounded
    A_log                  HV (gate_head qk: H)            gate softplus; bounded: optional (= 0)
    dt_bias                HV or H (kda: HV,K or H,K)      gate softplus, bounded: optional (= 0)
    g                      B,T,HV (kda: B,T,HV,K)          gate log, log2, linear
    b                      B,T,HV                          beta sigmoid, sigmoid2
    beta                   B,T,HV                          beta direct
    initial_state          P,HV,state; prefill N,HV,state  optional (= 0)
    state_indices          B                               optional (row b uses slot b)
    output_state_indices   B                               optional (= state_indices)
    has_initial_state      B                               decode, prefill: optional (= 1); 0 for a
                                                           row that starts from zero
    ssm_state_indices      B,T                             mtp: optional, a slot for each token; with
    num_accepted_tokens    B                               ... the token whose slot the row starts
                                                           at, or state_indices that name it
    accepted_tokens        B                               mtp: optional (= T)
    parent_tokens          B,T                             mtp: optional, the token of its row that
                                                           each continues, -1: the start state
    initial_intermediate_states   I,S,HV,state             mtp: optional, the buffer of states
    intermediate_state_indices    B                        ... before the call, and the row of it
                                                           that each row takes (= b), -1: none
    checkpoint_state_indices      B                        decode, mtp: optional, a second slot for
    checkpoint_tokens             B                        ... the state after so many tokens
    initial_ring_d         J,HV,W,V                        mtp: optional, rings of W places instead
    initial_ring_k         J,H,W,K                         ... of states: corrections, normalised
    initial_ring_g         J,HV,W (kda: J,HV,W,K)          ... keys and log alpha of tokens
    ring_indices           B                               ... the ring of each row (= b)
    ring_start             B                               ... the place of its oldest pending token
    ring_count             B                               ... how many accepted tokens are pending
    ring_flush             B                               ... 1: they go into the state (= 0)
    cu_seqlens             N+1                             prefill; mtp: optional, B+1: packed rows
                                                           of unequal length, slots then B,S
    request_ids            B                               of a chain of calls: optional, the request
    positions              B                               of each row (-1: none), its tokens before
    restored_from          B                               this call, the request whose state it
    accepted_counts        B                               takes over; mtp: tokens that were kept
    accepted_last          B                               mtp: ... the last of them (-1: none)
    checkpoint_offsets     R                               prefill: optional, the tokens of its
    cu_checkpoints         N+1                             ... sequence before each checkpoint

    output                 shape                           present
    o                      B,T,HV,V                        wanted
    final_state            like initial_state              wanted
    intermediate_states    B,T,HV,state; I,S,HV,state      mtp: the state after each token
    checkpoints            R,HV,state                      prefill with checkpoint_offsets
    ring_d, ring_k, ring_g as initial_ring_d, ..           mtp with rings

The backward pass of a prefill (op "gated_delta_rule_backward", "kda_backward") has the inputs of the
forward call (no slots, no checkpoints), do like o, and optional dfinal_state like final_state. Its
outputs are gradients, "d" and the name of the input that they are by, in its shape.

decode has T = 1. Prefill is packed: `[B,T,H,K]` with B sequences of T tokens becomes
`[B*T,H,K]`, cu_seqlens `[0,T,2T,..,B*T]` says where each begins and ends, and v, the gate, beta and
o are packed likewise. write_capture does that itself where q has four axes. The states of a prefill
are those of its sequences; with state_indices they are a pool, P,HV,state, as in the other modes.

Attention (op "attention") is packed in both modes; HV are query heads, H key heads, P slots of a
page. q, o `[total_q,HV,K]`, `[total_q,HV,V]` with cu_seqlens_q N+1; fresh keys k, v `[total_k,H,K]`,
`[total_k,H,V]` with cu_seqlens_k; decode also k_cache, v_cache `[pages,P,H,K]`, `[pages,P,H,V]`,
kv_lens N and page_table `N,W` or page_indptr, page_indices; optional q_offset, valid_q N and the
output lse `[total_q,HV]`. `[B,T,H,K]` (and an lse `[B,HV,T]`) are packed by write_capture:

    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)   # [B,H,T,K]
    write_capture("sdpa.h5", op="attention", mode="prefill", convention=dict(mask="causal"),
                  inputs=dict(q=q.transpose(1, 2), k=k.transpose(1, 2), v=v.transpose(1, 2)),
                  outputs=dict(o=o.transpose(1, 2)))

Acceptance of drafts (op "draft_acceptance") has N rows of S drafts and a vocabulary of Z tokens. Mode
"greedy": start N, draft_tokens `N,S`, target_tokens `N,S+1`. Mode "rejection": target_probs
`N,S+1,Z` (with bonus_tokens N: `N,S,Z`), draft_probs `N,S,Z` unless draft_kind is "one_hot",
uniforms `N,S`, and recover_uniforms N or recover_noise `N,Z`. Optional draft_lens N and stop_tokens
M. Outputs tokens `N,S+1`, and any of accepted, committed, target_len, draft_len, next_anchor,
release_from N and keep `N,S+1`:

    write_capture("drafts.h5", op="draft_acceptance", mode="greedy", convention=dict(page_size=16),
                  inputs=dict(start=lengths, draft_tokens=drafts, target_tokens=logits.argmax(-1)),
                  outputs=dict(tokens=tokens, accepted=accepted))

Checkpoints are states of sequences on the way. The rows of sequence n are cu_checkpoints[n] to
cu_checkpoints[n+1], and row r is its state after checkpoint_offsets[r] of its own tokens, ascending
(0: its start state). checkpoints_every and checkpoints_at make both arrays of what was asked for.
"""

import dataclasses
import hashlib
import math
import operator
import os
import re
import warnings
from collections.abc import Mapping

import numpy as np

# --- Generated by update_tables.py from `goldenrule schema --json`: do not edit.
SCHEMA = "goldenrule/1"
OPS = ("gated_delta_rule", "kda")
MODES = ("decode", "mtp", "prefill")
# What the attribute `contract` may claim.
CONTRACTS = ("ideal", "recurrent_f32", "chunk64_f32", "recurrent_f32_bf16_activations",
             "chunk64_tf32", "recurrent_bf16_state", "chunk64_bf16_direct", "chunk32_bf16_direct",
             "chunk64_bf16_direct_bf16_state", "chunk32_bf16_direct_bf16_state",
             "chunk64_bf16_direct_segments", "chunk32_bf16_direct_segments",
             "chunk64_bf16_direct_bf16_state_segments", "chunk32_bf16_direct_bf16_state_segments",
             "replay_bf16", "chunk64_bf16", "chunk64_16bit", "chunk16_bf16_state")
# Attribute of /convention -> the names that it may have, or the type of its number.
CONVENTION = {
    "state_layout": ("vk", "kv"),
    "gate": ("softplus", "bounded", "log", "log2", "linear", "none"),
    "softplus_beta": float,
    "softplus_threshold": float,
    "lower_bound": float,
    "beta": ("sigmoid", "sigmoid2", "direct"),
    "qk_l2norm": ("none", "rsqrt_sum_eps", "max_norm_eps", "norm_plus_eps"),
    "l2_eps": float,
    "scale": float,
    "head_map": ("grouped", "tiled"),
    "gate_head": ("v", "qk"),
    "pad_slot": int,
    "disable_state_update": int,
}
# What an absent attribute means; `scale` has none here: its default, K^-0.5, depends on the
# call.
DEFAULTS = {
    "state_layout": "vk",
    "gate": "softplus",
    "softplus_beta": 1.0,
    "softplus_threshold": 20.0,
    "lower_bound": -5.0,
    "beta": "sigmoid",
    "qk_l2norm": "rsqrt_sum_eps",
    "l2_eps": 1e-06,
    "head_map": "grouped",
    "gate_head": "v",
    "pad_slot": -1,
    "disable_state_update": 0,
}
# Numbers without a meaning are refused: attribute -> (what is expected, whether a number is that).
_RANGES = {
    "softplus_beta": ("above 0", lambda x: 0.0 < x),
    "lower_bound": ("below 0", lambda x: x < 0.0),
    "l2_eps": ("at least 0", lambda x: 0.0 <= x),
    "pad_slot": ("within +-(2^31-1)", lambda x: -2147483647 <= x <= 2147483647),
    "disable_state_update": ("0 or 1", lambda x: 0 <= x <= 1),
}
# The inputs of a gate and of a beta; those of the others may be given, but nobody reads them.
_OF_GATE = {
    "softplus": ("a", "A_log", "dt_bias"),
    "bounded": ("a", "A_log", "dt_bias"),
    "log": ("g",),
    "log2": ("g",),
    "linear": ("g",),
    "none": (),
}
_OF_BETA = {
    "sigmoid": ("b",),
    "sigmoid2": ("b",),
    "direct": ("beta",),
}
# Inputs and outputs that a call may have.
INPUTS = {
    "decode": ("q", "k", "v", "initial_state", "a", "A_log", "dt_bias", "g", "b", "beta",
         "state_indices", "output_state_indices", "has_initial_state", "checkpoint_state_indices",
         "checkpoint_tokens", "request_ids", "positions", "restored_from"),
    "mtp": ("q", "k", "v", "initial_state", "a", "A_log", "dt_bias", "g", "b", "beta", "cu_seqlens",
         "state_indices", "output_state_indices", "ssm_state_indices", "num_accepted_tokens",
         "accepted_tokens", "parent_tokens", "initial_intermediate_states",
         "intermediate_state_indices", "checkpoint_state_indices", "checkpoint_tokens",
         "initial_ring_d", "initial_ring_k", "initial_ring_g", "ring_indices", "ring_start",
         "ring_count", "ring_flush", "request_ids", "positions", "restored_from",
         "accepted_counts", "accepted_last"),
    "prefill": ("q", "k", "v", "initial_state", "a", "A_log", "dt_bias", "g", "b", "beta", "cu_seqlens",
         "state_indices", "output_state_indices", "has_initial_state", "checkpoint_offsets",
         "cu_checkpoints", "request_ids", "positions", "restored_from"),
}
_SLOTS = ("state_indices", "output_state_indices", "ssm_state_indices", "checkpoint_state_indices")
OUTPUTS = {
    "decode": ("o", "final_state"),
    "mtp": ("o", "final_state", "intermediate_states", "ring_d", "ring_k", "ring_g"),
    "prefill": ("o", "final_state", "checkpoints"),
}
# Stages of chunked kernels, in the order of the computation.
STAGES = {
    "G": "tokens,HV(,K)",
    "beta": "tokens,HV",
    "q": "tokens,H,K",
    "k": "tokens,H,K",
    "A": "tokens,HV,C",
    "T": "tokens,HV,C",
    "w": "tokens,HV,K",
    "u": "tokens,HV,V",
    "h": "chunks,HV,state",
    "v_new": "tokens,HV,V",
    "P": "tokens,HV,C",
    "o": "tokens,HV,V",
    "dh": "chunks,HV,state",
    "du": "tokens,HV,V",
    "dP": "tokens,HV,C",
    "dw": "tokens,HV,K",
    "dM": "tokens,HV,C",
    "dq": "tokens,HV,K",
    "dk": "tokens,HV,K",
    "raw": "tokens,HV(,K)",
}
# The same of backward.
BACKWARD_OPS = ("gated_delta_rule_backward", "kda_backward")
BACKWARD_CONTRACTS = ("ideal", "adjoint_f32", "adjoint_f32_repeated_heads", "adjoint64_fp32_pairs",
                      "adjoint64_two_factors", "adjoint16_two_factors", "adjoint64_16bit_pairs",
                      "adjoint64_direct")
BACKWARD_CONVENTION = {
    "state_layout": ("vk", "kv"),
    "gate": ("softplus", "bounded", "log", "log2", "linear", "none"),
    "softplus_beta": float,
    "softplus_threshold": float,
    "lower_bound": float,
    "beta": ("sigmoid", "sigmoid2", "direct"),
    "qk_l2norm": ("none", "rsqrt_sum_eps", "max_norm_eps", "norm_plus_eps"),
    "l2_eps": float,
    "scale": float,
    "head_map": ("grouped", "tiled"),
    "gate_head": ("v", "qk"),
}
BACKWARD_DEFAULTS = {
    "state_layout": "vk",
    "gate": "softplus",
    "softplus_beta": 1.0,
    "softplus_threshold": 20.0,
    "lower_bound": -5.0,
    "beta": "sigmoid",
    "qk_l2norm": "rsqrt_sum_eps",
    "l2_eps": 1e-06,
    "head_map": "grouped",
    "gate_head": "v",
}
_BACKWARD_RANGES = {
    "softplus_beta": ("above 0", lambda x: 0.0 < x),
    "lower_bound": ("below 0", lambda x: x < 0.0),
    "l2_eps": ("at least 0", lambda x: 0.0 <= x),
}
BACKWARD_INPUTS = {
    "prefill": ("q", "k", "v", "initial_state", "a", "A_log", "dt_bias", "g", "b", "beta", "cu_seqlens",
         "do", "dfinal_state"),
}
BACKWARD_OUTPUTS = {
    "prefill": ("dq", "dk", "dv", "da", "dg", "db", "dbeta", "dA_log", "ddt_bias", "dinitial_state"),
}
_BACKWARD_FLOATS = ("q", "k", "v", "initial_state", "a", "A_log", "dt_bias", "g", "b", "beta", "do", "dfinal_state", "dq", "dk", "dv", "da", "dg", "db", "dbeta", "dA_log", "ddt_bias", "dinitial_state")
# The same of attention.
ATTENTION_OPS = ("attention",)
ATTENTION_CONTRACTS = ("ideal", "flash_bf16", "flash_bf16_rounded_sum", "eager_bf16")
ATTENTION_CONVENTION = {
    "scale": float,
    "head_map": ("grouped", "tiled"),
    "mask": ("full", "causal", "block_causal"),
    "block": int,
    "block_base": ("absolute", "segment"),
    "window_left": int,
    "window_right": int,
    "block_kv": ("separate", "in_cache"),
    "kv_layout": ("nhd", "hnd"),
    "missing_page": ("error", "skip"),
    "soft_cap": float,
    "lse_base": ("e", "2"),
    "lse_layout": ("th", "ht"),
}
ATTENTION_DEFAULTS = {
    "head_map": "grouped",
    "mask": "full",
    "block": 1,
    "block_base": "absolute",
    "window_left": -1,
    "window_right": -1,
    "block_kv": "separate",
    "kv_layout": "nhd",
    "missing_page": "error",
    "soft_cap": 0.0,
    "lse_base": "e",
    "lse_layout": "th",
}
_ATTENTION_RANGES = {
    "block": ("1 to 2^31-1", lambda x: 1 <= x <= 2147483647),
    "window_left": ("-1 to 2^31-1", lambda x: -1 <= x <= 2147483647),
    "window_right": ("-1 to 2^31-1", lambda x: -1 <= x <= 2147483647),
    "soft_cap": ("at least 0", lambda x: 0.0 <= x),
}
ATTENTION_INPUTS = {
    "decode": ("q", "cu_seqlens_q", "k", "v", "cu_seqlens_k", "k_cache", "v_cache", "kv_lens",
         "page_table", "page_indptr", "page_indices", "last_page_len", "q_offset", "key_positions",
         "visible_first", "visible_last", "valid_q", "request_ids", "positions", "restored_from",
         "accepted_counts"),
    "prefill": ("q", "cu_seqlens_q", "k", "v", "cu_seqlens_k", "q_offset", "key_positions",
         "visible_first", "visible_last", "valid_q", "request_ids", "positions", "restored_from",
         "accepted_counts"),
}
ATTENTION_OUTPUTS = {
    "decode": ("o", "lse"),
    "prefill": ("o", "lse"),
}
_ATTENTION_FLOATS = ("q", "k", "v", "k_cache", "v_cache", "o", "lse")
# The same of draft_acceptance.
DRAFT_OPS = ("draft_acceptance",)
DRAFT_CONTRACTS = ("ideal",)
DRAFT_CONVENTION = {
    "draft_kind": ("sampled", "one_hot"),
    "accept_rule": ("le", "lt"),
    "zero_draft": ("reject", "accept"),
    "draft_crop": ("start", "new_start"),
    "pad_token": int,
    "page_size": int,
}
DRAFT_DEFAULTS = {
    "draft_kind": "sampled",
    "accept_rule": "le",
    "zero_draft": "reject",
    "draft_crop": "start",
    "pad_token": -1,
    "page_size": 1,
}
_DRAFT_RANGES = {
    "pad_token": ("within +-(2^31-1)", lambda x: -2147483647 <= x <= 2147483647),
    "page_size": ("1 to 2^31-1", lambda x: 1 <= x <= 2147483647),
}
DRAFT_INPUTS = {
    "greedy": ("start", "draft_tokens", "draft_lens", "target_tokens", "draft_probs", "stop_tokens",
         "request_ids", "positions", "restored_from", "accepted_counts"),
    "rejection": ("start", "draft_tokens", "draft_lens", "target_probs", "draft_probs", "uniforms",
         "recover_uniforms", "recover_noise", "bonus_tokens", "stop_tokens", "request_ids",
         "positions", "restored_from", "accepted_counts"),
}
DRAFT_OUTPUTS = {
    "greedy": ("tokens", "accepted", "committed", "target_len", "draft_len", "next_anchor", "keep", "release_from"),
    "rejection": ("tokens", "accepted", "committed", "target_len", "draft_len", "next_anchor", "keep", "release_from"),
}
_DRAFT_FLOATS = ("target_probs", "draft_probs", "uniforms", "recover_uniforms", "recover_noise")
# --- End of what is generated.


@dataclasses.dataclass(frozen=True)
class _Family:
    """The tables of the operations of one family."""

    contracts: tuple
    convention: dict
    defaults: dict
    ranges: dict
    inputs: dict
    outputs: dict


_DELTA = _Family(CONTRACTS, CONVENTION, DEFAULTS, _RANGES, INPUTS, OUTPUTS)
_FAMILIES = {
    **dict.fromkeys(OPS, _DELTA),
    **dict.fromkeys(BACKWARD_OPS, _Family(BACKWARD_CONTRACTS, BACKWARD_CONVENTION,
                                          BACKWARD_DEFAULTS, _BACKWARD_RANGES, BACKWARD_INPUTS,
                                          BACKWARD_OUTPUTS)),
    **dict.fromkeys(ATTENTION_OPS, _Family(ATTENTION_CONTRACTS, ATTENTION_CONVENTION,
                                           ATTENTION_DEFAULTS, _ATTENTION_RANGES, ATTENTION_INPUTS,
                                           ATTENTION_OUTPUTS)),
    **dict.fromkeys(DRAFT_OPS, _Family(DRAFT_CONTRACTS, DRAFT_CONVENTION, DRAFT_DEFAULTS,
                                        _DRAFT_RANGES, DRAFT_INPUTS, DRAFT_OUTPUTS)),
}
_CHAIN = ("request_ids", "positions", "restored_from", "accepted_counts", "accepted_last")

_CHOSEN = {name for readers in (_OF_GATE, _OF_BETA) for names in readers.values() for name in names}
_TYPES = "float64, float32, float16, bfloat16, int64 or int32"
_STORED = {np.dtype(t): t for t in ("<f8", "<f4", "<f2", "<i8", "<i4")}
_CHUNKED_FROM = 64 * 1024  # bytes; smaller datasets are stored as they are
_CHUNK_BYTES = 512 * 1024


@dataclasses.dataclass
class Fixture:
    """The content of a file. Arrays are NumPy; bfloat16 arrives as float32, which holds it exactly.

    golden[name] is (float64 array, radius): every element is within radius of the exact result.
    convention has every attribute, defaults filled in; `scale` only where the file has it.
    """

    op: str
    mode: str
    attributes: dict  # the other root attributes: source, contract, case, family, seed, ...
    convention: dict
    inputs: dict
    outputs: dict
    golden: dict
    budget: dict  # contract -> {name: float32 array}
    stages: dict
    bf16: tuple  # "inputs/q", ...: the datasets that are stored as bfloat16


def write_capture(path, *, op, mode, inputs, outputs, convention=None, source="", contract="",
                  bf16=(), chain="", call=None, stages=None, chunk=0, stage_forms=None):
    """Writes the inputs and outputs of one kernel call; replaces `path` completely or not at all.

    inputs, outputs: {name: tensor}, a tensor that is None is absent; convention: {attribute:
    value}, absent ones have their defaults, and scale=None is absent; contract: the declared
    rounding model, e.g. "recurrent_f32"; bf16: names of float32 or uint16 inputs or outputs that are
    to be stored as bfloat16; chain, call: id of the chain of calls that this is one of, and its place
    in it, 0, 1, 2, ..; stages: intermediate results of a chunked kernel, {name: tensor} by the table
    of `goldenrule list stages`, in chunks of `chunk` tokens (0: those of the contract), stage_forms:
    {name: form} where the kernel has one in another form than the first of its row.

    Shapes are those of the table above, and other forms are brought to them:
    - prefill with q `[B,T,H,K]` is packed, with everything that has tokens, and gets its
      cu_seqlens; `[1,T,H,K]` keeps the cu_seqlens that it comes with;
    - A_log `[1,1,H,1]` and dt_bias `[H*K]` of kda, as checkpoints store them, are reshaped;
    - decode and mtp without initial_state start from zeros: of the shape and type of final_state,
      or else `[B,HV,state]` in float32.

    Raises ValueError, one line, for an unknown name, convention or contract; for a type that the
    schema does not have, a masked array, and float32 values named in bf16 that no bfloat16 equals;
    for a shape that is not the table's, naming tensor, expected and actual shape; and for an output
    in the memory of an input, which the kernel then overwrote: clone that before the call. Warns
    (UserWarning) of an input that the gate or beta of the convention does not use, and of a number
    of the convention that the program will refuse.
    """
    path = os.fsdecode(path)
    stages = stages or {}
    bf16 = (bf16,) if isinstance(bf16, str) else tuple(bf16)
    attributes, conventions, groups = prepared(op, mode, inputs, outputs, convention, source, contract,
                                               [name for name in bf16 if name not in stages])
    arrays, chunk, forms = prepared_stages(op, stages, chunk, stage_forms or {},
                                           [name for name in bf16 if name in stages])
    if chain:
        attributes["chain"] = _text("chain", chain)
    if call is not None:
        attributes["call"] = np.int64(operator.index(call))
        if call < 0:
            raise ValueError(f"call: expected a number >= 0, actual {call}")
    if arrays:
        groups = {**groups, "stages": arrays}
    _write_file(path, {"schema": SCHEMA, **attributes}, conventions, groups, chunk, forms)


def prepared(op, mode, inputs, outputs, convention=None, source="", contract="", bf16=(),
             wants_outputs=True):
    """What write_capture writes: (root attributes, checked convention, groups).

    groups is {"inputs": {name: (array, is_bf16)}, "outputs": ..}: contiguous arrays of the shapes of
    the table, those of bfloat16 as bits. Raises and warns as write_capture does; without
    wants_outputs there may be none.
    """
    family = _FAMILIES[_choice("op", op, tuple(_FAMILIES))]
    of_inputs, of_outputs = family.inputs, family.outputs
    _choice("mode", mode, tuple(of_inputs))
    if contract:
        _choice("contract", contract, family.contracts)
    conventions = check_convention({} if convention is None else convention, op)
    bf16 = (bf16,) if isinstance(bf16, str) else tuple(bf16)
    groups = {"inputs": _tensors("inputs", inputs, of_inputs[mode], mode, bf16),
              "outputs": _tensors("outputs", outputs, of_outputs[mode], mode, bf16)}
    unused = set(bf16) - set(inputs) - set(outputs)
    if unused:
        raise ValueError(f"bf16: no such input or output: {', '.join(sorted(unused))}")
    texts = {"source": _text("source", source), "contract": contract}
    slots = groups["inputs"].get("state_indices")
    pad_slot = conventions.get("pad_slot", DEFAULTS["pad_slot"])
    writes_none = slots is not None and bool(np.all(slots[0] == pad_slot))
    _refuse_shared_memory(inputs, outputs, writes_none)
    if wants_outputs and not groups["outputs"]:
        raise ValueError(f"outputs: expected at least one of {', '.join(of_outputs[mode])}, "
                         "actual none")
    attributes = {"op": op, "mode": mode, **{name: text for name, text in texts.items() if text}}
    if op in ATTENTION_OPS:
        _pack_attention(mode, **groups)
    elif op in DRAFT_OPS:
        _fit_drafts(**groups)
    if op not in OPS + BACKWARD_OPS:
        return attributes, conventions, groups
    call = _Call(op, mode, {**family.defaults, **conventions}, **groups)
    call.fit()
    for text in call.unused():
        warnings.warn(text, stacklevel=3)
    return attributes, conventions, groups


def prepared_stages(op, stages, chunk, forms, bf16=()):
    """(arrays as those of prepared, the checked chunk, the checked forms). [B,T,..], [B,NT,..] of a
    rectangular call are packed as its tokens are. What the names, shapes and forms must be, the program
    says when it judges."""
    if not isinstance(stages, Mapping) or not isinstance(forms, Mapping):
        raise ValueError(f"stages: expected {{name: tensor}} and {{name: form}}, actual {stages!r:.80} "
                         f"and {forms!r:.80}")
    chunk = operator.index(chunk)
    if not 0 <= chunk < 2**31:
        raise ValueError(f"chunk: expected a number of tokens, actual {chunk}")
    arrays = {}
    for name, tensor in stages.items():
        if tensor is None:
            continue
        _text("stages", name)
        if name not in STAGES:
            raise ValueError(f"stages: expected one of {', '.join(STAGES)}, actual {name!r}")
        axes = STAGES[name].replace("(,K)", ",K" if op in ("kda", "kda_backward") else "").replace("state", "V,K")
        array, is_bf16 = _to_array(f"stages {name}", tensor, name in bf16)
        if array.dtype.kind != "f" and not is_bf16:
            raise ValueError(f"stages {name}: expected floating-point numbers, actual {array.dtype}")
        if array.ndim == axes.count(",") + 2:
            array = array.reshape(array.shape[0] * array.shape[1], *array.shape[2:])
        arrays[name] = (array, is_bf16)
    for name, form in forms.items():
        if name not in arrays:
            raise ValueError(f"stage_forms: expected the form of a stage that is there, actual {name!r}")
        _text("stage_forms", form)
    return arrays, chunk, dict(forms)


def checkpoints_every(cu_seqlens, n, form, earlier_tokens=None):
    """checkpoint_offsets and cu_checkpoints of a kernel that keeps a state every n tokens.

    form "after": rows are the states after n, 2n, .. tokens, len // n of them (FlashInfer's GDN).
    form "before": row 0 is the start state, then those after n, 2n, .. tokens, ceil(len / n) of
    them: the end of the sequence is none (FlashInfer's KDA, sglang, h of flash-linear-attention).
    earlier_tokens: for each sequence, how many of its tokens came in earlier calls; n tokens are
    then counted from the first of these. To be merged into the inputs of write_capture:

        inputs=dict(q=q, k=k, .., **checkpoints_every(cu_seqlens, 64, "after"))
    """
    _choice("form", form, ("after", "before"))
    bounds = _to_array("cu_seqlens", cu_seqlens, False)[0]
    if n < 1 or bounds.ndim != 1 or bounds.size < 1 or bounds.dtype.kind != "i":
        raise ValueError(f"checkpoints: expected n >= 1 and cu_seqlens [N+1], actual n={n} and "
                         f"cu_seqlens {_brackets(bounds.shape)} of {bounds.dtype}")
    lengths = np.diff(bounds)
    earlier = [0] * lengths.size if earlier_tokens is None else [int(t) for t in earlier_tokens]
    if len(earlier) != lengths.size:
        raise ValueError(f"earlier_tokens: expected one number for each of {lengths.size} "
                         f"sequences, actual {len(earlier)}")
    shift = 1 if form == "after" else 0
    return checkpoints_at([[t for t in range(shift, int(length) + shift) if (had + t) % n == 0]
                           for length, had in zip(lengths, earlier)])


def checkpoints_at(offsets):
    """The same of a list for each sequence: after how many tokens its states are kept (vLLM)."""
    counts = np.cumsum([0, *(len(of_sequence) for of_sequence in offsets)])
    return dict(checkpoint_offsets=np.array([t for row in offsets for t in row], dtype="<i8"),
                cu_checkpoints=counts.astype("<i8"))


def _write_file(path, attributes, conventions, groups, chunk=0, forms=()):
    """Writes the file beside its place first, and moves it there when it is complete."""
    import h5py  # here and below: only files need it

    partial = path + ".partial"
    try:
        with _new_file(partial) as file:
            for name, text in attributes.items():
                file.attrs[name] = text
            group = _new_group(file, "convention")
            for name, value in conventions.items():
                group.attrs[name] = value
            for group_name, tensors in groups.items():
                group = _new_group(file, group_name)
                for name, (array, is_bf16) in sorted(tensors.items()):
                    _write_dataset(group, name, array, is_bf16)
            if chunk and "stages" in groups:
                file["stages"].attrs["chunk"] = np.int64(chunk)
            for name in forms:
                file["stages"][name].attrs["form"] = forms[name]
        with open(partial, "rb") as written:
            os.fsync(written.fileno())
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.remove(partial)
        raise


def read_fixture(path):
    """Reads a capture or a generated fixture into a Fixture. Raises ValueError for another schema.

    For one's own files: `goldenrule check` reads files from strangers with more care.
    """
    import h5py

    with h5py.File(path, "r") as file:
        attributes = {name: _plain(value) for name, value in file.attrs.items()}
        schema = attributes.pop("schema", None)
        if schema != SCHEMA:
            raise ValueError(f"{os.fspath(path)}: schema: expected {SCHEMA!r}, actual {schema!r}")
        op = _choice("op", attributes.pop("op", None), tuple(_FAMILIES))
        family = _FAMILIES[op]
        mode = _choice("mode", attributes.pop("mode", None), tuple(family.inputs))
        stored = file["convention"].attrs if "convention" in file else {}
        convention = check_convention({name: _plain(value) for name, value in stored.items()}, op)
        bf16 = []

        def load(group_name):
            arrays = {}
            for name, dataset in (file[group_name].items() if group_name in file else ()):
                arrays[name], is_bf16 = _read_dataset(dataset)
                if is_bf16:
                    bf16.append(f"{group_name}/{name}")
            return arrays

        golden = {name: (array, float(file["golden"][name].attrs["radius"]))
                  for name, array in load("golden").items()}
        budget = {contract: load(f"budget/{contract}") for contract in file.get("budget", {})}
        return Fixture(op=op, mode=mode, attributes=attributes,
                       convention={**family.defaults, **convention}, inputs=load("inputs"),
                       outputs=load("outputs"), golden=golden, budget=budget,
                       stages=load("stages"), bf16=tuple(sorted(bf16)))


def check_convention(convention, op=OPS[0]):
    """The same mapping with numbers as float or int. Raises ValueError naming what is wrong."""
    checked = {}
    kinds, ranges = _FAMILIES[op].convention, _FAMILIES[op].ranges
    if not isinstance(convention, Mapping):
        raise ValueError(f"convention: expected {{attribute: value}}, actual {convention!r}")
    for name, value in convention.items():
        if name == "scale" and value is None:
            continue
        kind = kinds.get(name)
        if kind is None:
            raise ValueError(f"convention: unknown attribute {name!r}; "
                             f"known are {', '.join(kinds)}")
        if isinstance(kind, tuple):
            checked[name] = _choice(f"convention {name}", value, kind)
            continue
        try:
            number = kind(value)
            exact = number == value
        except (TypeError, ValueError, OverflowError):
            exact = False
        if not exact or isinstance(value, str) or not math.isfinite(number):
            expected = "a whole number" if kind is int else "a finite number"
            raise ValueError(f"convention {name}: expected {expected}, actual {value!r}")
        legal, is_legal = ranges.get(name, ("", None))
        if is_legal is not None and not is_legal(number):
            text = f"convention {name}: expected {legal}, actual {value!r}"
            if kind is int:
                raise ValueError(text)
            warnings.warn(f"{text}: `goldenrule check` will refuse it", stacklevel=4)
        checked[name] = number
    return checked


def _choice(what, value, legal):
    if value not in legal:
        raise ValueError(f"{what}: expected one of {', '.join(legal)}, actual {value!r}")
    return value


def _text(what, text):
    if not isinstance(text, str) or not text.isprintable():
        raise ValueError(f"{what}: expected one line of printable text, actual {text!r}")
    return text


def _tensors(group, tensors, legal, mode, bf16):
    """{name: (little-endian contiguous array, is_bf16)}; bf16 arrays are uint16 bit patterns."""
    if not isinstance(tensors, Mapping):
        raise ValueError(f"{group}: expected {{name: tensor}}, actual {type(tensors).__name__}")
    result = {}
    for name, tensor in tensors.items():
        if name not in legal:
            raise ValueError(f"{group}: unknown name {name!r} in mode {mode}; "
                             f"known are {', '.join(legal)}")
        if tensor is not None:
            result[name] = _to_array(f"{group} {name}", tensor, name in bf16)
    return result


def _to_array(what, tensor, as_bf16):
    if isinstance(tensor, np.ma.MaskedArray):
        raise ValueError(f"{what}: expected every value, actual a masked array")
    try:
        if hasattr(tensor, "detach") and hasattr(tensor, "cpu"):  # a torch tensor
            import torch

            _require_storage(tensor)
            with torch._C.DisableTorchFunction():  # what a subclass or a mode says of it is not what it holds
                values = torch.Tensor.cpu(torch.Tensor.detach(tensor)).contiguous()
                if values.dtype == torch.bfloat16:
                    return values.view(torch.int16).numpy().view(np.uint16), True
                array = np.asarray(values.numpy(), order="C")
        else:
            array = np.asarray(tensor, order="C")
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        actual = getattr(tensor, "dtype", type(tensor).__name__)
        reason = str(error).partition("\n")[0]
        known = str(actual).split(".")[-1] in re.findall(r"\w+", _TYPES)
        wanted = "a tensor whose values can be read" if known else _TYPES
        raise ValueError(f"{what}: expected {wanted}, actual {actual} ({reason})") from error
    if array.dtype.name == "bfloat16":  # ml_dtypes
        return array.view(np.uint16), True
    if as_bf16:
        if array.dtype.newbyteorder("=") == np.uint16:
            return array.astype("<u2", copy=False), True
        if array.dtype.newbyteorder("=") != np.float32:
            raise ValueError(f"{what}: bf16 takes float32 values or uint16 bits, actual "
                             f"{array.dtype}")
        return _float32_to_bf16(what, array.astype(np.float32, copy=False)), True
    stored = _STORED.get(array.dtype.newbyteorder("<"))
    if stored is None:
        bits = array.dtype.newbyteorder("=") == np.uint16
        hint = "; are these the bits of bfloat16? then name it in bf16=(..)" if bits else ""
        raise ValueError(f"{what}: expected {_TYPES}, actual {array.dtype}{hint}")
    return array.astype(stored, copy=False), False


def _require_storage(tensor):
    """A tensor whose storage was freed or made smaller since (as sharded training does with parameters)
    still has its shape, and reading it is reading what lies there now."""
    if not hasattr(tensor, "untyped_storage") or tensor.device.type == "meta" or not tensor.numel():
        return
    last = tensor.storage_offset() + sum((n - 1) * step
                                         for n, step in zip(tensor.shape, tensor.stride()))
    stored = tensor.untyped_storage().nbytes()
    if stored < (last + 1) * tensor.element_size():
        raise ValueError(f"its storage has {stored} bytes")


class _Addresses:
    """Where the elements of a torch tensor lie, for numpy.shares_memory; they are never read."""

    def __init__(self, tensor):
        size = tensor.element_size()
        self.__array_interface__ = {
            "version": 3, "typestr": f"|V{size}", "shape": tuple(tensor.shape),
            "strides": tuple(step * size for step in tensor.stride()),
            "data": (tensor.data_ptr(), True)}


def _memory(tensor):
    """An array that lies where the tensor does, or None where that cannot be told."""
    if isinstance(tensor, np.ndarray):
        return tensor
    if not hasattr(tensor, "data_ptr"):
        return None
    try:
        return np.asarray(_Addresses(tensor)) if tensor.data_ptr() else None
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return None  # sparse, or no strides


def _refuse_shared_memory(inputs, outputs, writes_none):
    """An output in the memory of an input: what is there now is no longer what the kernel read.

    A kernel of which every row is padded writes no state, so that the pool may be both.
    """
    for output, after in outputs.items():
        if writes_none and output == "final_state":
            continue
        for name, before in inputs.items():
            arrays = _memory(before), _memory(after)
            if any(array is None for array in arrays):
                continue
            try:
                shared = np.shares_memory(*arrays, max_work=10 ** 6)
            except RuntimeError:  # too hard to tell
                continue
            if shared:
                raise ValueError(f"outputs {output}: lies in the memory of inputs {name}, which "
                                 "the kernel has overwritten; clone it before the call")


def _require_types(inputs, outputs, floats):
    for tensors in (inputs, outputs):
        for name, (array, is_bf16) in tensors.items():
            if (array.dtype.kind == "f" or is_bf16) != (name in floats):
                expected = "a floating-point tensor" if name in floats else "int32 or int64"
                raise ValueError(f"{name}: expected {expected}, actual "
                                 f"{'bfloat16' if is_bf16 else array.dtype}")


def _fit_drafts(inputs, outputs):
    """Columns [N,1] of what has one number a row become [N]. What else the shapes must be, the program
    says."""
    for name in ("start", "draft_tokens"):
        if name not in inputs:
            raise ValueError(f"inputs: {name} is missing")
    _require_types(inputs, outputs, _DRAFT_FLOATS)
    drafts = inputs["draft_tokens"][0].shape
    if len(drafts) != 2:
        raise ValueError(f"inputs draft_tokens: expected [N,S], actual {_brackets(drafts)}")
    blocks = ("draft_tokens", "target_tokens", "target_probs", "draft_probs", "uniforms",
              "recover_noise", "stop_tokens", "tokens", "keep")
    for tensors in (inputs, outputs):
        for name, (array, is_bf16) in tensors.items():
            if name not in blocks and array.shape == (drafts[0], 1):
                tensors[name] = array.reshape(-1), is_bf16


def _pack_attention(mode, inputs, outputs):
    """[B,T,..] of q, o, k and v becomes [B*T,..] with cu_seqlens_q and cu_seqlens_k where they are
    absent, and an lse [B,HV,T] [B*T,HV]. What else the shapes must be, the program says."""
    needed = ("q", "k", "v") if mode == "prefill" else ("q", "k_cache", "v_cache", "kv_lens")
    for name in needed:
        if name not in inputs:
            raise ValueError(f"inputs: {name} is missing")
    _require_types(inputs, outputs, _ATTENTION_FLOATS)
    q = inputs["q"][0].shape
    if len(q) == 4 and "lse" in outputs and outputs["lse"][0].shape == (q[0], q[2], q[1]):
        lse, is_bf16 = outputs["lse"]
        outputs["lse"] = np.ascontiguousarray(lse.transpose(0, 2, 1)).reshape(-1, q[2]), is_bf16
    for bounds, names in (("cu_seqlens_q", ("q", "o")), ("cu_seqlens_k", ("k", "v"))):
        first = inputs.get(names[0])
        if first is None or first[0].ndim != 4:
            continue
        rows, tokens = first[0].shape[:2]
        inputs.setdefault(bounds, (np.arange(rows + 1, dtype="<i8") * tokens, False))
        for name in names:
            tensors = outputs if name == "o" else inputs
            if name in tensors and tensors[name][0].shape[:2] == (rows, tokens):
                array, is_bf16 = tensors[name]
                tensors[name] = array.reshape(rows * tokens, *array.shape[2:]), is_bf16
    if "cu_seqlens_q" not in inputs:
        raise ValueError(f"inputs cu_seqlens_q: is missing; one request is [0,{q[0]}]")


def _brackets(shape):
    return "[" + ",".join(map(str, shape)) + "]"


def _some(values):
    return _brackets(values if len(values) <= 6 else [*values[:6], ".."])


class _Call:
    """The shapes of one call: the table of the module's docstring, and what is brought to it.

    inputs and outputs, {name: (array, is_bf16)}, are changed in place.
    """

    def __init__(self, op, mode, convention, inputs, outputs):
        self.kda, self.mode, self.convention = op in ("kda", "kda_backward"), mode, convention
        self.backward = op in BACKWARD_OPS
        self.inputs, self.outputs = inputs, outputs

    def fit(self):
        """Brings the tensors to the shapes of the table, or raises ValueError."""
        for name in ("q", "k", "v", *(("do",) if self.backward else ())):
            if name not in self.inputs:
                raise ValueError(f"inputs: {name} is missing")
        prefill = self.mode == "prefill"
        self.packed = prefill or (self.mode == "mtp" and "cu_seqlens" in self.inputs)
        if self._is_head_first():
            raise ValueError(f"inputs q: expected [B,T,H,K], actual {_brackets(self._shape('q'))}; "
                             "this is [B,H,T,K]: transpose axes 1 and 2 of q, k, v, o and what "
                             "else has tokens")
        if self.packed:
            self._pack()
        self._read_extents()
        if not prefill:
            self._start_from_zeros()
        elif "output_state_indices" in self.inputs and "state_indices" not in self.inputs:
            raise ValueError("inputs state_indices: is missing; in prefill output_state_indices "
                             "comes with it")
        self._refuse_slots_of_nothing()
        if not prefill or "state_indices" in self.inputs:
            self.slots = self._ranked("initial_state", 4)[0]
        self._reshape_parameters()
        self._check_inputs()
        self._check_outputs()

    def unused(self):
        """A text for each kind of inputs that are given and that the convention does not use."""
        texts = []
        for kind, readers in (("gate", _OF_GATE), ("beta", _OF_BETA)):
            read = readers[self.convention[kind]]
            others = {name for names in readers.values() for name in names} - set(read)
            names = [name for name in self.inputs if name in others]
            if names:
                texts.append(f"inputs {', '.join(names)}: not used, since {kind} is "
                             f"{self.convention[kind]!r}, which reads {', '.join(read) or 'none'}")
        return texts

    def _shape(self, name):
        return self.inputs[name][0].shape

    def _ranked(self, name, rank):
        shape = self._shape(name)
        if len(shape) != rank:
            raise ValueError(f"inputs {name}: expected rank {rank}, actual rank {len(shape)} "
                             f"{_brackets(shape)}")
        return shape

    def _told_value_heads(self):
        """The number of value heads that a tensor without token axes tells, or None."""
        for tensors, name in ((self.inputs, "initial_state"), (self.outputs, "final_state")):
            if name in tensors and tensors[name][0].ndim == 4:
                return tensors[name][0].shape[1]
        if "A_log" in self.inputs and self.convention["gate_head"] == "v":
            return self.inputs["A_log"][0].size
        return None

    def _is_head_first(self):
        """[B,H,T,K]. Never true of a right [B,T,H,K]: there axis 2 of v has the heads that other
        tensors tell, and axis 1 of q and v is the same T."""
        q, v = self._shape("q"), self._shape("v")
        if len(q) != 4 or len(v) != 4 or q[2] != v[2] or q[1] < 1 or v[1] % q[1] != 0:
            return False
        heads = self._told_value_heads()
        return q[1] != v[1] if heads is None else heads == v[1] and heads != v[2]

    def _pack(self):
        """[B,T,..] becomes [B*T,..] with cu_seqlens [0,T,..]; [1,T,..] keeps its own."""
        q = self._shape("q")
        four = len(q) == 4
        total = q[0] * q[1] if four else q[0] if q else 0
        if "cu_seqlens" in self.inputs:
            self._refuse_lengths(total)
        elif not four:
            raise ValueError(f"inputs cu_seqlens: is missing; one sequence is [0,{total}]")
        if not four:
            return
        rows, tokens = q[:2]
        equal = np.arange(rows + 1, dtype="<i8") * tokens
        if "cu_seqlens" not in self.inputs:
            self.inputs["cu_seqlens"] = equal, False
        elif rows != 1 and not np.array_equal(self.inputs["cu_seqlens"][0], equal):
            raise ValueError(f"inputs cu_seqlens: expected {_some(equal)} or none, since q is "
                             f"[B,T,H,K] = {_brackets(q)}, actual "
                             f"{_some(self.inputs['cu_seqlens'][0].ravel())}")
        ranks = dict(q=4, k=4, v=4, o=4, a=3 + self.kda, g=3 + self.kda, b=3, beta=3,
                     parent_tokens=2)
        if self.backward:
            ranks |= {"d" + name: rank for name, rank in ranks.items()}
        if "initial_intermediate_states" not in self.inputs:
            ranks["intermediate_states"] = 5
        for tensors in (self.inputs, self.outputs):
            for name, (array, is_bf16) in tensors.items():
                if array.ndim == ranks.get(name) and array.shape[:2] == (rows, tokens):
                    tensors[name] = array.reshape(total, *array.shape[2:]), is_bf16

    def _refuse_lengths(self, total):
        array = self.inputs["cu_seqlens"][0]
        if array.ndim != 1 or array.dtype.kind != "i" or array.size == 0:
            return  # refused with the others
        lengths = [int(n) for n in array]
        sums = [0]
        for n in lengths:
            sums.append(sums[-1] + n)
        if (lengths[0], lengths[-1]) != (0, total) and min(lengths) >= 0 and sums[-1] == total:
            raise ValueError("inputs cu_seqlens: expected where the sequences begin and end, "
                             f"{_some(sums)}, actual their lengths, {_some(lengths)}")
        if lengths[0] != 0 or lengths[-1] != total or any(np.diff(lengths) < 0):
            raise ValueError("inputs cu_seqlens: expected where the sequences begin and end, 0 to "
                             f"{total}, never falling, actual {_some(lengths)}")

    def _read_extents(self):
        q, v = (self._ranked(name, 3 if self.packed else 4) for name in "qv")
        (self.H, self.K), (self.HV, self.V) = q[-2:], v[-2:]
        if self.packed:
            self.tokens = q[:1]
            bounds = self._ranked("cu_seqlens", 1)[0]
            if bounds < 1:
                raise ValueError("inputs cu_seqlens: expected [N+1] with N >= 0, actual [0]")
            self.rows = self.slots = bounds - 1
        else:
            self.tokens = q[:2]
            self.rows = q[0]
        extents = (self.H, self.HV, self.K, self.V)
        if min(extents) < 1:
            raise ValueError(f"inputs q, v: expected H, HV, K, V >= 1, actual {_brackets(extents)}")
        if self.HV % self.H != 0:
            states = "1 state" if self.HV == 1 else f"{self.HV} states"
            hint = (f"; {self.H} query heads share {states}: repeat k, v, the gate, beta and the "
                    f"states to {self.H} heads" if self.H % self.HV == 0 else "")
            raise ValueError(f"inputs v: expected HV a multiple of H={self.H}, actual HV={self.HV}"
                             f"{hint}")
        if self.mode == "decode" and self.tokens[1] != 1:
            raise ValueError(f"inputs q: expected T=1 in decode, actual T={self.tokens[1]}; mtp is "
                             "for few tokens, prefill a prompt")
        values_first = self.convention["state_layout"] == "vk"
        self.state = (self.V, self.K) if values_first else (self.K, self.V)

    def _start_from_zeros(self):
        if "initial_state" in self.inputs:
            return
        final, is_bf16 = self.outputs.get("final_state", (None, False))
        if final is not None and final.ndim == 4 and final.shape[1:] == (self.HV, *self.state):
            self.inputs["initial_state"] = np.zeros_like(final), is_bf16
            return
        self._refuse_slots_of_nothing()
        zeros = np.zeros((self.rows, self.HV, *self.state), "<f4")
        self.inputs["initial_state"] = zeros, False

    def _refuse_slots_of_nothing(self):
        for name in _SLOTS:
            if name in self.inputs and "initial_state" not in self.inputs:
                raise ValueError(f"inputs initial_state: is missing, and {name} names slots of it")

    def _of_parameters(self, gate_head=None):
        heads = self.HV if (gate_head or self.convention["gate_head"]) == "v" else self.H
        return {"A_log": (heads,), "dt_bias": (heads, self.K) if self.kda else (heads,)}

    def _reshape_parameters(self):
        """A_log [1,1,H,1] and dt_bias [H*K], as checkpoints store them, and gradients by them."""
        for name, wanted in self._of_parameters().items():
            for tensors, stored in ((self.inputs, name), (self.outputs, "d" + name)):
                if stored not in tensors:
                    continue
                array, is_bf16 = tensors[stored]
                axes = [n for n in array.shape if n != 1]
                if array.size == math.prod(wanted) and axes in ([n for n in wanted if n != 1],
                                                                [array.size]):
                    tensors[stored] = array.reshape(wanted), is_bf16

    def _differentiable(self):
        """Shapes of the inputs that there are gradients by."""
        per_head = (*self.tokens, self.HV)
        per_gate = (*per_head, self.K) if self.kda else per_head
        return {"q": (*self.tokens, self.H, self.K), "k": (*self.tokens, self.H, self.K),
                "v": (*per_head, self.V), "a": per_gate, "g": per_gate, "b": per_head,
                "beta": per_head, **self._of_parameters(),
                "initial_state": (self.slots, self.HV, *self.state)}

    def _check_inputs(self):
        gates = _OF_GATE[self.convention["gate"]] + _OF_BETA[self.convention["beta"]]
        shapes = {**self._differentiable(), "do": (*self.tokens, self.HV, self.V),
                  "dfinal_state": (self.slots, self.HV, *self.state),
                  "ssm_state_indices": self._steps(), "parent_tokens": self.tokens,
                  "initial_intermediate_states": (*self._kept(), self.HV, *self.state),
                  **{"initial_" + name: shape for name, shape in self._rings().items()},
                  "cu_seqlens": (self.rows + 1,),
                  "checkpoint_offsets": (self._checkpoints(),), "cu_checkpoints": (self.rows + 1,)}
        for name in (*_SLOTS, "num_accepted_tokens", "accepted_tokens", "has_initial_state",
                     "intermediate_state_indices", "checkpoint_tokens", "ring_indices",
                     "ring_start", "ring_count", "ring_flush", *_CHAIN):
            if name == "ssm_state_indices":
                continue
            shapes[name] = (self.rows,)
        optional = {"dt_bias"} | ({"A_log"} if self.convention["gate"] == "bounded" else set())
        for name in gates:
            if name not in self.inputs and name not in optional:
                raise ValueError(f"inputs {name}: is missing, a tensor {_brackets(shapes[name])} "
                                 f"(gate {self.convention['gate']!r}, beta "
                                 f"{self.convention['beta']!r}){self._meant(name)}")
        pairs = [("checkpoint_offsets", "cu_checkpoints"),
                 ("checkpoint_state_indices", "checkpoint_tokens")]
        if "state_indices" not in self.inputs or "num_accepted_tokens" in self.inputs:
            pairs.append(("ssm_state_indices", "num_accepted_tokens"))
        for pair in pairs:
            absent = [name for name in pair if name not in self.inputs]
            if len(absent) == 1:
                raise ValueError(f"inputs {absent[0]}: is missing; {' and '.join(pair)} come "
                                 "together")
        rings = ("initial_ring_d", "initial_ring_k", "initial_ring_g", "ring_start", "ring_count")
        absent = [name for name in rings if name not in self.inputs]
        if 0 < len(absent) < len(rings):
            raise ValueError(f"inputs {absent[0]}: is missing; {', '.join(rings)} come together")
        if self.inputs.keys() >= {"ssm_state_indices", "num_accepted_tokens", "state_indices"}:
            raise ValueError("inputs num_accepted_tokens: not beside ssm_state_indices and "
                             "state_indices, which already name every slot")
        for name, (array, is_bf16) in self.inputs.items():
            if name in gates or name not in _CHOSEN:
                self._check("inputs", name, array, is_bf16, shapes[name])

    def _checkpoints(self):
        given = "checkpoint_offsets" in self.inputs
        return self._ranked("checkpoint_offsets", 1)[0] if given else 0

    def _steps(self):
        """Of a row of ssm_state_indices: its tokens, or those of the longest row and more."""
        given = self.packed and "ssm_state_indices" in self.inputs
        return (self.rows, self._ranked("ssm_state_indices", 2)[1]) if given else self.tokens

    def _kept(self):
        """Where the states after tokens stand: at the tokens, or in a buffer of their own."""
        given = "initial_intermediate_states" in self.inputs
        return self._ranked("initial_intermediate_states", 5)[:2] if given else self.tokens

    def _rings(self):
        """Shapes of ring_d, ring_k and ring_g."""
        given = "initial_ring_d" in self.inputs
        rings, _, places, _ = self._ranked("initial_ring_d", 4) if given else (0, 0, 0, 0)
        gates = (self.K,) if self.kda and self.convention["gate"] != "none" else ()
        return {"ring_d": (rings, self.HV, places, self.V), "ring_k": (rings, self.H, places, self.K),
                "ring_g": (rings, self.HV, places, *gates)}

    def _check_outputs(self):
        if "checkpoints" in self.outputs and "checkpoint_offsets" not in self.inputs:
            raise ValueError("inputs checkpoint_offsets: is missing; it says which states the "
                             "output checkpoints holds")
        state = (self.HV, *self.state)
        shapes = {"o": (*self.tokens, self.HV, self.V), "final_state": (self.slots, *state),
                  "intermediate_states": (*self._kept(), *state),
                  "checkpoints": (self._checkpoints(), *state), **self._rings()}
        if self.backward:
            shapes = {"d" + name: shape for name, shape in self._differentiable().items()}
        for name, (array, is_bf16) in self.outputs.items():
            self._check("outputs", name, array, is_bf16, shapes[name])

    def _check(self, group, name, array, is_bf16, shape):
        integer = name in _CHAIN or name.startswith("cu_") or name.endswith(
            ("_indices", "_tokens", "_offsets", "has_initial_state", "ring_start", "ring_count",
             "ring_flush"))
        if (array.dtype.kind == "i") != integer:
            expected = "int32 or int64" if integer else "a floating-point tensor"
            actual = "bfloat16" if is_bf16 else array.dtype
            raise ValueError(f"{group} {name}: expected {expected}, actual {actual}")
        if array.shape != tuple(shape):
            raise ValueError(f"{group} {name}: expected {_brackets(shape)}, actual "
                             f"{_brackets(array.shape)}{self._meant_by(name, shape, array.shape)}")

    def _meant_by(self, name, shape, actual):
        """The convention that the caller may have meant, under which the shape would be right."""
        other = {attribute: next(value for value in CONVENTION[attribute]
                                 if value != self.convention[attribute])
                 for attribute in ("state_layout", "gate_head")}
        parameters = self._of_parameters(other["gate_head"])
        if actual == (*shape[:-2], *reversed(self.state)) != (*shape[:-2], *self.state):
            return f"; is state_layout {other['state_layout']}?"
        return f"; is gate_head {other['gate_head']}?" if actual == parameters.get(name) else ""

    def _meant(self, name):
        """The gate or beta that the caller may have meant, where its input is here."""
        for names, other, question in ((("a", "A_log"), "g", "the gate log, log2 or linear"),
                                       (("g",), "a", "the gate softplus or bounded"),
                                       (("b",), "beta", "beta direct"),
                                       (("beta",), "b", "beta sigmoid or sigmoid2")):
            if name in names and other in self.inputs:
                return f"; {other} is here: is {question}?"
        return ""


def _float32_to_bf16(what, array):
    bits = np.ascontiguousarray(array).view(np.uint32).reshape(array.shape)
    inexact = np.flatnonzero(bits & 0xFFFF)
    if inexact.size:
        index = np.unravel_index(inexact[0], array.shape)
        raise ValueError(f"{what}: {inexact.size} values are no bfloat16, the first is "
                         f"{array[index]!r} at {tuple(int(i) for i in index)}")
    return (bits >> 16).astype("<u2")


def _bf16_type():
    """bfloat16 as an HDF5 float type: 1 sign, 8 exponent and 7 mantissa bits, bias 127."""
    import h5py

    file_type = h5py.h5t.IEEE_F32LE.copy()
    file_type.set_fields(15, 7, 8, 0, 7)  # before the size, which may not cut a field
    file_type.set_size(2)
    file_type.set_ebias(127)
    return file_type


def _new_file(path):
    """An empty file in the format of HDF5 1.10 whose root, as everything here, has no times: the
    same call gives the same bytes tomorrow."""
    import h5py

    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(h5py.h5f.LIBVER_V110, h5py.h5f.LIBVER_V110)
    properties = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    properties.set_obj_track_times(False)
    return h5py.File(h5py.h5f.create(os.fsencode(path), h5py.h5f.ACC_TRUNC, properties, access))


def _new_group(file, name):
    import h5py

    properties = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    properties.set_obj_track_times(False)
    return h5py.Group(h5py.h5g.create(file.id, name.encode(), gcpl=properties))


def _write_dataset(group, name, array, is_bf16):
    import h5py

    file_type = _bf16_type() if is_bf16 else h5py.h5t.py_create(array.dtype)
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_obj_track_times(False)
    if array.nbytes >= _CHUNKED_FROM:
        properties.set_chunk(_chunk_shape(array.shape, array.itemsize))
        properties.set_shuffle()
        properties.set_deflate(4)
        properties.set_fletcher32()
    space = h5py.h5s.create_simple(array.shape) if array.shape else h5py.h5s.create(h5py.h5s.SCALAR)
    dataset = h5py.h5d.create(group.id, name.encode(), file_type, space, properties)
    if array.size:
        # In memory the type is the stored one: HDF5 copies the bits and converts nothing.
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, array, mtype=file_type)
    h5py.Dataset(dataset).attrs["sha256"] = hashlib.sha256(array.tobytes()).hexdigest()


def _chunk_shape(shape, itemsize):
    """Whole trailing axes up to 512 KiB, the next axis in equal parts."""
    room = _CHUNK_BYTES // itemsize
    chunk = [1] * len(shape)
    for axis in reversed(range(len(shape))):
        if shape[axis] > room:
            parts = -(-shape[axis] // room)
            chunk[axis] = -(-shape[axis] // parts)
            break
        chunk[axis] = shape[axis]
        room //= shape[axis]
    return tuple(chunk)


def _read_dataset(dataset):
    """(array, is_bf16). A digest that the dataset carries is checked."""
    import h5py

    file_type = dataset.id.get_type()
    is_bf16 = (isinstance(file_type, h5py.h5t.TypeFloatID) and file_type.get_size() == 2
               and file_type.get_fields() == (15, 7, 8, 0, 7) and file_type.get_ebias() == 127)
    if is_bf16:
        array = np.empty(dataset.shape, "<u2")
        memory_type = file_type.copy()
        memory_type.set_order(h5py.h5t.ORDER_LE)
        if array.size:
            dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, array, mtype=memory_type)
    else:
        array = np.asarray(dataset[()])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    digest = _plain(dataset.attrs.get("sha256", ""))
    if digest and hashlib.sha256(array.tobytes()).hexdigest() != digest:
        raise ValueError(f"{dataset.name}: the values do not have the SHA-256 {digest}")
    if is_bf16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array, is_bf16


def _plain(value):
    """An attribute as str, int or float."""
    if isinstance(value, bytes):
        return value.decode()
    return value.item() if isinstance(value, (np.generic, np.ndarray)) and value.size == 1 else value
