# SPDX-License-Identifier: Apache-2.0
"""Public decode and MTP kernels, called as peer.py's cases want them.

A function of PEERS takes what `import` of its module gave and returns launch(case, inputs), which returns
o, or None where the kernel has no such row. Every launch works on the tensors of `inputs` in place as
far as the kernel can: FLA returns states of its own, SGLang outputs of its own.
"""
import importlib

GDN, KDA = 0, 1
K = 128


def fla(_):
    """flash-linear-attention: keeps no intermediate states and cannot leave the state alone."""
    gdn = importlib.import_module("fla.ops.gated_delta_rule").fused_recurrent_gated_delta_rule
    kda = importlib.import_module("fla.ops.kda").fused_recurrent_kda

    def launch(case, x):
        if not case.update or case.intermediates:
            return None
        o, _ = (gdn if case.op == GDN else kda)(
            q=x["q"], k=x["k"], v=x["v"], g=x["gate"], beta=x["beta"], A_log=case.A_log,
            dt_bias=case.dt_bias if case.op == GDN else case.dt_bias.view(-1),
            scale=K**-0.5, initial_state=x["state"], output_final_state=True,
            use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
            use_beta_sigmoid_in_kernel=True, state_v_first=not case.kv)
        return o

    return launch


def sglang(module):
    """SGLang's own Triton kernel, [V,K]. On 9.0 and later it is launched with the attribute of dependent
    launch, waits at once and then triggers: its times are to be compared with dep."""
    kernel = module.fused_sigmoid_gating_delta_rule_update

    def launch(case, x):
        if case.kv:
            return None
        more = {}
        if case.intermediates:
            more = {"intermediate_states_buffer": x["intermediates"],
                    "intermediate_state_indices": case.indices, "cache_steps": case.T}
        return kernel(
            A_log=case.A_log, a=x["gate"], dt_bias=case.dt_bias.view(-1), softplus_beta=1.0,
            softplus_threshold=20.0, q=x["q"], k=x["k"], v=x["v"], b=x["beta"],
            initial_state_source=x["state"], initial_state_indices=case.indices, scale=K**-0.5,
            use_qk_l2norm_in_kernel=True, is_kda=case.op == KDA,
            disable_state_update=not case.update, **more)

    return launch


def gdn_triton_reference(module):
    """What FlashInfer's benchmarks carry as SGLang's kernels; fp32 or bf16 states, GDN."""

    def launch(case, x):
        if case.op == KDA:
            return None
        shared = dict(A_log=case.A_log, dt_bias=case.dt_bias, scale=K**-0.5, a=x["gate"],
                      b=x["beta"], q=x["q"], k=x["k"], v=x["v"], output=x["o"])
        if case.T > 1:
            if case.kv:
                return None
            return module.triton_gdn_mtp(
                initial_state=x["state"], initial_state_indices=case.indices,
                intermediate_states_buffer=x["intermediates"],
                disable_state_update=not case.update, **shared)[0]
        kernel = module.triton_gdn_decode if case.kv else module.triton_gdn_decode_pretranspose
        return kernel(state=x["state"], **shared)[0]

    return launch


def flashinfer(module):
    """GDN: fp32 states in both layouts (T > 1 in [V,K] alone), bf16 ones in [V,K], through slots. KDA:
    bf16 states, [V,K], T = 1; for more tokens it wants a slot for each of them."""
    recurrent_kda = importlib.import_module("flashinfer").recurrent_kda

    def kda(case, x):
        if case.kv or not case.bf16 or case.T > 1:
            return None
        return recurrent_kda(
            x["q"], x["k"], x["v"], x["gate"], x["beta"], A_log=case.A_log,
            dt_bias=case.dt_bias.view(-1), scale=K**-0.5, initial_state=x["state"],
            use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, output=x["o"],
            beta_is_logit=True)[0]

    def launch(case, x):
        if case.op == KDA:
            return kda(case, x)
        shared = dict(q=x["q"], k=x["k"], v=x["v"], A_log=case.A_log, a=x["gate"],
                      dt_bias=case.dt_bias, b=x["beta"], scale=K**-0.5, output=x["o"])
        slots = dict(initial_state=x["state"], initial_state_indices=case.indices)
        if case.kv:
            if case.T > 1 or case.bf16:
                return None
            return module.gated_delta_rule_decode(state=x["state"], **shared)[0]
        if case.T > 1:
            slots |= dict(intermediate_states_buffer=x["intermediates"],
                          disable_state_update=not case.update)
        if case.T > 1 and not case.bf16:
            return module.gated_delta_rule_mtp(**slots, **shared)[0]
        if not case.bf16:  # without slots it saves a look-up
            slots = {}
        return module.gated_delta_rule_decode_pretranspose(
            state=None if slots else x["state"], **slots, **shared)[0]

    return launch


PEERS = {
    "flashinfer": ("flashinfer.gdn_decode", flashinfer),
    "fla": ("fla", fla),
    "sglang": ("sglang.kernels.ops.attention.linear.fused_sigmoid_gating_recurrent", sglang),
    "gdn_triton_reference": ("gdn_triton_reference", gdn_triton_reference),
}
