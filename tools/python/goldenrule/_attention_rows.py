# SPDX-License-Identifier: Apache-2.0
"""The functions of softmax attention that the recorder knows, and how their calls become calls of the
schema: heads in front of tokens, masks as tensors, and what a wrapper was told before the call."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._recorded import GIVEN, Row, When


def _host(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.detach().cpu() if hasattr(tensor, "detach") else tensor)


# ---- torch: [B,heads,T,dim], a mask of booleans; query i of is_causal sees keys 0 to i

def _packed(tensor: Any) -> Any:
    """[B,heads,T,dim] as [B*T,heads,dim]."""
    B, heads, T, dim = tensor.shape
    return tensor.swapaxes(1, 2).reshape(B * T, heads, dim)


def _visible_ranges(mask: Any, rows: int, queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """The range of keys that each query sees by a mask that says the same to all heads."""
    allowed = np.broadcast_to(_host(mask), (rows, _host(mask).shape[-3] if mask.ndim > 2 else 1,
                                            queries, keys))
    if (allowed != allowed[:, :1]).any():
        raise ValueError("attn_mask differs between heads")
    allowed = allowed[:, 0]
    seen = allowed.sum(-1)
    if (seen == 0).any():
        raise ValueError("attn_mask hides all keys of a query, for which backends differ")
    first = allowed.argmax(-1)
    last = keys - allowed[..., ::-1].argmax(-1)
    if (last - first != seen).any():
        raise ValueError("attn_mask hides keys between those that a query sees")
    return first, last


def _window_of(first: np.ndarray, last: np.ndarray) -> dict[str, Any] | None:
    """What a causal mask, or one with a window, is called: of it a mistake has a name."""
    positions = np.arange(first.shape[1])
    offsets = last[:, :1] - 1
    if (last - 1 - positions != offsets).any():
        return None
    distance = last - 1 - first
    cut = first > 0
    named: dict[str, Any] = {"causal": True, "q_offset": offsets[:, 0].astype("i8")}
    if not cut.any():
        return named
    window = distance[cut]
    if (window != window[0]).any() or (distance > window[0]).any():
        return None
    return named | {"window_left": int(window[0])}


def _sdpa(arguments: Mapping[str, Any]) -> dict[str, Any]:
    shaped = dict(arguments)
    (B, _, T, _), S = arguments["query"].shape, arguments["key"].shape[2]
    shaped |= {name: _packed(arguments[name]) for name in ("query", "key", "value")}
    shaped |= {"cu_seqlens_q": np.arange(B + 1) * T, "cu_seqlens_k": np.arange(B + 1) * S,
               "causal": bool(arguments["is_causal"])}
    mask = arguments["attn_mask"]
    if mask is None or T == 0:
        return shaped
    first, last = _visible_ranges(mask, B, T, S)
    named = _window_of(first, last)
    if named is not None:
        return shaped | named
    return shaped | {"visible_first": first.reshape(-1), "visible_last": last.reshape(-1)}


def _sdpa_refuses(arguments: Mapping[str, Any]) -> str:
    if arguments["query"].ndim != 4 or arguments["key"].ndim != 4 or arguments["value"].ndim != 4:
        return "query, key and value: expected [batch, heads, tokens, dim]"
    if arguments["query"].shape[0] != arguments["key"].shape[0]:
        return "query and key of other batches are broadcast"
    heads = arguments["query"].shape[1], arguments["key"].shape[1]
    if heads[0] != heads[1] and not arguments["enable_gqa"]:
        return "key heads are broadcast without enable_gqa"
    mask = arguments["attn_mask"]
    if mask is None:
        return ""
    if "bool" not in str(mask.dtype):
        return f"attn_mask of {mask.dtype} is added to scores"
    return "attn_mask beside is_causal" if arguments["is_causal"] else ""


# ---- FlashInfer: what plan() was told stands in the wrapper; positions end with the cache

_PAGES = {"page_indptr": "_paged_kv_indptr_buf", "page_indices": "_paged_kv_indices_buf"}
_PLANNED = {"cu_seqlens_q": "_qo_indptr_buf", **_PAGES}
# What is read of a wrapper: tests look for all of them in the class of the release.
_READ = ("_kv_layout", "_window_left", "_sm_scale", "_logits_soft_cap", "_pos_encoding_mode",
         "_jit_module", "_paged_kv_last_page_len_buf")
READ_OF_WRAPPER = {
    "BatchPrefillWithPagedKVCacheWrapper": (*_READ, "_causal", "_custom_mask_buf", *_PLANNED.values()),
    "BatchDecodeWithPagedKVCacheWrapper": (*_READ, "_q_len_per_req", *_PAGES.values()),
}


def _planned(arguments: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    wrapper, cache = arguments["self"], arguments["paged_kv_cache"]
    k, v = cache if isinstance(cache, tuple) else (cache[:, 0], cache[:, 1])
    shaped = dict(arguments, k_cache=k, v_cache=v)
    shaped |= {name: _host(getattr(wrapper, field)).copy() for name, field in fields.items()}
    hnd = wrapper._kv_layout == "HND"
    pages = np.diff(shaped["page_indptr"])
    last = _host(wrapper._paged_kv_last_page_len_buf)[:len(pages)]
    shaped["kv_lens"] = np.where(pages > 0, (pages - 1) * k.shape[2 if hnd else 1] + last, 0)
    window = wrapper._window_left
    return shaped | {"hnd": hnd, "sm_scale": wrapper._sm_scale,
                     "window_left": window if window >= 0 else None,
                     "soft_cap": wrapper._logits_soft_cap or None}


def _paged(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return _planned(arguments, _PLANNED) | {"causal": bool(arguments["self"]._causal)}


def _paged_decode(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """One query for each request, the last of its tokens."""
    return _planned(arguments, _PAGES) | {"cu_seqlens_q": np.arange(arguments["q"].shape[0] + 1)}


def _plan_refuses(arguments: Mapping[str, Any]) -> str:
    wrapper = arguments["self"]
    window = arguments["window_left"]
    if window is not None and window != wrapper._window_left:
        return f"window_left={window} is not that of plan()"
    if wrapper._pos_encoding_mode != "NONE":
        return f"pos_encoding_mode={wrapper._pos_encoding_mode} changes q and k"
    return "a kernel of one's own (jit_args) is not in its row" if wrapper._jit_module is not None else ""


def _paged_refuses(arguments: Mapping[str, Any]) -> str:
    if arguments["self"]._custom_mask_buf is not None:
        return "a custom mask is not in its row"
    return _plan_refuses(arguments)


def _paged_decode_refuses(arguments: Mapping[str, Any]) -> str:
    queries = getattr(arguments["self"], "_q_len_per_req", 1)  # not set by every backend of plan()
    if queries != 1:
        return f"q_len_per_req={queries} of plan(): several queries of a request are not in its row"
    return _plan_refuses(arguments)


_PAGED_WHEN = (
    When({"hnd": True}, {"kv_layout": "hnd"}), When({"window_left": GIVEN}, attribute="window_left"),
    When({"soft_cap": GIVEN}, attribute="soft_cap"))

ATTENTION_ROWS = (
    Row("torch._C._nn.scaled_dot_product_attention", "attention",
        ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"),
        inputs={"query": "q", "key": "k", "value": "v",
                **{name: name for name in ("cu_seqlens_q", "cu_seqlens_k", "q_offset", "visible_first",
                                           "visible_last")}},
        outputs=("o",), returned=lambda results: (_packed(results[0]),), scale="scale",
        when=(When({"causal": True}, {"mask": "causal"}),
              When({"window_left": GIVEN}, attribute="window_left")),
        modes=("prefill", "prefill"), arranged=_sdpa, refuses=_sdpa_refuses,
        ignored=("attn_mask", "is_causal", "enable_gqa"), fixed={"dropout_p": (0.0,)},
        release="torch 2.15"),
    Row("flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper.run", "attention",
        ("self", "q", "paged_kv_cache", "args", "q_scale", "k_scale", "v_scale", "out", "lse",
         "return_lse", "lse_base", "lse_layout", "enable_pdl", "window_left", "sinks", "kv_cache_sf",
         "skip_softmax_threshold_scale_factor", "use_fp16_softmax", "uses_spcompress"),
        inputs={name: name for name in ("q", "k_cache", "v_cache", "kv_lens", *_PLANNED)},
        outputs=("o", "lse"), scale="sm_scale", convention={"block_kv": "in_cache"},
        when=(When({"causal": True}, {"mask": "causal"}), *_PAGED_WHEN,
              When({"return_lse": True, "lse_base": "log2"}, {"lse_base": "2"}),
              When({"return_lse": True, "lse_layout": "HN"}, {"lse_layout": "ht"})),
        modes=("decode", "decode"), arranged=_paged, refuses=_paged_refuses,
        ignored=("self", "paged_kv_cache", "out", "lse", "enable_pdl"),
        fixed={"args": ((),), "use_fp16_softmax": (None, False), "uses_spcompress": (None, False),
               "lse_base": ("log2", "ln"), "lse_layout": ("NH", "HN")},
        release="flashinfer 0.7.2"),
    Row("flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper.run", "attention",
        ("self", "q", "paged_kv_cache", "args", "q_scale", "k_scale", "v_scale", "out", "lse",
         "return_lse", "enable_pdl", "window_left", "sinks", "q_len_per_req",
         "skip_softmax_threshold_scale_factor", "kv_cache_sf"),
        inputs={name: name for name in ("q", "k_cache", "v_cache", "kv_lens", *_PLANNED)},
        outputs=("o", "lse"), scale="sm_scale", convention={"block_kv": "in_cache"},
        when=(*_PAGED_WHEN, When({"return_lse": True}, {"lse_base": "2"})),
        modes=("decode", "decode"), arranged=_paged_decode, refuses=_paged_decode_refuses,
        ignored=("self", "paged_kv_cache", "out", "lse", "enable_pdl"),
        fixed={"args": ((),), "q_len_per_req": (None, 1)}, release="flashinfer 0.7.2"),
)
