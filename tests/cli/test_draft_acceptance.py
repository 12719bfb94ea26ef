# SPDX-License-Identifier: Apache-2.0
"""Acceptance of drafts from the command line: captures that pass, mistakes that are named, numbers of
strangers that are refused in one line, and commands that do not take it."""

from collections import namedtuple

import h5py
import numpy as np

from edits import attribute, element, remove
from support import PREFILL as DELTA
from support import CommandLineTest, main, put, run

GREEDY = "op=draft_acceptance mode=greedy B=6 S=7 Z=7 page_size=16 stops=mixed padding=mixed counts=mixed"
DRAWN = "op=draft_acceptance mode=rejection B=5 S=3 Z=1025 io=f32 page_size=16 pattern=E"
RACE = "op=draft_acceptance mode=rejection B=4 S=3 Z=30 io=f32 recover=race bonus=given"
ONE_HOT = "op=draft_acceptance mode=rejection B=5 S=3 Z=30 io=bf16 draft_kind=one_hot"
NAN = float("nan")


def convention(name, value):
    return attribute(name, value, "/convention")


def dataset(name, values):
    def edit(file):
        if name in file:
            del file[name]
        file[name] = values
    return edit


Bad = namedtuple("Bad", "what case change texts")

BAD = [
    Bad("a token outside of the vocabulary", DRAWN, element("inputs/draft_tokens", (1, 2), 1025),
        ["/inputs/draft_tokens[1,2]", "0 to 1024", "1025"]),
    Bad("a token far outside", GREEDY, element("inputs/target_tokens", (0, 3), 1 << 60),
        ["/inputs/target_tokens[0,3]", "1152921504606846976"]),
    Bad("no token where one is read", GREEDY, element("inputs/draft_tokens", (0, 0), -1),
        ["/inputs/draft_tokens[0,0]", "-1"]),
    Bad("a stop that is no token", GREEDY, element("inputs/stop_tokens", 0, -5),
        ["/inputs/stop_tokens[0]", "-5"]),
    Bad("a length below -1", GREEDY, element("inputs/start", 3, -2), ["/inputs/start[3]", "-2"]),
    Bad("a length that leaves i32", GREEDY, element("inputs/start", 0, 1 << 31),
        ["/inputs/start[0]", "2147483648"]),
    Bad("more drafts than there are", GREEDY, element("inputs/draft_lens", 0, 8),
        ["/inputs/draft_lens[0]", "0 to 7", "8"]),
    Bad("a probability of NaN", DRAWN, element("inputs/target_probs", (2, 1, 9), NAN),
        ["/inputs/target_probs[2,1,9]", "a probability", "nan"]),
    Bad("a probability below 0", DRAWN, element("inputs/draft_probs", (0, 0, 3), -1e-6),
        ["/inputs/draft_probs[0,0,3]", "a probability", "-9.99999997e-07"]),
    Bad("a probability without bound", DRAWN, element("inputs/target_probs", (0, 0, 0), np.inf),
        ["/inputs/target_probs[0,0,0]", "inf"]),
    Bad("logits", DRAWN, element("inputs/target_probs", (0, 3), 0.5), ["/inputs/target_probs[0,3]",
                                                                      "whose sum is 1", "512.5"]),
    Bad("no probabilities", DRAWN, element("inputs/draft_probs", (1, 2), 0.0),
        ["/inputs/draft_probs[1,2]", "whose sum is 1", "actual 0"]),
    Bad("a uniform above 1", DRAWN, element("inputs/uniforms", (0, 1), 1.25),
        ["/inputs/uniforms[0,1]", "0 to 1", "1.25"]),
    Bad("a uniform of NaN", DRAWN, element("inputs/recover_uniforms", 4, NAN),
        ["/inputs/recover_uniforms[4]", "nan"]),
    Bad("noise of 0", RACE, element("inputs/recover_noise", (1, 7), 0.0),
        ["/inputs/recover_noise[1,7]", "above 0", "actual 0"]),
    Bad("two ways to the token", RACE,
        dataset("inputs/recover_uniforms", np.zeros(4, np.float32)),
        ["/inputs/recover_noise", "ignored"]),
    Bad("none of them", DRAWN, remove("inputs/recover_uniforms"), ["/inputs/recover_uniforms", "none"]),
    Bad("a bonus beside its distribution", DRAWN,
        dataset("inputs/bonus_tokens", np.zeros(5, np.int64)),
        ["/inputs/target_probs", "[5,3,1025]", "[5,4,1025]"]),
    Bad("probabilities of other rows", DRAWN,
        dataset("inputs/draft_probs", np.full((4, 3, 1025), 1 / 1025, np.float32)),
        ["/inputs/draft_probs", "[5,3,1025]", "[4,3,1025]"]),
    Bad("another vocabulary", DRAWN,
        dataset("inputs/draft_probs", np.full((5, 3, 1024), 1 / 1024, np.float32)),
        ["/inputs/draft_probs", "[5,3,1025]", "[5,3,1024]"]),
    Bad("probabilities in f64", DRAWN,
        dataset("inputs/target_probs", np.full((5, 4, 1025), 1 / 1025)),
        ["/inputs/target_probs", "decide in fp32", "f64"]),
    Bad("drafts of rank 1", DRAWN, dataset("inputs/draft_tokens", np.zeros(15, np.int64)),
        ["/inputs/draft_tokens", "rank 2", "[15]"]),
    Bad("more drafts than any block has", GREEDY,
        dataset("inputs/draft_tokens", np.zeros((6, 1024), np.int64)),
        ["/inputs/draft_tokens", "S of 0 to 1023", "1024"]),
    Bad("tokens that are no integers", GREEDY,
        dataset("inputs/draft_tokens", np.zeros((6, 7), np.float32)),
        ["/inputs/draft_tokens", "i32 or i64", "f32"]),
    Bad("outputs that are no integers", GREEDY, dataset("outputs/accepted", np.zeros(6, np.float32)),
        ["/outputs/accepted", "i32 or i64", "f32"]),
    Bad("an output of another shape", GREEDY, dataset("outputs/keep", np.zeros((6, 7), np.int64)),
        ["/outputs/keep", "[6,8]", "[6,7]"]),
    Bad("an output that it has not", GREEDY, dataset("outputs/o", np.zeros((6, 7), np.float32)),
        ["/outputs/o", "tokens, accepted, committed"]),
    Bad("no drafts", GREEDY, remove("inputs/draft_tokens"), ["/inputs/draft_tokens", "none"]),
    Bad("no lengths", GREEDY, remove("inputs/start"), ["/inputs/start", "none"]),
    Bad("probabilities in a greedy call", GREEDY,
        dataset("inputs/uniforms", np.zeros((6, 7), np.float32)), ["/inputs/uniforms", "ignored"]),
    Bad("an attribute of attention", GREEDY, convention("mask", "causal"),
        ["/convention", "one of draft_kind, accept_rule", "'mask'"]),
    Bad("an attribute of draft acceptance", DELTA, convention("accept_rule", "lt"),
        ["/convention", "state_layout", "'accept_rule'"]),
    Bad("an unknown rule", DRAWN, convention("accept_rule", "ge"),
        ["/convention@accept_rule", "le, lt", "'ge'"]),
    Bad("pages of nothing", GREEDY, convention("page_size", 0),
        ["/convention@page_size", "1 to 2^31-1", "0"]),
    Bad("a mode of others", GREEDY, attribute("mode", "decode"),
        ["/@mode", "greedy or rejection (draft_acceptance)", "'decode'"]),
    Bad("a mode of draft acceptance", DELTA, attribute("mode", "greedy"),
        ["/@mode", "decode or mtp or prefill (gated_delta_rule)", "'greedy'"]),
    Bad("a contract of attention", GREEDY, attribute("contract", "flash_bf16"),
        ["contract", "ideal", "'flash_bf16'"]),
]


class DraftAcceptanceTest(CommandLineTest):
    def test_a_perfect_kernel_passes(self):
        for case in (GREEDY, DRAWN, RACE, ONE_HOT):
            with self.subTest(case):
                result = run("check", self.capture(case))
                self.assertEqual(result.code, 0, result.out + result.err)
                self.assertIn("contract ideal (by mode and types)", result.out)
                self.assertNotIn("WITHIN_BUDGET", result.out)

    def test_fixtures_are_recomputed_and_byte_identical(self):
        for case in (GREEDY, DRAWN, RACE, ONE_HOT):
            with self.subTest(case):
                self.assertEqual(run("recompute", self.fixture(case)).code, 0)
                again = self.folder / "again"
                self.assertEqual(run("generate", case, "-o", again).code, 0)
                [made] = [p for p in again.glob("*.h5") if p.name == self.fixture(case).name]
                self.assertEqual(made.read_bytes(), self.fixture(case).read_bytes())

    def test_a_mistake_is_named(self):
        def leaked_page(file):  # the last page is released though a part of it is used
            length = file["outputs/target_len"][()]
            used = file["inputs/start"][()] >= 0
            put(file, "outputs/release_from", np.where(used, length // 16, -1))

        def matches_counted(file):  # the sum of all matches, not the length of the first run
            drafts, targets = file["inputs/draft_tokens"][()], file["inputs/target_tokens"][()]
            lens, stops = file["inputs/draft_lens"][()], set(file["inputs/stop_tokens"][()])
            for n, start in enumerate(file["inputs/start"][()]):
                if start < 0:
                    continue
                a = int((drafts[n] == targets[n, :7])[:lens[n]].sum())
                emitted = [*drafts[n, :a], targets[n, a]]
                c = next((i + 1 for i, t in enumerate(emitted) if t in stops), a + 1)
                for name, value in dict(accepted=a, committed=c, target_len=start + c,
                                        next_anchor=emitted[c - 1],
                                        release_from=-(-(start + c) // 16)).items():
                    file["outputs/" + name][n] = value
                file["outputs/tokens"][n] = [*emitted[:c], *[-1] * (8 - c)]
                file["outputs/keep"][n] = [1] * c + [0] * (8 - c)
        for case, change, name in ((DRAWN, leaked_page, "partial_page_released"),
                                   (GREEDY, matches_counted, "accept_sum")):
            with self.subTest(name):
                result = run("check", self.capture(case, change))
                self.assertEqual(result.code, 1, result.out + result.err)
                self.assertIn(f"explained by {name}:", result.out)

    def test_a_convention_that_was_not_declared_is_named(self):
        line = "op=draft_acceptance mode=rejection B=10 S=7 Z=7 io=f32 draft_kind=one_hot pattern=T"
        result = run("check", self.capture(line, convention("accept_rule", "lt")))
        self.assertEqual(result.code, 1, result.out + result.err)
        self.assertIn("explained by accept_lenient:", result.out)
        self.assertIn("accept_rule=le", result.out)

    def test_some_outputs_are_enough(self):
        def only_tokens(file):
            for name in list(file["outputs"]):
                if name != "tokens":
                    del file[f"outputs/{name}"]
        self.assertEqual(run("check", self.capture(DRAWN, only_tokens)).code, 0)
        without = run("check", self.capture(DRAWN, remove("outputs/tokens")))
        self.assertEqual(without.code, 2)
        self.assertIn("not among the outputs: tokens", without.out)

    def test_numbers_that_hang_on_a_rounding_are_counted(self):
        def on_the_edge(file):
            d = int(file["inputs/draft_tokens"][0, 0])
            p, q = file["inputs/target_probs"][0, 0, d], file["inputs/draft_probs"][0, 0, d]
            element("inputs/uniforms", (0, 0), np.float32(p / q))(file)
        line = "op=draft_acceptance mode=rejection B=2 S=1 Z=9 io=f32 pattern=N"
        result = run("check", self.capture(line, on_the_edge))
        self.assertEqual(result.code, 0, result.out + result.err)
        self.assertIn("1 element has no right value", result.out)
        self.assertIn("decisions that hang on a rounding", result.out)

    def test_conventions_that_a_capture_cannot_tell(self):
        result = run("check", "--blind", self.capture(RACE))
        self.assertEqual(result.code, 0, result.out + result.err)
        self.assertIn("accept_rule = lt", result.out)
        self.assertIn("recover_noise", run("schema").out)

    def test_bad_input_is_one_line(self):
        for bad in BAD:
            with self.subTest(bad.what):
                result = run("check", self.capture(bad.case, bad.change))
                self.assertEqual(result.code, 2, result.out + result.err)
                [line] = [x for x in result.out.splitlines() if "expected" in x]
                for text in bad.texts:
                    self.assertIn(text, line)

    def test_a_call_of_no_rows_says_nothing(self):
        def empty(file):
            for group in ("inputs", "outputs"):
                for name in list(file[group]):
                    if name != "stop_tokens":
                        put(file, f"{group}/{name}", file[group][name][()][:0])
        result = run("check", self.capture(GREEDY, empty))
        self.assertEqual(result.code, 2, result.out + result.err)
        self.assertIn("SKIPPED", result.out)

    def test_a_huge_call_is_refused_before_it_is_read(self):
        def huge(file):
            del file["inputs/draft_tokens"], file["inputs/start"], file["inputs/target_tokens"]
            rows = 1 << 32
            for name, shape in (("start", (rows,)), ("draft_tokens", (rows, 7)),
                                ("target_tokens", (rows, 8))):
                file["inputs"].create_dataset(name, shape, np.int64, chunks=(1 << 20,) + shape[1:],
                                              compression="gzip")
        result = run("check", "--memory", "1GiB", self.capture(GREEDY, huge))
        self.assertEqual(result.code, 2, result.out + result.err)
        self.assertEqual(len([x for x in result.out.splitlines() if "expected" in x]), 1)

    def test_commands_that_do_not_take_it_say_so(self):
        budget = run("budget", GREEDY)
        self.assertEqual(budget.code, 2)
        self.assertIn("a case of the delta rule", budget.err)
        stages = run("generate", DRAWN, "--stages", "16", "-o", self.folder / "stages")
        self.assertEqual(stages.code, 2)
        self.assertIn("stages", stages.err)
        chain = run("chain", self.capture(GREEDY))
        self.assertEqual(chain.code, 2)
        self.assertIn("/inputs/request_ids: expected the request of each row", chain.out)

    def test_case_lines_are_refused_by_key(self):
        for line, texts in (
                ("op=draft_acceptance mode=decode B=1 S=1 Z=7", ["mode", "greedy or rejection of draft_acceptance"]),
                ("op=gdn mode=greedy B=1 H=1 HV=1 K=4 V=4", ["mode", "decode or mtp or prefill of gdn"]),
                ("op=draft_acceptance mode=greedy B=1 S=1", ["the key 'Z'"]),
                (GREEDY + " H=4", ["H", "no such key"]),
                (GREEDY + " recover=race", ["recover", "no such key"]),
                (GREEDY + " mask=causal", ["mask", "no such key"]),
                (DRAWN.replace("pattern=E", "pattern=K"), ["pattern", "one of A, E, F, N, T"]),
                (DRAWN.replace("Z=1025", "Z=1"), ["Z", "2 to"]),
                (DRAWN.replace("Z=1025", "Z=262145"), ["Z", "at most 262144"]),
                (DRAWN.replace("S=3", "S=-2"), ["S", "0 to"]),
                (DRAWN.replace("S=3", "S=1024"), ["S", "at most 1023"]),
                ("op=gdn mode=decode B=1 H=1 HV=1 K=4 V=4 Z=7", ["Z", "no such key"])):
            with self.subTest(line):
                result = run("generate", line, "-o", self.folder / "none")
                self.assertEqual(result.code, 2)
                for text in texts:
                    self.assertIn(text, result.err)

    def test_a_stored_golden_value_that_is_wrong_is_seen(self):
        path = self.copy_of_fixture(GREEDY)
        with h5py.File(path, "r+") as file:
            file["golden/accepted"][0] += 1
        result = run("recompute", path)
        self.assertNotEqual(result.code, 0)


if __name__ == "__main__":
    main()
