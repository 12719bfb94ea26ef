# SPDX-License-Identifier: Apache-2.0
"""The calls of public decode and prefill kernels in the benchmarks, on functions in their place that note what
they are called with. Whether a kernel takes it is seen on a GPU alone."""

import importlib
import sys
import types
from pathlib import Path

import numpy as np
import pytest

TOOLS = Path(__file__).resolve().parents[3] / "tools"
SGLANG = ("sglang.kernels.ops.attention.linear.fused_sigmoid_gating_recurrent."
          "fused_sigmoid_gating_delta_rule_update")
FLASHINFER = "flashinfer.gdn_decode.gated_delta_rule_"
B, H, HV, K, V = 2, 1, 2, 128, 128


@pytest.fixture
def module(monkeypatch):
    """A module of tools/bench_gpu by its name."""
    monkeypatch.setattr(sys, "path", [str(TOOLS / "bench_gpu"), *sys.path])
    yield importlib.import_module
    for name in ("peer", "peer_kernels", "peer_prefill", "public", "own"):
        sys.modules.pop(name, None)


@pytest.fixture
def calls(monkeypatch):
    """[(function, arguments)] of what is called; every module of a row is there."""
    seen = []

    def noting(function):
        def call(**arguments):
            seen.append((function, arguments))
            return arguments["v"] if function == SGLANG else (arguments["v"], "state")
        return call

    for function in (SGLANG, *(FLASHINFER + name for name in ("decode", "decode_pretranspose", "mtp")),
                     "flashinfer.kda.recurrent_kda", "flashinfer.gdn_prefill.chunk_gated_delta_rule",
                     "fla.ops.gated_delta_rule.fused_recurrent.fused_recurrent_gated_delta_rule",
                     "fla.ops.kda.fused_recurrent.fused_recurrent_kda", "gdn_triton_reference.triton_gdn_mtp",
                     "gdn_triton_reference.triton_gdn_decode",
                     "gdn_triton_reference.triton_gdn_decode_pretranspose"):
        name, _, attribute = function.rpartition(".")
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            known = ".".join(parts[:end])
            if known not in sys.modules:
                monkeypatch.setitem(sys.modules, known, types.ModuleType(known))
        monkeypatch.setattr(sys.modules[name], attribute, noting(function), raising=False)
    return seen


def decode(op="gated_delta_rule", T=1, kv=False, bf16=False, update=True, intermediates=False):
    rng = np.random.default_rng(1)
    channels, heads = ((K,), HV) if op == "kda" else ((), H)
    case = types.SimpleNamespace(
        op=op, T=T, kv=kv, bf16=bf16, update=update, intermediates=intermediates,
        A_log=rng.normal(size=HV), dt_bias=rng.normal(size=(HV, *channels)), indices=np.arange(B))
    x = {"q": (B, T, heads, K), "k": (B, T, heads, K), "v": (B, T, HV, V), "gate": (B, T, HV, *channels),
         "beta": (B, T, HV), "state": (B, HV, V, K), "o": (B, T, HV, V)}
    x = {name: rng.normal(size=shape) for name, shape in x.items()}
    kept = rng.normal(size=(B, T, HV, V, K)) if intermediates else None
    return case, {**x, "intermediates": kept, "ready": {}}


RAW = {"q": "q", "k": "k", "v": "v", "a": "gate", "b": "beta"}
FLA_RAW = {"q": "q", "k": "k", "v": "v", "g": "gate", "beta": "beta", "initial_state": "state"}
POOL = {"initial_state": "state", "output": "o"}


@pytest.mark.parametrize("peer, options, function, tensors, others", [
    ("flashinfer", {}, FLASHINFER + "decode_pretranspose", {**RAW, "state": "state", "output": "o"},
     {"initial_state": None, "use_qk_l2norm": True}),
    ("flashinfer", {"bf16": True}, FLASHINFER + "decode_pretranspose", {**RAW, **POOL},
     {"state": None, "initial_state_indices": [0, 1]}),
    ("flashinfer", {"kv": True}, FLASHINFER + "decode", {**RAW, "state": "state", "output": "o"}, {}),
    ("flashinfer", {"T": 4, "update": False, "intermediates": True}, FLASHINFER + "mtp",
     {**RAW, **POOL, "intermediate_states_buffer": "intermediates"}, {"disable_state_update": True}),
    ("flashinfer", {"T": 4}, FLASHINFER + "mtp", {**RAW, **POOL}, {"disable_state_update": False}),
    ("flashinfer", {"op": "kda", "bf16": True}, "flashinfer.kda.recurrent_kda",
     {**FLA_RAW, "output": "o"}, {"beta_is_logit": True, "use_gate_in_kernel": True}),
    ("fla", {"op": "kda"}, "fla.ops.kda.fused_recurrent.fused_recurrent_kda", FLA_RAW,
     {"state_v_first": True, "use_gate_in_kernel": True, "use_beta_sigmoid_in_kernel": True,
      "output_final_state": True, "use_qk_l2norm_in_kernel": True}),
    ("fla", {"kv": True}, "fla.ops.gated_delta_rule.fused_recurrent.fused_recurrent_gated_delta_rule",
     FLA_RAW, {"use_gate_in_kernel": True}),
    ("sglang", {"op": "kda", "T": 4, "intermediates": True, "update": False}, SGLANG,
     {**RAW, "initial_state_source": "state", "intermediate_states_buffer": "intermediates"},
     {"is_kda": True, "disable_state_update": True, "cache_steps": 4, "softplus_beta": 1.0,
      "softplus_threshold": 20.0, "initial_state_indices": [0, 1], "intermediate_state_indices": [0, 1]}),
    ("gdn_triton_reference", {"kv": True}, "gdn_triton_reference.triton_gdn_decode",
     {**RAW, "state": "state", "output": "o"}, {}),
    ("gdn_triton_reference", {"T": 2}, "gdn_triton_reference.triton_gdn_mtp", {**RAW, **POOL},
     {"disable_state_update": False, "intermediate_states_buffer": None}),
])
def test_a_decode_kernel_is_called_as_its_library_wants(module, calls, peer, options, function, tensors,
                                                        others):
    launch = module("peer_kernels").PEERS[peer]()
    case, x = decode(**options)
    assert launch(case, x) is launch(case, x) is x["v"]
    (called, given), again = calls
    assert called == function and again == (called, given)
    for parameter, name in tensors.items():
        assert given[parameter] is x[name], parameter
    for name, value in others.items():
        assert np.array_equal(given[name], value), name
    assert given["scale"] == K**-0.5 and given["A_log"] is case.A_log
    np.testing.assert_array_equal(given["dt_bias"].reshape(-1), case.dt_bias.reshape(-1))
    flat = function.split(".")[0] in ("fla", "sglang") or "kda" in function
    assert given["dt_bias"].ndim == (1 if flat else case.dt_bias.ndim)


@pytest.mark.parametrize("peer, options", [
    ("fla", {"update": False}), ("sglang", {"kv": True}), ("flashinfer", {"op": "kda", "bf16": True, "T": 2}),
    ("flashinfer", {"kv": True, "bf16": True}), ("gdn_triton_reference", {"op": "kda"})])
def test_a_row_that_a_kernel_lacks_is_no_call(module, calls, peer, options):
    case, x = decode(**options)
    assert module("peer_kernels").PEERS[peer]()(case, x) is None
    assert calls == []


def test_a_prefill_kernel_gets_gates_made_ready(module, calls):
    rng = np.random.default_rng(1)
    prefill = module("peer_prefill")
    launch, ops = prefill.PEERS["flashinfer"]()
    shapes = {"q": (7, H, K), "k": (7, H, K), "v": (7, HV, V), "gate": (7, HV), "beta": (7, HV),
              "write": (7, HV), "linear": (7, HV), "state": (2, HV, V, K), "o": (7, HV, V),
              "final_state": (2, HV, V, K)}
    x = {**{name: rng.normal(size=shape) for name, shape in shapes.items()}, "ready": {}}
    case = types.SimpleNamespace(op=prefill.GDN, lengths=(3, 4), cu=np.array([0, 3, 7]),
                                 prepared=lambda given: given)
    assert ops == (prefill.GDN,) and launch(case, x)[0] is x["v"]
    ((_, given),) = calls
    for parameter, name in {"g": "linear", "beta": "write", "output": "o", "output_state": "final_state",
                            "initial_state": "state", "q": "q"}.items():
        assert given[parameter] is x[name], parameter
    assert given["max_seqlen"] == 4 and given["output_final_state"] is True


def test_an_unknown_function_is_refused(module):
    with pytest.raises(ValueError, match="expected one of .*triton_gdn_mtp, actual fla.ops.unknown"):
        module("peer_kernels").public("fla.ops.unknown")
