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
of other libraries: ops.flashinfer, ops.fla, ops.sglang.
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

_DTYPES = {getattr(torch, name): number for name, number in _gpu.DTYPES.items()}

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
}


class _Cuda:
    """Where calls with CUDA tensors go."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._library: _gpu.Library | None = None
        self._ready: set[int] = set()
        # The public torch.cuda.current_stream makes an object for each call.
        self._stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (
            lambda index: torch.cuda.current_stream(index).cuda_stream)

    def library(self) -> _gpu.Library:
        if self._library is None:
            with self._lock:
                self._library = self._library or _gpu.load()
        return self._library

    def initialize(self, index: int) -> None:
        with torch.cuda.device(index):
            self.library().initialize()
        self._ready.add(index)

    def run(self, index: int, launch: Callable[[_gpu.Library, int], None]) -> None:
        """launch(library, stream) on the current stream of a device."""
        library = self._library or self.library()
        # Within a capture nothing may be loaded but what the call itself needs.
        if index not in self._ready and not torch.cuda.is_current_stream_capturing():
            self.initialize(index)
        if torch.cuda.current_device() == index:
            launch(library, self._stream(index))
            return
        with torch.cuda.device(index):
            launch(library, self._stream(index))


_DEVICES: dict[str, Any] = {"cuda": _Cuda()}


def initialize(device: Any = None) -> None:
    """Loads the kernels on a device, as the first call of an operator there does. Call it before a
    capture that no call precedes."""
    index = torch.device(device).index if device is not None else None
    _DEVICES["cuda"].initialize(torch.cuda.current_device() if index is None else index)


def _run(anchor: Tensor, tensors: dict[str, Any], launch: Callable[[_gpu.Library, int], None]) -> None:
    device = anchor.device
    place = _DEVICES.get(device.type)
    if place is None:
        raise ValueError(f"k: expected a tensor of a CUDA device, actual {device}")
    if torch.is_grad_enabled():
        for name, tensor in tensors.items():
            if tensor is not None and tensor.requires_grad:
                raise RuntimeError(f"{name}: expected no gradient (the kernels are forward only; use "
                                   "torch.no_grad()), actual requires_grad=True")
    place.run(device.index, launch)


_OPTIONS = ("op", "state_layout", "gate_kind", "beta_kind", "qk_norm", "head_map", "gate_head", "scale",
            "l2_eps", "softplus_beta", "softplus_threshold", "lower_bound", "pad_slot",
            "disable_state_update", "max_tokens", "dependent_launch", "trigger_early", "state_ready", "precise",
            "never_split", "checkpoint_every", "checkpoint_form")


def _split(arguments: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors and options of the arguments of an operator."""
    options = {name: arguments.pop(name) for name in _OPTIONS if name in arguments}
    return arguments, options


def _recurrent(arguments: dict[str, Any]) -> None:
    tensors, options = _split(arguments)

    def launch(library: _gpu.Library, stream: int) -> None:
        library.recurrent(tensors, options, _DTYPES, stream)

    _run(tensors["k"], tensors, launch)


def _decode(q, k, v, gate, beta, state, o, **rest):  # noqa: ANN001, ANN003, ANN202
    if k.dim() > 1 and k.shape[1] != 1:
        raise ValueError(f"k: expected one token per row (T = 1), actual the shape {list(k.shape)}")
    _recurrent({"q": q, "k": k, "v": v, "gate": gate, "beta": beta, "state": state, "o": o, **rest})


def _mtp(q, k, v, gate, beta, state, o, **rest):  # noqa: ANN001, ANN003, ANN202
    _recurrent({"q": q, "k": k, "v": v, "gate": gate, "beta": beta, "state": state, "o": o, **rest})


_replay = _mtp


def _commit(k, v, gate, beta, state, **rest):  # noqa: ANN001, ANN003, ANN202
    _recurrent({"q": k, "k": k, "v": v, "gate": gate, "beta": beta, "state": state, **rest})


def _prefill(q, k, v, gate, beta, cu_seqlens, o, **rest):  # noqa: ANN001, ANN003, ANN202
    tensors, options = _split({"q": q, "k": k, "v": v, "gate": gate, "beta": beta,
                               "cu_seqlens": cu_seqlens, "o": o, **rest})

    def allocate(size: int) -> Tensor:
        return torch.empty(size, dtype=torch.uint8, device=k.device)

    def launch(library: _gpu.Library, stream: int) -> None:
        library.prefill(tensors, options, _DTYPES, stream, allocate)

    _run(k, tensors, launch)


def _fake(*arguments: Any, **options: Any) -> None:
    """An operator returns nothing, and says what is wrong when it runs."""


def _register() -> torch.library.Library:
    library = torch.library.Library("goldenrule", "DEF")
    tags = [torch.Tag.pt2_compliant_tag]
    exact = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
    for name, function in (("decode", _decode), ("mtp", _mtp), ("replay", _replay),
                           ("commit", _commit), ("prefill", _prefill)):
        library.define(name + SCHEMAS[name], tags=[*tags, exact])
        for key in ("CUDA", "CPU"):  # on the host: to say what is expected
            library.impl(name, function, key)
        torch.library.register_fake(f"goldenrule::{name}", _fake, lib=library)
    return library


_LIBRARY = _register()
_OPS = torch.ops.goldenrule


def decode(q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, beta: Tensor, state: Tensor, *,
           o: Tensor | None = None, **options: Any) -> Tensor:
    """One token for each row: q, k [B,1,H,K], v [B,1,HV,V]. Returns o, of v's type if not given."""
    o = v.new_empty(v.shape) if o is None else o
    _OPS.decode(q, k, v, gate, beta, state, o, **options)
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
    o = v.new_empty(v.shape) if o is None else o
    _OPS.mtp(q, k, v, gate, beta, state, o, **options)
    return o


def replay(q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, beta: Tensor, state: Tensor, *,
           o: Tensor | None = None, **options: Any) -> Tensor:
    """MTP over rings: ring_d [J,HV,W,V], ring_k [J,H,W,K] and ring_g [J,HV,W] (KDA [..,K]) take the
    corrections, keys and log gates of the tokens, in place, behind the ring_count[b] pending ones from
    place ring_start[b] on. The pool is written only where ring_flush[b] is 1, with the state after the
    pending tokens. A commit is a change of the two cursors; with no tokens (T = 0) it flushes alone."""
    o = v.new_empty(v.shape) if o is None else o
    _OPS.replay(q, k, v, gate, beta, state, o, **options)
    return o


def commit(k: Tensor, v: Tensor, gate: Tensor | None, beta: Tensor, state: Tensor,
           **options: Any) -> None:
    """The states after tokens that were accepted (accepted_tokens=.. of each row), where
    it kept none: the tokens again, without o."""
    _OPS.commit(k, v, gate, beta, state, **options)


def prefill(q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, beta: Tensor, cu_seqlens: Tensor, *,
            o: Tensor | None = None, **options: Any) -> Tensor:
    """Packed sequences: q, k [total,H,K], v [total,HV,V], cu_seqlens [N+1]. Start states from `state`
    (zeros without it), final states to `final_state` or back to `state`. Returns o; rows that belong
    to no sequence are not written."""
    o = v.new_empty(v.shape) if o is None else o
    _OPS.prefill(q, k, v, gate, beta, cu_seqlens, o, **options)
    return o


def __getattr__(name: str) -> Any:
    """The functions with the signatures of other libraries, when they are asked for."""
    if name in ("fla", "flashinfer", "sglang"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
