# SPDX-License-Identifier: Apache-2.0
"""Functions with the signatures of SGLang (0.5.23):

    from goldenrule.ops.sglang import (fused_recurrent_gated_delta_rule_packed_decode,
                                       fused_sigmoid_gating_delta_rule_update)

The pool [P,HV,V,K] is updated in place. A row of padding (slot < 0) has o = 0, where SGLang computes
from a state of zeros what nobody reads. Rows by cu_seqlens are computed token by token in fp32, as
there; their number is not read, so a call waits for nothing. With a buffer of intermediate states or
trees (retrieve_parent_token) no row has more tokens than cache_steps, or 16; the state that a branch goes
on from is not read back from the buffer, so it is not rounded there. Refused by name: rings (cache_ring)
and match_cutedsl_decode.
"""

import torch

from . import prefill, mtp
from . import decode as _decode

Tensor = torch.Tensor


def fused_recurrent_gated_delta_rule_packed_decode(  # noqa: PLR0913
        mixed_qkv: Tensor, a: Tensor, b: Tensor, A_log: Tensor, dt_bias: Tensor, scale: float,
        initial_state: Tensor, out: Tensor, ssm_state_indices: Tensor,
        use_qk_l2norm_in_kernel: bool = False) -> tuple[Tensor, Tensor]:
    if mixed_qkv.dim() != 2 or initial_state.dim() != 4:
        raise ValueError("mixed_qkv and initial_state: expected 2 and 4 axes, actual "
                         f"{mixed_qkv.dim()} and {initial_state.dim()}")
    HV, V, K = initial_state.shape[1:]
    width = mixed_qkv.shape[1] - HV * V
    if width <= 0 or width % (2 * K) != 0:
        raise ValueError(f"mixed_qkv: expected rows of 2*H*K + HV*V = 2*H*{K} + {HV * V} elements, "
                         f"actual {mixed_qkv.shape[1]}")
    H = width // (2 * K)

    B, (row, step), first = mixed_qkv.shape[0], mixed_qkv.stride(), mixed_qkv.storage_offset()

    def part(begin: int, heads: int, size: int) -> Tensor:
        return mixed_qkv.as_strided((B, 1, heads, size), (row, row, size * step, step),
                                    first + begin * step)

    _decode(part(0, H, K), part(H * K, H, K), part(width, HV, V), a, b, initial_state, o=out, A_log=A_log,
            dt_bias=dt_bias, scale=scale, state_indices=ssm_state_indices,
            qk_norm="rsqrt_sum_eps" if use_qk_l2norm_in_kernel else "none")
    return out, initial_state


def fused_sigmoid_gating_delta_rule_update(  # noqa: PLR0913
        A_log: Tensor, a: Tensor, dt_bias: Tensor, softplus_beta: float, softplus_threshold: float,
        q: Tensor, k: Tensor, v: Tensor, b: Tensor, initial_state_source: Tensor,
        initial_state_indices: Tensor, scale: float | None = None,
        use_qk_l2norm_in_kernel: bool = False, cu_seqlens: Tensor | None = None, is_kda: bool = False,
        lower_bound: float | None = None, disable_state_update: bool = False,
        intermediate_states_buffer: Tensor | None = None,
        intermediate_state_indices: Tensor | None = None, cache_steps: int | None = None,
        retrieve_parent_token: Tensor | None = None, cache_ring: bool = False,
        replayssm_rawv: Tensor | None = None, replayssm_rawk: Tensor | None = None,
        replayssm_g: Tensor | None = None, replayssm_beta: Tensor | None = None,
        match_cutedsl_decode: bool = False) -> Tensor:
    refused = {"cache_ring": cache_ring or None, "replayssm_rawv": replayssm_rawv, "replayssm_rawk": replayssm_rawk,
               "replayssm_g": replayssm_g, "replayssm_beta": replayssm_beta,
               "match_cutedsl_decode": match_cutedsl_decode or None}
    for name, value in refused.items():
        if value is not None:
            raise NotImplementedError(f"{name}: expected nothing, actual "
                                      f"{'a tensor' if isinstance(value, Tensor) else value!r}")
    o = q.new_empty(v.shape)
    rule = {"op": "kda" if is_kda else "gated_delta_rule", "A_log": A_log, "dt_bias": dt_bias,
            "softplus_beta": float(softplus_beta), "softplus_threshold": float(softplus_threshold),
            "scale": scale, "state_indices": initial_state_indices,
            "disable_state_update": disable_state_update,
            "gate_kind": "softplus" if lower_bound is None else "bounded",
            "qk_norm": "rsqrt_sum_eps" if use_qk_l2norm_in_kernel else "none"}
    if lower_bound is not None:
        rule["lower_bound"] = lower_bound
    drafts = intermediate_states_buffer is not None or retrieve_parent_token is not None
    if cu_seqlens is None or drafts:
        if drafts:
            rule |= {"intermediate_states": intermediate_states_buffer, "cu_seqlens": cu_seqlens,
                     "intermediate_state_indices": intermediate_state_indices,
                     "max_tokens": 0 if cu_seqlens is None else min(cache_steps or 16, 16),
                     "parent_tokens": retrieve_parent_token}
        mtp(q, k, v, a, b, initial_state_source, o=o, **rule)
        return o
    if q.shape[0] != 1:
        raise ValueError(f"q: expected a first axis of 1 beside cu_seqlens, actual {q.shape[0]}")
    prefill(q, k, v, a, b, cu_seqlens, o=o, state=initial_state_source, precise=True, **rule)
    return o
