#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times public attention kernels beside goldenrule's, in one process and on the same keys.

The method is that of peer.py: CUDA graphs of launches over rotating sets of inputs. One block of 16 tokens
per request, 32/8 heads of 128, bf16, mask full. Ours reads a paged cache in random order; torch's kernels
read the same keys as dense tensors, with the query heads of a key head packed into rows (each key read
once), and FlashInfer the same pages. Outputs are compared with an fp32 softmax first: a peer that computes
something else is listed and not timed.

    peer_attention.py LIBRARY [--peers NAME,..] [--rows TEXT] [--replays N] [--block B] [--page P]
                      [--save FILE --commit COMMIT]      # the rows for peer_page.py

LIBRARY is libgoldenrule_gpu_shared.so. Peers, each used where it can be imported and takes the row:
torch_cudnn, torch_flash (scaled_dot_product_attention), flashinfer (BatchPrefillWithPagedKVCacheWrapper),
flash_attention_3 (fa3-fwd), flash_attention_4 (flash-attn-4); these two pack the heads themselves.
"""
import argparse
import sys

from peer import time_graph, torch_with_device
from peer_page import Results, saving

import own

H, HV, D = 8, 32, 128
DISTINCT_BYTES = 512 << 20
ROWS = [(n, k << 10) for n, ks in ((1, (1, 4, 16, 64)), (8, (1, 4, 16, 64)), (64, (1, 4, 16)))
        for k in ks]  # requests, cached tokens
OTHER_FUNCTION = 0.02  # relative RMSE beyond which a peer computes something else


class Case:
    """One row and its sets of inputs; keys are those of pages in the order of the table."""

    def __init__(self, torch, requests, context, block, page):
        self.torch, self.N, self.context, self.B, self.P = torch, requests, context, block, page
        self.width = -(-context // page)
        self.total = requests * block
        self.generator = torch.Generator(device="cuda").manual_seed(7)
        self.bounds = torch.arange(requests + 1, device="cuda", dtype=torch.int32) * block
        self.lengths = torch.full((requests,), context, device="cuda", dtype=torch.int32)
        count = max(1, min(16, DISTINCT_BYTES // (4 * requests * context * H * D)))
        self.sets = [self.inputs() for _ in range(count)]

    def normal(self, *shape):
        return self.torch.randn(*shape, generator=self.generator, device="cuda",
                                dtype=self.torch.bfloat16)

    def inputs(self):
        torch, pages = self.torch, self.N * self.width
        table = torch.randperm(pages, generator=self.generator, device="cuda")
        x = {"q": self.normal(self.total, HV, D), "k_cache": self.normal(pages, self.P, H, D),
             "v_cache": self.normal(pages, self.P, H, D),
             "table": table.to(torch.int32).reshape(self.N, self.width)}
        x["o"] = torch.empty_like(x["q"])
        return x

    def dense(self, x):
        """q [N,H,B G,D] with packed rows, k and v [N,H,context,D]; made outside any time."""
        if "k" not in x:
            q = x["q"].reshape(self.N, self.B, H, HV // H, D).permute(0, 2, 1, 3, 4)
            x["rows"] = q.reshape(self.N, H, self.B * HV // H, D).contiguous()
            for name in ("k", "v"):
                pages = x[f"{name}_cache"][x["table"].long()].reshape(self.N, -1, H, D)
                x[name] = pages[:, :self.context].transpose(1, 2).contiguous()
        return x["rows"], x["k"], x["v"]

    def unpacked(self, o):
        o = o.reshape(self.N, H, self.B, HV // H, D).permute(0, 2, 1, 3, 4)
        return o.reshape(self.total, HV, D)


class Own(own.Goldenrule):
    def launch(self, case, x):
        self.run("attention", {
            "total": case.total, "N": case.N, "most_q": case.B, "H": H, "HV": HV, "K": D, "V": D,
            "pages": case.N * case.width, "page_size": case.P, "table_width": case.width,
            "scale": D**-0.5}, {
            **{name: x[name] for name in ("q", "o", "k_cache", "v_cache")}, "page_table": x["table"],
            "cu_seqlens_q": case.bounds, "kv_lens": case.lengths})
        return x["o"]


def torch_kernel(torch, backend):
    attention = torch.nn.attention
    kind = getattr(attention.SDPBackend, backend)

    def launch(case, x):
        with attention.sdpa_kernel(kind):
            o = torch.nn.functional.scaled_dot_product_attention(*case.dense(x))
        return o
    return launch, lambda case, o: case.unpacked(o)


def flash_attention(attend, num_splits):
    """FlashAttention 3 or 4 on dense keys [N,context,H,D]; q [N,B,HV,D]. num_splits=0: it chooses."""
    def launch(case, x):
        if "tokens" not in x:  # made outside any time
            _, k, v = case.dense(x)
            x["tokens"] = tuple(t.transpose(1, 2).contiguous() for t in (k, v))
        o = attend(x["q"].reshape(case.N, case.B, HV, D), *x["tokens"], pack_gqa=True, num_splits=num_splits)
        return o[0] if isinstance(o, tuple) else o
    return launch, lambda case, o: o.reshape(case.total, HV, D)


def flash_attention_3(torch):
    from fa3_fwd_interface import flash_attn_func
    return flash_attention(flash_attn_func, 0)


def flash_attention_4(torch):
    from flash_attn.cute.interface import flash_attn_func
    splits_keys = torch.cuda.get_device_capability()[0] != 9
    return flash_attention(flash_attn_func, 0 if splits_keys else 1)


def flashinfer(torch):
    import flashinfer as module

    def launch(case, x):
        if "wrapper" not in x:  # its plan is made outside the time
            workspace = torch.empty(256 << 20, device="cuda", dtype=torch.uint8)
            wrapper = module.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")
            indptr = torch.arange(case.N + 1, device="cuda", dtype=torch.int32) * case.width
            last = torch.full((case.N,), case.context - (case.width - 1) * case.P, device="cuda",
                              dtype=torch.int32)
            wrapper.plan(case.bounds, indptr, x["table"].flatten(), last, HV, H, D, case.P,
                         causal=False, q_data_type=torch.bfloat16)
            x["wrapper"] = wrapper
        return x["wrapper"].run(x["q"], (x["k_cache"], x["v_cache"]))
    return launch, lambda case, o: o


PEERS = {"torch_cudnn": lambda torch: torch_kernel(torch, "CUDNN_ATTENTION"),
         "torch_flash": lambda torch: torch_kernel(torch, "FLASH_ATTENTION"),
         "flashinfer": flashinfer, "flash_attention_3": flash_attention_3,
         "flash_attention_4": flash_attention_4}


def exact(case, x):
    q, k, v = (t.float() for t in case.dense(x))
    weights = (q @ k.transpose(-1, -2) * D**-0.5).softmax(-1)
    return case.unpacked(weights @ v)


def row_of(torch, case, name, launch, unpack, replays):
    """The text of a time, or why there is none."""
    try:
        got = unpack(case, launch(case, case.sets[0])).float()
        expected = exact(case, case.sets[0])
        error = ((got - expected).norm() / expected.norm()).item()
        if not error < OTHER_FUNCTION:
            return f"{name:12} another function: relative RMSE {error:.3g}", None
        median, low, high = time_graph(torch, case, lambda x: launch(case, x), replays, 8)
    except Exception as failure:  # of another project's code
        return f"{name:12} FAILED: {str(failure)[:120]}", None
    return f"{name:12} {median:9.1f} ({low:.1f}-{high:.1f}), error {100 * error:.3f} %", median


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--replays", type=int, default=20)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--page", type=int, default=64)
    saving(parser)
    options = parser.parse_args()
    torch = torch_with_device()
    if torch is None:
        return 0
    torch.set_grad_enabled(False)
    goldenrule, peers = Own(torch, options.library), {}
    for name in options.peers.split(","):
        try:
            peers[name] = PEERS[name](torch)
        except Exception as error:  # a peer may fail to import in its own ways
            print(f"SKIPPED: peer {name}: {str(error)[:120] or repr(error)}")
    results = Results(torch, "attention", peers, options.save, options.commit)
    print(f"{torch.cuda.get_device_name()} - us of one launch: median (10%-90%)")
    for requests, context in ROWS:
        name = f"{requests}x{context >> 10}k"
        if options.rows not in name:
            continue
        case = Case(torch, requests, context, options.block, options.page)
        text, ours = row_of(torch, case, "goldenrule", goldenrule.launch, lambda _, o: o, options.replays)
        print(f"{name:8} {text}")
        measured = {}
        for peer, (launch, unpack) in peers.items():
            text, theirs = row_of(torch, case, peer, launch, unpack, options.replays)
            if ours and theirs:
                measured[peer] = theirs
                text += f"  {theirs / ours:.2f}x"
            print(f"{name:8} {text}", flush=True)
        results.add(name, [ours], measured)
        case.sets.clear()
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
