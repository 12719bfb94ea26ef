#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a call costs on the host: goldenrule.ops beside FlashInfer and flash-linear-attention.

A decode kernel of 3 us is seen at the price of its call wherever no graph is replayed. Here each call is made
in bursts without waiting for the device, and a burst is shorter than the queue of launches; printed are the
median over bursts of the time of one call, and the longest of nine tenths of them. Needs a CUDA device.

    host_price.py [--bursts N] [--only TEXT] [--path FOLDER]

Functions of FlashInfer and fla follow ours of the same name, where the packages can be imported, from FOLDER
too: `not installed` else, and the reason where one does not run.
"""

import argparse
import functools
import importlib
import statistics
import sys
import time

import torch

from goldenrule import ops

BURST = 128  # launches; a stream takes about 1000 before the host waits
B, T, H, HV, K, V, PAGE = 4, 4, 4, 8, 128, 128, 16
BF16, F32, I32 = torch.bfloat16, torch.float32, torch.int32


def normal(*shape, dtype=BF16):
    return torch.randn(shape, device="cuda").to(dtype)


class Inputs:
    """Of a decode, an MTP call, a prefill and a decode over a paged cache, on the device."""

    def __init__(self):
        self.slots = torch.tensor([3, 1, 2, 5], dtype=I32, device="cuda")
        self.A_log, self.dt_bias = normal(HV, dtype=F32), normal(HV, dtype=F32)
        self.pool = normal(9, HV, V, K, dtype=F32)
        self.start = normal(B, HV, K, V, dtype=F32)
        self.one, self.more = self.rows(1), self.rows(T)
        self.beta = self.one[4].sigmoid()
        self.packed = (normal(40, H, K), normal(40, H, K), normal(40, HV, V), normal(40, HV), normal(40, HV))
        self.bounds = torch.tensor([0, 10, 40], dtype=torch.int64, device="cuda")
        self.final = normal(2, HV, V, K, dtype=F32)
        self.q, self.cache = normal(B, HV, K), (normal(64, PAGE, H, K), normal(64, PAGE, H, K))
        self.indptr = torch.arange(0, 4 * B + 1, 4, dtype=I32, device="cuda")
        self.pages = torch.arange(4 * B, dtype=I32, device="cuda")
        self.last = torch.full((B,), 5, dtype=I32, device="cuda")
        self.lengths = torch.full((B,), 3 * PAGE + 5, dtype=I32, device="cuda")

    @staticmethod
    def rows(tokens):
        """q, k, v, a, b."""
        return (normal(B, tokens, H, K), normal(B, tokens, H, K), normal(B, tokens, HV, V),
                normal(B, tokens, HV), normal(B, tokens, HV))


def operators(x):
    """Row -> call, of the operators themselves."""
    rule = dict(A_log=x.A_log, dt_bias=x.dt_bias)
    bounds = torch.arange(B + 1, dtype=I32, device="cuda")
    table = x.pages.view(B, -1)
    o = torch.empty_like(x.one[2])
    return {
        "ops.decode": lambda: ops.decode(*x.one, x.pool, state_indices=x.slots, **rule),
        "ops.decode, o given": lambda: ops.decode(*x.one, x.pool, o=o, state_indices=x.slots, **rule),
        "torch.ops.goldenrule.decode": lambda: torch.ops.goldenrule.decode(
            *x.one, x.pool, o, state_indices=x.slots, **rule),
        "ops.mtp": lambda: ops.mtp(*x.more, x.pool, state_indices=x.slots, disable_state_update=True,
                                   **rule),
        "ops.prefill": lambda: ops.prefill(*x.packed, x.bounds, final_state=x.final, **rule),
        "ops.attention": lambda: ops.attention(
            x.q, None, None, *x.cache, cu_seqlens_q=bounds, kv_lens=x.lengths, page_table=table,
            block_kv="in_cache", mask="causal", most_q=1),
    }


def planned(find, x, **options):
    """A wrapper of FlashInfer's that has its plan."""
    workspace = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
    wrapper = find("decode").BatchDecodeWithPagedKVCacheWrapper(workspace, **options)
    wrapper.plan(x.indptr, x.pages, x.last, HV, H, K, PAGE, q_data_type=BF16)
    return lambda: wrapper.run(x.q, x.cache)


def flashinfer_calls(x):
    """Row -> what makes the call of find, name -> module; likewise below."""
    q, k, v, a, b = x.one
    q4, k4, v4, a4, b4 = x.more
    buffers = dict(paged_kv_indptr_buffer=x.indptr.clone(), paged_kv_indices_buffer=x.pages.clone(),
                   paged_kv_last_page_len_buffer=x.last.clone())

    def decode(find):
        function = find("gdn_decode").gated_delta_rule_decode_pretranspose
        return lambda: function(q, k, v, None, x.A_log, a, x.dt_bias, b, initial_state=x.pool,
                                initial_state_indices=x.slots)

    def mtp(find):
        function = find("gdn_decode").gated_delta_rule_mtp
        return lambda: function(q4, k4, v4, x.pool, x.slots, x.A_log, a4, x.dt_bias, b4,
                                disable_state_update=True)

    return {"gated_delta_rule_decode_pretranspose": decode, "gated_delta_rule_mtp": mtp,
            "BatchDecode..Wrapper.run": lambda find: planned(find, x),
            "BatchDecode..Wrapper.run, use_cuda_graph": lambda find: planned(
                find, x, use_cuda_graph=True, **buffers)}


def fla_calls(x):
    q, k, v, a, _ = x.one
    pq, pk, pv, pa, pb = (each[None] for each in x.packed)

    def recurrent(find):
        function = find("ops.gated_delta_rule").fused_recurrent_gated_delta_rule
        return lambda: function(q, k, v, g=a, beta=x.beta, initial_state=x.start, output_final_state=True,
                                use_qk_l2norm_in_kernel=True)

    def chunk(find):
        function = find("ops.gated_delta_rule").chunk_gated_delta_rule
        return lambda: function(pq, pk, pv, g=pa, beta=pb, output_final_state=True,
                                use_qk_l2norm_in_kernel=True, cu_seqlens=x.bounds)

    return {"fused_recurrent_gated_delta_rule": recurrent, "chunk_gated_delta_rule": chunk}


def price(call, bursts):
    """Microseconds of a call: the median, and the 90th percentile."""
    for _ in range(3):
        for _ in range(BURST):
            call()
        torch.cuda.synchronize()
    times = []
    for _ in range(bursts):
        begin = time.perf_counter_ns()
        for _ in range(BURST):
            call()
        times.append((time.perf_counter_ns() - begin) / BURST / 1e3)
        torch.cuda.synchronize()
    return statistics.median(times), statistics.quantiles(times, n=10)[-1]


def module_of(package, part):
    return importlib.import_module(f"{package}.{part}")


def rows_of(x):
    """(package, call, what makes it), that of another package behind ours of the same name."""
    for name, call in operators(x).items():
        yield "goldenrule.ops", name, lambda call=call: call
    for package, calls in (("flashinfer", flashinfer_calls(x)), ("fla", fla_calls(x))):
        own, other = (lambda _, package=package: getattr(ops, package)), functools.partial(module_of, package)
        for name, make in calls.items():
            yield f"goldenrule.ops.{package}", name, functools.partial(make, own)
            yield package, name, functools.partial(make, other)


def figures(package, make, bursts):
    """Of a row; or why there are none: a package that is not there, or does not run here."""
    try:
        median, most = price(make(), bursts)
        return f"{median:6.2f} | {most:6.2f}"
    except ModuleNotFoundError as error:
        if error.name == package:
            return "not installed |"
        return f"{error} |"
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:90]} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bursts", type=int, default=150)
    parser.add_argument("--only", default="", help="rows with this text")
    parser.add_argument("--path", help="a folder with packages")
    asked = parser.parse_args()
    if asked.path:
        sys.path.insert(0, asked.path)
    if not torch.cuda.is_available():
        print("SKIPPED: torch sees no CUDA device")
        return
    torch.set_grad_enabled(False)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, us on the host\n")
    print(f"| {'package':24} | {'call':40} | median | 90 % |\n|---|---|---|---|")
    for package, name, make in rows_of(Inputs()):
        if asked.only in f"{package} {name}":
            print(f"| {package:24} | {name:40} | {figures(package, make, asked.bursts)} |", flush=True)


if __name__ == "__main__":
    main()
