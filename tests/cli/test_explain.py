# SPDX-License-Identifier: Apache-2.0
"""The end of a failing report of `check` and `diff`: where it fails and which mistake it is."""

import json
import unittest

import numpy as np

from support import CAPTURES, DECODE, PREFILL, CommandLineTest, main, put


def unscaled(file):
    """o as a kernel gives it that does not multiply q by K^-0.5; K is 64 in DECODE."""
    put(file, "outputs/o", file["outputs/o"][()].astype(np.float64) * 8.0)


def one_wrong_element(file):
    values = file["outputs/o"][()].astype(np.float64)
    values[1, 0, 2, 5] = 9.0
    put(file, "outputs/o", values)


class Reports(CommandLineTest):
    def case(self, code, *arguments):
        """The text and the JSON of one file."""
        path = self.folder / "report.json"
        text = self.assert_run(code, *arguments, "--json", path).out
        (case,) = json.loads(path.read_text())["cases"]
        return text, case


class ExplainTest(Reports):
    def test_a_known_mistake_is_named(self):
        text, case = self.case(1, "check", self.capture(DECODE, unscaled))
        first = case["explanation"][0]
        self.assertEqual(first["mistake"], "scale_missing")
        self.assertIs(first["explains"], True)
        self.assertLessEqual(first["residual_ratio"], 1)
        self.assertIn("explained by scale_missing: every element is reproduced", text)
        self.assertRegex(case["pattern"], r"^o: .*about 8 times the exact result$")
        self.assertIn("  pattern: " + case["pattern"], text)
        self.assertGreater(case["mistakes_tried"], 20)

    def test_diff_explains_too(self):
        text, case = self.case(1, "diff", self.fixture(DECODE), self.capture(DECODE, unscaled))
        self.assertEqual(case["explanation"][0]["mistake"], "scale_missing")
        self.assertIn("explained by scale_missing", text)

    def test_an_unknown_mistake_is_said_to_be_one(self):
        text, case = self.case(1, "check", self.capture(DECODE, one_wrong_element))
        self.assertFalse([e for e in case["explanation"] if e["explains"]])
        self.assertEqual(case["pattern"],
                         "o: only (sequence 1, token 0, head 2, value 5)")
        self.assertRegex(text, r"none of \d+ known mistakes explains it \(\d+ can be made in this")

    def test_it_can_be_left_out_and_a_pass_has_none(self):
        text, case = self.case(1, "check", "--no-explain", self.capture(DECODE, unscaled))
        self.assertNotIn("explanation", case)
        self.assertNotIn("pattern", text + " ".join(case))
        for line in (DECODE, PREFILL):
            text, case = self.case(0, "check", self.capture(line))
            self.assertNotIn("explanation", case)
            self.assertNotIn("pattern", text)


@unittest.skipUnless((CAPTURES / "README.md").is_file() and any(CAPTURES.glob("*.h5")),
                     "no captures: GOLDENRULE_CAPTURES_DIR names no folder with them")
class RealCapturesTest(Reports):
    def test_intermediate_states_by_slot(self):
        text, case = self.case(1, "check", CAPTURES / "sglang_mtp_vk.h5")
        self.assertEqual(case["pattern"],
                         "intermediate_states: only sequence 0, all NaN: never written")
        explaining = [e["mistake"] for e in case["explanation"] if e["explains"]]
        self.assertEqual(explaining, ["intermediate_by_slot"])
        self.assertIn("explained by intermediate_by_slot", text)

    def test_fp16_neumann_inverse(self):
        for name in ("flashkda_kda_cos099.h5", "flashkda_kda_cos100.h5"):
            with self.subTest(name):
                text, case = self.case(1, "check", CAPTURES / name)
                explaining = [e["mistake"] for e in case["explanation"] if e["explains"]]
                self.assertEqual(explaining, ["inverse_fp16_neumann"])
                self.assertIn("it amplifies roundings", text)


if __name__ == "__main__":
    main()
