#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a step of speculative decoding of one GDN layer and one attention layer, beside FlashInfer's calls.

A step verifies T draft tokens of each request, commits those that were accepted and attends over a paged cache:
all of it one CUDA graph, as an engine replays it. How many tokens are accepted lies on the device (1 to T,
drawn). What a commit is differs, so each side has the ways that its calls allow:

    goldenrule  commit   the verification leaves the pool alone, ops.commit repeats the accepted tokens
                slots    each token's state goes to a slot of its own; a commit exchanges two numbers
                replay   corrections and keys go to rings; a commit moves two cursors, a ring that could
                         overflow is flushed with the next verification
    FlashInfer  copy     states of all tokens to a buffer, the accepted one copied into the pool
                slots    as above (fp32 states; 0.7.2 has ReplaySSM for Blackwell alone)

The numbers of slots and cursors are changed by one small kernel within the graph (Triton), and FlashInfer's
accepted state is copied by one that moves every byte once. Steps rotate over sets of inputs of 512 MiB of
states and more. Compared before anything is timed: o of both layers, and the states after the commit.

    serving_step.py [--batches 1,8,64] [--tokens T] [--context N] [--replays N] [--path FOLDER]
"""
import argparse
import functools
import importlib
import sys

try:
    from goldenrule import ops
except ImportError as error:  # torch is one of what may be missing
    ops, why_none = None, error

from peer import DISTINCT_BYTES, time_graph, torch_with_device  # behind ops: it looks for packages elsewhere

H, HV, K, V = 16, 32, 128, 128  # of the GDN layer
KV_HEADS, Q_HEADS, PAGE = 8, 32, 64  # of the attention layer, heads of 128
WINDOW = 16  # places of a ring
OTHER_FUNCTION = 0.02  # relative RMS beyond which two steps are not the same


class Case:
    """One row of the table and its sets of inputs."""

    def __init__(self, torch, B, T, bf16, context):
        self.torch, self.B, self.T, self.context = torch, B, T, context
        self.dtype = torch.bfloat16 if bf16 else torch.float32
        self.generator = torch.Generator(device="cuda").manual_seed(1)
        self.A_log, self.dt_bias = self.normal(HV).float(), self.normal(HV).float()
        self.bounds = torch.arange(B + 1, device="cuda", dtype=torch.int32) * T
        self.width = -(-context // PAGE)
        self.lengths = torch.full((B,), context, device="cuda", dtype=torch.int32)
        state_bytes = B * HV * K * V * self.dtype.itemsize
        self.sets = [self.inputs() for _ in range(max(2, min(32, -(-DISTINCT_BYTES // state_bytes))))]

    def normal(self, *shape):
        return self.torch.randn(*shape, generator=self.generator, device="cuda", dtype=self.torch.bfloat16)

    def inputs(self):
        torch, B, T = self.torch, self.B, self.T
        pages = B * self.width
        table = torch.randperm(pages, generator=self.generator, device="cuda").to(torch.int32)
        return {
            "tokens": (self.normal(B, T, H, K), self.normal(B, T, H, K), self.normal(B, T, HV, V),
                       self.normal(B, T, HV), self.normal(B, T, HV)),
            "start": self.normal(B, HV, V, K).to(self.dtype),
            "accepted": torch.randint(1, T + 1, (B,), generator=self.generator, device="cuda",
                                      dtype=torch.int32),
            "query": self.normal(B * T, Q_HEADS, 128),
            "cache": (self.normal(pages, PAGE, KV_HEADS, 128), self.normal(pages, PAGE, KV_HEADS, 128)),
            "table": table.reshape(B, self.width)}


def pool_of(case, x, slots_each):
    """A pool in which the state of request b is in slot b * slots_each, and the numbers of the slots."""
    torch = case.torch
    pool = torch.zeros(case.B * slots_each, HV, V, K, device="cuda", dtype=case.dtype)
    pool[::slots_each] = x["start"]
    numbers = torch.arange(case.B * slots_each, device="cuda", dtype=torch.int32)
    numbers = numbers.reshape(case.B, slots_each)
    return pool, numbers[:, 0].clone(), numbers[:, 1:].clone()  # FlashInfer wants them aligned


# A way makes a step of a set of inputs, or None. A step returns o of the GDN layer, o of the attention, and a
# function: the states after the commit.

class Own:
    """The ways of goldenrule.ops."""

    def __init__(self, torch, kernels):
        self.torch = torch
        self.exchange, self.advance = kernels.exchange, kernels.advance
        self.ways = {f"goldenrule {way.__name__}": way for way in (self.commit, self.slots, self.replay)}

    def layers(self, case, x):
        """Options of the GDN layer, its o, and the attention as a function."""
        rule = {"A_log": case.A_log, "dt_bias": case.dt_bias, "dependent_launch": True}
        attend = functools.partial(
            ops.attention, x["query"], None, None, *x["cache"], o=self.torch.empty_like(x["query"]),
            cu_seqlens_q=case.bounds, kv_lens=case.lengths, page_table=x["table"], block_kv="in_cache",
            mask="causal", most_q=case.T, dependent_launch=True)
        return rule, self.torch.empty_like(x["tokens"][2]), attend

    def commit(self, case, x):
        pool, slots, _ = pool_of(case, x, 1)
        rule, o, attend = self.layers(case, x)

        def step():
            ops.mtp(*x["tokens"], pool, o=o, state_indices=slots, disable_state_update=True, **rule)
            ops.commit(*x["tokens"][1:], pool, state_indices=slots, accepted_tokens=x["accepted"],
                            **rule)
            return o, attend(), lambda: pool
        return step

    def slots(self, case, x):
        pool, current, table = pool_of(case, x, case.T + 1)
        rule, o, attend = self.layers(case, x)

        def step():
            ops.mtp(*x["tokens"], pool, o=o, state_indices=current, ssm_state_indices=table, **rule)
            self.exchange[(case.B,)](current, table, x["accepted"], T=case.T)
            return o, attend(), lambda: pool[current.long()]
        return step

    def rings(self, case):
        def zeros(*shape, dtype=self.torch.int32):
            return self.torch.zeros(case.B, *shape, device="cuda", dtype=dtype)
        bf16, f32 = self.torch.bfloat16, self.torch.float32
        return {"ring_d": zeros(HV, WINDOW, V, dtype=bf16), "ring_k": zeros(H, WINDOW, K, dtype=bf16),
                "ring_g": zeros(HV, WINDOW, dtype=f32), "ring_start": zeros(), "ring_count": zeros(),
                "ring_flush": zeros()}

    def replay(self, case, x):
        pool, slots, _ = pool_of(case, x, 1)
        rule, o, attend = self.layers(case, x)
        rings = self.rings(case)
        cursors = rings["ring_start"], rings["ring_count"], rings["ring_flush"]

        def flushed():
            now, state = {**rings, "ring_flush": self.torch.ones_like(slots)}, pool.clone()
            none = [tokens[:, :0] for tokens in x["tokens"]]
            ops.replay(*none, state, o=o[:, :0], state_indices=slots, **now, **rule)
            return state

        def step():
            ops.replay(*x["tokens"], pool, o=o, state_indices=slots, **rings, **rule)
            self.advance[(case.B,)](*cursors, x["accepted"], T=case.T, W=WINDOW)
            return o, attend(), flushed
        return step


class FlashInfer:
    """The ways of FlashInfer's calls."""

    def __init__(self, torch, kernels):
        self.torch, self.module = torch, importlib.import_module("flashinfer")
        self.gdn = importlib.import_module("flashinfer.gdn_decode")
        self.exchange, self.copy_kernel = kernels.exchange, kernels.copy
        self.ways = {f"FlashInfer {way.__name__}": way for way in (self.copy, self.slots)}

    def layers(self, case, x):
        """Arguments of the GDN layer, its o among them, and the attention as a function."""
        torch, int32 = self.torch, self.torch.int32
        workspace = torch.empty(128 << 20, device="cuda", dtype=torch.uint8)
        indptr = torch.arange(case.B + 1, device="cuda", dtype=int32) * case.width
        last = torch.full_like(case.lengths, case.context - (case.width - 1) * PAGE)
        pages = x["table"].flatten().contiguous()
        wrapper = self.module.BatchPrefillWithPagedKVCacheWrapper(
            workspace, "NHD", use_cuda_graph=True, qo_indptr_buf=case.bounds.clone(),
            paged_kv_indptr_buf=indptr.clone(), paged_kv_indices_buf=pages.clone(),
            paged_kv_last_page_len_buf=last.clone(), backend="fa2")
        wrapper.plan(case.bounds, indptr, pages, last, Q_HEADS, KV_HEADS, 128, PAGE, causal=True,
                     q_data_type=torch.bfloat16)
        out = torch.empty_like(x["query"])
        given = dict(zip("qkvab", x["tokens"], strict=True), A_log=case.A_log, dt_bias=case.dt_bias,
                     output=torch.empty_like(x["tokens"][2]))
        return given, lambda: wrapper.run(x["query"], x["cache"], out=out)

    def copy(self, case, x):
        pool, slots, _ = pool_of(case, x, 1)
        given, attend = self.layers(case, x)
        states, size = case.torch.empty(case.B, case.T, HV, V, K, device="cuda", dtype=case.dtype), HV * V * K
        verify = self.gdn.gated_delta_rule_mtp
        if case.dtype != self.torch.float32:
            verify = functools.partial(self.gdn.gated_delta_rule_decode_pretranspose, state=None)

        def step():
            verify(**given, initial_state=pool, initial_state_indices=slots,
                   intermediate_states_buffer=states, disable_state_update=True)
            self.copy_kernel[(case.B, size // 4096)](pool, states, slots, x["accepted"], size, T=case.T,
                                                     BLOCK=4096)
            return given["output"], attend(), lambda: pool
        return step

    def slots(self, case, x):
        if case.dtype != self.torch.float32:
            return None
        pool, current, table = pool_of(case, x, case.T + 1)
        given, attend = self.layers(case, x)

        def step():
            self.gdn.gated_delta_rule_mtp(**given, initial_state=pool, initial_state_indices=current,
                                          ssm_state_indices=table, disable_state_update=False)
            self.exchange[(case.B,)](current, table, x["accepted"], T=case.T)
            return given["output"], attend(), lambda: pool[current.long()]
        return step


def outputs(case, make):
    """Those of one step of the first set, or None: there is no such way."""
    step = make(case, case.sets[0])
    if step is None:
        return None
    o, attended, states = step()
    return [tensor.float().flatten().clone() for tensor in (o, attended, states())]


def row_of(torch, case, make, expected, replays):
    """(median us of a step, text), or (None, why there is none)."""
    try:
        got = outputs(case, make)
        if got is None:
            return None, "no such call"
        errors = [((a - b).norm() / b.norm()).item() for a, b in zip(got, expected, strict=True)]
        if not max(errors) < OTHER_FUNCTION:
            return None, "another function: o, attention, states differ by " + \
                ", ".join(f"{e:.2g}" for e in errors)
        ready = {id(x): make(case, x) for x in case.sets}
        for step in ready.values():
            step()
        median, low, high = time_graph(torch, case, lambda x: ready[id(x)](), replays, 8)
    except Exception as failure:  # of another project's code
        return None, f"FAILED: {(str(failure).splitlines() or [repr(failure)])[0][:110]}"
    return median, f"{median:8.1f} ({low:.1f}-{high:.1f})"


def ways_of(torch):
    """{name: way}, ours first."""
    kernels = importlib.import_module("commit_kernels")
    ways = dict(Own(torch, kernels).ways)
    try:
        ways |= FlashInfer(torch, kernels).ways
    except Exception as error:  # a peer may fail to import in its own ways
        print(f"SKIPPED: FlashInfer: {str(error)[:160] or repr(error)}")
    return ways


def print_case(torch, case, ways, replays):
    names = list(ways)
    expected = outputs(case, ways[names[0]])
    medians = {}
    title = f"B={case.B} {'bf16' if case.dtype == torch.bfloat16 else 'f32'}"
    for name in names:
        medians[name], text = row_of(torch, case, ways[name], expected, replays)
        print(f"| {title:12} | {name:18} | {text} |", flush=True)
    best = {side: min((t for name, t in medians.items() if t and name.startswith(side)), default=None)
            for side in ("goldenrule", "FlashInfer")}
    if all(best.values()):
        ratio = best["FlashInfer"] / best["goldenrule"]
        print(f"| {title:12} | best over best     | {ratio:.2f} times as long; {best['goldenrule'] / case.T:.2f} "
              f"and {best['FlashInfer'] / case.T:.2f} us a token |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--replays", type=int, default=20)
    parser.add_argument("--path", default=[], action="append", help="a folder to import packages from, too")
    options = parser.parse_args()
    sys.path.extend(options.path)
    torch = torch_with_device()
    if torch is None:
        return 0
    if ops is None:
        print(f"SKIPPED: goldenrule.ops: {why_none}")
        return 0
    torch.set_grad_enabled(False)
    ways = ways_of(torch)
    print(f"{torch.cuda.get_device_name()}, T = {options.tokens}, context {options.context}: us of a step, "
          "median (10%-90%)\n\n| step | way | us |\n|---|---|---|")
    for bf16 in (False, True):
        for B in map(int, options.batches.split(",")):
            case = Case(torch, B, options.tokens, bf16, options.context)
            print_case(torch, case, ways, options.replays)
            case.sets.clear()
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
