# SPDX-License-Identifier: Apache-2.0
"""The GPU kernels of goldenrule as operators of torch.

    import torch
    from goldenrule import ops      # registers torch.ops.goldenrule.decode, mtp, replay, ..

    o = ops.decode(q, k, v, a, b, state, A_log=A_log, dt_bias=dt_bias, state_indices=slots)

`state` is updated in place. The operators themselves return nothing: what they write, o included, are
arguments that are declared as mutated, so that torch.compile and CUDA graphs know all of it; the
functions of this module allocate o and call them. Names and meanings of the arguments are those of
gpu/goldenrule_gpu.h, values of conventions those of goldenrule.schema(); scale is K^-0.5 by default.

A call runs on the current stream of the tensors' device, waits for nothing, and passes strides as they
are: nothing is copied, and what the kernels cannot take is refused (ValueError, TypeError,
NotImplementedError, RuntimeError) with one line that says expected and actual. Forward only.
`initialize()` loads the kernels of a device; else the first call does. Functions with the signatures
of other libraries: ops.flashinfer, ops.fla, ops.sglang, ops.flash_attn, ops.flash_attn_interface.
"""

import importlib
import threading
from collections.abc import Callable
from typing import Any

try:
    import torch
except ImportError as error:
    raise ImportError(f"goldenrule.ops needs torch: {error}") from error

from .. import _gpu

Tensor = torch.Tensor

_TOKENS = "Tensor k, Tensor v, Tensor? gate, Tensor beta"
_RULE = ('Tensor? A_log=None, Tensor? dt_bias=None, Tensor? state_indices=None, '
         'Tensor? output_state_indices=None, Tensor(b!)? final_state=None, '
         'str op="gated_delta_rule", str state_layout="vk", str gate_kind="softplus", '
         'str beta_kind="sigmoid", str qk_norm="rsqrt_sum_eps", str head_map="grouped", '
         'str gate_head="v", float? scale=None, float l2_eps=1e-6, float softplus_beta=1.0, '
         'float softplus_threshold=20.0, float lower_bound=-5.0, int pad_slot=-1, '
         'bool disable_state_update=False, bool dependent_launch=False')
_ROWS = ("Tensor(d!)? intermediate_states=None, Tensor? ssm_state_indices=None, "
         "Tensor? num_accepted_tokens=None, Tensor? accepted_tokens=None, Tensor? cu_seqlens=None, "
         "int max_tokens=0, Tensor? parent_tokens=None, Tensor? intermediate_state_indices=None, "
         "Tensor? checkpoint_state_indices=None, Tensor? checkpoint_tokens=None, "
         "bool trigger_early=False, bool state_ready=False")
_RINGS = ("Tensor(d!) ring_d, Tensor(e!) ring_k, Tensor(f!) ring_g, Tensor ring_start, "
          "Tensor ring_count, Tensor? ring_indices=None, Tensor? ring_flush=None, "
          "Tensor? cu_seqlens=None, int max_tokens=0, bool trigger_early=False, "
          "bool state_ready=False")
_CHECKPOINTS = ('Tensor(d!)? checkpoints=None, Tensor? cu_checkpoints=None, '
                'Tensor? checkpoint_offsets=None, Tensor? start_positions=None, '
                'int checkpoint_every=0, str checkpoint_form="after", bool precise=False, '
                'bool never_split=False')
SCHEMAS = {
    "decode": f"(Tensor q, {_TOKENS}, Tensor(a!) state, Tensor(c!) o, *, {_RULE}, "
              "Tensor? checkpoint_state_indices=None, Tensor? checkpoint_tokens=None, "
              "bool trigger_early=False, bool state_ready=False) -> ()",
    "mtp": f"(Tensor q, {_TOKENS}, Tensor(a!) state, Tensor(c!) o, *, {_RULE}, {_ROWS}) -> ()",
    "replay": f"(Tensor q, {_TOKENS}, Tensor(a!) state, Tensor(c!) o, *, {_RINGS}, {_RULE}) -> ()",
    "commit": f"({_TOKENS}, Tensor(a!) state, *, {_RULE}, {_ROWS}) -> ()",
    "prefill": f"(Tensor q, {_TOKENS}, Tensor cu_seqlens, Tensor(c!) o, *, Tensor(a!)? state=None, "
               f"{_RULE}, {_CHECKPOINTS}) -> ()",
    "attention": "(Tensor q, Tensor? k, Tensor? v, Tensor? k_cache, Tensor? v_cache, Tensor(a!) o, *, "
                 "Tensor cu_seqlens_q, Tensor(b!)? lse=None, Tensor? cu_seqlens_k=None, "
                 "Tensor? kv_lens=None, Tensor? page_table=None, Tensor? page_indptr=None, "
                 "Tensor? page_indices=None, Tensor? q_offset=None, Tensor? valid_q=None, "
                 'str mask="full", int block=1, str block_base="absolute", int window_left=-1, '
                 'int window_right=-1, str block_kv="separate", str kv_layout="nhd", '
                 'str head_map="grouped", float? scale=None, str lse_base="e", str lse_layout="th", '
                 "int? most_q=None, int splits=0, bool dependent_launch=False) -> ()",
}


class _Cuda:
    """The CUDA devices of torch (_gpu.Device)."""

    type = "cuda"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = False
        # The public functions of torch.cuda make an object for each call, or ask more than once.
        self.current = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
        self.stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (
            lambda index: torch.cuda.current_stream(index).cuda_stream)
        self.exchange = torch.cuda._exchange_device
        self.graded = torch.is_grad_enabled

    def prepare(self, index: int) -> bool:
        with self._lock:
            if not self._open:
                _LIBRARY.open()
                self._open = True
        # Within a capture nothing may be loaded but what the call itself needs.
        if torch.cuda.is_current_stream_capturing():
            return False
        with torch.cuda.device(index):
            _LIBRARY.initialize()
        return True

    @staticmethod
    def empty(size: int, like: Tensor) -> Tensor:
        return torch.empty(size, dtype=torch.uint8, device=like.device)


_CUDA = _Cuda()
_LIBRARY = _gpu.Library(_CUDA)


def initialize(device: Any = None) -> None:
    """Loads the kernels on a device, as the first call of an operator there does. Call it before a
    capture that no call precedes."""
    index = torch.device(device).index if device is not None else None
    _CUDA.prepare(torch.cuda.current_device() if index is None else index)


_PLAIN = (Tensor, torch.nn.Parameter)
_modes = torch._C._len_torch_dispatch_stack
_compiling = torch.compiler.is_compiling


def _is_traced(k: Tensor) -> bool:
    """Whether somebody looks at the operators of torch that run: torch.compile, a mode, a subclass."""
    return _compiling() or _modes() > 0 or type(k) not in _PLAIN


def _fake(*arguments: Any, **options: Any) -> None:
    """An operator returns nothing, and says what is wrong when it runs."""


def _launched(name: str) -> Callable[..., None]:
    def launched(*tensors: Any, **options: Any) -> None:
        getattr(_LIBRARY, name)(*tensors, **options)

    return launched


def _register() -> torch.library.Library:
    library = torch.library.Library("goldenrule", "DEF")
    tags = [torch.Tag.pt2_compliant_tag]
    exact = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
    for name, schema in SCHEMAS.items():
        library.define(name + schema, tags=[*tags, exact])
        for key in ("CUDA", "CPU"):  # on the host: to say what is expected
            library.impl(name, _launched(name), key)
        torch.library.register_fake(f"goldenrule::{name}", _fake, lib=library)
    return library


_REGISTERED = _register()
_OPS = torch.ops.goldenrule


def _dense_like(v: Tensor) -> Tensor:
    return torch.empty_like(v, memory_format=torch.contiguous_format)


def decode(q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, beta: Tensor, state: Tensor, *,
           o: Tensor | None = None, **options: Any) -> Tensor:
    """One token for each row: q, k [B,1,H,K], v [B,1,HV,V]. Returns o, of v's type if not given."""
    o = _dense_like(v) if o is None else o
    run = _OPS.decode if _is_traced(k) else _LIBRARY.decode
    run(q, k, v, gate, beta, state, o, **options)
    return o


def mtp(q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, beta: Tensor, state: Tensor, *,
           o: Tensor | None = None, **options: Any) -> Tensor:
    """T tokens for each row (MTP): q, k [B,T,H,K], v [B,T,HV,V], 0 to 16 of them. With
    disable_state_update=True the pool stays as it is; intermediate_states=.. takes the state after each
    token, or ssm_state_indices names a slot for each. Rows of unequal length by cu_seqlens [B+1]: q, k
    [1,total,H,K], v [1,total,HV,V], and none longer than max_tokens (16, or the columns of
    ssm_state_indices). parent_tokens make rows trees. intermediate_state_indices: the row of the buffer
    intermediate_states [I,steps,HV,..] that a row takes, -1 for none; checkpoint_state_indices: a second
    slot, for the state after checkpoint_tokens."""
    o = _dense_like(v) if o is None else o
    run = _OPS.mtp if _is_traced(k) else _LIBRARY.mtp
    run(q, k, v, gate, beta, state, o, **options)
    return o


def replay(q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, beta: Tensor, state: Tensor, *,
           o: Tensor | None = None, **options: Any) -> Tensor:
    """MTP over rings: ring_d [J,HV,W,V], ring_k [J,H,W,K] and ring_g [J,HV,W] (KDA [..,K]) take the
    corrections, keys and log gates of the tokens, in place, behind the ring_count[b] pending ones from
    place ring_start[b] on. The pool is written only where ring_flush[b] is 1, with the state after the
    pending tokens. A commit is a change of the two cursors; with no tokens (T = 0) it flushes alone."""
    o = _dense_like(v) if o is None else o
    run = _OPS.replay if _is_traced(k) else _LIBRARY.replay
    run(q, k, v, gate, beta, state, o, **options)
    return o


def commit(k: Tensor, v: Tensor, gate: Tensor | None, beta: Tensor, state: Tensor,
           **options: Any) -> None:
    """The states after tokens that were accepted (accepted_tokens=.. of each row), where
    it kept none: the tokens again, without o."""
    run = _OPS.commit if _is_traced(k) else _LIBRARY.commit
    run(k, v, gate, beta, state, **options)


def prefill(q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, beta: Tensor, cu_seqlens: Tensor, *,
            o: Tensor | None = None, **options: Any) -> Tensor:
    """Packed sequences: q, k [total,H,K], v [total,HV,V], cu_seqlens [N+1]. Start states from `state`
    (zeros without it), final states to `final_state` or back to `state`. Returns o; rows that belong
    to no sequence are not written."""
    o = _dense_like(v) if o is None else o
    run = _OPS.prefill if _is_traced(k) else _LIBRARY.prefill
    run(q, k, v, gate, beta, cu_seqlens, o, **options)
    return o


def attention(q: Tensor, k: Tensor | None = None, v: Tensor | None = None,
              k_cache: Tensor | None = None, v_cache: Tensor | None = None, *, cu_seqlens_q: Tensor,
              o: Tensor | None = None, **options: Any) -> Tensor:
    """Softmax attention of packed queries q [total,HV,K] over fresh keys k [fresh,H,K], v [fresh,H,V]
    (cu_seqlens_k), over the pages of a cache k_cache [pages,slots,H,K] (kv_lens, and page_table or
    page_indptr and page_indices), or both. Returns o; lse=.. is written, if given. The grid is made for
    most_q queries of a request, without it for the mean. block_kv="in_cache": the keys of the queries are
    in the cache already."""
    if o is None:
        values = v if v_cache is None else v_cache
        o = q.new_empty((*q.shape[:-1], q.shape[-1] if values is None else values.shape[-1]))
    run = _OPS.attention if _is_traced(q) else _LIBRARY.attention
    run(q, k, v, k_cache, v_cache, o, cu_seqlens_q=cu_seqlens_q, **options)
    return o


def __getattr__(name: str) -> Any:
    """The functions with the signatures of other libraries, when they are asked for."""
    if name in ("fla", "flash_attn", "flash_attn_interface", "flashinfer", "sglang"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
