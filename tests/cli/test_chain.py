# SPDX-License-Identifier: Apache-2.0
"""`goldenrule chain`: files of a server in a row, exit codes, texts and JSON."""

import json
import sys
import unittest
from pathlib import Path

import numpy as np

from support import CommandLineTest, main

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/python"))
from goldenrule_capture import write_capture  # noqa: E402

HV, K, V, SLOTS = 2, 16, 8, 3


class Server:
    """Two requests, decoded in fp64 and stored in fp32; `swap` exchanges their states before it."""

    def __init__(self, folder, swap=None):
        random = np.random.default_rng(11)
        state = np.zeros((SLOTS, HV, V, K), np.float32)
        self.paths = []
        for n in range(4):
            if n == swap:
                state[[0, 2]] = state[[2, 0]]
            q, k = random.normal(size=(2, 2, 1, 1, K)).astype(np.float32)
            v = random.normal(size=(2, 1, HV, V)).astype(np.float32)
            g = -random.uniform(0.01, 0.1, (2, 1, HV)).astype(np.float32)
            beta = random.uniform(0.2, 1, (2, 1, HV)).astype(np.float32)
            before, o = state.copy(), np.zeros_like(v)
            for row, slot in enumerate((0, 2)):
                state[slot], o[row, 0] = self.step(state[slot], q[row, 0, 0], k[row, 0, 0],
                                                   v[row, 0], g[row, 0], beta[row, 0])
            path = folder / f"call_{n}.h5"
            write_capture(path, op="gated_delta_rule", mode="decode", chain="a server", call=n,
                          convention={"gate": "log", "beta": "direct"},
                          inputs=dict(q=q, k=k, v=v, g=g, beta=beta, initial_state=before,
                                      state_indices=np.array([0, 2]),
                                      request_ids=np.array([7, 8]), positions=np.array([n, n])),
                          outputs=dict(o=o, final_state=state.copy()))
            self.paths.append(path)

    @staticmethod
    def step(state, q, k, v, g, beta):
        q, k, state = (x.astype(np.float64) for x in (q, k, state))
        q = q / np.sqrt(q @ q + 1e-6) * K ** -0.5
        k = k / np.sqrt(k @ k + 1e-6)
        state = state * np.exp(g.astype(np.float64))[:, None, None]
        state = state + (beta[:, None] * (v - state @ k))[:, :, None] * k
        return state, state @ q


def attention_calls(folder, length=5):
    """A prompt of 5 tokens and one token behind it, over a cache of one page that has `length`."""
    random = np.random.default_rng(5)
    q, k, v = random.normal(size=(3, 6, 1, 8)).astype(np.float32)
    cache = np.zeros((2, 1, 8, 1, 8), np.float32)
    cache[:, 0, :6, 0] = k[:, 0], v[:, 0]
    scores = np.where(np.tril(np.ones((6, 6))), q[:, 0] @ k[:, 0].T * 8 ** -0.5, -np.inf)
    weights = np.exp(scores.astype(np.float64))
    o = (weights / weights.sum(1, keepdims=True) @ v[:, 0]).astype(np.float32)[:, None]
    for n, rows in enumerate((slice(0, 5), slice(5, 6))):
        tokens = np.array([0, rows.stop - rows.start])
        inputs = dict(q=q[rows], k=k[rows], v=v[rows], cu_seqlens_q=tokens, cu_seqlens_k=tokens,
                      request_ids=np.array([3]), positions=np.array([rows.start]))
        if n == 1:
            inputs |= dict(k_cache=cache[0], v_cache=cache[1], kv_lens=np.array([length]),
                           page_table=np.array([[0]]))
        write_capture(folder / f"call_{n}.h5", op="attention", mode=("prefill", "decode")[n],
                      chain="attention", call=n, convention=dict(mask="causal"), inputs=inputs,
                      outputs=dict(o=o[rows]))


class ChainTest(CommandLineTest):
    def test_a_cache_is_followed_by_its_rows_and_its_length(self):
        attention_calls(self.folder)
        out = self.assert_run(0, "chain", self.folder).out
        self.assertIn("caches: 5 of 5 rows that attention reads judged", out)
        attention_calls(self.folder, length=4)
        out = self.assert_run(1, "chain", "--only-chain", self.folder).out
        self.assertIn("wrong_length: the cache of request 3 has 4 tokens, expected 5", out)

    def test_an_honest_server_passes_whatever_the_order_of_its_files(self):
        paths = Server(self.folder).paths
        out = self.assert_run(0, "chain", self.folder).out
        self.assertIn("4 calls, 2 requests, 8 tokens: 16 of 16 states judged", out)
        self.assertIn("WITHIN_BUDGET", out)
        self.assert_run(0, "chain", *reversed(paths))
        out = self.assert_run(2, "chain", "--in-given-order", *reversed(paths)).out
        self.assertIn("out of order: expected call 4, actual 2", out)

    def test_the_first_call_with_another_state_is_named(self):
        paths = Server(self.folder, swap=2).paths
        report = self.folder / "report.json"
        out = self.assert_run(1, "chain", self.folder, "--json", report).out
        self.assertIn("first: OUT_OF_BUDGET call 2, request 7, slot 0, row 0, position 2 "
                      "[continuity] state_of_another_request:", out)
        findings = json.loads(report.read_text())["findings"]
        self.assertEqual([(f["call"], f["request"], f["slot"], f["mistake"]) for f in findings],
                         [(2, 7, 0, "state_of_another_request"),
                          (2, 8, 2, "state_of_another_request")])
        self.assertEqual(findings[0]["file"], str(paths[2]))
        self.assert_run(0, "check", paths[2])  # which knows nothing of other calls

    def test_what_is_taken_for_right_is_no_pass_where_that_is_asked_for(self):
        paths = Server(self.folder).paths
        self.assert_run(0, "chain", "--strict", *paths)
        out = self.assert_run(0, "chain", *paths[1:]).out
        self.assertIn("2 start states are taken for right", out)
        out = self.assert_run(2, "chain", "--strict", *paths[1:]).out
        self.assertIn("MISTRUSTED: taken for right, which strict judgement is not: 2 start", out)

    def test_a_file_that_is_missing_or_none_is_no_pass(self):
        paths = Server(self.folder).paths
        paths[2].unlink()
        out = self.assert_run(2, "chain", self.folder).out
        self.assertIn("a gap: expected call 2, actual 3", out)
        paths[2].write_bytes(b"no HDF5")
        self.assertIn("call_2.h5", self.assert_run(2, "chain", self.folder).out)
        self.assert_run(2, "chain", self.folder / "nothing")
        empty = self.folder / "empty"
        empty.mkdir()
        self.assert_run(2, "chain", empty)

    def test_a_report_never_replaces_a_call(self):
        paths = Server(self.folder).paths
        self.assert_run(2, "chain", *paths, "--json", paths[1])


if __name__ == "__main__":
    main()
