# SPDX-License-Identifier: Apache-2.0
# Length: a list, one function per kernel.
"""The kernels that the campaign calls, each as its users call it and inside what it documents.

A peer is a function of (module, call, x): the module that had to be imported, the drawn call, and
its inputs on the device, fresh copies that may be overwritten. It returns the outputs of the call
by their names in a capture. Decorating it with @peer registers it with its variants and limits. The
variants of one peer are few where its compiler takes seconds for each.
"""

import ctypes
import dataclasses
import functools
import os
import pathlib
import sys

import torch

from draw import GDN, KDA, Limits, each

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench_gpu"))

PEERS = {}


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    module: str  # what must be importable; "" for this project's own library
    gpu: bool
    variants: list
    limits: Limits
    run: object
    environment: dict
    share: float  # of --calls


def peer(module, *variants, gpu=True, limits=Limits(), share=1.0, **environment):
    def register(function):
        name = function.__name__
        PEERS[name] = Peer(name, module, gpu, sum(variants, []), limits, function, environment,
                           share)
        return function
    return register


def prefill(op, shape, gate, beta, norm, layout, state=("f32", None), io=("bf16",), **more):
    return each(mode=["prefill"], op=[op], shape=[shape], gate=gate, beta=beta, norm=norm,
                layout=layout, state=state, io=io, **{k: [v] for k, v in more.items()})


def rows(op, shape, T, layout, state, gate=("softplus",), beta=("sigmoid",),
         norm=("rsqrt_sum_eps",), io=("bf16",), **more):
    """Variants of decode (T = 1) and MTP; all tokens of T are run in one call."""
    mode = "decode" if tuple(T) == (1,) else "mtp"
    return each(mode=[mode], op=[op], shape=[shape], T=[T], layout=layout, state=state, gate=gate,
                beta=beta, norm=norm, io=io, **{k: [v] for k, v in more.items()})


def batched(x, *names):
    """Packed [total, ...] tensors with the batch axis of 1 that varlen kernels want."""
    return [x[name].unsqueeze(0) for name in names]


def scale_of(call):
    return call.convention.get("scale", call.variant["shape"][2] ** -0.5)


def unpadded(result):
    o, state = result[:2]
    return {"o": o.squeeze(0), "final_state": state}


# ---- flash-linear-attention, its own Triton kernels -------------------------------------------

FLA_ALONE = {"FLA_FLASH_QLA": "0", "FLA_FLASH_KDA": "0"}  # no dispatch to other projects' kernels


def fla_arguments(call, x):
    """The keyword arguments that fla's four entry points share."""
    v = call.variant
    named = dict(scale=scale_of(call), initial_state=x.get("initial_state"),
                 output_final_state=True, state_v_first=v["layout"] == "vk",
                 use_qk_l2norm_in_kernel=v["norm"] != "none",
                 use_beta_sigmoid_in_kernel=v["beta"] == "sigmoid")
    if v["gate"] in ("softplus", "bounded"):
        named.update(use_gate_in_kernel=True, A_log=x["A_log"], dt_bias=x["dt_bias"].reshape(-1))
    if v["gate"] == "bounded":
        named.update(lower_bound=call.convention["lower_bound"])
    return named


def fla_call(function, call, x, **more):
    gate = "a" if "a" in x else "g"
    beta = "b" if "b" in x else "beta"
    names = ("q", "k", "v", gate, beta)
    if call.mode == "prefill":
        q, k, v, g, b = batched(x, *names)
        return unpadded(function(q=q, k=k, v=v, g=g, beta=b, cu_seqlens=x["cu_seqlens"],
                                 **fla_arguments(call, x), **more))
    q, k, v, g, b = (x[name] for name in names)
    o, state = function(q=q, k=k, v=v, g=g, beta=b, **fla_arguments(call, x), **more)
    return {"o": o, "final_state": state}


@peer("fla.ops.gated_delta_rule",
      prefill(GDN, (1, 2, 128, 128), ("log",), ("direct",), ("none", "rsqrt_sum_eps"), ("kv",)),
      prefill(GDN, (2, 2, 64, 100), ("softplus",), ("sigmoid",), ("rsqrt_sum_eps",), ("vk",)),
      **FLA_ALONE)
def fla_chunk_gdn(module, call, x):
    return fla_call(module.chunk_gated_delta_rule, call, x)


@peer("fla.ops.kda",
      prefill(KDA, (2, 2, 128, 128), ("bounded",), ("sigmoid",), ("rsqrt_sum_eps",), ("vk",)),
      prefill(KDA, (1, 2, 128, 128), ("log",), ("direct",), ("none",), ("kv",)),
      prefill(KDA, (1, 1, 64, 64), ("softplus",), ("sigmoid",), ("rsqrt_sum_eps",), ("kv",)),
      **FLA_ALONE)
def fla_chunk_kda(module, call, x):
    more = dict(safe_gate=True) if call.variant["gate"] == "bounded" else {}
    with torch.no_grad():
        return fla_call(module.chunk_kda, call, x, **more)


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


@peer("fla.ops.gated_delta_rule", fla_recurrent_variants(GDN, [(2, 4, 128, 128), (1, 2, 64, 100)]),
      **FLA_ALONE)
def fla_fused_gdn(module, call, x):
    return fla_call(module.fused_recurrent_gated_delta_rule, call, x)


@peer("fla.ops.kda", fla_recurrent_variants(KDA, [(2, 2, 128, 128), (1, 2, 64, 100)]),
      rows(KDA, (2, 2, 128, 128), (1,), ("vk",), ("f32",), gate=("bounded",)), **FLA_ALONE)
def fla_fused_kda(module, call, x):
    return fla_call(module.fused_recurrent_kda, call, x)


# ---- FlashInfer -------------------------------------------------------------------------------

# The kernel takes log2(alpha + 1e-10): from -6 on the floor is below the last bit of alpha.
FLASHINFER_LINEAR = Limits(weak_only=-6.0)


@peer("flashinfer.gdn_prefill",
      prefill(GDN, (1, 2, 128, 128), ("linear",), ("direct",), ("none", "rsqrt_sum_eps"), ("vk",)),
      prefill(GDN, (2, 2, 128, 128), ("linear",), ("direct",), ("none",), ("vk",), io=("f16",)),
      limits=FLASHINFER_LINEAR)
def flashinfer_prefill(module, call, x, use_cp=False):
    o, state = module.chunk_gated_delta_rule(
        x["q"], x["k"], x["v"], x["g"], x["beta"], initial_state=x.get("initial_state"),
        output_final_state=True, cu_seqlens=x["cu_seqlens"], use_cp=use_cp,
        use_qk_l2norm_in_kernel=call.variant["norm"] != "none")
    return {"o": o, "final_state": state}


@peer("flashinfer.gdn_prefill",
      prefill(GDN, (1, 2, 128, 128), ("linear",), ("direct",), ("none",), ("vk",)),
      limits=FLASHINFER_LINEAR)
def flashinfer_prefill_cp(module, call, x):
    return flashinfer_prefill(module, call, x, use_cp=True)


def flashinfer_gate(x):
    return [x[name] for name in ("A_log", "a", "dt_bias", "b")]


@peer("flashinfer.gdn_decode",
      rows(GDN, (1, 2, 128, 128), (1,), ("kv",), ("f32",)),
      rows(GDN, (2, 4, 128, 128), (1,), ("kv",), ("f32",), norm=("rsqrt_sum_eps", "none")))
def flashinfer_decode_kv(module, call, x):
    o, state = module.gated_delta_rule_decode(
        x["q"], x["k"], x["v"], x["initial_state"], *flashinfer_gate(x),
        use_qk_l2norm=call.variant["norm"] != "none")
    return {"o": o, "final_state": state}


# Its kernels for bf16 states return NaN where a + dt_bias exceeds 88.7, the exponential of which
# overflows fp32: a defect that this campaign found, and not drawn any more.
FLASHINFER_BF16_STATE = Limits(logit=88.0)


@peer("flashinfer.gdn_decode",
      rows(GDN, (1, 2, 128, 128), (1,), ("vk",), ("f32",)),
      rows(GDN, (2, 4, 128, 128), (1,), ("vk",), ("f32",), pool="pads"),
      rows(GDN, (2, 4, 128, 128), (1,), ("vk",), ("bf16",), pool="slots", moved=True),
      limits=FLASHINFER_BF16_STATE)
def flashinfer_decode_vk(module, call, x):
    pool = "state_indices" in x
    o, state = module.gated_delta_rule_decode_pretranspose(
        x["q"], x["k"], x["v"], None if pool else x["initial_state"], *flashinfer_gate(x),
        initial_state=x["initial_state"] if pool else None,
        initial_state_indices=x.get("state_indices"),
        output_state_indices=x.get("output_state_indices"))
    return {"o": o, "final_state": state}


def room_for_kept(call, x):
    """A buffer for the state after each token, filled with NaN."""
    B, T = x["q"].shape[:2]
    pool = x["initial_state"]
    if not call.variant["kept"]:
        return None
    return torch.full((B, T, *pool.shape[1:]), float("nan"), dtype=pool.dtype, device=pool.device)


def with_kept(o, state, kept):
    outputs = {"o": o, "final_state": state}
    if kept is not None:
        outputs["intermediate_states"] = kept
    return outputs


def mtp(op, shape, T, state, kept, **more):
    """MTP without an update of the pool (and with the states of all tokens), or with one."""
    result = rows(op, shape, T, ("vk",), (state,), pool="slots", kept=kept, **more)
    for variant in result:
        variant["disable"] = int(kept)
    return result


@peer("flashinfer.gdn_decode",
      mtp(GDN, (2, 4, 128, 128), (2,), "f32", kept=True),
      mtp(GDN, (1, 2, 128, 128), (4,), "f32", kept=True),
      mtp(GDN, (2, 4, 128, 128), (3,), "f32", kept=False))
def flashinfer_mtp(module, call, x):
    kept = room_for_kept(call, x)
    o, state = module.gated_delta_rule_mtp(
        x["q"], x["k"], x["v"], x["initial_state"], x["state_indices"], *flashinfer_gate(x),
        intermediate_states_buffer=kept, disable_state_update=bool(call.variant["disable"]))
    return with_kept(o, state, kept)


@peer("flashinfer.gdn_decode",
      mtp(GDN, (2, 4, 128, 128), (3,), "bf16", kept=True),
      mtp(GDN, (2, 4, 128, 128), (4,), "bf16", kept=False),
      limits=FLASHINFER_BF16_STATE)
def flashinfer_mtp_bf16(module, call, x):
    kept = room_for_kept(call, x)
    o, state = module.gated_delta_rule_decode_pretranspose(
        x["q"], x["k"], x["v"], None, *flashinfer_gate(x), initial_state=x["initial_state"],
        initial_state_indices=x["state_indices"], intermediate_states_buffer=kept,
        disable_state_update=bool(call.variant["disable"]))
    return with_kept(o, state, kept)


def flashinfer_kda_arguments(call, x):
    v = call.variant
    named = dict(q=x["q"], k=x["k"], v=x["v"], g=x.get("a", x.get("g")),
                 beta=x.get("b", x.get("beta")), initial_state=x["initial_state"],
                 beta_is_logit=v["beta"] == "sigmoid", use_qk_l2norm_in_kernel=v["norm"] != "none",
                 backend="cute-dsl")
    if "A_log" in x:
        named.update(use_gate_in_kernel=True, A_log=x["A_log"], dt_bias=x["dt_bias"].reshape(-1))
    if v["gate"] == "bounded":
        named.update(lower_bound=call.convention["lower_bound"])
    return named


KDA_TYPES = dict(gate_type="bf16", beta_type="bf16")  # of FlashInfer: everything is bf16


@peer("flashinfer",
      rows(KDA, (2, 2, 128, 128), (1,), ("vk",), ("bf16",), **KDA_TYPES),
      rows(KDA, (1, 2, 128, 128), (1,), ("vk",), ("bf16",), gate=("bounded",), gate_head="qk",
           **KDA_TYPES),
      rows(KDA, (2, 2, 64, 64), (1,), ("vk",), ("bf16",), gate=("log",), beta=("direct",),
           **KDA_TYPES))
def flashinfer_kda_decode(module, call, x):
    o, state = module.recurrent_kda(output_final_state=True, **flashinfer_kda_arguments(call, x))
    return {"o": o, "final_state": state}


@peer("flashinfer",
      rows(KDA, (2, 2, 128, 128), (3,), ("vk",), ("bf16",), pool="scatter", **KDA_TYPES),
      rows(KDA, (2, 2, 128, 128), (2,), ("vk",), ("bf16",), gate=("log",), beta=("direct",),
           pool="scatter", **KDA_TYPES))
def flashinfer_kda_mtp(module, call, x):
    B, T = x["q"].shape[:2]
    named = flashinfer_kda_arguments(call, x)
    for name in ("q", "k", "v", "g", "beta"):
        named[name] = named[name].reshape(1, B * T, *named[name].shape[2:])
    starts = torch.arange(0, B * T + 1, T, dtype=torch.int32, device=x["q"].device)
    o, _ = module.recurrent_kda(
        cu_seqlens=starts, ssm_state_indices=x["ssm_state_indices"], num_spec_tokens=T - 1,
        num_accepted_tokens=x["num_accepted_tokens"], **named)
    return {"o": o.reshape(x["v"].shape), "final_state": x["initial_state"]}


# ---- FlashQLA, cuDNN --------------------------------------------------------------------------

# Its split of long sequences is switched off: there a segment whose decay falls below e^-10 forgets
# what came before it, which no contract describes.
@peer("flash_qla", prefill(GDN, (1, 2, 128, 128), ("log",), ("direct",), ("none", "rsqrt_sum_eps"),
                           ("kv",)))
def flash_qla_prefill(module, call, x):
    q, k, v, g, beta = batched(x, "q", "k", "v", "g", "beta")
    with torch.no_grad():
        return unpadded(module.chunk_gated_delta_rule(
            q=q, k=k, v=v, g=g, beta=beta, initial_state=x.get("initial_state"),
            output_final_state=True, cu_seqlens=x["cu_seqlens"], auto_cp=False,
            use_qk_l2norm_in_kernel=call.variant["norm"] != "none"))


# Gates down to the bound of -5 that its chunks of 16 tokens are built for. It drops the start state
# of a piece where 16 tokens have decayed it by 2^-23.5, so a start state may not dwarf v.
@peer("cudnn.linear_attention.ops",
      prefill(KDA, (2, 2, 128, 128), ("bounded",), ("sigmoid",), ("rsqrt_sum_eps",), ("vk",),
              state=("f32", "bf16", None)),
      prefill(KDA, (1, 2, 128, 128), ("bounded",), ("sigmoid",), ("rsqrt_sum_eps",), ("vk",)),
      prefill(KDA, (2, 2, 128, 128), ("log",), ("direct",), ("none",), ("vk",)),
      limits=Limits(strongest=-5.0, state_over_v=1))
def cudnn_kda(module, call, x):
    v = call.variant
    named = {}
    if v["gate"] == "bounded":
        named = dict(safe_gate=True, gate_lower_bound=-5.0, a_log=x["A_log"], dt_bias=x["dt_bias"])
    o, state = module.kimi_delta_attention(
        x["q"], x["k"], x["v"], x.get("a", x.get("g")), x.get("b", x.get("beta")),
        x["cu_seqlens"].to(torch.int32), initial_state=x.get("initial_state"),
        output_final_state=True, use_qk_l2norm_in_kernel=v["norm"] != "none",
        use_beta_sigmoid_in_kernel=v["beta"] == "sigmoid", **named)[:2]
    return {"o": o, "final_state": state}


# ---- SGLang's Triton kernels, the copy in FlashInfer's benchmarks ------------------------------

SGLANG = dict(scale=128 ** -0.5, l2_eps=1e-8)


def sglang_arguments(call, x):
    return dict(A_log=x["A_log"], a=x["a"], dt_bias=x["dt_bias"], b=x["b"], q=x["q"], k=x["k"],
                v=x["v"], scale=SGLANG["scale"], output=torch.full_like(x["v"], float("nan")))


@peer("gdn_triton_reference", rows(GDN, (2, 4, 128, 128), (1,), ("kv", "vk"), ("f32",), **SGLANG),
      limits=Limits(rows=(1, 3)))
def sglang_decode(module, call, x):
    function = module.triton_gdn_decode
    if call.variant["layout"] == "vk":
        function = module.triton_gdn_decode_pretranspose
    o, state = function(state=x["initial_state"], **sglang_arguments(call, x))
    return {"o": o, "final_state": state}


@peer("gdn_triton_reference",
      mtp(GDN, (2, 4, 128, 128), (2, 4), "f32", kept=True, **SGLANG),
      mtp(GDN, (2, 4, 128, 128), (3,), "f32", kept=False, **SGLANG),
      limits=Limits(rows=(1, 3)))
def sglang_mtp(module, call, x):
    pool, slots = x["initial_state"], x["state_indices"].long()
    kept = None
    if call.variant["kept"]:  # its rows are those of the pool; the capture's are those of the call
        kept = torch.full((len(pool), x["q"].shape[1], *pool.shape[1:]), float("nan"),
                          device=pool.device)
    o, state = module.triton_gdn_mtp(
        initial_state=pool, initial_state_indices=x["state_indices"],
        intermediate_states_buffer=kept, disable_state_update=bool(call.variant["disable"]),
        **sglang_arguments(call, x))
    return with_kept(o, state, None if kept is None else kept[slots])


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


class OwnLibrary:
    """libgoldenrule_gpu.so through ctypes; the structures are those of bench_gpu/peer.py."""

    TYPES = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3, torch.int64: 4, torch.int32: 5}

    def __init__(self):
        import peer as structures

        from goldenrule_capture import CONVENTION, OPS
        self.structures, self.names, self.ops = structures, CONVENTION, OPS
        self.library = ctypes.CDLL(os.environ["GOLDENRULE_GPU_LIBRARY"])
        self.checked("goldenrule_gpu_initialize")

    def checked(self, function, *arguments):
        message = ctypes.create_string_buffer(256)
        if getattr(self.library, function)(*arguments, message, ctypes.c_size_t(256)):
            raise RuntimeError(f"{function}: {message.value.decode()}")

    def run(self, call, tensors):
        args = self.structures.Args()
        self.library.goldenrule_gpu_recurrent_defaults(
            ctypes.byref(args), ctypes.c_size_t(ctypes.sizeof(args)))
        convention = call.convention
        args.op = self.ops.index(call.op)
        for field, name in (("state_layout", "state_layout"), ("gate_kind", "gate"),
                            ("beta_kind", "beta"), ("qk_norm", "qk_l2norm")):
            setattr(args, field, self.names[name].index(convention[name]))
        args.scale = scale_of(call)
        args.l2_eps = convention.get("l2_eps", 1e-6)
        args.lower_bound = convention.get("lower_bound", -5.0)
        args.disable_state_update = convention.get("disable_state_update", 0)
        args.B, args.T = tensors["q"].shape[:2]
        args.H, args.HV, args.K, args.V = call.variant["shape"]
        args.slots, args.intermediate_rows = len(tensors["state"]), args.T
        for name, tensor in tensors.items():
            setattr(args, name, self.structures.Tensor(data=tensor.data_ptr(),
                                                       dtype=self.TYPES[tensor.dtype],
                                                       dense=1))
        args.stream = torch.cuda.current_stream().cuda_stream
        self.checked("goldenrule_gpu_recurrent", ctypes.byref(args))


@peer("", own(GDN), share=2.0)
def goldenrule_gdn(module, call, x):
    pool = x["initial_state"]
    tensors = {"state": pool, "o": torch.full_like(x["v"], float("nan"))}
    renamed = {"a": "gate", "g": "gate", "b": "beta", "initial_state": "state"}
    tensors.update({renamed.get(name, name): tensor for name, tensor in x.items()})
    kept = room_for_kept(call, x)
    if kept is not None:
        tensors["intermediate_states"] = kept
    module.run(call, tensors)
    return with_kept(tensors["o"], pool, kept)


@peer("", own(KDA), share=2.0)
def goldenrule_kda(module, call, x):
    return goldenrule_gdn(module, call, x)


# ---- functions of torch that need no GPU -------------------------------------------------------


def by_sequence(function, x):
    """Runs a function that knows no packed sequences once for each; heads of q and k repeated."""
    starts = x["cu_seqlens"].tolist()
    repeat = x["v"].shape[1] // x["q"].shape[1]
    wide = {**x, "q": x["q"].repeat_interleave(repeat, 1), "k": x["k"].repeat_interleave(repeat, 1)}
    outputs, states = [], []
    for n, (begin, end) in enumerate(zip(starts, starts[1:])):
        q, k, v, g, beta = batched({name: tensor[begin:end] for name, tensor in wide.items()},
                                   "q", "k", "v", "g", "beta")
        initial = x["initial_state"][n:n + 1] if "initial_state" in x else None
        o, state = function(q, k, v, g=g, beta=beta, initial_state=initial, output_final_state=True)
        outputs.append(o.squeeze(0))
        states.append(state)
    return {"o": torch.cat(outputs), "final_state": torch.cat(states)}


# The recurrent functions declare recurrent_f32. The chunk functions, fp32 throughout, declare
# nothing and are judged as a user's capture is.
CPU = dict(gate=("log",), beta=("direct",), layout=("kv",))
CPU_LIMITS = Limits(tokens=160)


@peer("fla.ops.gated_delta_rule.naive",
      prefill(GDN, (1, 2, 64, 32), norm=("none",), io=("f32", "bf16"), contract="recurrent_f32",
              **CPU), gpu=False, limits=CPU_LIMITS, share=0.25)
def naive_gdn(module, call, x):
    outputs = by_sequence(module.naive_recurrent_gated_delta_rule, x)
    return {**outputs, "o": outputs["o"].to(x["v"].dtype)}


@peer("fla.ops.gated_delta_rule.naive",
      prefill(GDN, (1, 2, 64, 32), norm=("none",), io=("f32", "bf16"), **CPU),
      gpu=False, limits=CPU_LIMITS, share=0.25)
def naive_chunk_gdn(module, call, x):
    outputs = by_sequence(module.naive_chunk_gated_delta_rule, x)
    return {**outputs, "o": outputs["o"].to(x["v"].dtype)}


@peer("fla.ops.kda.naive",
      prefill(KDA, (1, 2, 64, 32), norm=("none",), io=("f32", "bf16"), contract="recurrent_f32",
              **CPU), gpu=False, limits=CPU_LIMITS, share=0.25)
def naive_kda(module, call, x):
    return by_sequence(module.naive_recurrent_kda, x)


@peer("fla.ops.kda.naive", prefill(KDA, (1, 2, 64, 32), norm=("none",), io=("f32", "bf16"), **CPU),
      gpu=False, limits=Limits(tokens=192, multiple=64), share=0.25)
def naive_chunk_kda(module, call, x):
    return by_sequence(module.naive_chunk_kda, x)


HF = prefill(GDN, (1, 2, 64, 32), norm=("none", "rsqrt_sum_eps"), io=("f32",), **CPU)


def hugging_face(function, call, x):
    """The function itself: where fla can be imported the name leads to fla's kernels."""
    norm = call.variant["norm"] != "none"
    function = functools.partial(getattr(function, "__wrapped__", function),
                                 use_qk_l2norm_in_kernel=norm)
    return by_sequence(function, x)


@peer("transformers.models.qwen3_next.modeling_qwen3_next",
      [{**v, "contract": "recurrent_f32"} for v in HF], gpu=False, limits=CPU_LIMITS,
      share=0.25)
def transformers_gdn(module, call, x):
    return hugging_face(module.torch_recurrent_gated_delta_rule, call, x)


@peer("transformers.models.qwen3_next.modeling_qwen3_next", HF, gpu=False, limits=CPU_LIMITS,
      share=0.25)
def transformers_chunk_gdn(module, call, x):
    return hugging_face(module.torch_chunk_gated_delta_rule, call, x)


@peer("transformers.models.kimi_linear.modeling_kimi_linear",
      [{**v, "op": KDA, "contract": "recurrent_f32"} for v in HF], gpu=False, limits=CPU_LIMITS,
      share=0.25)
def transformers_kda(module, call, x):
    return hugging_face(module.recurrent_kimi_delta_attention, call, x)


@peer("transformers.models.kimi_linear.modeling_kimi_linear", [{**v, "op": KDA} for v in HF],
      gpu=False, limits=CPU_LIMITS, share=0.25)
def transformers_chunk_kda(module, call, x):
    return hugging_face(module.chunk_kimi_delta_attention, call, x)
