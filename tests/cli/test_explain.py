# SPDX-License-Identifier: Apache-2.0
"""The end of a failing report of `check` and `diff`: where it fails and which mistake it is."""

import json
import re

import numpy as np

from support import CAPTURES, DECODE, PREFILL, CommandLineTest, main, needs_captures, put, run


def unscaled(file):
    """o as a kernel gives it that does not multiply q by K^-0.5; K is 64 in DECODE."""
    put(file, "outputs/o", file["outputs/o"][()].astype(np.float64) * 8.0)


def unscaled_and_one_wrong_element(file):
    """A near miss, so that there are pairs to be tried; none of them explains."""
    unscaled(file)
    one_wrong_element(file)


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


class OtherNorm(Reports):
    """Kernels whose norm of q and k has another eps than the call declares, or another form."""

    def found(self, kernel, norm="rsqrt_sum_eps", shape="mode=decode B=3"):
        def declare(file):
            file["convention"].attrs.update(qk_l2norm=norm, l2_eps=1e-6)
        path = self.capture(f"op=gdn {shape} H=1 HV=2 K=64 V=64 pattern=I {kernel}", declare)
        return self.case(1, "check", path, "--explain-seconds", "1")[1]["found"]

    def test_the_eps_is_named_by_its_number(self):
        for eps in ("1e-05", "3e-06", "0.001"):
            (said,) = self.found(f"l2_eps={eps}")
            self.assertIn(f"eps of the norm of q and k is {eps}, declared 1e-06 (every element", said)
        (said,) = self.found("l2_eps=1e-05", shape="mode=prefill lens=70")
        low, high = map(float, re.search(r"is 1e-05, .* passes from (\S+) to (\S+)\)", said).groups())
        self.assertTrue(0.9e-5 < low < 1e-5 < high < 1.1e-5, said)

    def test_an_eps_that_the_outputs_do_not_tell_is_an_interval(self):
        said = self.found("l2_eps=0")[0]
        self.assertRegex(said, r"is at most \S+, declared 1e-06 \(every element passes\)$")

    def test_the_form_is_named_with_its_own_eps(self):
        (said,) = self.found("qk_l2norm=norm_plus_eps l2_eps=1e-05")
        self.assertIn("norm_plus_eps, eps 1e-05, declared rsqrt_sum_eps, eps 1e-06", said)
        # With the declared one the table has its name.
        self.assertEqual(self.found("qk_l2norm=norm_plus_eps"), [])

    def test_another_mistake_is_no_eps(self):
        for change in (unscaled, one_wrong_element):
            _, case = self.case(1, "check", self.capture(DECODE, change), "--explain-seconds", "1")
            self.assertEqual(case["found"], [])


class ExplainTest(Reports):
    def test_a_nan_has_no_sign_and_may_have_been_computed(self):
        def negative(file):
            values = file["outputs/final_state"][()]
            values[2] = -np.float32(np.nan)
            put(file, "outputs/final_state", values)
        text, case = self.case(1, "check", self.capture(PREFILL, negative))
        self.assertNotIn("-nan", text)
        self.assertNotIn("never written", text.replace("(computed or never written)", ""))
        self.assertIn("value nan, exact", text)

    def test_a_convention_that_would_make_it_right_is_named(self):
        text, case = self.case(1, "check", self.capture(DECODE, unscaled))
        self.assertEqual(case["explanation"][0]["meant"], ["scale=1"])
        self.assertIn("if your kernel means it: scale=1", text)

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


class RealCapturesTest(Reports):
    @needs_captures("sglang_mtp_vk.h5")
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
                text, case = self.case(1, "check", "--explain-seconds", "600", CAPTURES / name)
                explaining = [e["mistake"] for e in case["explanation"] if e["explains"]]
                self.assertEqual(explaining, ["inverse_fp16_neumann"])
                self.assertIn("it amplifies roundings", text)


CPU = CAPTURES / "cpu"
CONTRACT = ("--contract", "recurrent_f32")


class CpuCapturesTest(Reports):
    """Real software with one mistake put in, and honest chunk kernels under a contract that is too
    narrow for them: the answer is the right name or none."""

    NAMES = {"x_beta_bf16": "beta_bf16", "x_cumsum_bf16": "cumsum_bf16",
             "x_final_state_bf16": "final_state_bf16", "x_g_bf16": "gate_bf16",
             "x_ggml_snapshots_reversed": "intermediate_states is reversed along token",
             "x_heads_reversed_out": "o is reversed along head",
             "x_kcumdecay_no_decay": "w_no_decay"}

    def first(self, case):
        return next((e["mistake"] for e in case["explanation"] if e["explains"]), None)

    def test_every_sabotaged_capture(self):
        sabotaged = sorted(CPU.glob("sab_*.h5"))
        self.assertGreaterEqual(len(sabotaged), 3)
        for path in sabotaged:
            with self.subTest(path.name):
                name = path.stem.removeprefix("sab_")
                text, case = self.case(1, "check", *CONTRACT, path)
                self.assertEqual(self.first(case), self.NAMES.get(name))
                accounting = [m["name"] for m in case["of_capture"] if m["accounts"]]
                self.assertEqual(accounting, ["initial_state_after_call"]
                                 if name == "initial_state_is_final" else [])
                if accounting:
                    self.assertLess(text.index("clone it first"), text.index("pattern: "))
                for e in case["explanation"]:
                    self.assertTrue(e["explains"] or e["accounted"] >= 0.5)
                    self.assertNotIn(e["mistake"], ("cache_key_dtype", "tail_chunk_dropped"))

    def test_an_honest_chunk_kernel_is_not_blamed_for_its_inverse(self):
        explained = 0
        for path in sorted(CPU.glob("*_chu_*.h5")):
            with self.subTest(path.name):
                report = self.folder / "report.json"
                run("check", *CONTRACT, path, "--json", report)
                (case,) = json.loads(report.read_text())["cases"]
                if case["verdict"] != "OUT_OF_BUDGET":
                    continue
                self.assertIn(self.first(case), (None, "gate_sum_f32"))
                explained += self.first(case) is not None
        self.assertGreater(explained, 0)


class ExplainSecondsTest(Reports):
    def test_the_search_stops_and_says_so(self):
        wrong = self.capture(DECODE, unscaled_and_one_wrong_element)
        text, case = self.case(1, "check", "--explain-seconds", "0", wrong)
        self.assertRegex(text, r"; stopped after about [0-9.e-]+ core-seconds \(--explain-seconds\): 0 of \d+ pairs tried")
        self.assertGreaterEqual(case["stopped_after"], 0)
        self.assertEqual(case["pairs_tried"], 0)
        self.assertGreater(case["pairs_possible"], 0)
        self.assertEqual(case["explanation"][0]["mistake"], "scale_missing")
        text, case = self.case(1, "check", "--explain-seconds", "600", wrong)
        self.assertNotIn("stopped after", text)
        self.assertIsNone(case["stopped_after"])

    def test_a_negative_time_is_refused(self):
        self.assert_run(2, "check", "--explain-seconds", "-1", self.capture(DECODE))

    def test_numbers_are_numbers(self):
        def infinite(file):
            values = file["outputs/o"][()].astype(np.float64)
            values[:, :, 1:] = np.nan
            put(file, "outputs/o", values)
        _, case = self.case(1, "check", self.capture(DECODE, infinite))
        for e in case["explanation"]:
            self.assertIsInstance(e["residual_ratio"], (float, int, type(None)))


if __name__ == "__main__":
    main()
