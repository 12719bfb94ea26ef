# SPDX-License-Identifier: Apache-2.0
"""One step of the gated delta rule in fp32, as a kernel for decode computes it."""

import numpy as np


def decode(q, k, v, a, b, A_log, dt_bias, state):
    """q, k [B,H,K], v [B,HV,V], a, b [B,HV], state [B,HV,V,K]. Returns o and the new state."""
    q, k, v, a, b = (x.astype(np.float32) for x in (q, k, v, a, b))
    group = v.shape[1] // q.shape[1]
    q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + np.float32(1e-6)) for x in (q, k))
    q, k = (np.repeat(x, group, axis=1) for x in (q, k))
    alpha = np.exp(-np.exp(A_log) * np.logaddexp(np.float32(0), a + dt_bias))
    beta = 1 / (1 + np.exp(-b))
    state = state * alpha[..., None, None]
    delta = beta[..., None] * (v - np.einsum("bhvk,bhk->bhv", state, k))
    state = state + delta[..., None] * k[..., None, :]
    o = np.einsum("bhvk,bhk->bhv", state, q) * np.float32(q.shape[-1] ** -0.5)
    return o, state
