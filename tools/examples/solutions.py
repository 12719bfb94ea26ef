# SPDX-License-Identifier: Apache-2.0
"""A right solution of the gated delta rule and wrong ones, as benchmarks get them from their users.

One function in NumPy, fp32 inside, in which a mistake is one changed line. It is the solution that the adapters
beside it judge, and that let_through.py shows to the rules of public benchmarks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

CHUNK = 64
MISTAKES: Mapping[str, str] = {
    "": "a right solution",
    "zero_output": "the output is zeros, the state is right",
    "all_zeros": "every output is zeros",
    "no_delta_term": "beta v is stored without what the state holds for k already",
    "late_gate": "token t is decayed by the gate of token t-1, the first by none",
    "lost_state": f"each chunk of {CHUNK} tokens starts from zeros, and so does the first",
    "tiled_heads": "value head j reads query and key head j % H",
}


def row(q: np.ndarray, k: np.ndarray, v: np.ndarray, alpha: np.ndarray, beta: np.ndarray,
        state: np.ndarray, mistake: str = "") -> tuple[np.ndarray, np.ndarray]:
    """The tokens of one row: q, k [T,HV,K], v [T,HV,V], alpha, beta [T,HV], state [HV,V,K], fp32."""
    o = np.zeros_like(v)
    for t in range(len(q)):
        if mistake == "lost_state" and t % CHUNK == 0:
            state = np.zeros_like(state)
        gate = alpha[t]
        if mistake == "late_gate":
            gate = alpha[t - 1] if t else np.ones_like(gate)
        state = state * gate[:, None, None]
        known = np.zeros_like(v[t]) if mistake == "no_delta_term" else np.einsum("hvk,hk->hv", state, k[t])
        state = state + (beta[t, :, None] * (v[t] - known))[:, :, None] * k[t][:, None, :]
        o[t] = np.einsum("hvk,hk->hv", state, q[t])
    return o, state


def gates(A_log: np.ndarray, a: np.ndarray, dt_bias: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """alpha and beta of the raw parameters."""
    alpha = np.exp(-np.exp(A_log) * np.logaddexp(np.float32(0), a + dt_bias))
    return alpha.astype(np.float32), (1 / (1 + np.exp(-b))).astype(np.float32)


def run(inputs: Mapping[str, Any], *, scale: float, commits: bool = True, mistake: str = "") -> dict[str, np.ndarray]:
    """o and final_state [..,V,K] of a gated_delta_rule call with raw gates and q and k as they are, by its inputs.

    commits: whether the state after the last token goes back to where it came from.
    """
    if mistake not in MISTAKES:
        raise ValueError(f"mistake: expected one of {', '.join(MISTAKES)}, actual {mistake!r}")
    x = {name: np.asarray(value, np.float32) for name, value in inputs.items()}
    repeat = x["v"].shape[-2] // x["q"].shape[-2]
    spread = ((lambda y: np.concatenate([y] * repeat, axis=-2)) if mistake == "tiled_heads"
              else lambda y: np.repeat(y, repeat, axis=-2))
    alpha, beta = gates(x["A_log"], x["a"], x["dt_bias"], x["b"])
    tokens = spread(x["q"]) * np.float32(scale), spread(x["k"]), x["v"], alpha, beta
    rows: list[Any] = list(range(len(x["q"])))
    if "cu_seqlens" in inputs:
        bounds = [int(bound) for bound in inputs["cu_seqlens"]]
        rows = [slice(begin, end) for begin, end in zip(bounds, bounds[1:])]
    slots = inputs.get("state_indices", range(len(rows)))
    o, after = np.zeros_like(x["v"]), x["initial_state"].copy()
    for where, slot in zip(rows, slots):
        o[where], state = row(*(each[where] for each in tokens), x["initial_state"][slot], mistake)
        if commits:
            after[slot] = state
    if mistake in ("zero_output", "all_zeros"):
        o[...] = 0
    if mistake == "all_zeros":
        after[...] = 0
    return {"o": o.astype(inputs["v"].dtype), "final_state": after}
