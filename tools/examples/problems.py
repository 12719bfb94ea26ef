# SPDX-License-Identifier: Apache-2.0
"""Calls whose inputs are drawn as public benchmarks draw theirs, at their sizes of heads and channels.

The gdn_ definitions of FlashInfer-Trace (which SOL-ExecBench runs too) come from its tests of references, before
they moved out of flashinfer-bench (commit ecafa9c2): heads 4 and 8, K = V = 128, one of their numbers of rows. KernelBench has no delta rule; its
level 3 draws the inputs of state-space layers from U(0,1) (problems 48 and 49, commit 423217d9), and so does the call
here. The generator is counter-based: the same numbers everywhere, not those of torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import goldenrule

H, HV, D = 4, 8, 128
_GDN = {"qk_l2norm": "none", "gate": "softplus", "beta": "sigmoid", "scale": D ** -0.5}


@dataclass(frozen=True)
class Problem:
    """A call, where its inputs are from, and which of its outputs a benchmark looks at."""

    says: str
    call: goldenrule.Call
    outputs: tuple[str, ...] = ("o", "final_state")

    @property
    def commits(self) -> bool:
        return not self.call.convention.get("disable_state_update")


class _Draw:
    """Random numbers that follow from a name."""

    def __init__(self, name: str) -> None:
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
        self._from = np.random.Generator(np.random.Philox(key=key))

    def normal(self, *shape: int, times: float = 1.0, dtype: Any = np.float32) -> np.ndarray:
        """N(0,1) in the type, times a number in the type."""
        drawn = self._from.standard_normal(shape, np.float32).astype(dtype)
        return (drawn.astype(np.float32) * np.float32(times)).astype(dtype)

    def uniform(self, *shape: int) -> np.ndarray:
        return self._from.random(shape, np.float32)


def _unit(k: np.ndarray) -> np.ndarray:
    long = k.astype(np.float32)
    return (long / np.linalg.norm(long, axis=-1, keepdims=True)).astype(k.dtype)


def _tokens(draw: _Draw, shape: tuple[int, ...], q: float, k: float, v: float, gate: float, beta: float,
            heads: float) -> dict[str, np.ndarray]:
    """Inputs of tokens in bf16, and of heads in fp32, as N(0,1) times these numbers."""
    bf16 = ml_dtypes.bfloat16
    return {"q": draw.normal(*shape, H, D, times=q, dtype=bf16),
            "k": _unit(draw.normal(*shape, H, D, times=k, dtype=bf16)),
            "v": draw.normal(*shape, HV, D, times=v, dtype=bf16),
            "a": draw.normal(*shape, HV, times=gate, dtype=bf16),
            "b": draw.normal(*shape, HV, times=beta, dtype=bf16),
            "A_log": draw.normal(HV, times=heads), "dt_bias": draw.normal(HV, times=heads)}


def _decode(draw: _Draw) -> Problem:
    inputs = _tokens(draw, (1, 1), q=.8, k=.8, v=.8, gate=.05, beta=.1, heads=.05)
    inputs["initial_state"] = draw.normal(1, HV, D, D, times=.01)
    return Problem("gdn_decode_qk4_v8_d128_k_last, B=1: q, v ~ .8 N(0,1), state ~ .01 N(0,1)",
                   goldenrule.Call("gated_delta_rule", "decode", dict(_GDN), inputs))


def _mtp(draw: _Draw) -> Problem:
    inputs = _tokens(draw, (1, 4), q=.1, k=.1, v=.1, gate=.05, beta=.1, heads=.05)
    inputs |= {"initial_state": draw.normal(1, HV, D, D, times=.01),
               "state_indices": np.zeros(1, np.int32)}
    return Problem("gdn_mtp_qk4_v8_d128_k_last, B=1, T=4, the pool stays: q, v ~ .1 N(0,1), state ~ .01 N(0,1)",
                   goldenrule.Call("gated_delta_rule", "mtp", {**_GDN, "disable_state_update": 1}, inputs))


def _prefill(draw: _Draw) -> Problem:
    inputs = _tokens(draw, (128,), q=1, k=1, v=1, gate=1, beta=1, heads=.1)
    inputs |= {"initial_state": np.zeros((1, HV, D, D), np.float32), "cu_seqlens": np.array([0, 128], np.int64)}
    return Problem("gdn_prefill_qk4_v8_d128_k_last, 128 tokens: q, v, a, b ~ N(0,1), state 0",
                   goldenrule.Call("gated_delta_rule", "prefill", dict(_GDN), inputs))


def _kernelbench(draw: _Draw, dtype: Any, says: str) -> Problem:
    """As kernelbench_problem.py, with keys and queries that are normalised before."""
    tokens, heads, value_heads, d = 128, 2, 4, 64
    inputs = {"q": draw.uniform(tokens, heads, d), "k": draw.uniform(tokens, heads, d),
              "v": draw.uniform(tokens, value_heads, d), "a": draw.uniform(tokens, value_heads),
              "b": draw.uniform(tokens, value_heads)}
    inputs |= {name: _unit(inputs[name]) for name in ("q", "k")}
    inputs = {name: value.astype(dtype) for name, value in inputs.items()}
    inputs |= {"A_log": np.zeros(value_heads, np.float32), "dt_bias": np.zeros(value_heads, np.float32),
               "initial_state": np.zeros((1, value_heads, d, d), np.float32),
               "cu_seqlens": np.array([0, tokens], np.int64)}
    return Problem(f"kernelbench_problem.py in {says}, 128 tokens, heads 2 and 4, K = V = 64: all ~ U(0,1)",
                   goldenrule.Call("gated_delta_rule", "prefill", {**_GDN, "scale": d ** -0.5}, inputs), ("o",))


def problems() -> Mapping[str, Problem]:
    """All of them by name, made anew."""
    made = {"decode": _decode, "mtp": _mtp, "prefill": _prefill,
            "fp32": lambda draw: _kernelbench(draw, np.float32, "fp32"),
            "bf16": lambda draw: _kernelbench(draw, ml_dtypes.bfloat16, "bf16")}
    return {name: make(_Draw(name)) for name, make in made.items()}
