# SPDX-License-Identifier: Apache-2.0
"""What the functions of FlashAttention 2 and 3 have in common (goldenrule/_flash_rows.py says the same of
their calls to the recorder): masks and windows end with the last key, distances of a window are
inclusive, and causal overrules the right one."""

from typing import Any

import torch

from . import attention
from ._bounds import bounds_of

Tensor = torch.Tensor


def refuse(unknown: tuple[tuple[str, Any, Any], ...]) -> None:
    """Of (argument, its value, the only one that has a meaning here) one that is another."""
    for name, value, only in unknown:
        if value is not only and (isinstance(value, Tensor) or value != only):
            actual = f"a tensor of {value.dtype}" if isinstance(value, Tensor) else repr(value)
            raise NotImplementedError(f"{name}: expected {only!r}, actual {actual}")


def masked(causal: bool, window_size: tuple[int, int], softmax_scale: float | None) -> dict[str, Any]:
    left, right = window_size
    return {"mask": "causal" if causal else "full", "window_left": max(left, -1), "scale": softmax_scale,
            "window_right": -1 if causal else max(right, -1)}


def with_cache(q: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor | int | None,
               table: Tensor | None, rows: Tensor | None, bounds: Tensor | None, most_q: int | None,
               options: dict[str, Any], wants_lse: bool) -> Any:
    """q [B,T,HV,K], or [total,HV,K] with bounds; a table of pages, or a row of the cache for each
    request. Returns o, or o and lse [B,HV,T] ([HV,total])."""
    packed = bounds is not None
    if bounds is None:
        bounds, most_q = bounds_of(q.shape[0], q.shape[1], q.device), q.shape[1]
    N = bounds.shape[0] - 1
    if table is None:
        table = bounds_of(N, 1, q.device)[:N] if rows is None else rows
        table = table.unsqueeze(1)
    elif rows is not None:
        raise ValueError("cache_batch_idx: expected None beside a table of pages, actual a tensor")
    if not isinstance(lengths, Tensor):
        full = table.shape[1] * k_cache.shape[1]
        lengths = torch.full((N,), full if lengths is None else lengths, dtype=torch.int32,
                             device=q.device)
    lse = None
    if wants_lse:
        shape = (q.shape[1], q.shape[0]) if packed else q.shape[:-1]
        lse = q.new_empty(shape, dtype=torch.float32)
    o = attention(q, None, None, k_cache, v_cache, cu_seqlens_q=bounds, kv_lens=lengths,
                  page_table=table, block_kv="in_cache", most_q=most_q,
                  lse=lse if packed or lse is None else lse.flatten(0, 1),
                  lse_layout="ht" if packed else "th", **options)
    if lse is None:
        return o
    return o, lse if packed else lse.transpose(1, 2)


def packed(q: Tensor, k: Tensor, v: Tensor, bounds: tuple[Tensor, Tensor], table: Tensor | None,
           most_q: int, options: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """q [total,HV,K] over k, v [fresh,H,..], or over pages; o and lse [HV,total]."""
    queries, keys = bounds
    lse = q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)
    given = dict(options, cu_seqlens_q=queries, lse=lse, lse_layout="ht", most_q=most_q)
    if table is not None:
        o = attention(q, None, None, k, v, kv_lens=torch.diff(keys), page_table=table,
                      block_kv="in_cache", **given)
        return o, lse
    placed = (options["mask"], options["window_left"], options["window_right"]) != ("full", -1, -1)
    offset = torch.diff(keys) - torch.diff(queries) if placed and keys is not queries else None
    return attention(q, k, v, cu_seqlens_k=keys, q_offset=offset, **given), lse
