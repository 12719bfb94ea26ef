#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times public kernels beside goldenrule's, in one process, through the C ABI.

Absolute times drift between machines and between clocks, so a ratio counts only if both sides ran on
the same data, in the same process, by the same method: a CUDA graph of launches over rotating sets of
inputs (at least 512 MiB of distinct states, so that nothing rests in L2), replayed; median and the
10th to 90th percentile, of one launch. Both sides work on the same tensors and their outputs are
compared first: a ratio between different functions means nothing, so those are listed and not timed.

    peer.py LIBRARY [--peers NAME,..] [--rows TEXT] [--replays N] [--batches 1,4,..] [--path FOLDER]
            [--save FILE --commit COMMIT]      # the rows for peer_page.py

LIBRARY is libgoldenrule_gpu_shared.so. Peers (peer_kernels.py), each used where it can be imported, from
FOLDER too:
  flashinfer            FlashInfer's kernels in CuTe DSL
  fla                   flash-linear-attention: fused_recurrent_gated_delta_rule, fused_recurrent_kda
  sglang                SGLang's fused_sigmoid_gating_delta_rule_update, with dependent launch
  gdn_triton_reference  the file of that name in FlashInfer's benchmarks/, after SGLang's kernels
"""
import argparse
import gc
import importlib
import statistics
import sys

from peer_kernels import GDN, KDA, PEERS, K
from peer_page import Results, saving

import own
from goldenrule_capture import OPS

DEPENDENT_LAUNCH = 1 | 8  # waits, and lets the launch behind it begin
DISTINCT_BYTES = 512 << 20
V = 128
OTHER_FUNCTION = 0.05  # relative RMS of o beyond which a peer computes something else


class Case:
    """One row of the table and its sets of inputs."""

    def __init__(self, torch, op, kv, bf16, B, T=1, update=True, intermediates=False):
        self.op, self.kv, self.bf16, self.B, self.T = op, kv, bf16, B, T
        self.update, self.intermediates = update, intermediates
        self.H, self.HV = (16, 32) if op == GDN else (32, 32)
        state_bytes = B * self.HV * K * V * (2 if bf16 else 4)
        state_type = torch.bfloat16 if bf16 else torch.float32
        generator = torch.Generator(device="cuda").manual_seed(1)

        def normal(*shape, dtype=torch.bfloat16):
            return torch.randn(*shape, generator=generator, device="cuda", dtype=dtype)

        self.A_log = normal(self.HV, dtype=torch.float32)
        self.dt_bias = normal(*((self.HV,) if op == GDN else (self.HV, K)), dtype=torch.float32)
        self.indices = torch.arange(B, device="cuda", dtype=torch.int32)
        self.sets = []
        for _ in range(max(2, -(-DISTINCT_BYTES // state_bytes))):
            gate = (B, T, self.HV) if op == GDN else (B, T, self.HV, K)
            self.sets.append({
                "q": normal(B, T, self.H, K), "k": normal(B, T, self.H, K),
                "v": normal(B, T, self.HV, V), "gate": normal(*gate),
                "beta": normal(B, T, self.HV),
                "state": normal(B, self.HV, K, V, dtype=state_type),
                "o": torch.empty(B, T, self.HV, V, device="cuda", dtype=torch.bfloat16),
                "intermediates": torch.empty(B, T, self.HV, V, K, device="cuda", dtype=state_type)
                if intermediates else None,
                "ready": {},  # the calls of peers
            })

    def name(self):
        return row_name(self.op, self.kv, self.bf16, self.B, self.T, self.update,
                        self.intermediates)


def row_name(op, kv, bf16, B, T=1, update=True, intermediates=False):
    return (f"{'kda' if op == KDA else 'gdn'} {'kv' if kv else 'vk'} {'bf16' if bf16 else 'f32'} "
            f"B={B} T={T}{' +states' if intermediates else ''}{'' if update else ' no update'}")


class Goldenrule(own.Goldenrule):
    def launch(self, case, inputs, flags=0):
        numbers = {"op": OPS.index(case.op), "state_layout": int(case.kv), "flags": flags,
                   "disable_state_update": int(not case.update), "B": case.B, "T": case.T, "H": case.H,
                   "HV": case.HV, "K": K, "V": V, "slots": case.B, "intermediate_rows": case.T,
                   "scale": K**-0.5}
        tensors = {name: inputs[name] for name in ("q", "k", "v", "gate", "beta", "state", "o")}
        self.run("recurrent", numbers, {
            **tensors, "A_log": case.A_log, "dt_bias": case.dt_bias, "state_indices": case.indices,
            "intermediate_states": inputs["intermediates"]})
        return inputs["o"]


def torch_with_device():
    """torch, or None where it or a device is missing, which is said."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        print(f"SKIPPED: PyTorch: {error}")
        return None
    if not torch.cuda.is_available():
        print("SKIPPED: PyTorch sees no CUDA device")
        return None
    return torch


def time_graph(torch, case, launch, replays, least=32):
    """(median, low, high) microseconds of one launch of launch(set), `least` or more to a graph."""
    launches = [case.sets[i % len(case.sets)] for i in range(max(len(case.sets), least))]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for inputs in case.sets:  # what a peer makes ready or compiles is made here
            launch(inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    gc.collect()
    gc.disable()  # what Python frees meanwhile may end a capture
    try:
        with torch.cuda.graph(graph, stream=stream):
            for inputs in launches:
                launch(inputs)
    finally:
        gc.enable()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for i in range(3 + replays):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if i >= 3:
            times.append(1e3 * begin.elapsed_time(end) / len(launches))
    times.sort()
    return statistics.median(times), times[len(times) // 10], times[len(times) * 9 // 10]


def disagreement(torch, case, ours, peer):
    """Relative RMS of the difference of o on the same start state; None: the peer has no such row."""
    inputs = case.sets[0]
    state = inputs["state"].clone()
    theirs = peer(case, inputs)
    if theirs is None:
        return None
    theirs = theirs.clone().float().view(-1)
    inputs["state"].copy_(state)
    mine = ours(inputs).float().view(-1)
    inputs["state"].copy_(state)
    return ((mine - theirs).norm() / theirs.norm()).item()


def rows(batches):
    """The arguments of Case for every row."""
    for op in (GDN, KDA):
        for kv, bf16 in ((False, False), (True, False), (False, True)):
            yield from ((op, kv, bf16, B) for B in batches)
    for B, T in ((1, 8), (8, 8), (64, 2), (64, 4), (64, 8)):
        for bf16 in (False, True):
            for intermediates in (False, True):
                yield GDN, False, bf16, B, T, False, intermediates
    for op in (GDN, KDA):
        for bf16 in (False, True):
            yield from ((op, False, bf16, B, 8) for B in (8, 64))


def imported_peers(names, known=PEERS):
    """{name: launcher} of the peers that can be imported; `known`: {name: its maker}."""
    peers = {}
    for name in names:
        try:
            peers[name] = known[name]()
        except Exception as error:  # a peer may fail to import in its own ways
            print(f"SKIPPED: peer {name}: {str(error)[:160] or repr(error)}")
    return peers


def print_row(torch, case, goldenrule, peers, replays, results):
    plain = dependent = None
    measured = {}
    for name, peer in peers.items():
        try:
            difference = disagreement(torch, case, lambda x: goldenrule.launch(case, x), peer)
            if difference is None:
                continue
            if not difference < OTHER_FUNCTION:
                print(f"{case.name():40} {name:22} another function: o differs by {difference:.3g}")
                continue
            theirs = time_graph(torch, case, lambda x, peer=peer: peer(case, x), replays)
        except Exception as error:  # of another project's code
            print(f"{case.name():40} {name:22} FAILED: {str(error)[:160] or repr(error)}")
            continue
        if plain is None:
            plain, dependent = (time_graph(
                torch, case, lambda x, flags=flags: goldenrule.launch(case, x, flags), replays)
                for flags in (0, DEPENDENT_LAUNCH))
        measured[name] = theirs[0]
        print(f"{case.name():40} {name:22} "
              f"{'%.2f (%.2f-%.2f)' % theirs:>26} {'%.2f (%.2f-%.2f)' % plain:>26} "
              f"{theirs[0] / plain[0]:6.2f} {dependent[0]:8.2f} "
              f"{theirs[0] / dependent[0]:6.2f} {difference:16.1e}", flush=True)
    if measured:
        results.add(case.name(), [plain[0], dependent[0]], measured)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--replays", type=int, default=30)
    parser.add_argument("--batches", default="1,4,8,16,64,256")
    parser.add_argument("--path", default=[], action="append",
                        help="a folder to import peers from, too")
    saving(parser)
    options = parser.parse_args()

    sys.path.extend(options.path)
    torch = torch_with_device()
    if torch is None:
        return 0
    torch.set_grad_enabled(False)
    peers = imported_peers(options.peers.split(","))
    if not peers:
        print("SKIPPED: no peer can be imported")
        return 0

    goldenrule = Goldenrule(torch, options.library)
    results = Results(torch, "recurrent", peers, options.save, options.commit)
    print(torch.cuda.get_device_name(), "- us of one launch: median (10%-90%)")
    print(f"{'call':40} {'peer':22} {'peer us':>26} {'goldenrule us':>26} {'ratio':>6} "
          f"{'dep. us':>8} {'ratio':>6} {'rel. diff. of o':>16}")
    for row in rows([int(b) for b in options.batches.split(",")]):
        if options.rows not in row_name(*row):
            continue
        case = Case(torch, *row)
        print_row(torch, case, goldenrule, peers, options.replays, results)
        case.sets.clear()
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
