# SPDX-License-Identifier: Apache-2.0
"""Captures of attention: what write_capture brings to the schema, and a kernel in NumPy and one of
torch that `goldenrule check` judges, right and with mistakes. Needs GOLDENRULE_TOOL."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "python"))
import goldenrule_capture as gc  # noqa: E402

TOOL = os.environ.get("GOLDENRULE_TOOL")


def softmax_attention(q, k, v, causal=True, scale=None):
    """o [B,T,HV,V] and lse [B,HV,T] of q [B,T,HV,K], k [B,T,H,K], v [B,T,H,V], in float64."""
    group = q.shape[2] // k.shape[2]
    k, v = (np.repeat(x.astype(np.float64), group, axis=2) for x in (k, v))
    s = np.einsum("bihd,bjhd->bhij", q.astype(np.float64), k)
    s *= q.shape[-1] ** -0.5 if scale is None else scale
    if causal:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
    top = s.max(-1, keepdims=True)
    p = np.exp(s - top)
    total = p.sum(-1, keepdims=True)
    return np.einsum("bhij,bjhd->bihd", p / total, v), (top + np.log(total))[..., 0]


class AttentionTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="goldenrule-")
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name) / "capture.h5"
        random = np.random.default_rng(7)
        # Halves of integers: numbers of every type.
        self.q, self.k, self.v = ((random.integers(-4, 5, (2, 9, heads, 8)) / 2).astype(np.float32)
                                  for heads in (4, 2, 2))

    def write(self, o, **options):
        lse = options.pop("lse", None)
        arguments = dict(op="attention", mode="prefill", convention=dict(mask="causal"),
                         inputs=dict(q=self.q, k=self.k, v=self.v), outputs=dict(o=o, lse=lse))
        gc.write_capture(self.path, **{**arguments, **options})

    def check(self, *arguments):
        if not TOOL:
            self.skipTest("GOLDENRULE_TOOL does not name the goldenrule executable")
        done = subprocess.run([TOOL, "check", str(self.path), *arguments], capture_output=True,
                              text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_rows_are_packed(self):
        o, lse = softmax_attention(self.q, self.k, self.v)
        self.write(o.astype(np.float32), lse=lse.astype(np.float32))
        read = gc.read_fixture(self.path)
        self.assertEqual((read.op, read.mode), ("attention", "prefill"))
        self.assertEqual(read.convention, {**gc.ATTENTION_DEFAULTS, "mask": "causal"})
        self.assertEqual(read.inputs["q"].shape, (18, 4, 8))
        self.assertEqual(read.inputs["k"].shape, (18, 2, 8))
        np.testing.assert_array_equal(read.inputs["cu_seqlens_q"], [0, 9, 18])
        np.testing.assert_array_equal(read.inputs["cu_seqlens_k"], [0, 9, 18])
        np.testing.assert_array_equal(read.outputs["o"], o.astype(np.float32).reshape(18, 4, 8))
        np.testing.assert_array_equal(read.outputs["lse"][9], lse[1, :, 0].astype(np.float32))

    def test_a_right_kernel_passes(self):
        o, lse = softmax_attention(self.q, self.k, self.v)
        self.write(o.astype(np.float32), lse=lse.astype(np.float32))
        code, text = self.check("--contract", "ideal")
        self.assertEqual(code, 0, text)

    def test_mistakes_are_named(self):
        for name, options in (("mask_none_in_segment", dict(causal=False)),
                              ("scale_missing", dict(scale=1.0))):
            with self.subTest(name):
                o, _ = softmax_attention(self.q, self.k, self.v, **options)
                self.write(o.astype(np.float32))
                code, text = self.check()
                self.assertEqual(code, 1, text)
                self.assertIn(f"explained by {name}", text)

    def test_pages(self):
        """The same keys, in a cache of pages of 4 in reversed order."""
        pages = np.zeros((2, 7, 4, 2, 8), np.float32)
        table = np.arange(5, 2, -1)[None] + np.zeros((2, 1), np.int64)
        for cache, x in zip(pages, (self.k, self.v)):
            for t in range(9):
                cache[table[0, t // 4], t % 4] = x[0, t]
        inputs = dict(q=self.q[0, 8:], cu_seqlens_q=np.array([0, 1]), k_cache=pages[0],
                      v_cache=pages[1], kv_lens=np.array([9]), page_table=table[:1])
        o, _ = softmax_attention(self.q, self.k, self.v)
        self.write(o[0, 8:].astype(np.float32), mode="decode", inputs=inputs,
                   convention=dict(mask="causal", block_kv="in_cache"))
        code, text = self.check("--contract", "ideal")
        self.assertEqual(code, 0, text)

    def test_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        q, k, v = (torch.tensor(x).to(torch.bfloat16) for x in (self.q, self.k, self.v))
        k, v = (x.repeat_interleave(2, dim=2) for x in (k, v))
        o = torch.nn.functional.scaled_dot_product_attention(
            *(x.transpose(1, 2) for x in (q, k, v)), is_causal=True)
        self.write(o.transpose(1, 2), inputs=dict(q=q, k=k, v=v))
        code, text = self.check()
        self.assertEqual(code, 0, text)

    def test_refusals(self):
        o = np.zeros((2, 9, 4, 8), np.float32)
        for options, text in (
                (dict(mode="mtp"), "mode: expected one of decode, prefill, actual 'mtp'"),
                (dict(convention=dict(gate="log")), "unknown attribute 'gate'; known are scale"),
                (dict(convention=dict(block=0)), "block: expected 1 to 2.31-1, actual 0"),
                (dict(contract="recurrent_f32"), "contract: expected one of ideal, flash_bf16"),
                (dict(inputs=dict(q=self.q, k=self.k)), "inputs: v is missing"),
                (dict(inputs=dict(q=self.q[0], k=self.k[0], v=self.v[0])),
                 "cu_seqlens_q: is missing; one request is .0,9."),
                (dict(inputs=dict(q=self.q, k=self.k, v=self.v.astype(np.int64))),
                 "v: expected a floating-point tensor, actual int64"),
                (dict(inputs=dict(q=self.q, k=self.k, v=self.v, state_indices=np.arange(2))),
                 "unknown name 'state_indices' in mode prefill")):
            with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                self.write(o, **options)


if __name__ == "__main__":
    unittest.main()
