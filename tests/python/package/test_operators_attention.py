# SPDX-License-Identifier: Apache-2.0
"""goldenrule.ops.attention, and its functions with the signatures of FlashAttention and FlashInfer, on the
machines of machines.py. Each function of another library is judged by the row that the recorder has for
the original."""

import functools
import math

import operators
import pytest
from test_flash_rows import PACKED, PAGES, asked, is_2, table_name

import goldenrule
from goldenrule._rows import ROWS

ROW_OF = {row.function: row for row in ROWS}
NOT_TAKEN = ("missing_page", "soft_cap")  # of the convention
CASES = ["op=attention mode=decode lens=8,3 ctx=65,10 H=2 HV=4 K=32 V=64 kv_layout=hnd table=csr pattern=L",
         "op=attention mode=decode lens=8,8 ctx=33,64 H=2 HV=4 K=64 V=64 mask=causal lse_base=2 pattern=K",
         "op=attention mode=decode lens=8,8 ctx=5,0 H=1 HV=2 K=32 V=32 block_kv=in_cache mask=causal",
         "op=attention mode=decode lens=4,4 ctx=40,9 H=1 HV=4 K=128 V=128 mask=block_causal block=4 "
         "head_map=tiled",
         "op=attention mode=prefill lens=30,0,7 H=1 HV=2 K=16 V=16 lse_layout=ht mask=causal"]


def arguments(case, tensors):
    given = {name: x for name, x in tensors.items() if name != "last_page_len"}
    options = {name: value for name, value in case.call().convention.items() if name not in NOT_TAKEN}
    return given, options


@pytest.mark.parametrize("line", CASES)
def test_a_case_of_attention_is_right(machine, line):
    case = goldenrule.fixture(line)
    given, options = arguments(case, machine.tensors(case))
    q, values = given["q"], given["v"] if "v" in given else given["v_cache"]
    rows = (q.shape[1], q.shape[0]) if options.get("lse_layout") == "ht" else tuple(q.shape[:2])
    lse = values.new_zeros(rows).float()
    o = machine.ops.attention(**given, **options, lse=lse)
    machine.wait()
    report = case.judge({"o": o, "lse": lse}, explain=False)
    assert report.passed, str(report)


def test_shapes_of_attention_are_checked(machine):
    case = goldenrule.fixture(CASES[0])
    given, options = arguments(case, machine.tensors(case))
    for name, change, text in (
            ("q", lambda x: x[0], "q: expected the axes total,HV,K, actual the shape"),
            ("v_cache", lambda x: x[1:], r"v_cache: expected the shape \[8, 2, 16, 64\], actual \[7"),
            ("kv_lens", lambda x: x[1:], r"kv_lens: expected the shape \[2\], actual \[1\]"),
            ("k_cache", lambda x: x[0], "k_cache: expected the axes pages,H,slots,K"),
            ("page_indptr", lambda x: x[1:], r"page_indptr: expected the shape \[3\]")):
        with pytest.raises(ValueError, match=text):
            machine.ops.attention(**{**given, name: change(given[name])}, **options)
    with pytest.raises(ValueError, match="mask: expected one of full, causal, block_causal, actual 'all'"):
        machine.ops.attention(**given, **{**options, "mask": "all"})
    with pytest.raises(ValueError, match="k: expected a tensor, or one of k_cache"):
        machine.ops.attention(given["q"], o=given["q"], cu_seqlens_q=given["cu_seqlens_q"])


def test_requests_of_equal_length_need_no_flattening(machine):
    case = goldenrule.fixture(CASES[1])
    given, options = arguments(case, machine.tensors(case))
    flat = machine.ops.attention(**given, **options)
    q = given.pop("q")
    rows = machine.ops.attention(q.reshape(2, 8, *q.shape[1:]), **given, **options)
    machine.wait()
    assert rows.shape == (2, 8, *flat.shape[1:])
    assert (operators.host(rows).reshape(flat.shape) == operators.host(flat)).all()


# ---- functions of torch

def test_a_compiled_call_of_attention_is_right(device):
    torch = pytest.importorskip("torch")
    from goldenrule import ops

    case = goldenrule.fixture(CASES[1])
    given, options = arguments(case, case.tensors(device))

    def model(q, **rest):
        return ops.attention(q * 1.0, **rest, **options) * 2

    compiled = torch.compile(model, backend="inductor" if device == "cuda" else "aot_eager",
                             fullgraph=True)
    assert torch.equal(compiled(**given), model(**given))

def judged(function, name, *args, **given):
    torch = pytest.importorskip("torch")
    with torch.no_grad(), goldenrule.record(function, row=ROW_OF[name], explain=False) as calls:
        calls.function(*args, **given)
    assert calls.passed, f"{name}: {calls[0].report}"
    return calls[0].report


def flash(function):
    ops = pytest.importorskip("goldenrule.ops", reason="no torch")
    module, _, name = function.rpartition(".")
    return getattr(getattr(ops, module.partition(".")[0]), name)


FLASH = ("flash_attn.flash_attn_interface.flash_attn_with_kvcache",
         "flash_attn_interface.flash_attn_with_kvcache")
FLASH_PACKED = ("flash_attn.flash_attn_interface.flash_attn_varlen_func",
                "flash_attn_interface.flash_attn_varlen_func")


@pytest.mark.parametrize("function", FLASH)
@pytest.mark.parametrize("rest", ["lens=4,4 ctx=33,64 pattern=L", "lens=1,1 ctx=33,70 mask=causal pattern=A",
                                  "lens=3,3 ctx=40,9 mask=causal window_left=7 pattern=K",
                                  "lens=3,3 ctx=40,9 window_left=7 window_right=1 pattern=L"])
def test_a_cache_of_flash_attention(device, function, rest):
    case = goldenrule.fixture(f"{PAGES} block_kv=in_cache {rest}")
    x = case.tensors(device)
    given = dict(q=x["q"].unflatten(0, (2, -1)), k_cache=x["k_cache"], v_cache=x["v_cache"],
                 cache_seqlens=x["kv_lens"], **asked(case), **{table_name(function): x["page_table"]})
    report = judged(flash(function), function, **given, return_softmax_lse=True)
    assert set(report.tensors) == {"o", "lse"}
    assert set(judged(flash(function), function, **given).tensors) == {"o"}
    with pytest.raises(NotImplementedError, match="k: expected None, actual a tensor of torch.bfloat16"):
        flash(function)(**given, k=given["q"], v=given["q"])
    with pytest.raises(NotImplementedError, match="softcap: expected 0.0, actual 30.0"):
        flash(function)(**{**given, "softcap": 30.0})


@pytest.mark.parametrize("function", FLASH)
def test_a_cache_of_rows(device, function):
    case = goldenrule.fixture(f"{PAGES.replace('page=16', 'page=64')} block_kv=in_cache lens=4,4 ctx=33,64 "
                              "mask=causal pattern=L")
    x = case.tensors(device)
    given = dict(q=x["q"].unflatten(0, (2, -1)), k_cache=x["k_cache"], v_cache=x["v_cache"], causal=True)
    pages = x["page_table"][:, 0]
    judged(flash(function), function, **given, cache_seqlens=x["kv_lens"], cache_batch_idx=pages)
    judged(flash(function), function, **given, cache_seqlens=40)
    judged(flash(function), function, **given)


def test_packed_queries_over_a_cache(device):
    case = goldenrule.fixture(f"{PAGES} block_kv=in_cache lens=4,1,7 ctx=33,64,9 mask=causal pattern=L")
    x = case.tensors(device)
    function = FLASH[1]
    judged(flash(function), function, q=x["q"], k_cache=x["k_cache"], v_cache=x["v_cache"],
           cache_seqlens=x["kv_lens"], page_table=x["page_table"], cu_seqlens_q=x["cu_seqlens_q"],
           max_seqlen_q=7, causal=True, return_softmax_lse=True)


@pytest.mark.parametrize("function", FLASH_PACKED)
@pytest.mark.parametrize("rest", ["pattern=L", "mask=causal pattern=A", "mask=causal window_left=5 pattern=L"])
def test_packed_sequences_of_flash_attention(device, function, rest):
    case = goldenrule.fixture(f"{PACKED} {rest}")
    x = case.tensors(device)
    given = {name: x[name] for name in ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k")}
    judged(flash(function), function, **given, max_seqlen_q=30, max_seqlen_k=30, **asked(case),
           return_attn_probs=True)
    fewer = dict(q=x["q"][10:], cu_seqlens_q=(x["cu_seqlens_q"] - 10).clamp(min=0))
    judged(flash(function), function, **{**given, **fewer}, max_seqlen_q=20, max_seqlen_k=30, **asked(case))
    if is_2(function):
        pages = goldenrule.fixture(f"{PAGES} block_kv=in_cache lens=4,1 ctx=33,64 mask=causal pattern=L")
        y = pages.tensors(device)
        keys = y["kv_lens"].new_tensor([0, 33, 97])
        judged(flash(function), function, q=y["q"], k=y["k_cache"], v=y["v_cache"],
               cu_seqlens_q=y["cu_seqlens_q"], cu_seqlens_k=keys, max_seqlen_q=4,
               max_seqlen_k=64, causal=True, block_table=y["page_table"])


@pytest.mark.parametrize("layout", ["nhd", "hnd"])
@pytest.mark.parametrize("decode", [False, True])
def test_the_wrappers_of_flashinfer(device, decode, layout):
    from goldenrule.ops import flashinfer

    kind = ("decode", "Decode") if decode else ("prefill", "Prefill")
    lens = "1,1,1" if decode else "4,1,7"
    case = goldenrule.fixture(f"op=attention mode=decode table=csr_last block_kv=in_cache lens={lens} "
                              f"ctx=33,64,9 H=2 HV=4 K=32 V=32 page=16 mask=causal kv_layout={layout}")
    x = case.tensors(device)
    wrapper = getattr(flashinfer, f"Batch{kind[1]}WithPagedKVCacheWrapper")(None, layout.upper())
    cache = (x["k_cache"], x["v_cache"])
    with pytest.raises(RuntimeError, match="expected a call of plan"):
        wrapper.run(x["q"], cache)
    pages = (x["page_indptr"], x["page_indices"], x["last_page_len"])
    if decode:
        plan = functools.partial(wrapper.plan, *pages, 4, 2, 32, 16)
    else:
        plan = functools.partial(wrapper.plan, x["cu_seqlens_q"], *pages, 4, 2, 32, 16, causal=True)
    plan(q_data_type="bfloat16")
    o, lse = wrapper.run(x["q"], cache, return_lse=True)
    report = case.judge({"o": o, "lse": lse * math.log(2)}, explain=False)
    assert report.passed, str(report)
    both = o.new_empty((len(cache[0]), 2, *cache[0].shape[1:]))
    both[:, 0], both[:, 1] = cache
    assert (wrapper.run(x["q"], both) == o).all()
    plan(window_left=5, sm_scale=0.5)
    assert not (wrapper.run(x["q"], cache) == o).all()
    for name, value in (("logits_soft_cap", 30.0), ("pos_encoding_mode", "ROPE_LLAMA"), ("unheard_of", 1)):
        with pytest.raises(NotImplementedError, match=f"{name}: expected"):
            plan(**{name: value})
    with pytest.raises(NotImplementedError, match="k_scale: expected None, actual 2.0"):
        wrapper.run(x["q"], cache, k_scale=2.0)
    with pytest.raises(ValueError, match="expected the heads and dimensions of plan"):
        wrapper.run(x["q"][:, :2], cache)


GRAPH = "op=attention mode=decode table=csr_last block_kv=in_cache H=2 HV=4 K=32 V=32 page=16 mask=causal"


def graph_wrapper(decode, requests, pages, **changed):
    """A wrapper with use_cuda_graph and buffers for so many requests and pages."""
    torch = pytest.importorskip("torch")
    from goldenrule.ops import flashinfer

    end = "buffer" if decode else "buf"
    sizes = {f"paged_kv_indptr_{end}": requests + 1, f"paged_kv_indices_{end}": pages,
             f"paged_kv_last_page_len_{end}": requests, **({} if decode else {"qo_indptr_buf": requests + 1})}
    buffers = {**{name: torch.full((size,), -1, dtype=torch.int32) for name, size in sizes.items()}, **changed}
    made = getattr(flashinfer, f"Batch{'Decode' if decode else 'Prefill'}WithPagedKVCacheWrapper")
    return made(None, use_cuda_graph=True, **buffers), buffers


def planned(wrapper, x, decode):
    """Plans the requests of a case, from the host as engines do."""
    pages = [x[name].cpu() for name in ("page_indptr", "page_indices", "last_page_len")]
    if decode:
        wrapper.plan(*pages, 4, 2, 32, 16)
    else:
        wrapper.plan(x["cu_seqlens_q"].cpu(), *pages, 4, 2, 32, 16, causal=True)


@pytest.mark.parametrize("machine", ["cpu", "cuda"], indirect=True)
@pytest.mark.parametrize("decode", [False, True])
def test_a_captured_wrapper_follows_its_plans(machine, decode):
    lens = ("1,1,1", "1,1,1") if decode else ("4,1,7", "2,8,1")
    cases = [goldenrule.fixture(f"{GRAPH} lens={lens[0]} ctx=33,64,9"),
             goldenrule.fixture(f"{GRAPH} lens={lens[1]} ctx=5,17,80 seed=3")]
    with machine.torch.device(machine.device):
        wrapper, buffers = graph_wrapper(decode, 3, 64)
    assert wrapper.is_cuda_graph_enabled
    xs = [machine.tensors(case) for case in cases]
    rows = max(len(x["k_cache"]) for x in xs)
    q = machine.torch.zeros_like(xs[0]["q"])
    k, v = (machine.torch.zeros((rows, *xs[0][name].shape[1:]), dtype=q.dtype, device=q.device)
            for name in ("k_cache", "v_cache"))

    def contents(x):
        planned(wrapper, x, decode)
        for buffer, name in ((q, "q"), (k, "k_cache"), (v, "v_cache")):
            buffer[:len(x[name])] = x[name]

    def addresses():
        return {name: x.data_ptr() for name, x in {**wrapper._planned, **buffers}.items()
                if isinstance(x, machine.torch.Tensor)}

    contents(xs[0])
    before = addresses()
    wrapper.run(q, (k, v), return_lse=True)  # loads the kernels
    replay = machine.captured(lambda: wrapper.run(q, (k, v), return_lse=True))
    for case, x in zip((*cases, cases[0]), (*xs, xs[0]), strict=True):
        contents(x)
        assert addresses() == before
        o, lse = replay()
        machine.wait()
        length = len(x["q"])
        report = case.judge({"o": o[:length], "lse": lse[:length] * math.log(2)}, explain=False)
        assert report.passed, str(report)
    end = "buffer" if decode else "buf"
    assert buffers[f"paged_kv_last_page_len_{end}"].tolist() == xs[0]["last_page_len"].tolist()


@pytest.mark.parametrize("decode", [False, True])
def test_what_a_captured_wrapper_refuses(decode):
    pytest.importorskip("torch")
    end = "buffer" if decode else "buf"
    first = "paged_kv_last_page_len_buffer" if decode else "qo_indptr_buf"
    for name in (first, f"paged_kv_indptr_{end}", f"paged_kv_indices_{end}"):
        with pytest.raises(ValueError, match=f"{name}: expected a tensor beside use_cuda_graph=True"):
            graph_wrapper(decode, 3, 8, **{name: None})
    _, buffers = graph_wrapper(decode, 4, 8)
    name = f"paged_kv_indptr_{end}"
    with pytest.raises(ValueError, match=f"{name}: expected 4 elements for 3 requests, actual 5"):
        graph_wrapper(decode, 3, 8, **{name: buffers[name]})
    x = goldenrule.fixture(f"{GRAPH} lens=1,1,1 ctx=33,64,9").tensors("cpu")
    wrapper, buffers = graph_wrapper(decode, 4, 64)
    with pytest.raises(ValueError, match="expected the batch size of the buffers of use_cuda_graph, 4, actual 3"):
        planned(wrapper, x, decode)
    wrapper, buffers = graph_wrapper(decode, 3, 2)
    with pytest.raises(ValueError, match=f"expected at most 2 pages, the size of paged_kv_indices_{end}"):
        planned(wrapper, x, decode)
    assert all((buffer == -1).all() for buffer in buffers.values())  # nothing is half planned
    wrapper, buffers = graph_wrapper(decode, 3, 64)
    with pytest.raises(ValueError, match="expected the batch size of the buffers of use_cuda_graph, 3, actual 1"):
        planned(wrapper, {**x, "page_indptr": x["page_indptr"][:2]}, decode)
    assert all((buffer == -1).all() for buffer in buffers.values())
    with pytest.raises(ValueError, match=f"paged_kv_indices_{end}: expected the device of {name}, cpu, actual meta"):
        graph_wrapper(decode, 3, 8, **{f"paged_kv_indices_{end}": buffers[f"paged_kv_indices_{end}"].to("meta")})
    if not decode:
        wrapper, _ = graph_wrapper(decode, 3, 64)
        planned(wrapper, x, decode)
        more = goldenrule.fixture(f"{GRAPH} lens=2,1,1 ctx=33,64,9").tensors("cpu")
        with pytest.raises(ValueError, match="expected at most the queries of the first plan .* 3, actual 4"):
            planned(wrapper, more, decode)
