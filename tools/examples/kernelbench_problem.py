# SPDX-License-Identifier: Apache-2.0
"""A problem in the form of KernelBench: a gated delta rule over fresh rows. GOLDENRULE says what Model computes, for
kernelbench_evaluator.py; KernelBench itself looks at Model, get_inputs and get_init_inputs."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS, HEADS, VALUE_HEADS, SIZE = 128, 2, 4, 64

GOLDENRULE = {"op": "gated_delta_rule", "mode": "prefill", "inputs": ["q", "k", "v", "a", "b"],
              "parameters": ["A_log", "dt_bias"], "outputs": ["o"],
              "convention": {"qk_l2norm": "rsqrt_sum_eps", "l2_eps": 1e-6, "gate": "softplus", "beta": "sigmoid",
                             "scale": SIZE ** -0.5}}


class Model(nn.Module):
    """o [B,T,HV,V] of q, k [B,T,H,K], v [B,T,HV,V] and gates a, b [B,T,HV], token by token."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.A_log = nn.Parameter(torch.zeros(heads))
        self.dt_bias = nn.Parameter(torch.zeros(heads))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, a: torch.Tensor, b: torch.Tensor
                ) -> torch.Tensor:
        kind = v.dtype
        q, k, v, a, b = (x.float() for x in (q, k, v, a, b))
        q, k = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
        q, k = (x.repeat_interleave(v.shape[2] // x.shape[2], dim=2) for x in (q, k))
        alpha = torch.exp(-torch.exp(self.A_log.float()) * F.softplus(a + self.dt_bias.float()))
        beta = torch.sigmoid(b)
        state = torch.zeros(len(v), v.shape[2], v.shape[3], k.shape[3], device=v.device)
        o = torch.empty_like(v)
        for t in range(v.shape[1]):
            state = state * alpha[:, t, :, None, None]
            u = beta[:, t, :, None] * (v[:, t] - torch.einsum("bhvk,bhk->bhv", state, k[:, t]))
            state = state + u[..., None] * k[:, t, :, None, :]
            o[:, t] = torch.einsum("bhvk,bhk->bhv", state, q[:, t]) * q.shape[-1] ** -0.5
        return o.to(kind)


def get_inputs() -> list[torch.Tensor]:
    shapes = [(HEADS, SIZE), (HEADS, SIZE), (VALUE_HEADS, SIZE), (VALUE_HEADS,), (VALUE_HEADS,)]
    return [torch.rand(1, TOKENS, *shape) for shape in shapes]


def get_init_inputs() -> list[int]:
    return [VALUE_HEADS]
