# SPDX-License-Identifier: Apache-2.0
"""`goldenrule check`: verdicts, exit codes, the report for a person and the two for machines."""

import json
import math
import xml.etree.ElementTree as ElementTree

import h5py
import numpy as np

from support import (DECODE, DECODE_BF16_STATE, KDA, MTP, MTP_PADDED, PREFILL, RINGS,
                     SCATTER, CommandLineTest, main, next_value, put)


def spoil_o(index, value):
    def change(file):
        values = file["outputs/o"][()].astype(np.float64)
        values[index] = value
        put(file, "outputs/o", values)
    return change


class CheckTest(CommandLineTest):
    def report(self, code, *arguments):
        """The JSON report of a run that ends with `code`."""
        path = self.folder / "report.json"
        self.assert_run(code, "check", *arguments, "--json", path)
        return json.loads(path.read_text())

    def test_right_captures_pass(self):
        for line, contract in ((DECODE, "recurrent_f32"), (KDA, "recurrent_f32"),
                               (DECODE_BF16_STATE, "recurrent_bf16_state"),
                               (MTP, "recurrent_f32"), (MTP_PADDED, "recurrent_f32"),
                               (SCATTER, "recurrent_f32")):
            with self.subTest(line):
                (case,) = self.report(0, self.capture(line))["cases"]
                self.assertEqual(case["verdict"], "EXACT")
                self.assertEqual(case["contract"], contract)
                self.assertIn("by mode", case["contract_origin"])

    def test_ideal_admits_the_rounded_result_and_not_its_neighbour(self):
        for line in (DECODE, KDA, MTP, PREFILL):
            with self.subTest(line):
                self.assert_run(0, "check", self.capture(line), "--contract", "ideal")
                wrong = self.capture(
                    line, lambda f: next_value(f, "outputs/o", (-1,) * f["outputs/o"].ndim))
                self.assert_run(1, "check", wrong, "--contract", "ideal")

    def test_bf16_that_was_recorded_as_f32(self):
        def widen(file):
            for name in file["outputs"]:
                put(file, f"outputs/{name}", file[f"outputs/{name}"][()].astype("f4"),
                    h5py.h5t.IEEE_F32LE)
            state = file["inputs/initial_state"][()].astype("f4")
            put(file, "inputs/initial_state", state, h5py.h5t.IEEE_F32LE)
        (case,) = self.report(0, self.capture(DECODE_BF16_STATE, widen))["cases"]
        self.assertEqual((case["verdict"], case["contract"]), ("EXACT", "recurrent_bf16_state"))
        self.assertEqual([t["dtype"] for t in case["tensors"]], ["bf16", "bf16"])

    def test_a_wrong_element_is_named(self):
        def change(file):
            next_value(file, "outputs/final_state", (0, 3, 17, 63))
            spoil_o((1, 0, 2, 5), 9.0)(file)
        result = self.assert_run(1, "check", self.capture(DECODE, change), "--contract", "ideal")
        self.assertRegex(result.out, r"(?m)^.*capture\.h5: OUT_OF_BUDGET$")
        self.assertIn("sequence 1, token 0, head 2, value 5: value 9,", result.out)
        self.assertIn("slot 0, head 3, key 63, value 17", result.out)
        self.assertIn("1 of 40960 elements is out of budget", result.out)
        self.assertIn("where: 1 of 3: sequence 1 (1 of 128 elements)", result.out)
        self.assertEqual(result.err, "")

    def test_headings_are_the_keys_of_the_json_report(self):
        out = self.assert_run(0, "check", self.capture(DECODE)).out
        (heads,) = [line.split() for line in out.splitlines() if line.startswith("  tensor ")]
        (tensor, _) = self.report(0, self.capture(DECODE))["cases"][0]["tensors"]
        (row,) = [line.split() for line in out.splitlines() if line.split()[:1] == [tensor["name"]]]
        keys = {"tensor": "name", "type": "dtype", "NaN": "nan", "Inf": "inf"}
        self.assertEqual(len(heads), len(row))
        for head, shown in zip(heads, row):
            value = tensor[keys.get(head, head)]
            self.assertEqual(shown, value if isinstance(value, str) else f"{value:.3g}"
                             if isinstance(value, float) else str(value))

    def test_one_of_a_thing_is_no_plural(self):
        line = "op=gdn mode=decode B=1 H=1 HV=1 K=8 V=1"
        wrong = self.capture(line, spoil_o((0, 0, 0, 0), 9.0))
        page = self.folder / "report.html"
        result = self.assert_run(1, "check", wrong, wrong, "--html", page)
        self.assertIn("1 of 1 element is out of budget", result.out)
        self.assertIn("where: 1 of 1: sequence 0 (1 of 1 element)", result.out)
        junit = self.folder / "junit.xml"
        self.assert_run(1, "check", wrong, "--junit", junit)
        for text in (result.out, page.read_text(), junit.read_text()):
            self.assertNotRegex(text, r"(?<![\w.])1 (element|file|call|token|row|pair|state)s\b")
            self.assertNotRegex(text, r"\b1 of [\d,]+ elements? are\b")

    # A kernel that takes the accepted tokens into the state and returns no o.
    def test_a_commit_without_o(self):
        line = MTP_PADDED + " accepted=mixed"

        def commit(file):
            del file["outputs/o"], file["outputs/intermediate_states"]
        result = self.assert_run(2, "check", self.capture(line, commit))
        self.assertIn("--only", result.out)
        self.assert_run(0, "check", self.capture(line, commit), "--only", "final_state")

        def one_token_too_few(file):
            states = file["outputs/final_state"][()]
            slot = file["inputs/state_indices"][1]  # row 1 accepts all of its 3 tokens
            states[slot] = file["outputs/intermediate_states"][1, 1]
            put(file, "outputs/final_state", states)
            commit(file)
        result = self.assert_run(1, "check", self.capture(line, one_token_too_few), "--only",
                                 "final_state")
        self.assertRegex(result.out, "final_state +OUT_OF_BUDGET")

    def test_rings_of_pending_tokens(self):
        (case,) = self.report(0, self.capture(RINGS))["cases"]
        self.assertEqual((case["verdict"], case["contract"]), ("EXACT", "replay_bf16"))
        self.assertEqual([t["name"] for t in case["tensors"]],
                         ["final_state", "o", "ring_d", "ring_g", "ring_k"])

        def nothing_written(file):
            for name in ("ring_d", "ring_k", "ring_g"):
                put(file, f"outputs/{name}", file[f"inputs/initial_{name}"][()])
        result = self.assert_run(1, "check", self.capture(RINGS, nothing_written))
        self.assertRegex(result.out, r"worst: ring \d, head \d, place in the ring \d, value \d")
        self.assertRegex(result.out, r"worst: ring \d, query/key head 0, place in the ring \d, key \d+")

        def spoil_another_place(file):
            ring = file["inputs/ring_indices"][0]
            place = file["inputs/ring_start"][0]  # the oldest pending token
            values = file["outputs/ring_g"][()]
            values[ring, 1, place] -= 1.0
            put(file, "outputs/ring_g", values)
        result = self.assert_run(1, "check", self.capture(RINGS, spoil_another_place))
        self.assertRegex(result.out, r"ring_g +OUT_OF_BUDGET")
        self.assertIn("1 of 70 elements", result.out)

    def test_packed_coordinates_name_the_sequence(self):
        wrong = self.capture(PREFILL, spoil_o((6, 1, 3), math.inf))
        result = self.assert_run(1, "check", wrong, "--contract", "ideal")
        self.assertIn("sequence 2, token 1, head 1, value 3", result.out)

    def test_json_has_the_promised_fields(self):
        (case,) = self.report(1, self.capture(DECODE, spoil_o((1, 0, 2, 5), math.nan)))["cases"]
        self.assertEqual(case["file"], str(self.folder / "capture.h5"))
        self.assertEqual((case["verdict"], case["precision_bits"]), ("OUT_OF_BUDGET", 53))
        self.assertEqual([t["name"] for t in case["tensors"]], ["final_state", "o"])
        state, o = case["tensors"]
        self.assertEqual(state["verdict"], "EXACT")
        self.assertLess(state["max_abs"], 1e-6)
        self.assertLess(state["rms_rel"], 1e-7)
        self.assertGreater(state["max_ratio"], 0)
        self.assertLess(state["max_ratio"], 1)
        self.assertEqual((state["nan"], state["inf"], state["compared"]), (0, 0, 5 * 4 * 32 * 64))
        self.assertEqual(o["verdict"], "OUT_OF_BUDGET")
        self.assertEqual(o["worst"]["index"], [1, 0, 2, 5])
        self.assertEqual(o["worst"]["value"], "nan")
        self.assertIsInstance(o["worst"]["golden"], float)
        self.assertEqual((o["nan"], o["inf"], o["unwritten"], o["compared"]), (1, 0, 0, 384))

    def test_unwritten_rows_and_infinities_are_counted(self):
        def change(file):
            values = file["outputs/o"][()].astype(np.float64)
            values[1, 0, 3] = math.nan
            values[0, 0, 0, 7] = -math.inf
            put(file, "outputs/o", values)
        (case,) = self.report(1, self.capture(DECODE, change))["cases"]
        o = case["tensors"][1]
        self.assertEqual((o["nan"], o["inf"], o["unwritten"], o["out_of_budget"]), (32, 1, 32, 33))
        self.assertEqual([row["row"] for row in o["failing_rows"]], [0, 1])

    def test_precision(self):
        capture = self.capture(DECODE)
        for name, bits in (("double", 53), ("quad", 106), ("multi", 168)):
            (case,) = self.report(0, capture, "--precision", name)["cases"]
            self.assertEqual((case["verdict"], case["precision_bits"]), ("EXACT", bits))
        result = self.assert_run(2, "check", capture, "--precision", "half")
        self.assert_one_line(result.err, "--precision", "auto, double, quad or multi", "half")

    def test_contract_names(self):
        capture = self.capture(DECODE, contract="ideal")
        (case,) = self.report(0, capture)["cases"]
        self.assertEqual((case["contract"], case["contract_origin"]),
                         ("ideal", "claimed by the file"))
        (case,) = self.report(0, capture, "--contract", "recurrent_f32")["cases"]
        self.assertEqual((case["contract"], case["contract_origin"]), ("recurrent_f32", "given"))
        result = self.assert_run(2, "check", capture, "--contract", "/nonexistent")
        self.assertIn("/nonexistent: contract: expected a readable file, actual none", result.err)
        result = self.assert_run(2, "check", capture, "--contract", "flat_atol")
        self.assert_one_line(result.err, "recurrent_f32", "recurrent_bf16_state", "'flat_atol'")
        unknown = self.capture(DECODE, contract="mine")
        self.assertIn("'mine'", self.assert_run(2, "check", unknown).out)

    def test_the_worst_file_gives_the_exit_code(self):
        right = self.capture(DECODE, name="right.h5")
        wrong = self.capture(DECODE, spoil_o((0, 0, 0, 0), 9.0), name="wrong.h5")
        broken = self.folder / "broken.h5"
        broken.write_text("no HDF5")
        result = self.assert_run(0, "check", right, right)
        self.assertIn("2 files: 2 EXACT", result.out)
        self.assert_run(1, "check", right, wrong)
        self.assert_run(2, "check", right, broken)
        self.assert_run(1, "check", broken, wrong, right)
        result = self.assert_run(2, "check", self.fixture(DECODE))  # nothing was judged
        self.assertIn("SKIPPED\n  no tensor under /outputs", result.out)

    def test_junit_counts(self):
        right = self.capture(DECODE, name="right.h5")
        wrong = self.capture(DECODE, spoil_o((0, 0, 0, 0), 9.0), name="a&b<c>.h5")
        skipped = self.fixture(DECODE)  # no outputs
        broken = self.folder / "broken.h5"
        broken.write_text("no HDF5")
        path = self.folder / "report.xml"
        self.assert_run(1, "check", right, wrong, skipped, broken, "--junit", path)
        (suite,) = ElementTree.parse(path).getroot()
        cases = suite.findall("testcase")
        self.assertEqual([suite.get(name) for name in ("tests", "failures", "errors", "skipped")],
                         ["6", "1", "1", "1"])
        self.assertEqual(len(cases), 6)
        for kind, count in (("failure", 1), ("error", 1), ("skipped", 1)):
            self.assertEqual(sum(case.find(kind) is not None for case in cases), count)
        (failed,) = (case for case in cases if case.find("failure") is not None)
        self.assertEqual((failed.get("classname"), failed.get("name")), (str(wrong), "o"))

    def test_reports_that_cannot_be_written(self):
        capture = self.capture(DECODE)
        for option in ("--json", "--junit"):
            result = self.assert_run(2, "check", capture, option, self.folder / "none" / "r")
            self.assert_one_line(result.err, "none/r", "expected", "actual")

    def test_nan_in_the_inputs_is_judged_and_said(self):
        def poison(file):
            values = file["inputs/v"][()].astype(np.float64)
            values[1, 0, 2, 5] = math.nan
            put(file, "inputs/v", values)

        def answer(file):  # a NaN in v reaches its own column of its own head, and nothing else
            poison(file)
            spoil_o((1, 0, 2, 5), math.nan)(file)
            state = file["outputs/final_state"][()].astype(np.float64)
            state[file["inputs/state_indices"][1], 2, 5, :] = math.nan
            put(file, "outputs/final_state", state)

        result = self.assert_run(1, "check", self.capture(DECODE, poison))
        self.assertIn("the inputs hold 1 NaN or Inf", result.out)
        self.assertIn("1 of 384 elements is out of budget", result.out)
        (case,) = self.report(0, self.capture(DECODE, answer))["cases"]
        self.assertEqual((case["verdict"], case["nonfinite_inputs"]), ("EXACT", 1))

    def test_zeros_are_not_taken_for_a_result(self):
        def silence(file):
            put(file, "outputs/o", np.zeros(file["outputs/o"].shape))
        (case,) = self.report(1, self.capture(DECODE, silence))["cases"]
        self.assertEqual(case["tensors"][1]["verdict"], "OUT_OF_BUDGET")

    def test_what_is_missing_on_the_command_line(self):
        for arguments, expected in (((), "command: expected check, chain, "),
                                    (("--trust",), "command: expected check, chain, "),
                                    (("check",), "check: expected files"),
                                    (("info",), "info: expected file"),
                                    (("merge",), "merge: expected reports"),
                                    (("generate", "smoke"), "generate: expected --output")):
            with self.subTest(arguments):
                err = self.assert_run(2, *arguments).err
                self.assertTrue(err.startswith(f"goldenrule: {expected}"), err)
                self.assert_one_line(err, "actual none")

    def test_command_line_errors(self):
        for arguments in ((), ("chekc",), ("check",), ("check", "x.h5", "--jsn", "y"),
                          ("diff", "x"),
                          ("generate", "smoke"), ("generate", "smoke", "-o", "x", "--stages", "0")):
            with self.subTest(arguments):
                self.assertNotEqual(self.assert_run(2, *arguments).err, "")
        self.assertIn("goldenrule 0.1.0", self.assert_run(0, "--version").out)
        help_text = self.assert_run(0, "--help").out
        for command in ("check", "generate", "recompute", "diff", "info", "list"):
            self.assertIn(command, help_text)


if __name__ == "__main__":
    main()
