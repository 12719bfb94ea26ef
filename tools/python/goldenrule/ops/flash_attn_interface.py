# SPDX-License-Identifier: Apache-2.0
"""Functions with the signatures of FlashAttention 3 (flash-attn-3 3.0), forward only:

    from goldenrule.ops.flash_attn_interface import flash_attn_with_kvcache, flash_attn_varlen_func

What chooses a kernel (num_splits, pack_gqa, sm_margin, scheduler_metadata) is taken and means nothing.
Refused by name: fresh keys that the call would write into the cache (k, v), qv, rotary embeddings,
cache_leftpad, scales of fp8, attention_chunk, softcap, seqused_q and seqused_k.
"""

from typing import Any

import torch

from ._flash import masked, packed, refuse, with_cache

Tensor = torch.Tensor


def flash_attn_with_kvcache(  # noqa: PLR0913
        q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None,
        qv: Tensor | None = None, rotary_cos: Tensor | None = None, rotary_sin: Tensor | None = None,
        cache_seqlens: Tensor | int | None = None, cache_batch_idx: Tensor | None = None,
        cache_leftpad: Tensor | None = None, page_table: Tensor | None = None,
        cu_seqlens_q: Tensor | None = None, cu_seqlens_k_new: Tensor | None = None,
        max_seqlen_q: int | None = None, rotary_seqlens: Tensor | None = None,
        q_descale: Tensor | None = None, k_descale: Tensor | None = None,
        v_descale: Tensor | None = None, softmax_scale: float | None = None, causal: bool = False,
        window_size: tuple[int, int] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0,
        rotary_interleaved: bool = True, scheduler_metadata: Tensor | None = None, num_splits: int = 0,
        pack_gqa: bool | None = None, sm_margin: int = 0, return_softmax_lse: bool = False) -> Any:
    refuse((("k", k, None), ("v", v, None), ("qv", qv, None), ("rotary_cos", rotary_cos, None),
            ("rotary_sin", rotary_sin, None), ("rotary_seqlens", rotary_seqlens, None),
            ("cache_leftpad", cache_leftpad, None), ("cu_seqlens_k_new", cu_seqlens_k_new, None),
            ("q_descale", q_descale, None), ("k_descale", k_descale, None),
            ("v_descale", v_descale, None), ("attention_chunk", attention_chunk, 0),
            ("softcap", softcap, 0.0)))
    return with_cache(q, k_cache, v_cache, cache_seqlens, page_table, cache_batch_idx, cu_seqlens_q,
                      max_seqlen_q, masked(causal, window_size, softmax_scale), return_softmax_lse)


def flash_attn_varlen_func(  # noqa: PLR0913
        q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
        max_seqlen_k: int, seqused_q: Tensor | None = None, seqused_k: Tensor | None = None,
        softmax_scale: float | None = None, causal: bool = False, qv: Tensor | None = None,
        q_descale: Tensor | None = None, k_descale: Tensor | None = None,
        v_descale: Tensor | None = None, window_size: tuple[int, int] = (-1, -1),
        attention_chunk: int = 0, softcap: float = 0.0, num_splits: int = 1,
        pack_gqa: bool | None = None, deterministic: bool = False, sm_margin: int = 0,
        return_attn_probs: bool = False) -> Any:
    refuse((("seqused_q", seqused_q, None), ("seqused_k", seqused_k, None), ("qv", qv, None),
            ("q_descale", q_descale, None), ("k_descale", k_descale, None),
            ("v_descale", v_descale, None), ("attention_chunk", attention_chunk, 0),
            ("softcap", softcap, 0.0)))
    o, lse = packed(q, k, v, (cu_seqlens_q, cu_seqlens_k), None, max_seqlen_q,
                    masked(causal, window_size, softmax_scale))
    return (o, lse) if return_attn_probs else o
