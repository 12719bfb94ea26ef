#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times public kernels beside goldenrule's, in one process, through the C ABI.

Absolute times drift between machines and between clocks, so a ratio counts only if both sides ran on
the same data, in the same process, by the same method: a CUDA graph of launches over rotating sets of
inputs (at least 512 MiB of distinct states, so that nothing rests in L2), replayed; median and the
10th to 90th percentile, of one launch. Both sides work on the same tensors and their outputs are
compared first: a ratio between different functions means nothing.

    peer.py LIBRARY [--replays N] [--batches 1,4,16,64,256]

LIBRARY is libgoldenrule_gpu_shared.so. Peers, each used where it can be imported:
  fla                   flash-linear-attention: fused_recurrent_gated_delta_rule, fused_recurrent_kda
  gdn_triton_reference  SGLang's Triton decode and MTP kernels, the file in FlashInfer's benchmarks/
"""
import argparse
import ctypes
import importlib
import statistics
import sys

F32, BF16, I32 = 1, 3, 5
GDN, KDA = 0, 1
DEPENDENT_LAUNCH = 1 | 8  # waits, and lets the launch behind it begin
DISTINCT_BYTES = 512 << 20
K = V = 128


class Tensor(ctypes.Structure):
    """goldenrule_gpu_tensor; dense: strides are not looked at."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("stride", ctypes.c_int64 * 4),
        ("dtype", ctypes.c_int32),
        ("dense", ctypes.c_int32),
    ]


FIELD_TYPES = {
    "u64": ctypes.c_uint64, "i32": ctypes.c_int32, "u32": ctypes.c_uint32, "i64": ctypes.c_int64,
    "f64": ctypes.c_double, "tensor": Tensor, "pointer": ctypes.c_void_p,
}


def args_type(library, call="recurrent"):
    """goldenrule_gpu_recurrent_args, or those of another call, as the library describes them; a
    layout that Python would not reproduce to the byte is refused, because the library writes into
    it."""
    describe = getattr(library, f"goldenrule_gpu_{call}_fields")
    describe.restype = ctypes.c_char_p
    head, *lines = describe().decode().split("\n")
    fields = [line.split(" ") for line in lines]
    layout = [(name, FIELD_TYPES[kind]) for name, kind, _ in fields]
    args = type("Args", (ctypes.Structure,), {"_fields_": layout})
    expected = {name: int(offset) for name, _, offset in fields}
    actual = {name: getattr(args, name).offset for name in expected}
    size = int(head.split(" ")[-1])
    if actual != expected or ctypes.sizeof(args) != size:
        raise RuntimeError(f"{head}: expected {size} bytes and offsets {expected}, "
                           f"actual {ctypes.sizeof(args)} and {actual}")
    return args


class Case:
    """One row of the table and its sets of inputs."""

    def __init__(self, torch, op, kv, B, T=1, intermediates=False):
        self.op, self.kv, self.B, self.T = op, kv, B, T
        self.H, self.HV = (16, 32) if op == GDN else (32, 32)
        self.update = T == 1
        state_bytes = B * self.HV * K * V * 4
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
                "state": normal(B, self.HV, K, V, dtype=torch.float32),
                "o": torch.empty(B, T, self.HV, V, device="cuda", dtype=torch.bfloat16),
                "intermediates": torch.empty(B, T, self.HV, V, K, device="cuda")
                if intermediates else None,
            })

    def name(self):
        layout = "kv" if self.kv else "vk"
        kind = "gdn" if self.op == GDN else "kda"
        states = " +states" if self.sets[0]["intermediates"] is not None else ""
        return f"{kind} {layout} B={self.B} T={self.T}{states}{'' if self.update else ' no update'}"


class Goldenrule:
    def __init__(self, torch, path):
        self.torch = torch
        self.library = ctypes.CDLL(path)
        self.args_type = args_type(self.library)
        self.call("goldenrule_gpu_initialize")

    def call(self, function, *arguments):
        message = ctypes.create_string_buffer(256)
        if getattr(self.library, function)(*arguments, message, ctypes.c_size_t(256)) != 0:
            raise RuntimeError(f"{function}: {message.value.decode()}")

    def launch(self, case, inputs, flags=0):
        args = self.args_type()
        self.library.goldenrule_gpu_recurrent_defaults(
            ctypes.byref(args), ctypes.c_size_t(ctypes.sizeof(args)))
        args.op, args.state_layout, args.flags = case.op, int(case.kv), flags
        args.disable_state_update = int(not case.update)
        args.B, args.T, args.H, args.HV, args.K, args.V = (
            case.B, case.T, case.H, case.HV, K, V)
        args.slots, args.intermediate_rows, args.scale = case.B, case.T, K**-0.5
        tensors = {**inputs, "A_log": case.A_log, "dt_bias": case.dt_bias,
                   "state_indices": case.indices}
        tensors["intermediate_states"] = tensors.pop("intermediates")
        types = {self.torch.float32: F32, self.torch.bfloat16: BF16, self.torch.int32: I32}
        for name, tensor in tensors.items():
            if tensor is not None:
                setattr(args, name, Tensor(data=tensor.data_ptr(), dtype=types[tensor.dtype],
                                           dense=1))
        args.stream = self.torch.cuda.current_stream().cuda_stream
        self.call("goldenrule_gpu_recurrent", ctypes.byref(args))
        return inputs["o"]


def fla_peer(fla):
    gdn = importlib.import_module("fla.ops.gated_delta_rule").fused_recurrent_gated_delta_rule
    kda = importlib.import_module("fla.ops.kda").fused_recurrent_kda

    def launch(case, x):
        if case.T > 1:
            return None  # it keeps no intermediate states and cannot leave the state alone
        kernel = gdn if case.op == GDN else kda
        o, _ = kernel(
            q=x["q"], k=x["k"], v=x["v"], g=x["gate"], beta=x["beta"], A_log=case.A_log,
            dt_bias=case.dt_bias if case.op == GDN else case.dt_bias.view(-1),
            scale=K**-0.5, initial_state=x["state"], output_final_state=True,
            use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
            use_beta_sigmoid_in_kernel=True, state_v_first=not case.kv)
        return o

    return launch


def sglang_peer(module):
    def launch(case, x):
        if case.op == KDA:
            return None
        shared = dict(A_log=case.A_log, dt_bias=case.dt_bias, scale=K**-0.5, a=x["gate"],
                      b=x["beta"], q=x["q"], k=x["k"], v=x["v"], output=x["o"])
        if case.T > 1:
            return module.triton_gdn_mtp(
                initial_state=x["state"], initial_state_indices=case.indices,
                intermediate_states_buffer=x["intermediates"], disable_state_update=True,
                **shared)[0]
        kernel = module.triton_gdn_decode if case.kv else module.triton_gdn_decode_pretranspose
        return kernel(state=x["state"], **shared)[0]

    return launch


PEERS = {"fla": fla_peer, "gdn_triton_reference": sglang_peer}


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
        launch(case.sets[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for inputs in launches:
            launch(inputs)
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


def cases(torch, batches):
    for op in (GDN, KDA):
        for B in batches:
            for kv in (False, True):
                yield Case(torch, op, kv, B)
    for B in [b for b in batches if b in (1, 8, 64)] or [1, 64]:
        for intermediates in (False, True):
            yield Case(torch, GDN, False, B, 8, intermediates)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("--replays", type=int, default=30)
    parser.add_argument("--batches", default="1,4,8,16,64,256")
    options = parser.parse_args()

    torch = torch_with_device()
    if torch is None:
        return 0
    peers = {}
    for name, make in PEERS.items():
        try:
            peers[name] = make(importlib.import_module(name))
        except Exception as error:  # a peer may fail to import in its own ways
            print(f"SKIPPED: peer {name}: {error}")
    if not peers:
        print("SKIPPED: no peer can be imported")
        return 0

    goldenrule = Goldenrule(torch, options.library)
    print(torch.cuda.get_device_name(), "- us of one launch: median (10%-90%)")
    print(f"{'call':32} {'peer':22} {'peer us':>26} {'goldenrule us':>26} {'ratio':>6} "
          f"{'dep. us':>8} {'ratio':>6} {'rel. diff. of o':>16}")
    for case in cases(torch, [int(b) for b in options.batches.split(",")]):
        def ours(inputs, flags=0, case=case):
            return goldenrule.launch(case, inputs, flags)

        plain = dependent = None
        for name, peer in peers.items():
            difference = disagreement(torch, case, ours, peer)
            if difference is None:
                continue
            if plain is None:
                plain = time_graph(torch, case, ours, options.replays)
                dependent = time_graph(
                    torch, case, lambda x: ours(x, DEPENDENT_LAUNCH), options.replays)
            theirs = time_graph(torch, case, lambda x: peer(case, x), options.replays)
            print(f"{case.name():32} {name:22} "
                  f"{'%.2f (%.2f-%.2f)' % theirs:>26} {'%.2f (%.2f-%.2f)' % plain:>26} "
                  f"{theirs[0] / plain[0]:6.2f} {dependent[0]:8.2f} "
                  f"{theirs[0] / dependent[0]:6.2f} {difference:16.1e}", flush=True)
        case.sets.clear()
    return 0


if __name__ == "__main__":
    sys.exit(main())
