# SPDX-License-Identifier: Apache-2.0
"""`check --terms o[1,3,0,7]`: where the budget of one element comes from."""

import json
import math
import unittest

import h5py
import numpy as np

from support import DECODE, MTP_PADDED, PREFILL, CommandLineTest, main


class TermsTest(CommandLineTest):
    def terms(self, code, path, *elements):
        report = self.folder / "terms.json"
        options = [word for element in elements for word in ("--terms", element)]
        result = self.assert_run(code, "check", path, *options, "--no-explain", "--json", report)
        return json.loads(report.read_text())["cases"][0]["terms"], result.out

    def assert_sums(self, t):
        total = t["multiple"] * t["sigma"] + t["bias"] + t["half_ulp"] + t["flushed"]
        self.assertTrue(math.isclose(total, t["budget"], rel_tol=1e-6), (total, t))

    def test_terms_add_up_to_the_budget_of_the_worst_element(self):
        for line in (DECODE, PREFILL):
            path = self.capture(line)
            with h5py.File(path, "r+") as file:
                o = file["outputs/o"]
                values = o[()]
                at = (0,) * (values.ndim - 1) + (values.shape[-1] - 1,)  # of a row that is not padded
                # Twice its size, whatever the storage type.
                values[at] = values[at] + np.ones((), values.dtype) if values.dtype.kind == "u" \
                    else values[at] * 2 + 1
                o[...] = values
            report = self.folder / "worst.json"
            self.assert_run(1, "check", path, "--no-explain", "--json", report)
            tensors = json.loads(report.read_text())["cases"][0]["tensors"]
            worst = next(t for t in tensors if t["name"] == "o")["worst"]
            element = "o[" + ",".join(map(str, worst["index"])) + "]"
            terms, text = self.terms(1, path, element)
            t = terms[element]
            self.assert_sums(t)
            self.assertEqual(t["coordinates"], worst["coordinates"])
            self.assertEqual((t["value"], t["golden"]), (worst["value"], worst["golden"]))
            self.assertTrue(math.isclose(t["budget"], worst["budget"], rel_tol=1e-6))
            self.assertFalse(t["passes"])
            self.assertGreater(t["multiple"] * t["sigma"], 0)
            self.assertIn("standard deviations", text)

    def test_a_slot_that_nobody_writes_has_no_terms(self):
        path = self.capture(MTP_PADDED)
        with h5py.File(path, "r") as file:
            used = set(file["inputs/state_indices"][()].tolist())
            slots, *rest = file["outputs/final_state"].shape
        free = next(s for s in range(slots) if s not in used)
        element = f"final_state[{free}" + ",0" * len(rest) + "]"
        terms, text = self.terms(0, path, element)
        self.assertTrue(terms[element]["kept"])
        self.assertEqual(terms[element]["budget"], 0)
        self.assertIn("no sequence writes it", text)

    def test_what_cannot_be_shown_costs_no_verdict(self):
        path = self.capture(DECODE)
        for element, reason in (("o[9,0,0,0]", "an index within [3,1,4,32]"),
                                ("o[0,0]", "an index within [3,1,4,32]"),
                                ("intermediate_states[0]", "an output that is judged")):
            terms, text = self.terms(0, path, element)
            self.assertIn(reason, terms[element]["refused"])
            self.assertIn(f"budget of {element}: expected {reason}", text)

    def test_texts_that_name_no_element(self):
        path = self.capture(DECODE)
        for text in ("o", "o[", "o[]", "o[-1]", "o[1,]", "[0]", "o[1 2]", "o[1]x"):
            result = self.assert_run(2, "check", path, "--terms=" + text)
            self.assertIn("an output and an index, as o[1,3,0,7]", result.err)


if __name__ == "__main__":
    main()
