# SPDX-License-Identifier: Apache-2.0
"""`goldenrule recompute`, `diff` and `info`."""

import json
import math

import h5py
import numpy as np

from support import (DECODE, MTP, MTP_PADDED, PREFILL, CommandLineTest, flip_a_bit, forge, main,
                     make_capture, next_value, put)


def scale_element(path, name, index, factor):
    """Changes an element; every digest fits."""
    def edit(file):
        values = file[name][()]
        values[index] *= factor
        file[name][()] = values
    forge(path, edit)


class RecomputeTest(CommandLineTest):
    def test_right_files(self):
        for line in (DECODE, MTP_PADDED, PREFILL):
            self.copy_of_fixture(line)
        result = self.assert_run(0, "recompute", self.folder)
        self.assertIn("3 files: 3 right, 0 differ, 0 not recomputed, 0 errors", result.out)

    def test_a_flipped_bit_is_found_and_named(self):
        for name in ("/inputs/q", "/inputs/state_indices", "/golden/o"):
            path = self.copy_of_fixture(DECODE)
            flip_a_bit(path, name)
            result = self.assert_run(2, "recompute", self.folder)
            self.assertRegex(result.out, rf"(?m)^ERROR .*{path.name}: {name}: expected SHA-256 ")

    def test_a_damaged_chunk_is_found_and_named(self):
        path = self.copy_of_fixture(DECODE)
        with h5py.File(path, "r") as file:
            chunk = file["golden/final_state"].id.get_chunk_info(0)
        data = bytearray(path.read_bytes())
        data[chunk.byte_offset + chunk.size // 2] ^= 1
        path.write_bytes(data)
        result = self.assert_run(2, "recompute", path)
        self.assertRegex(result.out, rf"(?m)^ERROR .*{path.name}: /golden/final_state: expected ")

    def test_forged_values_are_recomputed(self):
        for name, index in (("golden/o", (0, 0, 1, 2)), ("golden/final_state", (0, 1, 2, 3)),
                            ("inputs/dt_bias", 2)):
            path = self.copy_of_fixture(DECODE)
            scale_element(path, name, index, 1 + 2.0 ** -20)
            result = self.assert_run(1, "recompute", self.folder)
            self.assertRegex(result.out, rf"(?m)^.*{path.name}: DIFFERS .* /{name}")

    def test_forged_budgets_and_stages_are_recomputed(self):
        self.assert_run(0, "generate", PREFILL, "-o", self.folder, "--stages", "4", "--contract",
                        "recurrent_f32,chunk64_bf16")
        (path,) = self.folder.iterdir()
        right = path.read_bytes()
        self.assertIn("1 right", self.assert_run(0, "recompute", path).out)
        for name, index in (("budget/recurrent_f32/o", (3, 1, 2)), ("stages/T", (1, 0, 0)),
                            ("budget/chunk64_bf16/final_state", (2, 1, 2, 3)),
                            ("stages/h", (3, 0, 1, 2))):
            path.write_bytes(right)
            scale_element(path, name, index, np.float32(1 + 2.0 ** -20))
            result = self.assert_run(1, "recompute", path)
            self.assertRegex(result.out, rf"(?m)^.*{path.name}: DIFFERS .* /{name}$")
        for name in ("budget/chunk64_bf16/o", "stages/w", "stages/A"):
            def remove(file, name=name):
                del file[name]
            path.write_bytes(right)
            forge(path, remove)
            self.assertIn(f"/{name}", self.assert_run(1, "recompute", path).out)

    def test_what_was_added_is_found(self):
        def add(path, name, like):
            forge(path, lambda file: file.__setitem__(name, file[like][()]))
            result = self.assert_run(1, "recompute", path)
            self.assertRegex(result.out, rf"(?m)^.*{path.name}: DIFFERS .* /{name}$")
        add(self.copy_of_fixture(DECODE), "inputs/output_state_indices", "inputs/state_indices")
        folder = self.folder / "stages"
        self.assert_run(0, "generate", PREFILL, "-o", folder, "--stages", "4")
        (path,) = folder.iterdir()
        add(path, "stages/more", "stages/A")

    def test_captures_have_nothing_to_recompute(self):
        result = self.assert_run(2, "recompute", self.capture(DECODE))
        self.assertIn("NOT RECOMPUTED: no case line", result.out)
        self.assertIn("1 file: 0 right, 0 differ, 1 not recomputed, 0 errors", result.out)

    def test_nothing_to_recompute(self):
        for path in (self.folder, self.folder / "none"):
            self.assert_one_line(self.assert_run(2, "recompute", path).err, path, ".h5", "none found")


class DiffTest(CommandLineTest):
    def test_right_and_wrong(self):
        for line in (DECODE, MTP, MTP_PADDED, PREFILL):
            with self.subTest(line):
                golden = self.fixture(line)
                self.assert_run(0, "diff", golden, self.capture(line), "--contract", "ideal")
                wrong = self.capture(
                    line, lambda f: next_value(f, "outputs/final_state",
                                               (0,) * f["outputs/final_state"].ndim))
                result = self.assert_run(1, "diff", golden, wrong, "--contract", "ideal")
                self.assertIn("head 0, key 0, value 0", result.out)

    def test_it_says_what_check_says(self):
        report = self.folder / "report.json"
        for spoiled in (False, True):
            capture = self.capture(
                DECODE, (lambda f: next_value(f, "outputs/o", (1, 0, 2, 5))) if spoiled else None)
            verdicts = []
            for command in (("check", capture), ("diff", self.fixture(DECODE), capture)):
                self.assert_run(int(spoiled), *command, "--contract", "ideal", "--json", report)
                (case,) = json.loads(report.read_text())["cases"]
                verdicts.append([(t["name"], t["verdict"], t["worst"]["index"])
                                 for t in case["tensors"]])
            self.assertEqual(verdicts[0], verdicts[1])

    def test_an_absent_output_is_missed(self):
        report = self.folder / "report.json"

        def without(*names, change=lambda file: None):
            def edit(file):
                change(file)
                for name in names:
                    del file[f"outputs/{name}"]
            return edit

        def spoil(file):
            next_value(file, "outputs/o", (0, 0, 1, 5))
        for line, names in ((DECODE, ["o"]), (DECODE, ["final_state"]),
                            (MTP, ["final_state", "intermediate_states"])):
            self.assert_run(2, "diff", self.fixture(line), self.capture(line, without(*names)),
                            "--json", report)
            (case,) = json.loads(report.read_text())["cases"]
            self.assertEqual(case["verdict"], "SKIPPED")
            self.assertEqual(case["reason"], "not among the outputs: " + ", ".join(names) +
                             " (if nothing more is wanted, name what is: --only, in Python only=)")
            self.assertEqual(case["absent"], names)
            self.assertEqual({t["name"] for t in case["tensors"]} & set(names), set())
        # It hides nothing: what is there and wrong is wrong.
        wrong = self.capture(DECODE, without("final_state", change=spoil))
        result = self.assert_run(1, "diff", self.fixture(DECODE), wrong, "--contract", "ideal")
        self.assertIn("not among the outputs: final_state\n", result.out)

    def test_checkpoints_of_which_there_are_none(self):
        line = "op=gdn mode=prefill lens=5,9 H=1 HV=2 K=16 V=8 checkpoints=after every=64"
        golden = self.fixture(line)
        with h5py.File(golden) as file:
            self.assertEqual(file["golden/checkpoints"].shape[0], 0)

        def without(file, spoil=False):
            del file["outputs/checkpoints"]
            if spoil:
                next_value(file, "outputs/final_state", (1, 0, 2, 5))
        for change, code in ((None, 0), (without, 0), (lambda file: without(file, True), 1)):
            capture = self.capture(line, change)
            self.assert_run(code, "diff", golden, capture, "--contract", "ideal")

    def test_other_inputs_or_conventions(self):
        golden = self.fixture(DECODE)

        def other_value(file):
            next_value(file, "inputs/v", (0, 0, 0, 0))
        result = self.assert_run(2, "diff", golden, self.capture(DECODE, other_value))
        self.assert_one_line(result.err, "capture.h5: /inputs/v", "expected", "actual")

        def other_scale(file):
            file["convention"].attrs["scale"] = 1.0
        result = self.assert_run(2, "diff", golden, self.capture(DECODE, other_scale))
        self.assert_one_line(result.err, "capture.h5: /convention", "expected", "actual")

        other = self.fixture(DECODE + " seed=1")
        self.assert_run(2, "diff", other, self.capture(DECODE))

    def test_a_candidate_with_outputs_only(self):
        def strip(file):
            del file["inputs"], file["convention"]

        def strip_and_spoil(file):
            strip(file)
            next_value(file, "outputs/o", (0, 0, 1, 5))
        for line in (DECODE, MTP_PADDED, PREFILL):
            golden = self.fixture(line)
            self.assert_run(0, "diff", golden, self.capture(line, strip), "--contract", "ideal")
        wrong = self.capture(DECODE, strip_and_spoil)
        result = self.assert_run(1, "diff", self.fixture(DECODE), wrong, "--contract", "ideal")
        self.assertIn("head 1, value 5", result.out)
        # Without the golden file it says nothing.
        result = self.assert_run(2, "check", wrong)
        self.assertIn("/inputs: expected a group with the inputs of the call", result.out)

    def test_outputs_only_of_another_call(self):
        golden = self.fixture(DECODE)

        def strip(file):
            del file["inputs"]

        def other_shape(file):
            strip(file)
            put(file, "outputs/o", file["outputs/o"][()].astype("f8")[:, :, :, :31])

        def other_mode(file):
            strip(file)
            file.attrs["mode"] = "prefill"

        def other_convention(file):
            strip(file)
            file["convention"].attrs["scale"] = 1.0

        def no_pad_slots(file):
            del file["inputs/state_indices"]
        for change, parts in (
                (other_shape, ("/outputs/o", "expected [3,1,4,32]", "actual [3,1,4,31]")),
                (other_mode, ("/@mode", "expected decode", "actual prefill")),
                (other_convention, ("/convention", "expected the conventions of")),
                (no_pad_slots, ("/inputs/state_indices", "expected", "actual no such dataset"))):
            result = self.assert_run(2, "diff", golden, self.capture(DECODE, change))
            self.assert_one_line(result.err, "capture.h5: ", *parts)

    def test_every_verdict(self):
        def zero(file):
            put(file, "outputs/o", np.zeros(file["outputs/o"].shape))

        def nothing(file):
            del file["outputs"]

        def no_inputs(file):
            del file["inputs/q"]
        coarse = self.folder / "coarse.json"
        coarse.write_text('{"name":"coarse","kind":"recurrent","unit_roundoff":0.25}')
        report = self.folder / "report.json"
        for change, contract, verdict, code in (
                (None, "ideal", "EXACT", 0),
                (None, "recurrent_f32", "EXACT", 0),
                (lambda f: next_value(f, "outputs/final_state", (0, 0, 0, 0)), "recurrent_f32",
                 "WITHIN_BUDGET", 0),
                (lambda f: next_value(f, "outputs/final_state", (0, 0, 0, 0)), "ideal",
                 "OUT_OF_BUDGET", 1),
                (zero, "recurrent_f32", "OUT_OF_BUDGET", 1),
                (zero, coarse, "MISTRUSTED", 2),
                (nothing, "recurrent_f32", "SKIPPED", 2),
                (no_inputs, "recurrent_f32", "ERROR", 2)):
            capture = self.capture(DECODE, change)
            for command in (("check", capture), ("diff", self.fixture(DECODE), capture)):
                self.assert_run(code, *command, "--contract", contract, "--no-explain", "--json",
                                report)
                (case,) = json.loads(report.read_text())["cases"]
                self.assertEqual(case["verdict"], verdict, command)

    def test_the_same_nan_is_the_same_input(self):
        def poison(file):
            values = file["inputs/v"][()].astype(np.float64)
            values[0, 0, 0, 0] = math.nan
            put(file, "inputs/v", values)

        def poison_all(file):
            poison(file)
            slot = int(file["inputs/state_indices"][0])
            file["golden/o"][0, 0, 0, 0] = math.nan
            file["golden/final_state"][slot, 0, 0, :] = math.nan
        golden = forge(self.copy_of_fixture(DECODE), poison_all)
        capture = make_capture(golden, self.folder / "capture.h5")
        result = self.assert_run(0, "diff", golden, capture)
        self.assertIn("the inputs hold 1 NaN", result.out)
        # Without one it is another call.
        self.assert_run(2, "diff", golden, self.capture(DECODE))

    def test_without_golden_values(self):
        capture = self.capture(DECODE)
        result = self.assert_run(2, "diff", capture, capture)
        self.assert_one_line(result.err, capture, "/golden", "expected", "actual none")
        self.assert_run(2, "diff", self.fixture(DECODE), self.folder / "none.h5")


class InfoTest(CommandLineTest):
    def test_fixture(self):
        text = self.assert_run(0, "info", self.fixture(DECODE)).out
        for pattern in (r"op +gated_delta_rule", r"mode +decode", rf"case +{DECODE}",
                        r"precision_bits +168", r"state_layout +vk", r"pad_slot +-1",
                        r"/inputs/q +bf16 +\[3,1,2,64\] +768 bytes",
                        r"/inputs/state_indices +i64 +\[3\]",
                        r"/golden/final_state +f64 +\[5,4,32,64\] .*shuffle\+deflate\+fletcher32"):
            self.assertRegex(text, pattern)

    def test_capture(self):
        text = self.assert_run(0, "info", self.capture(PREFILL, contract="chunk64_bf16")).out
        for pattern in (r"contract +chunk64_bf16", r"gate +log", r"/outputs/o +bf16 +\[12,2,8\]",
                        r"/inputs/cu_seqlens +i64 +\[4\]"):
            self.assertRegex(text, pattern)

    def test_no_file(self):
        result = self.assert_run(2, "info", self.folder / "none.h5")
        self.assert_one_line(result.err, "none.h5", "an HDF5 file", "No such file")


if __name__ == "__main__":
    main()
