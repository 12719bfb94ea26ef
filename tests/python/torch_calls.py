# SPDX-License-Identifier: Apache-2.0
"""Calls for the tests of goldenrule.gradcheck, and functions in the places of kernels that need a GPU: of their
names and parameters, computing by torch_rule.py. Whether a row says the same as the kernel is seen on a GPU
alone."""

import sys
import types

import torch
import torch_rule as exact

import goldenrule
from goldenrule._rows import ROWS

IDEAL = dict(contract="ideal", backward_contract="ideal", explain=False)


def generator(seed):
    return torch.Generator().manual_seed(seed)


def packed(inputs):
    """[B,T,..] as [B*T,..] with cu_seqlens; states and parameters as they are."""
    B, T = inputs["q"].shape[:2]
    whole = ("A_log", "dt_bias", "initial_state")
    flat = {name: x if name in whole else x.reshape(B * T, *x.shape[2:]) for name, x in inputs.items()}
    return {**flat, "cu_seqlens": torch.arange(B + 1) * T}


def rule_of(convention):
    """function(**inputs) -> (o, final_state), of tokens that are packed or not."""
    def delta_rule(**inputs):
        rows = inputs["q"].ndim == 4
        o, state = exact.rule(packed(inputs) if rows else inputs, convention)
        return (o.reshape(inputs["v"].shape) if rows else o), state

    return delta_rule


def medium(kind=torch.float32, H=2, HV=4, B=2, T=5, K=8, V=6, seed=3):
    """(inputs, do, dfinal_state) of [B,T,..] under the default convention."""
    def normal(*shape):
        return torch.randn(shape, generator=made).to(kind)

    made = generator(seed)
    inputs = dict(q=normal(B, T, H, K), k=normal(B, T, H, K), v=normal(B, T, HV, V), a=normal(B, T, HV),
                  b=normal(B, T, HV), A_log=normal(HV), dt_bias=normal(HV), initial_state=normal(B, HV, V, K))
    return inputs, normal(B, T, HV, V), normal(B, HV, V, K)


def checked(function, inputs, do, dfinal_state=None, op="gated_delta_rule", convention=None, **options):
    return goldenrule.gradcheck(function, inputs, do, dfinal_state, op=op, convention=convention or {},
                                **{**IDEAL, **options})


def stand_in(function, compute):
    """A function of that name, with the parameters of its row; compute(arguments) gives what it returns."""
    module, _, name = function.rpartition(".")
    (row,) = [row for row in ROWS if row.function == function]
    defaults = dict(return_intermediate_states=False, use_graph=False, head_first=False)
    parameters = ["**kwargs" if p == "kwargs" else p if p in ("q", "k", "v") else f"{p}={defaults.get(p)}"
                  for p in row.parameters]
    lines = [f"def {name}({', '.join(parameters)}):", "    return compute(locals())"]
    scope = {"compute": compute}
    exec("\n".join(lines), scope)
    scope[name].__module__ = module
    sys.modules.setdefault(module, types.ModuleType(module))
    return scope[name]


def fla_kernel(arguments):
    """What chunk_kda and chunk_gated_delta_rule compute, by their flags; state [N,HV,K,V]."""
    arguments.update(arguments.pop("kwargs", {}))
    kda = arguments["g"].ndim == 4
    convention = dict(state_layout="kv", gate="log", beta="direct", l2_eps=1e-6, qk_l2norm="none")
    names = {name: name for name in ("q", "k", "v", "g", "beta", "initial_state")}
    if arguments.get("use_qk_l2norm_in_kernel"):
        convention["qk_l2norm"] = "rsqrt_sum_eps"
    if arguments.get("use_beta_sigmoid_in_kernel"):
        convention["beta"], names["beta"] = "sigmoid", "b"
    if arguments.get("use_gate_in_kernel"):
        convention["gate"] = "softplus" if arguments.get("lower_bound") is None else "bounded"
        convention["lower_bound"] = arguments.get("lower_bound") or -5.0
        names |= {"g": "a", "A_log": "A_log", "dt_bias": "dt_bias"}
    inputs = {name: arguments[parameter] for parameter, name in names.items()
              if arguments.get(parameter) is not None}
    if kda and "dt_bias" in inputs:
        inputs["dt_bias"] = inputs["dt_bias"].reshape(-1, inputs["k"].shape[-1])
    if arguments.get("cu_seqlens") is not None:
        flat = {name: x if name in ("A_log", "dt_bias", "initial_state") else x[0] for name, x in inputs.items()}
        o, state = exact.rule({**flat, "cu_seqlens": arguments["cu_seqlens"]}, convention)
        return o[None], state if arguments.get("output_final_state") else None
    o, state = rule_of(convention)(**inputs)
    return o, state if arguments.get("output_final_state") else None
