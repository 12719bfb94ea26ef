# SPDX-License-Identifier: Apache-2.0
"""Captures of draft acceptance: what write_capture brings to the schema and refuses, and a draft acceptance in
NumPy, honest and with a mistake, that the program judges."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "python"))
import goldenrule_capture as gc

TOOL = os.environ.get("GOLDENRULE_TOOL")


def greedy_acceptance(drafts, targets, sums=False):
    """tokens and the number of accepted drafts."""
    matches = drafts == targets[:, :-1]
    accepted = (matches if sums else matches.cumprod(axis=1)).sum(axis=1)
    tokens = np.full(targets.shape, -1)
    for n, a in enumerate(accepted):
        tokens[n, :a] = drafts[n, :a]
        tokens[n, a] = targets[n, a]
    return tokens, accepted


class RecomputeTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="goldenrule-")
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name) / "capture.h5"
        random = np.random.default_rng(5)
        self.start = random.integers(0, 100, 6)
        self.targets = random.integers(0, 50, (6, 6))
        self.drafts = np.where(random.random((6, 5)) < 0.7, self.targets[:, :-1], 49)

    def write(self, tokens, accepted, **options):
        arguments = dict(op="draft_acceptance", mode="greedy", convention=dict(page_size=16),
                         inputs=dict(start=self.start, draft_tokens=self.drafts,
                                     target_tokens=self.targets),
                         outputs=dict(tokens=tokens, accepted=accepted))
        gc.write_capture(self.path, **{**arguments, **options})

    def check(self):
        if not TOOL:
            self.skipTest("GOLDENRULE_TOOL does not name the goldenrule executable")
        done = subprocess.run([TOOL, "check", str(self.path)], capture_output=True, text=True,
                              check=False)
        return done.returncode, done.stdout + done.stderr

    def test_columns_become_vectors_and_files_are_read_back(self):
        tokens, accepted = greedy_acceptance(self.drafts, self.targets)
        self.write(tokens, accepted[:, None])
        read = gc.read_fixture(self.path)
        self.assertEqual((read.op, read.mode), ("draft_acceptance", "greedy"))
        self.assertEqual(read.convention, {**gc.DRAFT_DEFAULTS, "page_size": 16})
        np.testing.assert_array_equal(read.outputs["accepted"], accepted)

    def test_an_honest_verification_passes_and_a_wrong_one_is_named(self):
        self.write(*greedy_acceptance(self.drafts, self.targets))
        code, text = self.check()
        self.assertEqual(code, 0, text)
        self.write(*greedy_acceptance(self.drafts, self.targets, sums=True))
        code, text = self.check()
        self.assertEqual(code, 1, text)
        self.assertIn("explained by accept_sum:", text)

    def test_what_does_not_fit_is_refused(self):
        tokens, accepted = greedy_acceptance(self.drafts, self.targets)
        inputs = dict(start=self.start, draft_tokens=self.drafts, target_tokens=self.targets)
        for options, text in (
                (dict(mode="decode"), "mode: expected one of greedy, rejection"),
                (dict(convention=dict(mask="causal")), "unknown attribute 'mask'"),
                (dict(convention=dict(page_size=0)), "page_size: expected 1 to 2^31-1"),
                (dict(contract="flash_bf16"), "contract: expected one of ideal"),
                (dict(inputs={**inputs, "q": self.drafts}), "unknown name 'q'"),
                (dict(inputs=dict(start=self.start)), "draft_tokens is missing"),
                (dict(inputs={**inputs, "start": self.start.astype(np.float32)}),
                 "start: expected int32 or int64"),
                (dict(inputs={**inputs, "draft_tokens": self.drafts[0]}), "expected [N,S]"),
                (dict(outputs=dict(tokens=self.targets)), "lies in the memory of inputs"),
                (dict(outputs={}), "at least one of tokens")):
            with self.subTest(text), self.assertRaises(ValueError) as raised:
                self.write(tokens, accepted, **options)
            self.assertIn(text, str(raised.exception))


if __name__ == "__main__":
    unittest.main()
