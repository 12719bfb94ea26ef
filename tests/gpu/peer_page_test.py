# SPDX-License-Identifier: Apache-2.0
"""peer_page_test.py FOLDER: tools/bench_gpu/peer_page.py on results that are made here, and on its own page."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, sys.argv.pop(1))

import peer_page  # noqa: E402


def result(card="H200", table="prefill", commit="abcdef0123", date="2026-11-28", rows=None, **more):
    rows = rows or {"gdn 16/32 8192": {"goldenrule": [160.0], "peers": {"flashinfer": 240.0, "fla": 528.0}}}
    return {"card": card, "table": table, "commit": commit, "date": date, "versions": {"fla": "fla-core 0.6.0"},
            "rows": rows, **more}


class Page(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.real = peer_page.DATA, peer_page.PAGE
        peer_page.DATA, peer_page.PAGE = self.folder / "peers.json", self.folder / "README.md"
        peer_page.PAGE.write_text(f"before\n{peer_page.BEGIN}old\n{peer_page.END}behind\n")

    def tearDown(self):
        peer_page.DATA, peer_page.PAGE = self.real

    def take(self, *results):
        files = [self.folder / f"{i}.json" for i in range(len(results))]
        for file, each in zip(files, results, strict=True):
            file.write_text(each if isinstance(each, str) else json.dumps(each))
        self.assertEqual(peer_page.main([str(file) for file in files]), 0)
        return peer_page.PAGE.read_text()

    def refused(self, words, *results):
        with self.assertRaisesRegex(SystemExit, words):
            self.take(*results)

    def test_two_cards_stand_in_one_table(self):
        text = self.take(result(), result(card="H100", rows={
            "gdn 16/32 8192": {"goldenrule": [171.0], "peers": {"flashinfer": 150.0}},
            "gdn 2/8 8192": {"goldenrule": [85.0], "peers": {"fla": 257.0}}}))
        self.assertIn("| gdn 16/32 8192 | 160.0 | FlashInfer 1.50, fla 3.30 | 171.0 | FlashInfer 0.88 |\n", text)
        self.assertIn("| gdn 2/8 8192 |  |  | 85.0 | fla 3.02 |\n", text)
        self.assertIn("H200: no peer is faster in 1 of 1 rows.", text)
        self.assertIn("H100: no peer is faster in 1 of 2 rows.", text)
        self.assertTrue(text.startswith("before\n") and text.endswith("behind\n") and "\nold\n" not in text)

    def test_a_ratio_is_over_the_better_of_two_ways(self):
        rows = {"gdn vk f32 B=1 T=1": {"goldenrule": [3.28, 2.59], "peers": {"fla": 3.0}}}
        self.assertIn("| 3.28/2.59 | fla 1.16 |", self.take(result(table="recurrent", rows=rows)))

    def test_a_row_is_replaced_whole_and_says_its_run(self):
        other = {"gdn 16/32 1024": {"goldenrule": [37.0], "peers": {"fla": 94.0}}}
        self.take(result(), result(rows=other))
        text = self.take(result(commit="0123456789", date="2026-12-01", rows={
            "gdn 16/32 8192": {"goldenrule": [150.0], "peers": {"fla": 525.0}}}))
        self.assertIn("| gdn 16/32 8192 | 150.0 | fla 3.50 |\n", text)  # FlashInfer was not beside it
        self.assertIn("1 of 2026-11-28, commit abcdef012, beside fla-core 0.6.0.\n"
                      "1 of 2026-12-01, commit 012345678, beside fla-core 0.6.0.\n", text)
        text = self.take(result(commit="0123456789", date="2026-12-01", rows=other))
        self.assertNotIn("2026-11-28", text)  # nobody's run any more
        self.assertIn("2 of 2026-12-01", text)

    def test_a_page_that_says_something_else_is_found(self):
        text = self.take(result())
        self.assertEqual(peer_page.main(["--check"]), 0)
        peer_page.PAGE.write_text(text.replace("1.50", "1.60"))
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(peer_page.main(["--check"]), 1)
        self.assertIn("run peer_page.py", said.getvalue())

    def test_what_is_no_result_is_refused(self):
        def with_row(**row):
            return result(rows={"x": {"goldenrule": [1.0], "peers": {"fla": 2.0}, **row}})

        self.refused("0.json: expected a result of --save", "{")
        self.refused("expected an object, actual list", "[]")
        self.refused("expected rows of type dict, actual 3", result() | {"rows": 3})
        self.refused("expected table one of recurrent, prefill, attention, actual backward", result(table="backward"))
        self.refused("expected the commit of the library", result(commit=""))
        self.refused("x: peers of .*, actual somebody", with_row(peers={"somebody": 1.0}))
        self.refused("x: times of goldenrule and of one peer or more", with_row(peers={}))
        for time in (0.0, -1.0, float("nan"), float("inf"), "3"):
            self.refused("x: times above 0", with_row(goldenrule=[time]))
        self.assertFalse(peer_page.DATA.exists())  # nothing of them was taken
        peer_page.PAGE.write_text("no marks")
        self.refused("expected the marks", result())

    def test_names_of_cards(self):
        for device, card in (("NVIDIA H200", "H200"), ("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA B200", "B200"),
                             ("NVIDIA A100-SXM4-80GB", "A100")):
            self.assertEqual(peer_page.card_of(device), card)


class OwnPage(unittest.TestCase):
    def test_it_says_what_peers_json_holds(self):
        self.assertEqual(peer_page.main(["--check"]), 0)


if __name__ == "__main__":
    unittest.main()
