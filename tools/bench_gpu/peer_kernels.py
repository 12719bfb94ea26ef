# SPDX-License-Identifier: Apache-2.0
"""Public decode and MTP kernels, called as peer.py's cases want them.

A function of PEERS imports its kernels and returns launch(case, inputs), which returns o, or None where the
kernel has no such row. How a kernel is called says its row (tools/peers/public.py). Every launch works on the
tensors of `inputs` in place as far as the kernel can: FLA returns states of its own, SGLang outputs of its
own.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))

from public import Call, public  # noqa: E402

GDN, KDA = "gated_delta_rule", "kda"
K = 128


def o_of(result):
    return result[0] if isinstance(result, tuple) else result


def launching(make, take=o_of):
    """launch(case, inputs): what `take` takes of the result of make(case, inputs), a call that is made ready
    once for a set of inputs, outside any time; None where `make` has none."""
    def launch(case, x):
        if make not in x["ready"]:
            x["ready"][make] = make(case, x)
        ready = x["ready"][make]
        return None if ready is None else take(ready())

    return launch


def call_of(case, x, slots=False, **more):
    """The row in the words of the schema; `more`: other inputs."""
    convention = {"state_layout": "kv" if case.kv else "vk", "gate": "softplus", "beta": "sigmoid",
                  "qk_l2norm": "rsqrt_sum_eps", "scale": K**-0.5,
                  "disable_state_update": int(not case.update)}
    inputs = {"q": x["q"], "k": x["k"], "v": x["v"], "a": x["gate"], "b": x["beta"],
              "A_log": case.A_log, "dt_bias": case.dt_bias, "initial_state": x["state"], **more}
    if slots:
        inputs["state_indices"] = case.indices
    return Call(case.op, convention, inputs)


def fla():
    """flash-linear-attention: keeps no intermediate states and cannot leave the state alone."""
    kernels = {
        GDN: public("fla.ops.gated_delta_rule.fused_recurrent.fused_recurrent_gated_delta_rule"),
        KDA: public("fla.ops.kda.fused_recurrent.fused_recurrent_kda")}

    def make(case, x):
        if not case.update or case.intermediates:
            return None
        return kernels[case.op].prepared(call_of(case, x))

    return launching(make)


def sglang():
    """SGLang's own Triton kernel, [V,K]. On 9.0 and later it is launched with the attribute of dependent
    launch, waits at once and then triggers: its times are to be compared with dep."""
    kernel = public("sglang.kernels.ops.attention.linear.fused_sigmoid_gating_recurrent."
                    "fused_sigmoid_gating_delta_rule_update")

    def make(case, x):
        if case.kv:
            return None
        if not case.intermediates:
            return kernel.prepared(call_of(case, x, slots=True))
        buffer = {"initial_intermediate_states": x["intermediates"],
                  "intermediate_state_indices": case.indices}
        return kernel.prepared(call_of(case, x, slots=True, **buffer), cache_steps=case.T)

    return launching(make)


def gdn_triton_reference():
    """What FlashInfer's benchmarks carry as SGLang's kernels; fp32 or bf16 states, GDN."""
    module = "gdn_triton_reference."
    mtp, decode = public(module + "triton_gdn_mtp"), {
        True: public(module + "triton_gdn_decode"),
        False: public(module + "triton_gdn_decode_pretranspose")}

    def make(case, x):
        if case.op == KDA or (case.T > 1 and case.kv):
            return None
        call, room = call_of(case, x, slots=case.T > 1), {"o": x["o"]}
        call.convention["l2_eps"] = 1e-8
        if case.T > 1:
            return mtp.prepared(call, room={**room, "intermediate_states": x["intermediates"]})
        return decode[case.kv].prepared(call, room=room)

    return launching(make)


def flashinfer():
    """GDN: fp32 states in both layouts (T > 1 in [V,K] alone), bf16 ones in [V,K], through slots. KDA:
    bf16 states, [V,K], T = 1; for more tokens it wants a slot for each of them."""
    module = "flashinfer.gdn_decode.gated_delta_rule_"
    decode_kv, decode_vk = public(module + "decode"), public(module + "decode_pretranspose")
    mtp, kda = public(module + "mtp"), public("flashinfer.kda.recurrent_kda")

    def make(case, x):
        room = {"o": x["o"]}
        if case.op == KDA:
            if case.kv or not case.bf16 or case.T > 1:
                return None
            return kda.prepared(call_of(case, x), room=room, wants=())
        if case.kv:
            if case.T > 1 or case.bf16:
                return None
            return decode_kv.prepared(call_of(case, x), room=room)
        if case.T > 1:
            room["intermediate_states"] = x["intermediates"]
        # One token on fp32 states without slots saves a look-up.
        kernel = mtp if case.T > 1 and not case.bf16 else decode_vk
        return kernel.prepared(call_of(case, x, slots=case.T > 1 or case.bf16), room=room)

    return launching(make)


PEERS = {"flashinfer": flashinfer, "fla": fla, "sglang": sglang,
         "gdn_triton_reference": gdn_triton_reference}
