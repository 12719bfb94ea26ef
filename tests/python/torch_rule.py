# SPDX-License-Identifier: Apache-2.0
"""The delta rule in torch, token by token, for autograd: every gate, beta, norm, layout and head map, written
from the specification. Computes in float64 and rounds o and the states once; so do the gradients that autograd
makes of it, as a cast to float64 hands them back in the type of its tensor."""

import torch

GATES = ("softplus", "bounded", "log", "log2", "linear", "none")
BETAS = ("sigmoid", "sigmoid2", "direct")
NORMS = ("none", "rsqrt_sum_eps", "max_norm_eps", "norm_plus_eps")
DEFAULTS = {"state_layout": "vk", "gate": "softplus", "softplus_beta": 1.0, "softplus_threshold": 20.0,
            "lower_bound": -5.0, "beta": "sigmoid", "qk_l2norm": "rsqrt_sum_eps", "l2_eps": 1e-6,
            "head_map": "grouped", "gate_head": "v"}


def normed(x, convention):
    """q or k after the norm of the convention, over the last axis."""
    kind, eps = convention["qk_l2norm"], convention["l2_eps"]
    if kind == "none":
        return x
    squares = (x * x).sum(-1, keepdim=True)
    if kind == "rsqrt_sum_eps":
        return x * torch.rsqrt(squares + eps)
    norm = squares.sqrt()
    return x / (norm.clamp_min(eps) if kind == "max_norm_eps" else norm + eps)


def decays(inputs, convention, heads):
    """alpha [total,HV] or [total,HV,K]; heads: the head of A_log and dt_bias of each value head."""
    gate = convention["gate"]
    if gate == "none":
        return None
    if gate in ("log", "log2", "linear"):
        g = inputs["g"]
        return {"log": torch.exp, "log2": torch.exp2, "linear": lambda x: x}[gate](g)
    x = inputs["a"]
    if "dt_bias" in inputs:
        x = x + inputs["dt_bias"][heads]
    amplitude = 1.0
    if "A_log" in inputs:
        amplitude = inputs["A_log"].exp()[heads]
        amplitude = amplitude[:, None] if x.ndim == 3 else amplitude
    if gate == "bounded":
        return (convention["lower_bound"] * torch.sigmoid(amplitude * x)).exp()
    return (-amplitude * torch.nn.functional.softplus(x, convention["softplus_beta"],
                                                      convention["softplus_threshold"])).exp()


def rule(inputs, convention):
    """(o, final_state) of inputs {name of the schema: tensor} of packed tokens, with cu_seqlens."""
    convention = {**DEFAULTS, **convention}
    kind, state_kind = inputs["v"].dtype, inputs.get("initial_state", inputs["v"]).dtype
    bounds = [int(n) for n in inputs["cu_seqlens"]]
    inputs = {name: x.double() for name, x in inputs.items() if name != "cu_seqlens" and x is not None}
    q, k, v = normed(inputs["q"], convention), normed(inputs["k"], convention), inputs["v"]
    (total, H, K), HV, V = q.shape, v.shape[1], v.shape[2]
    of_group = torch.arange(HV) % H if convention["head_map"] == "tiled" else torch.arange(HV) // (HV // H)
    q = q[:, of_group] * convention.get("scale", K ** -0.5)
    k = k[:, of_group]
    alpha = decays(inputs, convention, of_group if convention["gate_head"] == "qk" else torch.arange(HV))
    if alpha is not None and alpha.ndim == 2:
        alpha = alpha[:, :, None]
    beta = inputs["beta"] if convention["beta"] == "direct" else torch.sigmoid(inputs["b"])
    beta = 2 * beta if convention["beta"] == "sigmoid2" else beta
    rows, states = [], []
    for n, (begin, end) in enumerate(zip(bounds, bounds[1:])):
        state = inputs["initial_state"][n] if "initial_state" in inputs else v.new_zeros(HV, *(
            (V, K) if convention["state_layout"] == "vk" else (K, V)))
        state = state.transpose(-1, -2) if convention["state_layout"] == "vk" else state
        for t in range(begin, end):
            state = state if alpha is None else state * alpha[t][:, :, None]
            error = v[t] - torch.einsum("hkv,hk->hv", state, k[t])
            state = state + k[t][:, :, None] * (beta[t][:, None] * error)[:, None]
            rows.append(torch.einsum("hkv,hk->hv", state, q[t]))
        states.append(state.transpose(-1, -2) if convention["state_layout"] == "vk" else state)
    o = torch.stack(rows) if rows else v[:0] * 1
    return o.to(kind), torch.stack(states).to(state_kind)


def random_call(random, kda):
    """(inputs, convention, do, dfinal_state or None) in float64: a small call of random conventions."""
    def pick(of):
        return of[int(torch.randint(len(of), (), generator=random))]

    def normal(*shape):
        return torch.randn(shape, generator=random, dtype=torch.float64)

    convention = dict(gate=pick(GATES), beta=pick(BETAS), qk_l2norm=pick(NORMS), head_map=pick(("grouped", "tiled")),
                      state_layout=pick(("vk", "kv")), gate_head=pick(("v", "qk")), scale=pick((0.25, 1.0)),
                      l2_eps=pick((1e-6, 1e-2)), lower_bound=pick((-5.0, -1.0)),
                      softplus_threshold=pick((20.0, 0.5)), softplus_beta=pick((1.0, 2.0)))
    lengths = [pick((0, 1, 2, 5, 9)) for _ in range(pick((1, 2, 3)))] + [pick((1, 3))]
    # With a norm and K = 1 a gradient by q or k is the rest of a cancellation, which autograd has not.
    H, K, V = pick((1, 2)), pick((1 if convention["qk_l2norm"] == "none" else 2, 3, 8)), pick((1, 4, 5))
    HV = H * pick((1, 2, 3))
    total, N = sum(lengths), len(lengths)
    channels = (K,) if kda else ()
    of_parameters = HV if convention["gate_head"] == "v" else H
    state = (V, K) if convention["state_layout"] == "vk" else (K, V)
    inputs = dict(q=normal(total, H, K), k=normal(total, H, K), v=normal(total, HV, V),
                  cu_seqlens=torch.tensor([0, *lengths]).cumsum(0))
    if pick((True, False)):
        inputs["initial_state"] = normal(N, HV, *state)
    if convention["qk_l2norm"] == "none":  # |k|^2 of about 1, so that nothing grows with the tokens
        inputs["k"] = inputs["k"] * K ** -0.5
    gate = convention["gate"]
    if gate in ("softplus", "bounded"):
        inputs |= dict(a=normal(total, HV, *channels), A_log=0.3 * normal(of_parameters))
        if pick((True, False)):
            inputs["dt_bias"] = normal(of_parameters, *channels)
        if gate == "bounded" and pick((True, False)):
            del inputs["A_log"]
    elif gate != "none":
        g = -normal(total, HV, *channels).abs()
        inputs["g"] = g.exp() if gate == "linear" else g
    if convention["beta"] == "direct":
        inputs["beta"] = normal(total, HV).sigmoid()
    else:
        inputs["b"] = normal(total, HV)
    dfinal_state = normal(N, HV, *state) if pick((True, False, True)) else None
    return inputs, convention, normal(total, HV, V), dfinal_state
