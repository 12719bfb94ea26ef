# SPDX-License-Identifier: Apache-2.0
# Length: a list, an entry for each kernel.
"""The kernels that the campaign calls, each as its users call it and inside what it documents.

A peer is a function of (kernel, call, x): what `load` of this module made of the peer's function, the drawn
call, and its inputs on the device, fresh copies that may be overwritten. It returns the outputs of the call
by their names in a capture. How a public kernel is called says its row (tools/peers/public.py); `listed` is
a peer that needs nothing beside. The variants of one peer are few where its compiler takes seconds for each.
"""

import dataclasses
import os
import sys
from pathlib import Path

import torch

from draw import GDN, KDA, Limits, each

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))

import public
from goldenrule_capture import CONVENTION, OPS
from own import Goldenrule
from public import FLA_ALONE

PEERS = {}


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    function: str  # module and name; "" for this project's own library
    gpu: bool
    variants: list
    limits: Limits
    run: object
    environment: dict
    share: float  # of --calls


def peer(function, *variants, name="", gpu=True, limits=Limits(), share=1.0, **environment):
    def register(run):
        called = name or run.__name__
        PEERS[called] = Peer(called, function, gpu, sum(variants, []), limits, run, environment, share)
        return run
    return register


def listed(name, function, *variants, more=None, **named):
    """A peer whose call is all said by its row; `more`: what changes nothing, of a variant."""
    @peer(function, *variants, name=name, **named)
    def run(kernel, call, x):
        return called(kernel, call, x, **(more(call.variant) if more else {}))


def load(peer):
    """The kernel of a peer, or the reason why the peer cannot run here."""
    if peer.gpu and not torch.cuda.is_available():
        raise ImportError("PyTorch sees no CUDA device")
    if peer.function:
        return public.public(peer.function)
    if "GOLDENRULE_GPU_LIBRARY" not in os.environ:
        raise ImportError("no libgoldenrule_gpu.so is given (--library)")
    return Goldenrule(torch, os.environ["GOLDENRULE_GPU_LIBRARY"])


def prefill(op, shape, gate, beta, norm, layout, state=("f32", None), io=("bf16",), **more):
    return each(mode=["prefill"], op=[op], shape=[shape], gate=gate, beta=beta, norm=norm,
                layout=layout, state=state, io=io, **{k: [v] for k, v in more.items()})


def rows(op, shape, T, layout, state, gate=("softplus",), beta=("sigmoid",),
         norm=("rsqrt_sum_eps",), io=("bf16",), **more):
    """Variants of decode (T = 1) and MTP; all tokens of T are run in one call."""
    mode = "decode" if tuple(T) == (1,) else "mtp"
    return each(mode=[mode], op=[op], shape=[shape], T=[T], layout=layout, state=state, gate=gate,
                beta=beta, norm=norm, io=io, **{k: [v] for k, v in more.items()})


def called(kernel, call, x, room=None, **named):
    """The outputs of a public kernel, with the states after each token where the variant keeps them."""
    room = room or {"intermediate_states": room_for_kept(call, x)}
    with torch.no_grad():
        return kernel.outputs(public.Call(call.op, call.convention, x), room=room, **named)


def room_for_kept(call, x):
    """A buffer for the state after each token, filled with NaN."""
    if not call.variant.get("kept"):
        return None
    (B, T), pool = x["q"].shape[:2], x["initial_state"]
    return torch.full((B, T, *pool.shape[1:]), float("nan"), dtype=pool.dtype, device=pool.device)


# ---- flash-linear-attention, its own Triton kernels -------------------------------------------

FLA = "fla.ops.gated_delta_rule."
FLA_KDA = "fla.ops.kda."

listed("fla_chunk_gdn", FLA + "chunk.chunk_gated_delta_rule",
       prefill(GDN, (1, 2, 128, 128), ("log",), ("direct",), ("none", "rsqrt_sum_eps"), ("kv",)),
       prefill(GDN, (2, 2, 64, 100), ("softplus",), ("sigmoid",), ("rsqrt_sum_eps",), ("vk",)),
       **FLA_ALONE)
listed("fla_chunk_kda", FLA_KDA + "chunk.chunk_kda",
       prefill(KDA, (2, 2, 128, 128), ("bounded",), ("sigmoid",), ("rsqrt_sum_eps",), ("vk",)),
       prefill(KDA, (1, 2, 128, 128), ("log",), ("direct",), ("none",), ("kv",)),
       prefill(KDA, (1, 1, 64, 64), ("softplus",), ("sigmoid",), ("rsqrt_sum_eps",), ("kv",)),
       more=lambda variant: {"safe_gate": variant["gate"] == "bounded"}, **FLA_ALONE)

FLA_RECURRENT = [dict(gate=("log",), beta=("direct",), norm=("none", "rsqrt_sum_eps")),
                 dict(gate=("softplus",), beta=("sigmoid",), norm=("rsqrt_sum_eps",))]


def fla_recurrent_variants(op, shapes):
    """Token by token in fp32, whatever the shape of the call: a prefill declares it."""
    result = []
    for shape in shapes:
        for form in FLA_RECURRENT:
            result += prefill(op, shape, layout=("kv",), contract="recurrent_f32", **form)
            result += rows(op, shape, (1,), ("kv", "vk"), ("f32",), **form)
            result += rows(op, shape, (2, 3, 5, 8), ("vk",), ("f32",), **form)
    return result


listed("fla_fused_gdn", FLA + "fused_recurrent.fused_recurrent_gated_delta_rule",
       fla_recurrent_variants(GDN, [(2, 4, 128, 128), (1, 2, 64, 100)]), **FLA_ALONE)
listed("fla_fused_kda", FLA_KDA + "fused_recurrent.fused_recurrent_kda",
       fla_recurrent_variants(KDA, [(2, 2, 128, 128), (1, 2, 64, 100)]),
       rows(KDA, (2, 2, 128, 128), (1,), ("vk",), ("f32",), gate=("bounded",)), **FLA_ALONE)


# ---- FlashInfer -------------------------------------------------------------------------------

FLASHINFER = "flashinfer.gdn_decode."
# The kernel takes log2(alpha + 1e-10): from -6 on the floor is below the last bit of alpha.
FLASHINFER_LINEAR = Limits(weak_only=-6.0)

listed("flashinfer_prefill", "flashinfer.gdn_prefill.chunk_gated_delta_rule",
       prefill(GDN, (1, 2, 128, 128), ("linear",), ("direct",), ("none", "rsqrt_sum_eps"), ("vk",)),
       prefill(GDN, (2, 2, 128, 128), ("linear",), ("direct",), ("none",), ("vk",), io=("f16",)),
       more=lambda variant: {"use_cp": False}, limits=FLASHINFER_LINEAR)
listed("flashinfer_prefill_cp", "flashinfer.gdn_prefill.chunk_gated_delta_rule",
       prefill(GDN, (1, 2, 128, 128), ("linear",), ("direct",), ("none",), ("vk",)),
       more=lambda variant: {"use_cp": True}, limits=FLASHINFER_LINEAR)
listed("flashinfer_decode_kv", FLASHINFER + "gated_delta_rule_decode",
       rows(GDN, (1, 2, 128, 128), (1,), ("kv",), ("f32",)),
       rows(GDN, (2, 4, 128, 128), (1,), ("kv",), ("f32",), norm=("rsqrt_sum_eps", "none")))

# Its kernels for bf16 states return NaN where a + dt_bias exceeds 88.7, the exponential of which
# overflows fp32: a defect that this campaign found, and not drawn any more.
FLASHINFER_BF16_STATE = Limits(logit=88.0)

listed("flashinfer_decode_vk", FLASHINFER + "gated_delta_rule_decode_pretranspose",
       rows(GDN, (1, 2, 128, 128), (1,), ("vk",), ("f32",)),
       rows(GDN, (2, 4, 128, 128), (1,), ("vk",), ("f32",), pool="pads"),
       rows(GDN, (2, 4, 128, 128), (1,), ("vk",), ("bf16",), pool="slots", moved=True),
       limits=FLASHINFER_BF16_STATE)


def mtp(op, shape, T, state, kept, **more):
    """MTP without an update of the pool (and with the states of all tokens), or with one."""
    result = rows(op, shape, T, ("vk",), (state,), pool="slots", kept=kept, **more)
    for variant in result:
        variant["disable"] = int(kept)
    return result


listed("flashinfer_mtp", FLASHINFER + "gated_delta_rule_mtp",
       mtp(GDN, (2, 4, 128, 128), (2,), "f32", kept=True),
       mtp(GDN, (1, 2, 128, 128), (4,), "f32", kept=True),
       mtp(GDN, (2, 4, 128, 128), (3,), "f32", kept=False))
listed("flashinfer_mtp_bf16", FLASHINFER + "gated_delta_rule_decode_pretranspose",
       mtp(GDN, (2, 4, 128, 128), (3,), "bf16", kept=True),
       mtp(GDN, (2, 4, 128, 128), (4,), "bf16", kept=False), limits=FLASHINFER_BF16_STATE)

FLASHINFER_KDA = "flashinfer.kda.recurrent_kda"
KDA_TYPES = dict(gate_type="bf16", beta_type="bf16")  # of FlashInfer: everything is bf16

listed("flashinfer_kda_decode", FLASHINFER_KDA,
       rows(KDA, (2, 2, 128, 128), (1,), ("vk",), ("bf16",), **KDA_TYPES),
       rows(KDA, (1, 2, 128, 128), (1,), ("vk",), ("bf16",), gate=("bounded",), gate_head="qk",
            **KDA_TYPES),
       rows(KDA, (2, 2, 64, 64), (1,), ("vk",), ("bf16",), gate=("log",), beta=("direct",),
            **KDA_TYPES),
       more=lambda variant: {"backend": "cute-dsl"})


@peer(FLASHINFER_KDA,
      rows(KDA, (2, 2, 128, 128), (3,), ("vk",), ("bf16",), pool="scatter", **KDA_TYPES),
      rows(KDA, (2, 2, 128, 128), (2,), ("vk",), ("bf16",), gate=("log",), beta=("direct",),
           pool="scatter", **KDA_TYPES))
def flashinfer_kda_mtp(kernel, call, x):
    """Tokens of all rows in one axis, each with a slot; the pool holds the states."""
    B, T = x["q"].shape[:2]
    tokens = {name: tensor.reshape(1, B * T, *tensor.shape[2:]) for name, tensor in x.items()
              if name in ("q", "k", "v", "a", "g", "b", "beta")}
    starts = torch.arange(0, B * T + 1, T, dtype=torch.int32, device=x["q"].device)
    outputs = called(kernel, call, {**x, **tokens, "cu_seqlens": starts}, wants=(),
                     num_spec_tokens=T - 1, backend="cute-dsl")
    return {"o": outputs["o"].reshape(x["v"].shape), "final_state": x["initial_state"]}


# ---- FlashQLA, cuDNN --------------------------------------------------------------------------

# Its split of long sequences is switched off: there a segment whose decay falls below e^-10 forgets
# what came before it, which no contract describes.
listed("flash_qla_prefill", "flash_qla.ops.gated_delta_rule.chunk.chunk_gated_delta_rule",
       prefill(GDN, (1, 2, 128, 128), ("log",), ("direct",), ("none", "rsqrt_sum_eps"), ("kv",)),
       more=lambda variant: {"auto_cp": False})
# Gates down to the bound of -5 that its chunks of 16 tokens are built for. It drops the start state
# of a piece where 16 tokens have decayed it by 2^-23.5, so a start state may not dwarf v.
listed("cudnn_kda", "cudnn.linear_attention.ops.kda.kimi_delta_attention",
       prefill(KDA, (2, 2, 128, 128), ("bounded",), ("sigmoid",), ("rsqrt_sum_eps",), ("vk",),
               state=("f32", "bf16", None)),
       prefill(KDA, (1, 2, 128, 128), ("bounded",), ("sigmoid",), ("rsqrt_sum_eps",), ("vk",)),
       prefill(KDA, (2, 2, 128, 128), ("log",), ("direct",), ("none",), ("vk",)),
       limits=Limits(strongest=-5.0, state_over_v=1))


# ---- SGLang's Triton kernels, the copy in FlashInfer's benchmarks ------------------------------

SGLANG = dict(scale=128 ** -0.5, l2_eps=1e-8)
SGLANG_LIMITS = Limits(rows=(1, 3))


def into(x):
    """Room for o, filled with NaN."""
    return torch.full_like(x["v"], float("nan"))


@peer("gdn_triton_reference.triton_gdn_decode",
      rows(GDN, (2, 4, 128, 128), (1,), ("kv", "vk"), ("f32",), **SGLANG), limits=SGLANG_LIMITS)
def sglang_decode(kernel, call, x):
    if call.variant["layout"] == "vk":
        kernel = public.public("gdn_triton_reference.triton_gdn_decode_pretranspose")
    return called(kernel, call, x, room={"o": into(x)})


@peer("gdn_triton_reference.triton_gdn_mtp",
      mtp(GDN, (2, 4, 128, 128), (2, 4), "f32", kept=True, **SGLANG),
      mtp(GDN, (2, 4, 128, 128), (3,), "f32", kept=False, **SGLANG), limits=SGLANG_LIMITS)
def sglang_mtp(kernel, call, x):
    pool, slots, kept = x["initial_state"], x["state_indices"].long(), None
    if call.variant["kept"]:  # its rows are those of the pool; the capture's are those of the call
        kept = torch.full((len(pool), x["q"].shape[1], *pool.shape[1:]), float("nan"),
                          device=pool.device)
    outputs = called(kernel, call, x, room={"o": into(x), "intermediate_states": kept})
    return outputs if kept is None else {**outputs, "intermediate_states": kept[slots]}


# ---- this project's library --------------------------------------------------------------------

_OWN = dict(beta=("sigmoid", "sigmoid2", "direct"), io=("bf16", "f16", "f32"),
            norm=("none", "rsqrt_sum_eps", "max_norm_eps", "norm_plus_eps"))
_OWN_GATES = ("softplus", "bounded", "log", "log2", "linear", "none")


def own(op):
    result = []
    for shape in ((2, 4, 128, 128), (1, 3, 64, 80), (2, 2, 100, 36)):
        for state in ("f32", "bf16"):
            for pool in (None, "pads"):
                shared = dict(layout=("vk", "kv"), state=(state,), gate=_OWN_GATES, pool=pool,
                              moved=True, accepted=True, kept=False, disable=0, **_OWN)
                result += rows(op, shape, (1,), **{**shared, "accepted": False})
                result += rows(op, shape, (2, 3, 5, 8, 11), **shared)
            result += rows(op, shape, (2, 4, 7), ("vk", "kv"), (state,), gate=_OWN_GATES,
                           pool="pads", kept=True, disable=1, **_OWN)
            result += rows(op, shape, (2, 3, 5), ("vk", "kv"), (state,), gate=_OWN_GATES,
                           pool="scatter", kept=False, disable=0, **_OWN)
    return result


OWN_NUMBERS = {"state_layout": "state_layout", "gate_kind": "gate", "beta_kind": "beta",
               "qk_norm": "qk_l2norm"}  # field -> the attribute whose names its numbers are


def own_numbers(call, x):
    convention = {"l2_eps": 1e-6, "lower_bound": -5.0, "disable_state_update": 0, **call.convention}
    numbers = {field: CONVENTION[name].index(convention[name]) for field, name in OWN_NUMBERS.items()}
    numbers |= {name: convention[name] for name in ("l2_eps", "lower_bound", "disable_state_update")}
    (B, T), (H, HV, K, V) = x["q"].shape[:2], call.variant["shape"]
    return dict(numbers, op=OPS.index(call.op), scale=convention.get("scale", K ** -0.5), B=B, T=T, H=H,
                HV=HV, K=K, V=V, slots=len(x["initial_state"]), intermediate_rows=T)


@peer("", own(GDN), share=2.0)
def goldenrule_gdn(library, call, x):
    o, kept = into(x), room_for_kept(call, x)
    renamed = {"a": "gate", "g": "gate", "b": "beta", "initial_state": "state"}
    tensors = {renamed.get(name, name): tensor for name, tensor in x.items()}
    library.run("recurrent", own_numbers(call, x), {**tensors, "o": o, "intermediate_states": kept})
    outputs = {"o": o, "final_state": x["initial_state"]}
    return outputs if kept is None else {**outputs, "intermediate_states": kept}


@peer("", own(KDA), share=2.0)
def goldenrule_kda(library, call, x):
    return goldenrule_gdn(library, call, x)


# ---- functions of torch that need no GPU -------------------------------------------------------


def by_sequence(kernel, call, x):
    """Runs a function that knows no packed sequences once for each; heads of q and k repeated."""
    starts = x["cu_seqlens"].tolist()
    repeat = x["v"].shape[1] // x["q"].shape[1]
    wide = {**x, "q": x["q"].repeat_interleave(repeat, 1), "k": x["k"].repeat_interleave(repeat, 1)}
    outputs = []
    for n, (begin, end) in enumerate(zip(starts, starts[1:])):
        one = {name: wide[name][None, begin:end] for name in ("q", "k", "v", "g", "beta")}
        if "initial_state" in x:
            one["initial_state"] = x["initial_state"][n:n + 1]
        outputs.append(called(kernel, call, one))
    return {"o": torch.cat([each["o"].squeeze(0) for each in outputs]),
            "final_state": torch.cat([each["final_state"] for each in outputs])}


# The recurrent functions declare recurrent_f32. The chunk functions, fp32 throughout, declare
# nothing and are judged as a user's capture is.
CPU = dict(gate=("log",), beta=("direct",), layout=("kv",))
CPU_LIMITS = Limits(tokens=160)


NAIVE = prefill(GDN, (1, 2, 64, 32), norm=("none",), io=("f32", "bf16"), **CPU)


def declared(variants):
    return [{**variant, "contract": "recurrent_f32"} for variant in variants]


def of_torch(name, function, variants, limits=CPU_LIMITS):
    @peer(function, variants, name=name, gpu=False, limits=limits, share=0.25)
    def run(kernel, call, x):
        """The function itself: where fla can be imported, transformers' names lead to fla's kernels."""
        itself = getattr(kernel.function, "__wrapped__", kernel.function)
        outputs = by_sequence(dataclasses.replace(kernel, function=itself), call, x)
        return {**outputs, "o": outputs["o"].to(x["v"].dtype)}


def as_kda(variants):
    return [{**variant, "op": KDA} for variant in variants]


of_torch("naive_gdn", FLA + "naive.naive_recurrent_gated_delta_rule", declared(NAIVE))
of_torch("naive_chunk_gdn", FLA + "naive.naive_chunk_gated_delta_rule", NAIVE)
of_torch("naive_kda", FLA_KDA + "naive.naive_recurrent_kda", as_kda(declared(NAIVE)))
of_torch("naive_chunk_kda", FLA_KDA + "naive.naive_chunk_kda", as_kda(NAIVE),
         limits=Limits(tokens=192, multiple=64))

HF = prefill(GDN, (1, 2, 64, 32), norm=("none", "rsqrt_sum_eps"), io=("f32",), **CPU)
QWEN = "transformers.models.qwen3_next.modeling_qwen3_next."
KIMI = "transformers.models.kimi_linear.modeling_kimi_linear."

of_torch("transformers_gdn", QWEN + "torch_recurrent_gated_delta_rule", declared(HF))
of_torch("transformers_chunk_gdn", QWEN + "torch_chunk_gated_delta_rule", HF)
of_torch("transformers_kda", KIMI + "recurrent_kimi_delta_attention", as_kda(declared(HF)))
of_torch("transformers_chunk_kda", KIMI + "chunk_kimi_delta_attention", as_kda(HF))
