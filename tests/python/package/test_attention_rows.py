# SPDX-License-Identifier: Apache-2.0
"""The rows of the recorder for softmax attention: torch's function itself on the CPU (skipped without
torch), honest and with mistakes that must be named, and FlashInfer's wrapper on one in its place."""

import sys
import types

import ml_dtypes
import numpy as np
import pytest
import stand_ins

import goldenrule

PAGED = "flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper.run"
DECODE = "flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper.run"


def tensors(dtype, B=2, HV=4, H=2, T=24, S=24, K=32):
    torch = pytest.importorskip("torch")
    from torch.nn import functional

    generator = torch.Generator().manual_seed(7)
    shapes = (B, HV, T, K), (B, H, S, K), (B, H, S, K)
    made = [torch.randn(shape, generator=generator).to(getattr(torch, dtype)) for shape in shapes]
    return torch, functional, made


def causal_mask(torch, T, S, window=None):
    distance = torch.arange(T)[:, None] + (S - T) - torch.arange(S)[None, :]
    return (distance >= 0) & (distance <= (window if window is not None else S))


def kinds(torch, T, S):
    """What a call may ask for, and the convention that it is."""
    holes = torch.ones(T, S, dtype=torch.bool)
    holes[:, :3] = False
    return {
        "full": ({}, {}), "causal": (dict(is_causal=True), {"mask": "causal"}),
        "scale": (dict(scale=0.5), {"scale": 0.5}),
        "window": (dict(attn_mask=causal_mask(torch, T, S, 5)), {"mask": "causal", "window_left": 5}),
        "prefix": (dict(attn_mask=causal_mask(torch, T, S)[None, None]), {"mask": "causal"}),
        "padding": (dict(attn_mask=holes), {}),
    }


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("S", [24, 40])
@pytest.mark.parametrize("kind", ["full", "causal", "scale", "window", "prefix", "padding"])
def test_torch_passes_on_the_cpu(dtype, S, kind):
    torch, functional, (q, k, v) = tensors(dtype, S=S)
    asked, convention = kinds(torch, 24, S)[kind]
    with goldenrule.record(functional.scaled_dot_product_attention) as calls:
        functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, **asked)
    (seen,) = calls
    assert seen.report.passed, str(seen.report)
    assert convention.items() <= seen.call.convention.items()
    assert functional.scaled_dot_product_attention is torch._C._nn.scaled_dot_product_attention


def wrong(name, real):
    """A function of torch's name and parameters that makes a mistake."""
    def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False,
                                     scale=None, enable_gqa=False):
        if name == "window_off_by_one":  # of a full window the oldest key is hidden
            full = attn_mask.sum(-1) == attn_mask.sum(-1).max()
            oldest = attn_mask.int().argmax(-1, keepdim=True)
            attn_mask = attn_mask.scatter(-1, oldest, ~full[:, None])
        if name == "context_short":
            key, value = key[:, :, :-1], value[:, :, :-1]
        if name == "scale_default":
            scale = None
        if name == "kv_head_tiled":
            repeats = query.shape[1] // key.shape[1]
            key, value = key.repeat(1, repeats, 1, 1), value.repeat(1, repeats, 1, 1)
        return real(query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
                    enable_gqa=enable_gqa)

    scaled_dot_product_attention.__module__ = "torch._C._nn"
    scaled_dot_product_attention.__qualname__ = "scaled_dot_product_attention"
    return scaled_dot_product_attention


@pytest.mark.parametrize("name, kind", [("window_off_by_one", "window"), ("context_short", "full"),
                                        ("scale_default", "scale"), ("kv_head_tiled", "causal")])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_mistake_around_torch_is_named(monkeypatch, name, kind, dtype):
    torch, functional, (q, k, v) = tensors(dtype)
    asked, _ = kinds(torch, 24, 24)[kind]
    made = wrong(name, functional.scaled_dot_product_attention)
    monkeypatch.setattr(functional, "scaled_dot_product_attention", made)
    with goldenrule.record(made) as calls:
        functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, **asked)
    (seen,) = calls
    assert seen.report.verdict == "OUT_OF_BUDGET" and not calls.passed
    assert name in seen.report.explanation, str(seen.report)


def test_calls_of_torch_that_cannot_be_judged_are_refused_by_name():
    torch, functional, (q, k, v) = tensors("float32")
    holes = torch.ones(24, 24, dtype=torch.bool)
    holes[:, 5] = False
    hidden = torch.ones(24, 24, dtype=torch.bool)
    hidden[3] = False
    heads = torch.ones(2, 4, 24, 24, dtype=torch.bool)
    heads[:, 1, :, 0] = False
    for more, words in ((dict(attn_mask=torch.zeros(24, 24)), "attn_mask of torch.float32 is added"),
                        (dict(attn_mask=holes), "hides keys between"),
                        (dict(attn_mask=hidden), "hides all keys of a query"),
                        (dict(attn_mask=heads), "differs between heads"),
                        (dict(dropout_p=0.5), "dropout_p=0.5 is not in its row")):
        with pytest.raises(ValueError, match=f"not judged, because .*{words}"):
            with goldenrule.record(functional.scaled_dot_product_attention) as calls:
                functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, **more)
        assert not calls.passed
    with pytest.raises(ValueError, match="not judged, because .*batch, heads, tokens"):
        with goldenrule.record(functional.scaled_dot_product_attention):
            functional.scaled_dot_product_attention(q[0], k[0].repeat(2, 1, 1), v[0].repeat(2, 1, 1))


# ---- FlashInfer's wrapper, on a class in its place

CSR = "op=attention mode=decode block_kv=in_cache table=csr_last H=2 HV=4 K=32 V=16"
CASES = [f"{CSR} lens=4,5 ctx=33,64 page=16 pattern=L", f"{CSR} lens=4,4 ctx=33,70 mask=causal pattern=A",
         f"{CSR} lens=3 ctx=40 mask=causal window_left=7 kv_layout=hnd pattern=K",
         f"{CSR} lens=2,2 ctx=20,9 scale=0.5 soft_cap=30 lse_base=2 pattern=B",
         f"{CSR} lens=2,2 ctx=20,9 lse_base=2 lse_layout=ht pattern=A"]


def paged(monkeypatch, case, spoil=stand_ins.nothing, one_tensor=False, function=PAGED, plan=None,
          **run):
    """Records a call of a wrapper that was planned as the case says; returns what was recorded. plan:
    settings of the plan beside those of the case."""
    call = case.call()
    x, c = call.inputs, call.convention
    module_name, holder, _ = function.rsplit(".", 2)
    fields = dict(
        _paged_kv_indptr_buf=x["page_indptr"], _paged_kv_indices_buf=x["page_indices"],
        _paged_kv_last_page_len_buf=x["last_page_len"], _window_left=c.get("window_left", -1),
        _logits_soft_cap=c.get("soft_cap", 0.0), _sm_scale=c.get("scale"),
        _kv_layout=c.get("kv_layout", "nhd").upper(), _pos_encoding_mode="NONE", _jit_module=None)
    if function == PAGED:
        fields |= dict(_qo_indptr_buf=x["cu_seqlens_q"], _causal=c.get("mask") == "causal",
                       _custom_mask_buf=None)
    else:
        fields |= dict(_q_len_per_req=1)
    wrapper = type(holder, (), fields | (plan or {}))

    names = [p for p in stand_ins.row(function).parameters if p not in ("self", "args")]
    defaults = {"return_lse": False, "lse_base": "log2", "lse_layout": "NH"}
    parameters = ["self", "q", "paged_kv_cache", "*args",
                  *(f"{p}={defaults.get(p)!r}" for p in names[2:])]
    outputs = {n: e.golden.astype(np.float32) for n, e in case.expected().outputs.items()}
    outputs["o"] = outputs["o"].astype(ml_dtypes.bfloat16)
    spoil(outputs)
    scope = {"results": lambda given: ((outputs["o"], outputs["lse"]) if given["return_lse"]
                                       else outputs["o"])}
    exec(f"def run({', '.join(parameters)}):\n    return results(locals())", scope)
    module = types.ModuleType(module_name)
    scope["run"].__module__ = module_name
    scope["run"].__qualname__ = f"{holder}.run"
    wrapper.run = scope["run"]
    setattr(module, holder, wrapper)
    monkeypatch.setitem(sys.modules, module_name, module)
    cache = x["k_cache"], x["v_cache"]
    with goldenrule.record(wrapper.run) as calls:
        wrapper().run(x["q"], np.stack(cache, axis=1) if one_tensor else cache, **run)
    assert wrapper.run is scope["run"]
    return calls


@pytest.mark.parametrize("line", CASES)
def test_a_paged_call_is_the_call_of_the_schema(monkeypatch, line):
    case = goldenrule.fixture(line)
    asked = {}
    if "lse_base" in line:
        asked = dict(return_lse=True, lse_layout="HN" if "lse_layout=ht" in line else "NH")
    calls = paged(monkeypatch, case, **asked)
    (seen,) = calls
    assert seen.report.passed, str(seen.report)
    assert set(seen.report.tensors) == ({"o", "lse"} if asked else {"o"})
    found = seen.call.expected().outputs
    np.testing.assert_array_equal(found["o"].golden, case.expected().outputs["o"].golden)

    def spoil(outputs):
        outputs["o"][-1] += ml_dtypes.bfloat16(1.0)

    assert not paged(monkeypatch, case, spoil=spoil, **asked).passed


def test_pages_of_keys_and_values_may_be_one_tensor(monkeypatch):
    case = goldenrule.fixture(CASES[0])
    assert paged(monkeypatch, goldenrule.fixture(CASES[0].replace("V=16", "V=32")), one_tensor=True).passed
    with pytest.raises(ValueError, match="window_left=3 is not that of plan"):
        paged(monkeypatch, case, window_left=3)
    with pytest.raises(ValueError, match="sinks="):
        paged(monkeypatch, case, sinks=np.zeros(4))


def test_the_causal_flag_is_read_from_the_plan(monkeypatch):
    """A full kernel behind a plan that says causal."""
    full = goldenrule.fixture(CASES[1].replace(" mask=causal", ""))
    right = {n: e.golden for n, e in full.expected().outputs.items()}

    def swapped(outputs):
        outputs["o"] = right["o"].astype(ml_dtypes.bfloat16)

    calls = paged(monkeypatch, goldenrule.fixture(CASES[1]), spoil=swapped)
    assert calls.reports[0].verdict == "OUT_OF_BUDGET"
    assert "mask_none_in_segment" in calls.reports[0].explanation


ONE = f"{CSR} lens=1,1,1 ctx=33,64,1 page=16"


@pytest.mark.parametrize("line", [f"{ONE} pattern=L", f"{ONE} window_left=7 kv_layout=hnd pattern=A",
                                  f"{ONE} scale=0.5 soft_cap=30 lse_base=2 pattern=B"])
def test_a_decode_wrapper_has_one_query_for_each_request(monkeypatch, line):
    case = goldenrule.fixture(line)
    asked = dict(return_lse=True) if "lse_base" in line else {}
    (seen,) = paged(monkeypatch, case, function=DECODE, **asked)
    assert seen.report.passed, str(seen.report)
    assert set(seen.report.tensors) == ({"o", "lse"} if asked else {"o"})
    found = seen.call.expected().outputs["o"].golden
    np.testing.assert_array_equal(found, case.expected().outputs["o"].golden)

    def spoil(outputs):
        outputs["o"][-1] += ml_dtypes.bfloat16(1.0)

    assert not paged(monkeypatch, case, spoil=spoil, function=DECODE, **asked).passed


@pytest.mark.parametrize("plan, run, words", [
    (dict(_q_len_per_req=4), {}, "q_len_per_req=4 of plan"),
    ({}, dict(q_len_per_req=2), "q_len_per_req=2 is not in its row"),
    (dict(_pos_encoding_mode="ROPE_LLAMA"), {}, "ROPE_LLAMA changes q and k"),
    (dict(_jit_module=object()), {}, "jit_args"), ({}, dict(window_left=3), "is not that of plan"),
    ({}, dict(sinks=np.zeros((4, 4))), "sinks=a tensor of float64 .4, 4. is not in its row")])
def test_a_decode_call_that_cannot_be_judged_is_refused_by_name(monkeypatch, plan, run, words):
    with pytest.raises(ValueError, match=words):
        paged(monkeypatch, goldenrule.fixture(f"{ONE} pattern=L"), function=DECODE, plan=plan, **run)
