#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times public chunked prefill kernels beside goldenrule's, in one process and on the same tensors.

The method is that of peer.py: CUDA graphs of launches over rotating sets of inputs. Ours takes bf16
gate and beta logits, and makes norms, gates, sigmoid and scale in the call. A peer that wants gates or
beta ready gets them, made outside its time; all of them normalise q and k within it.

    peer_prefill.py LIBRARY [--peers NAME,..] [--rows TEXT] [--replays N] [--seconds S]
                    [--save FILE --commit COMMIT]      # the rows for peer_page.py

Before the times, the accuracy on one sequence of 2,048 tokens, 16/32 heads (KDA 16): o and final state
against the recurrence in fp64, token by token, on random keys and on keys of nearly one direction. It is
also the comparison of outputs without which a ratio of times means nothing: a peer that computes
something else is listed and not timed. Relative RMSE, as percent.

LIBRARY is libgoldenrule_gpu_shared.so. Peers, each used where it can be imported and takes the row:
flashinfer (GDN; context parallel where it chooses to), flash_qla (GDN), fla (both), cudnn (KDA).
FlashKDA is in no package registry.
"""
import argparse
import os
import sys
import time

from peer import GDN, KDA, K, V, imported_peers, time_graph, torch_with_device
from peer_kernels import launching
from peer_page import Results, saving

import own
from goldenrule_capture import CONVENTION, OPS
from public import FLA_ALONE, Call, public

GATE_OF = {GDN: "softplus", KDA: "bounded"}
LOWER_BOUND = -5.0
DISTINCT_BYTES = 512 << 20
MIXED = (1300, 547, 2048, 963, 271, 3063)
ROWS = [  # op, H, HV, lengths: those of README.md
    (GDN, 16, 32, (8192,)), (GDN, 16, 32, MIXED), (GDN, 16, 32, (1024,) * 8),
    (GDN, 16, 32, (2048,) * 4), (GDN, 16, 32, (1024,)), (GDN, 16, 32, (32768,)),
    (GDN, 16, 64, (8192,)), (GDN, 2, 8, (8192,)), (GDN, 2, 8, (32768,)),
    (KDA, 64, 64, (8192,)), (KDA, 64, 64, MIXED), (KDA, 64, 64, (1024,) * 8),
    (KDA, 64, 64, (32768,)),
]
OTHER_FUNCTION = 0.05  # relative RMSE of o beyond which a peer computes something else


def label(op, H, HV, lengths):
    text = f"{len(lengths)}x{lengths[0]}".removeprefix("1x") if lengths != MIXED else "mixed"
    return f"{'gdn' if op == GDN else 'kda'} {H}/{HV} {text}"


class Case:
    """One row and its sets of inputs; `direction`: the cosine of any two keys of a head, about."""

    def __init__(self, torch, op, H, HV, lengths, direction=0.0, sets=None):
        self.torch, self.op, self.H, self.HV, self.lengths = torch, op, H, HV, lengths
        self.total, self.N = sum(lengths), len(lengths)
        self.generator = torch.Generator(device="cuda").manual_seed(7)
        bounds = torch.tensor([0, *lengths], device="cuda").cumsum(0)
        self.cu, self.cu32 = bounds, bounds.to(torch.int32)
        self.A_log = torch.linspace(-4, 1, HV, device="cuda") if op == GDN else self.zeros(HV)
        self.dt_bias = self.zeros(HV) - 2 if op == GDN else self.zeros(HV, K)
        row = 2 * (2 * H * K + HV * (2 * V + (1 if op == GDN else K) + 1)) * self.total
        if sets is None:
            sets = max(2, -(-DISTINCT_BYTES // (row + 8 * self.N * HV * K * V)))
        self.sets = [self.inputs(direction) for _ in range(sets)]

    def zeros(self, *shape):
        return self.torch.zeros(*shape, device="cuda")

    def normal(self, *shape, **named):
        named = {"dtype": self.torch.bfloat16, **named}
        return self.torch.randn(*shape, generator=self.generator, device="cuda", **named)

    def inputs(self, direction):
        torch, n, H, HV = self.torch, self.total, self.H, self.HV
        x = {"q": self.normal(n, H, K), "v": self.normal(n, HV, V), "beta": self.normal(n, HV),
             "gate": self.normal(n, HV) if self.op == GDN else self.normal(n, HV, K),
             "state": self.normal(self.N, HV, V, K, dtype=torch.float32)}
        k = self.normal(1, H, K, dtype=torch.float32) * direction ** 0.5
        x["k"] = (k + self.normal(n, H, K) * (1 - direction) ** 0.5).to(torch.bfloat16)
        x["o"] = torch.empty_like(x["v"])
        x["final_state"] = torch.empty_like(x["state"])
        x["ready"] = {}  # the calls of peers
        return x

    def log_gates(self, x, dtype):
        a = x["gate"].to(dtype) + self.dt_bias.to(dtype)
        if self.op == GDN:
            return -self.A_log.to(dtype).exp() * self.torch.nn.functional.softplus(a)
        return LOWER_BOUND * (self.A_log.to(dtype).exp()[:, None] * a).sigmoid()

    def prepared(self, x):
        """What some peers want ready: log gates and beta in fp32, and linear gates."""
        if "log" not in x:
            x["log"] = self.log_gates(x, self.torch.float32)
            x["linear"] = x["log"].exp() if self.op == GDN else None
            x["write"] = x["beta"].float().sigmoid()
        return x


def exact(case, x):
    """(o, final state [V,K]) in fp64, token by token; one sequence."""
    torch, repeat = case.torch, case.HV // case.H
    q, k = (x[n].double().repeat_interleave(repeat, 1) for n in ("q", "k"))
    q, k = (t * ((t * t).sum(-1, keepdim=True) + 1e-6).rsqrt() for t in (q, k))
    alpha = case.log_gates(x, torch.float64).exp()
    alpha = alpha[..., None, None] if case.op == GDN else alpha[:, :, None, :]
    beta, v, state = x["beta"].double().sigmoid()[..., None], x["v"].double(), x["state"][0].double()
    o = torch.empty_like(v)
    for t in range(case.total):
        state = state * alpha[t]
        u = beta[t] * (v[t] - torch.einsum("hvk,hk->hv", state, k[t]))
        state = state + u[:, :, None] * k[t][:, None, :]
        o[t] = torch.einsum("hvk,hk->hv", state, q[t]) * K**-0.5
    return o, state


class Own(own.Goldenrule):
    def launch(self, case, x):
        numbers = {"op": OPS.index(case.op), "gate_kind": CONVENTION["gate"].index(GATE_OF[case.op]),
                   "total": case.total, "N": case.N, "H": case.H, "HV": case.HV, "K": K, "V": V,
                   "slots": case.N, "scale": K**-0.5, "lower_bound": LOWER_BOUND}
        names = ("q", "k", "v", "gate", "beta", "o", "state", "final_state")
        self.run("prefill", numbers, {**{n: x[n] for n in names}, "A_log": case.A_log,
                                      "dt_bias": case.dt_bias, "cu_seqlens": case.cu32})
        return x["o"], x["final_state"]


def call_of(case, x, gate, bounds=None):
    """A set of inputs in the words of the schema, with raw gates and logits or with those made ready."""
    raw = gate == GATE_OF[case.op]
    inputs = {"q": x["q"], "k": x["k"], "v": x["v"], "initial_state": x["state"],
              "cu_seqlens": case.cu if bounds is None else bounds}
    if raw:
        inputs |= {"a": x["gate"], "b": x["beta"], "A_log": case.A_log, "dt_bias": case.dt_bias}
    else:
        inputs |= {"g": case.prepared(x)[gate], "beta": x["write"]}
    return Call(case.op, {
        "state_layout": "vk", "gate": gate, "lower_bound": LOWER_BOUND, "scale": K**-0.5,
        "beta": "sigmoid" if raw else "direct", "qk_l2norm": "rsqrt_sum_eps"}, inputs)


def both_of(result):
    return result[:2]


def flashinfer():
    kernel = public("flashinfer.gdn_prefill.chunk_gated_delta_rule")

    def make(case, x):
        return kernel.prepared(call_of(case, x, "linear"), max_seqlen=max(case.lengths),
                               room={"o": x["o"], "final_state": x["final_state"]})
    return launching(make, both_of), (GDN,)


def flash_qla():
    kernel = public("flash_qla.ops.gated_delta_rule.chunk.chunk_gated_delta_rule")

    def make(case, x):
        return kernel.prepared(call_of(case, x, "log", case.cu32))
    return launching(make, both_of), (GDN,)


def fla():
    kernels = {GDN: public("fla.ops.gated_delta_rule.chunk.chunk_gated_delta_rule"),
               KDA: public("fla.ops.kda.chunk.chunk_kda")}

    def make(case, x):
        more = {"safe_gate": True} if case.op == KDA else {}
        return kernels[case.op].prepared(call_of(case, x, GATE_OF[case.op]), **more)
    return launching(make, both_of), (GDN, KDA)


def cudnn():
    kernel = public("cudnn.linear_attention.ops.kda.kimi_delta_attention")
    return launching(lambda case, x: kernel.prepared(call_of(case, x, "bounded")), both_of), (KDA,)


PEERS = {"flashinfer": flashinfer, "flash_qla": flash_qla, "fla": fla, "cudnn": cudnn}


def accuracy(torch, peers, goldenrule):
    """Prints the table; returns the (peer, op) that compute the same function."""
    same = set()
    print(f"{'accuracy, 2048 tokens':28} {'kernel':12} {'o %':>8} {'state %':>8}")
    for op in (GDN, KDA):
        for direction in (0.0, 0.95, 0.999):
            case = Case(torch, op, 16, 32 if op == GDN else 16, (2048,), direction, sets=1)
            x = case.sets[0]
            expected = exact(case, x)
            for name, (launch, ops) in {"goldenrule": (goldenrule.launch, (GDN, KDA)), **peers}.items():
                if op not in ops:
                    continue
                try:
                    got = launch(case, x)[:2]
                    torch.cuda.synchronize()
                except Exception as error:  # of another project's code
                    print(f"FAILED: {name}: {str(error)[:160]}")
                    continue
                errors = [((g.double().reshape(e.shape) - e).norm() / e.norm()).item()
                          for g, e in zip(got, expected, strict=True)]
                note = "" if errors[0] < OTHER_FUNCTION else "  another function: not timed"
                if not note:
                    same.add((name, op))
                print(f"{'gdn' if op == GDN else 'kda'} keys of cosine {direction:<10} {name:12} "
                      f"{100 * errors[0]:8.3f} {100 * errors[1]:8.3f}{note}", flush=True)
    return same


def eager_time(torch, case, launch, replays):
    """Of a peer that cannot be captured: launches one behind the other, host included."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
    events[0].record()
    for i, event in enumerate(events[1:]):
        launch(case.sets[i % len(case.sets)])
        event.record()
    torch.cuda.synchronize()
    times = sorted(1e3 * a.elapsed_time(b) for a, b in zip(events, events[1:], strict=False))
    return times[len(times) // 2], times[len(times) // 10], times[len(times) * 9 // 10]


def timed(torch, case, launch, replays):
    launch(case, case.sets[0])  # compiles, tunes and prepares
    torch.cuda.synchronize()
    once = eager_time(torch, case, lambda x: launch(case, x), 5)[0]
    least = max(1, min(32, int(2e3 / once)))
    try:
        return time_graph(torch, case, lambda x: launch(case, x), replays, least), ""
    except Exception:  # it reads on the host
        return eager_time(torch, case, lambda x: launch(case, x), replays), " (no graph)"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--replays", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=600, help="no new row after these")
    saving(parser)
    options, begin = parser.parse_args(), time.monotonic()
    torch = torch_with_device()
    if torch is None:
        return 0
    torch.set_grad_enabled(False)
    os.environ.update(FLA_ALONE)
    goldenrule, peers = Own(torch, options.library), imported_peers(options.peers.split(","), PEERS)
    results = Results(torch, "prefill", peers, options.save, options.commit)
    same = accuracy(torch, peers, goldenrule)
    print(f"\n{torch.cuda.get_device_name()} - us of one launch: median (10%-90%)\n"
          f"{'call':22} {'peer':12} {'peer us':>26} {'goldenrule us':>26} {'ratio':>6}")
    for row in ROWS:
        if options.rows not in label(*row) or time.monotonic() - begin > options.seconds:
            continue
        case = Case(torch, *row)
        ours, _ = timed(torch, case, goldenrule.launch, options.replays)
        measured = {}
        for name, (launch, _) in peers.items():
            if (name, row[0]) not in same:
                continue
            try:
                theirs, note = timed(torch, case, launch, options.replays)
            except Exception as error:  # of another project's code
                print(f"{label(*row):22} {name:12} FAILED: {str(error)[:120]}")
                continue
            measured[name] = theirs[0]
            print(f"{label(*row):22} {name:12} {'%.1f (%.1f-%.1f)' % theirs:>26} "
                  f"{'%.1f (%.1f-%.1f)' % ours:>26} {theirs[0] / ours[0]:6.2f}{note}", flush=True)
        results.add(label(*row), [ours[0]], measured)
        case.sets.clear()
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
