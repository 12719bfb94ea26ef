# SPDX-License-Identifier: Apache-2.0
"""The rows of the recorder for FlashAttention 2 and 3, on modules in their place: their functions have
the names, the order and the defaults of flash-attn 2.8.3 and of FlashAttention 3 (hopper/
flash_attn_interface.py, 01afd16), return their shapes, and compute by what the library expects of a
case. Whether a row says the same as the kernel is seen on a GPU alone."""

import sys
import types
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import stand_ins

import goldenrule

SIGNATURES = {
    "flash_attn.flash_attn_interface.flash_attn_with_kvcache":
        "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
        "cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, "
        "window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0, "
        "return_softmax_lse=False",
    "flash_attn.flash_attn_interface.flash_attn_varlen_func":
        "q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, "
        "softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, "
        "deterministic=False, return_attn_probs=False, block_table=None",
    "flash_attn_interface.flash_attn_with_kvcache":
        "q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None, "
        "cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None, page_table=None, "
        "cu_seqlens_q=None, cu_seqlens_k_new=None, max_seqlen_q=None, rotary_seqlens=None, "
        "q_descale=None, k_descale=None, v_descale=None, softmax_scale=None, causal=False, "
        "window_size=(-1, -1), attention_chunk=0, softcap=0.0, rotary_interleaved=True, "
        "scheduler_metadata=None, num_splits=0, pack_gqa=None, sm_margin=0, return_softmax_lse=False",
    "flash_attn_interface.flash_attn_varlen_func":
        "q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=None, "
        "seqused_k=None, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, "
        "v_descale=None, window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, "
        "pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False",
}
CACHED = [name for name in SIGNATURES if name.endswith("kvcache")]
VARLEN = [name for name in SIGNATURES if name.endswith("varlen_func")]


def is_2(function):
    return function.startswith("flash_attn.")


def table_name(function):
    return "block_table" if is_2(function) else "page_table"


def recorded(monkeypatch, function, results, *args, **given):
    """Records one call of a function of that signature that returns `results`."""
    module, _, name = function.rpartition(".")
    scope = {"results": results}
    exec(f"def {name}({SIGNATURES[function]}):\n    return results", scope)
    made = scope[name]
    made.__module__ = module
    stand_ins.row(function).check(made)
    stand_in = types.ModuleType(module)
    setattr(stand_in, name, made)
    monkeypatch.setitem(sys.modules, module, stand_in)
    with goldenrule.record(made) as calls:
        getattr(stand_in, name)(*args, **given)
    return calls


def outputs(case, batch=None):
    """o and lse of a right kernel: [B,T,heads,dim] and [B,heads,T], or packed without a batch."""
    golden = {name: e.golden for name, e in case.expected().outputs.items()}
    o, lse = golden["o"].astype(ml_dtypes.bfloat16), golden["lse"].astype(np.float32)
    if batch is None:
        return o, lse
    return (o.reshape(batch, -1, *o.shape[1:]),
            lse.reshape(lse.shape[0], batch, -1).swapaxes(0, 1))


def asked(case):
    """What the convention of a case is to these functions."""
    c = case.call().convention
    window = c.get("window_left", -1), c.get("window_right", -1)
    given = dict(causal=c.get("mask") == "causal", window_size=window)
    return given | {theirs: c[ours] for theirs, ours in (("softcap", "soft_cap"),
                                                         ("softmax_scale", "scale")) if ours in c}


# ---- a paged cache

PAGES = "op=attention mode=decode table=padded lse_layout=ht H=2 HV=4 K=32 V=16 page=16"
CASES = [f"{PAGES} block_kv=in_cache lens=4,4 ctx=33,64 pattern=L",
         f"{PAGES} block_kv=in_cache lens=4,4 ctx=33,70 mask=causal pattern=A",
         f"{PAGES} block_kv=in_cache lens=3,3 ctx=40,9 mask=causal window_left=7 pattern=K",
         f"{PAGES} block_kv=in_cache lens=3,3 ctx=40,9 window_left=7 window_right=1 pattern=L",
         f"{PAGES} block_kv=in_cache lens=2,2 ctx=20,9 scale=0.5 soft_cap=30 pattern=B",
         f"{PAGES} block_kv=in_cache lens=4,4 ctx=2,33 mask=causal pattern=A",
         f"{PAGES} lens=4,4 ctx=33,70 mask=causal pattern=L", f"{PAGES} lens=4,4 ctx=33,0 pattern=A"]


def cached(case, function, batch=2):
    """The arguments of a call with a cache."""
    x = case.call().inputs
    given = dict(q=x["q"].reshape(batch, -1, *x["q"].shape[1:]), k_cache=x["k_cache"],
                 v_cache=x["v_cache"], cache_seqlens=x["kv_lens"], **asked(case))
    given[table_name(function)] = x["page_table"]
    for name in ("k", "v") if "k" in x else ():
        given[name] = x[name].reshape(batch, -1, *x[name].shape[1:])
    return given


@pytest.mark.parametrize("function", CACHED)
@pytest.mark.parametrize("line", CASES)
def test_a_call_with_a_cache_is_the_call_of_the_schema(monkeypatch, function, line):
    case = goldenrule.fixture(line)
    o, lse = outputs(case, batch=2)
    if is_2(function):  # its lse of a query that sees no key
        lse = np.where(np.isneginf(lse), np.inf, lse)
    calls = recorded(monkeypatch, function, (o, lse), **cached(case, function), return_softmax_lse=True)
    (seen,) = calls
    assert seen.report.passed, str(seen.report)
    assert set(seen.report.tensors) == {"o", "lse"}
    for name, expected in case.expected().outputs.items():
        np.testing.assert_array_equal(seen.call.expected().outputs[name].golden, expected.golden)
    wrong = o.copy()
    wrong[-1, -1] += ml_dtypes.bfloat16(1.0)
    assert not recorded(monkeypatch, function, wrong, **cached(case, function)).passed
    other = recorded(monkeypatch, function, (o, lse * np.float32(np.log2(np.e))),
                     **cached(case, function), return_softmax_lse=True)
    assert not other.passed and "lse" in str(other.reports[0])


@pytest.mark.parametrize("function", CACHED)
def test_a_cache_without_pages_has_a_row_for_each_request(monkeypatch, function):
    case = goldenrule.fixture(f"{PAGES.replace('page=16', 'page=64')} block_kv=in_cache lens=4,4 "
                              "ctx=33,64 mask=causal pattern=L")
    given = cached(case, function)
    given["cache_batch_idx"] = given.pop(table_name(function))[:, 0]
    o, _ = outputs(case, batch=2)
    assert recorded(monkeypatch, function, o, **given).passed
    rows = given.pop("cache_batch_idx")
    given["k_cache"], given["v_cache"] = given["k_cache"][rows], given["v_cache"][rows]
    assert recorded(monkeypatch, function, o, **given).passed
    full = goldenrule.fixture(f"{PAGES.replace('page=16', 'page=64')} block_kv=in_cache lens=4,4 "
                              "ctx=64,64 pattern=L")
    given = cached(full, function)
    given[table_name(function)] = given[table_name(function)][:, :1]
    del given["cache_seqlens"]  # all of it
    o, _ = outputs(full, batch=2)
    assert recorded(monkeypatch, function, o, **given).passed
    assert recorded(monkeypatch, function, o, **given, cache_seqlens=64).passed
    assert not recorded(monkeypatch, function, o, **given, cache_seqlens=63).passed


def test_packed_queries_of_3(monkeypatch):
    (_, function) = CACHED
    case = goldenrule.fixture(f"{PAGES} block_kv=in_cache lens=4,1 ctx=33,70 mask=causal pattern=L")
    x = case.call().inputs
    calls = recorded(monkeypatch, function, outputs(case), x["q"], x["k_cache"], x["v_cache"],
                     cache_seqlens=x["kv_lens"], page_table=x["page_table"], causal=True,
                     cu_seqlens_q=x["cu_seqlens_q"], max_seqlen_q=4, return_softmax_lse=True)
    assert calls.passed, str(calls.reports[0])


# ---- packed sequences

PACKED = "op=attention mode=prefill lens=30,0,7 H=1 HV=2 K=16 V=16 lse_layout=ht"


def packed(x, **more):
    longest = int(np.diff(x["cu_seqlens_q"]).max())
    return dict(q=x["q"], k=x["k"], v=x["v"], cu_seqlens_q=x["cu_seqlens_q"],
                cu_seqlens_k=x["cu_seqlens_k"], max_seqlen_q=longest, max_seqlen_k=longest, **more)


@pytest.mark.parametrize("function", VARLEN)
@pytest.mark.parametrize("line", [f"{PACKED} pattern=A", f"{PACKED} mask=causal pattern=L",
                                  f"{PACKED} mask=causal window_left=5 pattern=A",
                                  f"{PACKED} soft_cap=20 scale=0.25 pattern=A"])
def test_packed_sequences(monkeypatch, function, line):
    case = goldenrule.fixture(line)
    given = packed(case.call().inputs, **asked(case))
    results = (*outputs(case), None) if is_2(function) else outputs(case)
    (seen,) = recorded(monkeypatch, function, results, **given, return_attn_probs=True)
    assert seen.report.passed, str(seen.report)
    assert seen.call.mode == "prefill" and set(seen.report.tensors) == {"o", "lse"}
    assert not recorded(monkeypatch, function, outputs(case)[0][::-1].copy(), **given).passed


@pytest.mark.parametrize("function", VARLEN)
def test_a_mask_ends_with_the_last_key(monkeypatch, function):
    case = goldenrule.fixture("op=attention mode=prefill lens=30 H=1 HV=2 K=16 V=16 mask=causal pattern=L")
    x = case.call().inputs
    last = x | {"q": x["q"][25:], "cu_seqlens_q": np.array([0, 5], np.int32)}
    o, _ = outputs(case)
    calls = recorded(monkeypatch, function, o[25:], **packed(last), causal=True)
    assert calls.passed, str(calls.reports[0])
    calls = recorded(monkeypatch, function, o[:5], **packed(last), causal=True)
    assert not calls.passed


def test_keys_of_2_may_be_pages(monkeypatch):
    (function, _) = VARLEN
    case = goldenrule.fixture(f"{PAGES} block_kv=in_cache lens=4,1 ctx=33,70 mask=causal pattern=L")
    x = case.call().inputs
    keys = np.concatenate([[0], np.cumsum(x["kv_lens"])]).astype(np.int32)
    (seen,) = recorded(monkeypatch, function, outputs(case)[0], x["q"], x["k_cache"], x["v_cache"],
                       x["cu_seqlens_q"], keys, 4, 70, causal=True, block_table=x["page_table"])
    assert seen.report.passed, str(seen.report)
    assert seen.call.mode == "decode"


# ---- mistakes and wrong use

@pytest.mark.parametrize("function", CACHED)
def test_a_window_of_so_many_keys_is_named(monkeypatch, function):
    """A kernel for which window_size counts keys, the query's own among them."""
    case = goldenrule.fixture(f"{PAGES} block_kv=in_cache lens=3,3 ctx=40,50 mask=causal pattern=L "
                              "window_left=7")
    call = case.call()
    fewer = replace(call, convention={**call.convention, "window_left": 6}).expected().outputs["o"]
    o = fewer.golden.astype(ml_dtypes.bfloat16).reshape(2, 3, 4, 16)
    calls = recorded(monkeypatch, function, o, **cached(case, function))
    assert calls.reports[0].verdict == "OUT_OF_BUDGET"
    assert "window_off_by_one" in calls.reports[0].explanation


WRONG = [
    (dict(k="q"), "k and v: expected both or none"),
    (dict(k="q", v="q", cache_seqlens=None), "k without cache_seqlens"),
    (dict(cache_batch_idx=np.arange(2)), "cache_batch_idx beside"),
    (dict(window_size=(3,)), r"window_size=\(3,\): expected \(left, right\)"),
    (dict(rotary_cos=np.ones((64, 8))), "rotary_cos=.* is not in its row"),
    (dict(cache_leftpad=np.ones(2)), "cache_leftpad=.* is not in its row"),
    (dict(cache_seqlens=np.array([33, 700])), "kv_lens"),
    (dict(q="packed"), r"q: expected \[batch, tokens, heads, dim\], actual 3 axes"),
]
WRONG_2 = [(dict(alibi_slopes=np.ones(4)), "alibi_slopes=.* is not in its row")]
WRONG_3 = [(dict(attention_chunk=16), "attention_chunk=16 is not in its row"),
           (dict(k_descale=np.ones((2, 2))), "k_descale=.* is not in its row"),
           (dict(cu_seqlens_q=np.array([0, 4, 8])), r"q: expected \[tokens, heads, dim\], actual 4 axes")]


@pytest.mark.parametrize("function, change, words",
                         [(f, *w) for f in CACHED for w in WRONG] + [(CACHED[0], *w) for w in WRONG_2]
                         + [(CACHED[1], *w) for w in WRONG_3])
def test_wrong_use_is_refused_by_name(monkeypatch, function, change, words):
    case = goldenrule.fixture(CASES[0])
    given = cached(case, function)
    tensors = {"q": given["q"][..., :2, :], "packed": given["q"].reshape(-1, 4, 32)}
    given |= {name: tensors[value] if isinstance(value, str) else value
              for name, value in change.items()}
    with pytest.raises(ValueError, match=words):
        recorded(monkeypatch, function, outputs(case, batch=2)[0], **given)


@pytest.mark.parametrize("function", CACHED)
def test_the_table_of_the_other_release_is_no_argument(monkeypatch, function):
    case = goldenrule.fixture(CASES[0])
    given = cached(case, function)
    other = "page_table" if is_2(function) else "block_table"
    given[other] = given.pop(table_name(function))
    with pytest.raises(TypeError, match=other):
        recorded(monkeypatch, function, outputs(case, batch=2)[0], **given)


@pytest.mark.parametrize("function, change, words", [
    (VARLEN[0], dict(dropout_p=0.1), "dropout_p=0.1 is not in its row"),
    (VARLEN[0], dict(block_table=np.zeros((3, 1), np.int32)), "expected .pages, tokens, heads, dim. beside"),
    (VARLEN[1], dict(seqused_k=np.array([3, 0, 7])), "seqused_k=.* is not in its row"),
    (VARLEN[1], dict(qv=np.ones((37, 2, 16))), "qv=.* is not in its row")])
def test_wrong_use_of_packed_sequences(monkeypatch, function, change, words):
    case = goldenrule.fixture(f"{PACKED} pattern=A")
    given = packed(case.call().inputs) | change
    with pytest.raises(ValueError, match=words):
        recorded(monkeypatch, function, outputs(case)[0], **given)
