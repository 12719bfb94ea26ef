# SPDX-License-Identifier: Apache-2.0
"""Attention from the command line: captures that pass, mistakes that are named, tables and lengths of
strangers that are refused in one line, and commands that do not take it."""

import json
from collections import namedtuple

import h5py
import numpy as np

from edits import attribute, element, remove
from support import PREFILL as DELTA
from support import REPOSITORY, CommandLineTest, main, put, run

DECODE = ("op=attention mode=decode lens=4,4 ctx=33,70 H=2 HV=4 K=32 V=16 page=16 table=padded "
          "pattern=K")
CSR = "op=attention mode=decode lens=4,4 ctx=33,70 H=2 HV=4 K=32 V=16 page=16 table=csr_last"
IN_CACHE = "op=attention mode=decode lens=4,4 ctx=33,70 H=1 HV=2 K=16 V=16 block_kv=in_cache"
PREFILL = "op=attention mode=prefill lens=30,0,7 H=1 HV=2 K=16 V=16 mask=causal lse_layout=ht"


def convention(name, value):
    return attribute(name, value, "/convention")


def integers(name, *values):
    def edit(file):
        if name in file:
            del file[name]
        file[name] = np.array(values, np.int64)
    return edit


Bad = namedtuple("Bad", "what case change texts")

BAD = [
    Bad("a page outside the pool", DECODE, element("inputs/page_table", (0, 0), 99),
        ["/inputs/page_table[0]", "99"]),
    Bad("a page far outside the pool", DECODE, element("inputs/page_table", (1, 4), 1 << 40),
        ["/inputs/page_table", "1099511627776"]),
    Bad("a missing page", DECODE, element("inputs/page_table", (1, 2), -1),
        ["/inputs/page_table", "-1"]),
    Bad("more tokens than the table has pages for", DECODE, element("inputs/kv_lens", 1, 113),
        ["/inputs/kv_lens[1]", "pages of 16", "113"]),
    Bad("a length below 0", DECODE, element("inputs/kv_lens", 0, -1), ["/inputs/kv_lens[0]", "-1"]),
    Bad("a length of more than memory", DECODE, element("inputs/kv_lens", 0, 1 << 60),
        ["/inputs/kv_lens[0]", "1152921504606846976"]),
    Bad("queries beyond q", DECODE, element("inputs/cu_seqlens_q", 2, 9),
        ["/inputs/cu_seqlens_q[2]", "9"]),
    Bad("bounds that fall", PREFILL, element("inputs/cu_seqlens_k", 1, 40),
        ["/inputs/cu_seqlens_k", "40"]),
    Bad("an indptr beyond the indices", CSR, element("inputs/page_indptr", 2, 1 << 33),
        ["/inputs/page_indptr[2]", "8589934592"]),
    Bad("a last page that kv_lens does not say", CSR, element("inputs/last_page_len", 1, 16),
        ["/inputs/last_page_len[1]", "from kv_lens=70", "16"]),
    Bad("fresh keys beside keys in the cache", DECODE, convention("block_kv", "in_cache"),
        ["/inputs/cu_seqlens_k", "ignored"]),
    Bad("no table", DECODE, remove("inputs/page_table"), ["/inputs/page_table", "none"]),
    Bad("a tensor that attention has not", DECODE, integers("inputs/state_indices", 0, 1),
        ["/inputs/state_indices", "ignored"]),
    Bad("an attribute of the delta rule", DECODE, convention("gate", "log"),
        ["/convention", "one of scale, head_map, mask", "'gate'"]),
    Bad("an unknown mask", DECODE, convention("mask", "prefix"),
        ["/convention@mask", "block_causal", "'prefix'"]),
    Bad("a block of 0", DECODE, convention("block", 0), ["/convention@block", "1 to 2^31-1", "0"]),
    Bad("a mode that attention has not", DECODE, attribute("mode", "mtp"),
        ["/@mode", "decode", "'mtp'"]),
    Bad("an attribute of attention", DELTA, convention("mask", "causal"),
        ["/convention", "state_layout", "'mask'"]),
    Bad("a contract of the delta rule", DECODE, attribute("contract", "recurrent_f32"),
        ["contract", "flash_bf16, flash_bf16_rounded_sum", "'recurrent_f32'"]),
]


CAPTURES = REPOSITORY / "fixtures/captures/attention"
# Recorded on a GPU: the mistake that is in the kernel, or none; what its contract is.
RECORDED = {
    "bug_block_counted_twice": "block_counted_twice", "bug_full_page_empty": "full_page_empty",
    "bug_nan_tail": "v_tail_nan", "bug_segment_base": "block_base_segment",
    "bug_stale_lengths": "stale_lengths", "bug_window_off_by_one": "window_off_by_one",
    "paged_blocks": None, "paged_window": None, "sdpa_cudnn_causal": None, "sdpa_fa2_causal": None,
    "flashinfer_paged": None}
ROUNDED_SUM = ("flashinfer_paged",)


class AttentionTest(CommandLineTest):
    def test_a_perfect_kernel_passes(self):
        for case in (DECODE, CSR, IN_CACHE, PREFILL):
            with self.subTest(case):
                result = run("check", self.capture(case))
                self.assertEqual(result.code, 0, result.out + result.err)
                self.assertIn("contract flash_bf16 (by mode and types)", result.out)

    def test_fixtures_are_recomputed_and_byte_identical(self):
        for case in (DECODE, CSR, IN_CACHE, PREFILL):
            with self.subTest(case):
                self.assertEqual(run("recompute", self.fixture(case)).code, 0)
                again = self.folder / "again"
                self.assertEqual(run("generate", case, "-o", again).code, 0)
                [made] = [p for p in again.glob("*.h5") if p.name == self.fixture(case).name]
                self.assertEqual(made.read_bytes(), self.fixture(case).read_bytes())

    def test_a_mistake_is_named(self):
        with h5py.File(self.fixture(DECODE)) as fixture:
            o = fixture["golden/o"][()]

        # All weights are equal: the mean of V without the last cached key.
        def one_key_less(file):
            keys = np.array([37, 74]).repeat(4)[:, None, None]
            dropped = np.array([32, 69]).repeat(4)
            v = file["inputs/v_cache"][()]
            table = file["inputs/page_table"][()]
            for row in range(8):
                page = table[row // 4][dropped[row] // 16]
                gone = np.asarray(v[page, dropped[row] % 16], np.float64).repeat(2, axis=0)
                o[row] = (o[row] * keys[row] - gone) / (keys[row] - 1)
            put(file, "outputs/o", np.asarray(o, np.float32))
            del file["outputs/lse"]
        result = run("check", self.capture(DECODE, one_key_less))
        self.assertEqual(result.code, 1, result.out + result.err)
        self.assertIn("explained by context_short", result.out)

    def test_conventions_that_a_capture_cannot_tell(self):
        result = run("check", "--blind", self.capture(DECODE))
        self.assertEqual(result.code, 0, result.out + result.err)
        self.assertIn("lse_layout", run("schema").out)

    def test_bad_input_is_one_line(self):
        for bad in BAD:
            with self.subTest(bad.what):
                result = run("check", self.capture(bad.case, bad.change))
                self.assertEqual(result.code, 2, result.out + result.err)
                [line] = [x for x in result.out.splitlines() if "expected" in x]
                for text in bad.texts:
                    self.assertIn(text, line)

    def test_commands_that_do_not_take_it_say_so(self):
        budget = run("budget", DECODE)
        self.assertEqual(budget.code, 2)
        self.assertIn("a case of the delta rule", budget.err)
        stages = run("generate", PREFILL, "--stages", "16", "-o", self.folder / "stages")
        self.assertEqual(stages.code, 2)
        self.assertIn("stages", stages.err)
        chain = run("chain", self.capture(DECODE))
        self.assertEqual(chain.code, 2)
        self.assertIn("/inputs/request_ids: expected the request of each row", chain.out)

    def test_a_contract_of_ones_own(self):
        printed = run("contract", "flash_bf16")
        self.assertEqual(printed.code, 0)
        contract = json.loads(printed.out)
        file = self.folder / "mine.json"

        def check(capture, **changes):
            file.write_text(json.dumps({**contract, "name": "mine", **changes}))
            return run("check", "--contract", file, CAPTURES / f"{capture}.h5")

        passed = check("sdpa_fa2_causal")
        self.assertEqual(passed.code, 0, passed.out + passed.err)
        self.assertIn("contract mine (given)", passed.out)
        # The kernel rounds its weights: where they must be fp32 it is refused.
        self.assertEqual(check("sdpa_fa2_causal", round={}).code, 1)
        # FlashInfer sums the rounded ones.
        rounded = {"weights": "type of q", "sum": "type of q"}
        self.assertEqual(check("flashinfer_paged", round=rounded).code, 0)
        # So wide that everything would pass is no pass.
        wide = check("sdpa_fa2_causal", functions={"exp2": 0.49, "tanh": 0.49})
        self.assertEqual(wide.code, 2, wide.out)
        self.assertIn("MISTRUSTED", wide.out)
        for changes, text in (({"round": {"inverse": "bf16"}}, "round.inverse: expected scores, weights or sum in"),
                              ({"unit_roundoff": 0.01}, "kernels of attention add in fp32"),
                              ({"chunk": 64}, "chunk: expected none"),
                              ({"name": "flash_bf16"}, "a name that no built-in contract has")):
            refused = check("sdpa_fa2_causal", **changes)
            self.assertEqual(refused.code, 2)
            [line] = refused.err.splitlines()
            self.assertIn(text, line)

    def test_a_contract_of_another_family_says_nothing(self):
        line = "op=gdn mode=decode B=2 H=1 HV=1 K=4 V=2"
        chain = "op=gdn requests=2 calls=4 H=1 HV=1 K=4 V=2"
        file = self.folder / "mine.json"
        file.write_text('{"name": "mine", "base": "flash_bf16"}')
        self.assertEqual(run("simulate", chain, "-o", self.folder / "chain").code, 0)
        for contract in ("flash_bf16", file):
            for command in (("budget", line),
                            ("generate", line, "-o", self.folder / "none"),
                            ("chain", "--only-chain", *self.folder.glob("chain/*")),
                            ("mutate", "--chains", "--suite", chain)):
                with self.subTest(command=command[0], contract=contract):
                    refused = run(*command, "--contract", contract)
                    self.assertEqual(refused.code, 2, refused.out)
                    [said] = refused.err.splitlines()
                    self.assertIn("expected one for family 'delta': ideal, ", said)
            # It suits no case, so that no mistake is tried.
            self.assertEqual(run("mutate", "--suite", line, "--contract", contract).code, 2)
        self.assertFalse((self.folder / "none").exists())
        both = f"recurrent_f32,{file}"  # each case of a suite has those of its family
        refused = run("generate", DECODE, "-o", self.folder / "none", "--contract", both)
        self.assertIn("expected one for family 'attention'", refused.err)

    def test_case_lines_are_refused_by_key(self):
        for line, texts in (
                ("op=attention mode=mtp lens=4 H=1 HV=1 K=4 V=4", ["mode", "decode or prefill"]),
                (PREFILL + " ctx=1,2,3", ["ctx", "no such key"]),
                (DECODE + " gate=log", ["gate", "no such key"]),
                (DECODE.replace("ctx=33,70", "ctx=33"), ["ctx", "2 requests"]),
                (DECODE.replace("pattern=K", "pattern=Q"), ["pattern", "one of A, B"]),
                (DECODE.replace("table=padded", "table=holes"), ["table", "missing_page=skip"]),
                ("op=gdn mode=decode B=1 H=1 HV=1 K=4 V=4 mask=causal", ["mask", "no such key"])):
            with self.subTest(line):
                result = run("generate", line, "-o", self.folder / "none")
                self.assertEqual(result.code, 2)
                for text in texts:
                    self.assertIn(text, result.err)

    def test_kernels_of_others_pass_and_public_bugs_are_named(self):
        self.assertEqual({path.stem for path in CAPTURES.glob("*.h5")}, set(RECORDED))
        for name, mistake in RECORDED.items():
            contract = "flash_bf16_rounded_sum" if name in ROUNDED_SUM else "flash_bf16"
            with self.subTest(name):
                result = run("check", "--contract", contract, CAPTURES / f"{name}.h5")
                self.assertEqual(result.code, 1 if mistake else 0, result.out + result.err)
                if mistake:
                    self.assertIn(f"explained by {mistake}:", result.out)


if __name__ == "__main__":
    main()
