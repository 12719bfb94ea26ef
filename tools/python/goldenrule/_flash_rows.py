# SPDX-License-Identifier: Apache-2.0
"""The functions of FlashAttention 2 and 3 that the recorder knows.

Both align masks and windows with the last key: query i of lq stands at position i + lk - lq. Distances
of a window are inclusive, and causal overrules the right one. lse is natural, heads in front. What they
name differently: block_table / page_table, return_attn_probs / return_softmax_lse; and FlashAttention 2
has an lse of +inf, 3 one of -inf, where a query sees no key.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._attention_rows import _host
from ._recorded import GIVEN, Row, When


def _rows(tensor: Any) -> Any:
    """[B,T,heads,dim] as [B*T,heads,dim]."""
    return tensor.reshape(-1, *tensor.shape[2:]) if tensor.ndim == 4 else tensor


def _lse(tensor: Any) -> Any:
    """[B,heads,T] as [heads,B*T]."""
    return tensor.swapaxes(0, 1).reshape(tensor.shape[1], -1) if tensor.ndim == 3 else tensor


def _returned(results: tuple[Any, ...]) -> tuple[Any, ...]:
    return (_rows(results[0]), *(_lse(lse) for lse in results[1:2]))


def _returned_by_2(results: tuple[Any, ...]) -> tuple[Any, ...]:
    """With its +inf for no key as the schema has it; of a query with keys neither is right."""
    o, *rest = _returned(results)
    return (o, *(np.where(np.isposinf(_host(lse)), -np.inf, _host(lse)).astype("f4") for lse in rest))


def _aligned(q: np.ndarray, keys: np.ndarray, usual: np.ndarray) -> dict[str, Any]:
    """The position of each first query, where it is not the one that a call has without saying so."""
    offset = keys - np.diff(q)
    return {} if (offset == usual).all() else {"q_offset": offset.astype("i8")}


def _window(arguments: Mapping[str, Any]) -> dict[str, Any]:
    left, right = arguments["window_size"]
    return {"window_left": left if left >= 0 else None, "causal": bool(arguments["causal"]),
            "window_right": right if right >= 0 and not arguments["causal"] else None,
            "softcap": arguments["softcap"] or None}


# ---- a cache, in pages or in one row for each request, and fresh keys that the call appends to it

def _table_name(arguments: Mapping[str, Any]) -> str:
    return "page_table" if "page_table" in arguments else "block_table"


def _cached(arguments: Mapping[str, Any]) -> dict[str, Any]:
    q, cache, fresh = arguments["q"], arguments["k_cache"], arguments["k"]
    table = arguments[_table_name(arguments)]
    bounds = arguments.get("cu_seqlens_q")
    queries = np.arange(q.shape[0] + 1) * q.shape[1] if bounds is None else _host(bounds)
    N = len(queries) - 1
    if table is None:  # each row of the cache is a page that holds a whole request
        rows = arguments["cache_batch_idx"]
        table = (np.arange(N) if rows is None else _host(rows)).reshape(N, 1).astype("i4")
    lengths = arguments["cache_seqlens"]
    if lengths is None:
        lengths = table.shape[1] * cache.shape[1]
    lengths = (np.full(N, lengths) if np.ndim(lengths) == 0 else _host(lengths)).astype("i8")
    shaped = dict(arguments, q=_rows(q), cu_seqlens_q=queries, table=table, kv_lens=lengths,
                  **_window(arguments))
    if fresh is None:
        return shaped | {"in_cache": True} | _aligned(queries, lengths, lengths - np.diff(queries))
    new = arguments.get("cu_seqlens_k_new")
    keys = np.arange(N + 1) * fresh.shape[1] if new is None else _host(new)
    return shaped | {"in_cache": False, "k": _rows(fresh), "v": _rows(arguments["v"]),
                     "cu_seqlens_k": keys} | _aligned(queries, lengths + np.diff(keys), lengths)


def _cached_refuses(arguments: Mapping[str, Any]) -> str:
    q, cache, table = arguments["q"], arguments["k_cache"], arguments[_table_name(arguments)]
    packed = arguments.get("cu_seqlens_q") is not None
    if cache.ndim != 4 or arguments["v_cache"].ndim != 4:
        return "k_cache and v_cache: expected [pages or batch, tokens, heads, dim]"
    if q.ndim != (3 if packed else 4):
        return (f"q: expected {'[tokens, heads, dim]' if packed else '[batch, tokens, heads, dim]'}, "
                f"actual {q.ndim} axes")
    if (arguments["k"] is None) != (arguments["v"] is None):
        return "k and v: expected both or none"
    if arguments["k"] is not None and arguments["cache_seqlens"] is None:
        return "k without cache_seqlens: where it goes in the cache is not said"
    if table is not None and arguments["cache_batch_idx"] is not None:
        return f"cache_batch_idx beside {_table_name(arguments)}"
    return _window_refuses(arguments)


def _window_refuses(arguments: Mapping[str, Any]) -> str:
    if len(arguments["window_size"]) != 2:
        return f"window_size={arguments['window_size']}: expected (left, right)"
    return ""


# ---- packed sequences; of FlashAttention 2 the keys may be pages, too

def _varlen(arguments: Mapping[str, Any]) -> dict[str, Any]:
    queries, keys = _host(arguments["cu_seqlens_q"]), _host(arguments["cu_seqlens_k"])
    shaped = dict(arguments, **_window(arguments))
    lengths = np.diff(keys)
    if arguments.get("block_table") is None:
        return shaped | {"in_cache": False} | _aligned(queries, lengths, np.zeros_like(lengths))
    paged = {"k": None, "v": None, "cu_seqlens_k": None, "k_cache": arguments["k"],
             "v_cache": arguments["v"], "table": arguments["block_table"]}
    return shaped | paged | {"in_cache": True, "kv_lens": lengths.astype("i8")}


def _varlen_refuses(arguments: Mapping[str, Any]) -> str:
    paged = arguments.get("block_table") is not None
    if arguments["q"].ndim != 3:
        return f"q: expected [tokens, heads, dim], actual {arguments['q'].ndim} axes"
    if arguments["k"].ndim != (4 if paged else 3) or arguments["v"].ndim != arguments["k"].ndim:
        return ("k and v: expected [pages, tokens, heads, dim] beside block_table" if paged else
                "k and v: expected [tokens, heads, dim]")
    return _window_refuses(arguments)


_TENSORS = {name: name for name in ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "k_cache", "v_cache",
                                    "kv_lens", "q_offset")} | {"table": "page_table"}
_FLASH = dict(
    op="attention", inputs=_TENSORS, outputs=("o", "lse"), scale="softmax_scale",
    convention={"lse_layout": "ht"},
    when=(When({"in_cache": True}, {"block_kv": "in_cache"}, mode="decode"),
          When({"causal": True}, {"mask": "causal"}),
          When({"window_left": GIVEN}, attribute="window_left"),
          When({"window_right": GIVEN}, attribute="window_right"),
          When({"softcap": GIVEN}, attribute="soft_cap")))
_CACHED = dict(modes=("decode", "decode"), arranged=_cached, refuses=_cached_refuses)
_VARLEN = dict(modes=("prefill", "prefill"), arranged=_varlen, refuses=_varlen_refuses)
# How it is computed, and what _cached and _varlen read.
_HOW = ("window_size", "num_splits", "deterministic", "max_seqlen_q", "max_seqlen_k", "block_table",
        "page_table", "cache_seqlens", "cache_batch_idx", "cu_seqlens_k_new", "rotary_interleaved",
        "return_softmax_lse", "return_attn_probs", "scheduler_metadata", "pack_gqa", "sm_margin")
_2 = dict(release="flash-attn 2.8", returned=_returned_by_2, ignored=_HOW, fixed={"dropout_p": (0.0,)})
_3 = dict(release="flash-attn-3 3.0", returned=_returned, ignored=_HOW, fixed={"attention_chunk": (0,)})

FLASH_ROWS = (
    Row("flash_attn.flash_attn_interface.flash_attn_with_kvcache", parameters=(
        "q", "k_cache", "v_cache", "k", "v", "rotary_cos", "rotary_sin", "cache_seqlens",
        "cache_batch_idx", "cache_leftpad", "block_table", "softmax_scale", "causal", "window_size",
        "softcap", "rotary_interleaved", "alibi_slopes", "num_splits", "return_softmax_lse"),
        **_FLASH, **_CACHED, **_2),
    Row("flash_attn.flash_attn_interface.flash_attn_varlen_func", parameters=(
        "q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", "dropout_p",
        "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes", "deterministic",
        "return_attn_probs", "block_table"),
        **_FLASH, **_VARLEN, **_2),
    Row("flash_attn_interface.flash_attn_with_kvcache", parameters=(
        "q", "k_cache", "v_cache", "k", "v", "qv", "rotary_cos", "rotary_sin", "cache_seqlens",
        "cache_batch_idx", "cache_leftpad", "page_table", "cu_seqlens_q", "cu_seqlens_k_new",
        "max_seqlen_q", "rotary_seqlens", "q_descale", "k_descale", "v_descale", "softmax_scale",
        "causal", "window_size", "attention_chunk", "softcap", "rotary_interleaved",
        "scheduler_metadata", "num_splits", "pack_gqa", "sm_margin", "return_softmax_lse"),
        **_FLASH, **_CACHED, **_3),
    Row("flash_attn_interface.flash_attn_varlen_func", parameters=(
        "q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", "seqused_q",
        "seqused_k", "softmax_scale", "causal", "qv", "q_descale", "k_descale", "v_descale",
        "window_size", "attention_chunk", "softcap", "num_splits", "pack_gqa", "deterministic",
        "sm_margin", "return_attn_probs"),
        **_FLASH, **_VARLEN, **_3),
)
