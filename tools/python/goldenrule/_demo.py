# SPDX-License-Identifier: Apache-2.0
"""One call of a decode kernel in NumPy, judged twice: as it is, and with a mistake that many have made."""

from __future__ import annotations

import time
from typing import Any

import ml_dtypes
import numpy as np

from ._cases import fixture

_LINE = "op=gdn mode=decode B=4 H=2 HV=4 K=128 V=128"


def _kernel(x: dict[str, Any], scale: float) -> dict[str, Any]:
    """One step of the gated delta rule in fp32: o [B,1,HV,V] in bf16, final_state [B,HV,V,K] in f32."""
    q, k, v, a, b = (x[name][:, 0].astype(np.float32) for name in ("q", "k", "v", "a", "b"))
    q, k = (y / np.sqrt((y * y).sum(-1, keepdims=True) + np.float32(1e-6)) for y in (q, k))
    q, k = (np.repeat(y, v.shape[1] // q.shape[1], axis=1) for y in (q, k))
    alpha = np.exp(-np.exp(x["A_log"]) * np.logaddexp(np.float32(0), a + x["dt_bias"]))
    state = x["initial_state"] * alpha[..., None, None]
    delta = (v - np.einsum("bhvk,bhk->bhv", state, k)) / (1 + np.exp(-b[..., None]))
    state = state + delta[..., None] * k[..., None, :]
    o = np.einsum("bhvk,bhk->bhv", state, q) * np.float32(scale)
    return {"o": o[:, None].astype(ml_dtypes.bfloat16), "final_state": state}


def demo() -> int:
    """Prints both reports. 0: the right kernel passed, and the mistake was found and named."""
    begin = time.perf_counter()
    case = fixture(_LINE)
    print(f"One call, whose inputs follow from this line: {_LINE}\n")
    print("1. A kernel in NumPy: each step in fp32, o rounded to bf16.\n")
    right = case.judge(_kernel(case.inputs, scale=128**-0.5))
    print(right, f"\n\nafter {time.perf_counter() - begin:.1f} s\n", sep="")
    print("2. The same kernel, which forgets to multiply q by K^-0.5.\n")
    wrong = case.judge(_kernel(case.inputs, scale=1.0))
    print(wrong, f"\n\nafter {time.perf_counter() - begin:.1f} s\n", sep="")
    print("Your own kernel: goldenrule.judge(..), @goldenrule.cases(..) in pytest, or `goldenrule check FILE`.")
    return 0 if right.passed and not wrong.passed and wrong.explanation else 1
