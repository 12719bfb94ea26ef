# SPDX-License-Identifier: Apache-2.0
"""Gated DeltaNet in chunks of tokens in fp32, as a prefill kernel computes it, with what it has on the way."""

import numpy as np


def prefill(q, k, v, g, beta, state, cu_seqlens, chunk=64, inverse=np.linalg.inv):
    """q, k [T,H,K], v [T,HV,V], g (log alpha), beta [T,HV], state [N,HV,V,K]. Returns o, the new state
    and the stages."""
    group = v.shape[1] // q.shape[1]
    scale = np.float32(q.shape[-1] ** -0.5)
    q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + np.float32(1e-6)) for x in (q, k))
    o, state, h = np.zeros_like(v), state.copy(), []
    stages = dict(G=np.zeros_like(g), T=np.zeros((*g.shape, chunk), "f4"), u=np.zeros_like(v),
                  w=np.zeros((*g.shape, q.shape[-1]), "f4"), v_new=np.zeros_like(v))
    for n, (first, last) in enumerate(zip(cu_seqlens[:-1], cu_seqlens[1:])):
        for begin in range(first, last, chunk):
            t = slice(begin, min(begin + chunk, last))
            h.append(state[n].copy())
            for head in range(v.shape[1]):
                Q, K = (x[t, head // group] for x in (q, k))
                V, b, S = v[t, head], beta[t, head][:, None], state[n, head]
                G = np.cumsum(g[t, head], dtype=np.float32)
                D = np.tril(np.exp(np.minimum(G[:, None] - G, 0)))
                A = np.tril(b * D * (K @ K.T), -1)
                T = inverse(np.eye(len(A), dtype=np.float32) + A)
                w, u = T @ (b * K * np.exp(G)[:, None]), T @ (b * V)
                v_new = u - w @ S.T
                o[t, head] = scale * (np.exp(G)[:, None] * (Q @ S.T) + (D * (Q @ K.T)) @ v_new)
                state[n, head] = np.exp(G[-1]) * S + v_new.T @ (np.exp(G[-1] - G)[:, None] * K)
                stages["T"][t, head, :len(A)] = T
                for name, x in dict(G=G, w=w, u=u, v_new=v_new).items():
                    stages[name][t, head] = x
    return o, state, dict(stages, h=np.stack(h))
