# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's wrappers of a paged cache (0.7.2): plan() is told the requests, run() computes. They are
exported by ops.flashinfer."""

from typing import Any

import torch

from . import attention
from ._bounds import bounds_of
from ._flash import refuse

Tensor = torch.Tensor

# What of plan() means nothing here: types are those of the tensors, and the kernel is chosen by shapes.
_HOW = frozenset(("use_fp16_qk_reduction", "q_data_type", "kv_data_type", "o_data_type", "data_type",
                  "non_blocking", "seq_lens", "seq_lens_q", "block_tables", "max_token_per_sequence",
                  "max_sequence_kv", "fixed_split_size", "disable_split_kv", "rope_scale", "rope_theta"))


class _Fixed:
    """The buffers of use_cuda_graph, by their names. A captured run reads them, so plan() copies into
    them, and a replay computes what the last plan said. The numbers of requests and, as the captured
    queries are so many, of queries stay those of the first."""

    def __init__(self, rows: int, indptr: tuple[str, Tensor | None], indices: tuple[str, Tensor | None],
                 last: tuple[str, Tensor | None], bounds: tuple[str, Tensor | None] | None = None) -> None:
        self.rows = rows
        self._queries: int | None = None
        for (name, tensor), length in ((indptr, rows + 1), (last, rows)):
            if len(_buffer(name, tensor)) != length:
                raise ValueError(f"{name}: expected {length} elements for {rows} requests, "
                                 f"actual {len(_buffer(name, tensor))}")
        self.indptr, self.indices, self.last = (_buffer(*each) for each in (indptr, indices, last))
        for name, tensor in (indices, last, *((bounds,) if bounds else ())):
            if _buffer(name, tensor).device != self.indptr.device:
                raise ValueError(f"{name}: expected the device of {indptr[0]}, {self.indptr.device}, "
                                 f"actual {_buffer(name, tensor).device}")
        self._takes_bounds = bounds is not None
        # Without a buffer of the caller they are one query each; kept, as a captured run reads them.
        self.bounds = _buffer(*bounds) if bounds else bounds_of(rows, 1, self.indptr.device)
        self._indices_name = indices[0]
        self.lengths = torch.zeros(rows, dtype=torch.int32, device=self.indptr.device)

    def hold(self, bounds: Tensor, indptr: Tensor, indices: Tensor, last: Tensor, lengths: Tensor) -> None:
        for count in (len(last), len(indptr) - 1, len(bounds) - 1):
            if count != self.rows:
                raise ValueError("plan: expected the batch size of the buffers of use_cuda_graph, "
                                 f"{self.rows}, actual {count}")
        if len(indices) > len(self.indices):
            raise ValueError(f"plan: expected at most {len(self.indices)} pages, the size of "
                             f"{self._indices_name}, actual {len(indices)}")
        if self._takes_bounds:
            queries = int(bounds[-1])
            if self._queries is not None and queries > self._queries:
                raise ValueError("plan: expected at most the queries of the first plan with "
                                 f"use_cuda_graph, {self._queries}, actual {queries}")
            self._queries = queries if self._queries is None else self._queries
            self.bounds.copy_(bounds)
        self.indptr.copy_(indptr)
        self.indices[:len(indices)].copy_(indices)
        self.last.copy_(last)
        self.lengths.copy_(lengths)


def _buffer(name: str, tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise ValueError(f"{name}: expected a tensor beside use_cuda_graph=True, actual None")
    return tensor


class _Wrapper:
    """What both wrappers have in common. Without a plan no call runs."""

    def __init__(self, workspace: Tensor | None, kv_layout: str, jit_args: Any,
                 fixed: _Fixed | None) -> None:
        if kv_layout not in ("NHD", "HND"):
            raise ValueError(f"kv_layout: expected NHD or HND, actual {kv_layout!r}")
        refuse((("jit_args", jit_args, None),))
        self._layout = kv_layout.lower()
        self._workspace = workspace  # it is not used, and says where the wrapper is
        self._planned: dict[str, Any] | None = None
        self._heads: tuple[int, int, int, int] = (0, 0, 0, 0)
        self._fixed = fixed

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return self._fixed is not None

    def _plan(self, bounds: Tensor, pages: tuple[Tensor, Tensor, Tensor], page_size: int,
              heads: tuple[int, int, int, int], **options: Any) -> None:
        indptr, indices, last = pages
        device = self._device(indices)
        indptr, last = indptr.to(device), last.to(device)
        counts = torch.diff(indptr)
        lengths = torch.where(counts > 0, (counts - 1) * page_size + last, 0).to(torch.int32)
        fixed = self._fixed
        if fixed is not None:
            fixed.hold(bounds, indptr, indices, last, lengths)
            bounds, indptr, indices, lengths = fixed.bounds, fixed.indptr, fixed.indices, fixed.lengths
        self._heads = heads
        self._planned = {"cu_seqlens_q": bounds.to(device), "page_indptr": indptr, "kv_lens": lengths,
                         "page_indices": indices.to(device), "block_kv": "in_cache",
                         "kv_layout": self._layout, "head_map": "grouped", **options}

    def _device(self, indices: Tensor) -> torch.device:
        if self._fixed is not None:
            return self._fixed.indptr.device
        return self._workspace.device if self._workspace is not None else indices.device

    def _run(self, q: Tensor, cache: Tensor | tuple[Tensor, Tensor], out: Tensor | None,
             lse: Tensor | None, wanted: dict[str, Any], return_lse: bool,
             window_left: int | None) -> Any:
        planned = self._planned
        if planned is None:
            raise RuntimeError("run: expected a call of plan() before, actual none")
        if window_left is not None and window_left != planned["window_left"]:
            raise NotImplementedError(f"window_left: expected that of plan(), {planned['window_left']}, "
                                      f"actual {window_left}")
        k, v = cache if isinstance(cache, tuple) else (cache[:, 0], cache[:, 1])
        axis = 1 if self._layout == "hnd" else 2
        heads = (q.shape[1], k.shape[axis], q.shape[2], v.shape[3])
        if heads != self._heads:
            raise ValueError("q and paged_kv_cache: expected the heads and dimensions of plan(), "
                             f"{self._heads}, actual {heads}")
        if return_lse and lse is None:
            rows = (heads[0], q.shape[0]) if wanted.get("lse_layout") == "ht" else q.shape[:2]
            lse = q.new_empty(rows, dtype=torch.float32)
        o = attention(q, None, None, k, v, o=out, lse=lse if return_lse else None, **planned, **wanted)
        return (o, lse) if return_lse else o


def _options(causal: bool, sm_scale: float | None, window_left: int, others: dict[str, Any],
             fixed: tuple[tuple[str, Any, Any], ...]) -> dict[str, Any]:
    unused = {"token_pos_in_items_len": 0}
    refuse((*fixed, *((name, value, unused.get(name)) for name, value in others.items()
                      if name not in _HOW)))
    return {"mask": "causal" if causal else "full", "scale": sm_scale, "window_left": window_left}


class BatchPrefillWithPagedKVCacheWrapper(_Wrapper):
    """Queries of any number for each request, whose keys are in the cache already."""

    def __init__(self, float_workspace_buffer: Tensor | None, kv_layout: str = "NHD",  # noqa: PLR0913
                 use_cuda_graph: bool = False, qo_indptr_buf: Tensor | None = None,
                 paged_kv_indptr_buf: Tensor | None = None, paged_kv_indices_buf: Tensor | None = None,
                 paged_kv_last_page_len_buf: Tensor | None = None, custom_mask_buf: Tensor | None = None,
                 mask_indptr_buf: Tensor | None = None, backend: str = "auto", jit_args: Any = None,
                 jit_kwargs: Any = None, variant_owns_mask: bool = False) -> None:
        fixed = None
        if use_cuda_graph:
            bounds = ("qo_indptr_buf", qo_indptr_buf)
            fixed = _Fixed(len(_buffer(*bounds)) - 1, ("paged_kv_indptr_buf", paged_kv_indptr_buf),
                           ("paged_kv_indices_buf", paged_kv_indices_buf),
                           ("paged_kv_last_page_len_buf", paged_kv_last_page_len_buf), bounds)
        super().__init__(float_workspace_buffer, kv_layout, jit_args, fixed)
        refuse((("custom_mask_buf", custom_mask_buf, None),
                ("variant_owns_mask", variant_owns_mask, False)))

    def plan(self, qo_indptr: Tensor, paged_kv_indptr: Tensor, paged_kv_indices: Tensor,  # noqa: PLR0913
             paged_kv_last_page_len: Tensor, num_qo_heads: int, num_kv_heads: int, head_dim_qk: int,
             page_size: int, head_dim_vo: int | None = None, custom_mask: Tensor | None = None,
             packed_custom_mask: Tensor | None = None, causal: bool = False,
             pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False,
             sm_scale: float | None = None, window_left: int = -1,
             logits_soft_cap: float | None = None, **others: Any) -> None:
        fixed = (("custom_mask", custom_mask, None), ("packed_custom_mask", packed_custom_mask, None),
                 ("pos_encoding_mode", pos_encoding_mode, "NONE"),
                 ("logits_soft_cap", logits_soft_cap or None, None))
        self._plan(qo_indptr, (paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len), page_size,
                   (num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo or head_dim_qk),
                   **_options(causal, sm_scale, window_left, others, fixed))

    def run(self, q: Tensor, paged_kv_cache: Tensor | tuple[Tensor, Tensor], *args: Any,  # noqa: PLR0913
            q_scale: Any = None, k_scale: Any = None, v_scale: Any = None, out: Tensor | None = None,
            lse: Tensor | None = None, return_lse: bool = False, lse_base: str = "log2",
            lse_layout: str = "NH", enable_pdl: bool | None = None, window_left: int | None = None,
            sinks: Tensor | None = None, kv_cache_sf: Any = None,
            skip_softmax_threshold_scale_factor: float | None = None,
            use_fp16_softmax: bool | None = None, uses_spcompress: bool | None = None) -> Any:
        refuse((("args", args, ()), ("q_scale", q_scale, None), ("k_scale", k_scale, None),
                ("v_scale", v_scale, None), ("sinks", sinks, None), ("kv_cache_sf", kv_cache_sf, None),
                ("skip_softmax_threshold_scale_factor", skip_softmax_threshold_scale_factor, None),
                ("use_fp16_softmax", use_fp16_softmax or None, None),
                ("uses_spcompress", uses_spcompress or None, None)))
        wanted = {"lse_base": _named("lse_base", lse_base, {"log2": "2", "ln": "e"}),
                  "lse_layout": _named("lse_layout", lse_layout, {"NH": "th", "HN": "ht"})}
        return self._run(q, paged_kv_cache, out, lse, wanted, return_lse, window_left)


def _named(argument: str, value: str, names: dict[str, str]) -> str:
    if value not in names:
        raise ValueError(f"{argument}: expected one of {', '.join(names)}, actual {value!r}")
    return names[value]


class BatchDecodeWithPagedKVCacheWrapper(_Wrapper):
    """One query for each request, the last of its tokens."""

    def __init__(self, float_workspace_buffer: Tensor | None, kv_layout: str = "NHD",  # noqa: PLR0913
                 use_cuda_graph: bool = False, use_tensor_cores: bool = False,
                 paged_kv_indptr_buffer: Tensor | None = None,
                 paged_kv_indices_buffer: Tensor | None = None,
                 paged_kv_last_page_len_buffer: Tensor | None = None, backend: str = "auto",
                 jit_args: Any = None) -> None:
        fixed = None
        if use_cuda_graph:
            last = ("paged_kv_last_page_len_buffer", paged_kv_last_page_len_buffer)
            fixed = _Fixed(len(_buffer(*last)), ("paged_kv_indptr_buffer", paged_kv_indptr_buffer),
                           ("paged_kv_indices_buffer", paged_kv_indices_buffer), last)
        super().__init__(float_workspace_buffer, kv_layout, jit_args, fixed)

    def plan(self, indptr: Tensor, indices: Tensor, last_page_len: Tensor,  # noqa: PLR0913
             num_qo_heads: int, num_kv_heads: int, head_dim: int, page_size: int, *,
             pos_encoding_mode: str = "NONE", window_left: int = -1,
             logits_soft_cap: float | None = None, sm_scale: float | None = None, q_len_per_req: int = 1,
             window_right: int = 0, is_causal: bool | None = None, **others: Any) -> None:
        fixed = (("pos_encoding_mode", pos_encoding_mode, "NONE"), ("q_len_per_req", q_len_per_req, 1),
                 ("logits_soft_cap", logits_soft_cap or None, None), ("window_right", window_right, 0))
        bounds = bounds_of(indptr.shape[0] - 1, 1, self._device(indices))
        self._plan(bounds, (indptr, indices, last_page_len), page_size,
                   (num_qo_heads, num_kv_heads, head_dim, head_dim),
                   **_options(True, sm_scale, window_left, others, fixed), lse_base="2")

    def run(self, q: Tensor, paged_kv_cache: Tensor | tuple[Tensor, Tensor], *args: Any,  # noqa: PLR0913
            q_scale: float | None = None, k_scale: float | None = None, v_scale: float | None = None,
            out: Tensor | None = None, lse: Tensor | None = None, return_lse: bool = False,
            enable_pdl: bool | None = None, window_left: int | None = None,
            sinks: Tensor | None = None, q_len_per_req: int | None = None,
            skip_softmax_threshold_scale_factor: float | None = None, kv_cache_sf: Any = None) -> Any:
        refuse((("args", args, ()), ("q_scale", q_scale, None), ("k_scale", k_scale, None),
                ("v_scale", v_scale, None), ("sinks", sinks, None),
                ("q_len_per_req", q_len_per_req or 1, 1), ("kv_cache_sf", kv_cache_sf, None),
                ("skip_softmax_threshold_scale_factor", skip_softmax_threshold_scale_factor, None)))
        return self._run(q, paged_kv_cache, out, lse, {}, return_lse, window_left)
