# SPDX-License-Identifier: Apache-2.0
"""Functions with the signatures of FlashAttention 2 (flash-attn 2.8), forward only:

    from goldenrule.ops.flash_attn import flash_attn_with_kvcache, flash_attn_varlen_func

A query that sees no key has o = 0 and an lse of -inf (there: +inf). `num_splits` and `deterministic` are
taken and mean nothing: sums have one order. Refused by name: fresh keys that the call would write into
the cache (k, v), rotary embeddings, cache_leftpad, softcap, alibi_slopes, dropout.
"""

from typing import Any

import torch

from ._flash import masked, packed, refuse, with_cache

Tensor = torch.Tensor


def flash_attn_with_kvcache(  # noqa: PLR0913
        q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None,
        rotary_cos: Tensor | None = None, rotary_sin: Tensor | None = None,
        cache_seqlens: Tensor | int | None = None, cache_batch_idx: Tensor | None = None,
        cache_leftpad: Tensor | None = None, block_table: Tensor | None = None,
        softmax_scale: float | None = None, causal: bool = False,
        window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, rotary_interleaved: bool = True,
        alibi_slopes: Tensor | None = None, num_splits: int = 0, return_softmax_lse: bool = False) -> Any:
    refuse((("k", k, None), ("v", v, None), ("rotary_cos", rotary_cos, None),
            ("rotary_sin", rotary_sin, None), ("cache_leftpad", cache_leftpad, None),
            ("softcap", softcap, 0.0), ("alibi_slopes", alibi_slopes, None)))
    return with_cache(q, k_cache, v_cache, cache_seqlens, block_table, cache_batch_idx, None, None,
                      masked(causal, window_size, softmax_scale), return_softmax_lse)


def flash_attn_varlen_func(  # noqa: PLR0913
        q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
        max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: float | None = None,
        causal: bool = False, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
        alibi_slopes: Tensor | None = None, deterministic: bool = False,
        return_attn_probs: bool = False, block_table: Tensor | None = None) -> Any:
    refuse((("dropout_p", dropout_p, 0.0), ("softcap", softcap, 0.0), ("alibi_slopes", alibi_slopes, None)))
    o, lse = packed(q, k, v, (cu_seqlens_q, cu_seqlens_k), block_table, max_seqlen_q,
                    masked(causal, window_size, softmax_scale))
    return (o, lse, None) if return_attn_probs else o
