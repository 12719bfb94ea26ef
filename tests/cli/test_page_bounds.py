# SPDX-License-Identifier: Apache-2.0
"""How much a page holds: of many files, of texts and lists without end, of nothing."""

import json
import re

import numpy as np

from page import HOSTILE, Elements, PageCase
from support import DECODE, PREFILL, main, put


class PageBoundsTest(PageCase):
    def many(self, count):
        """A report of so many files, every fifth wrong and every seventh not judged, and its page."""
        report = self.folder / "report.json"
        self.assert_run(1, "check", self.failing(), self.capture(DECODE, name="right.h5"),
                        self.folder / "none.h5", "--no-explain", "--json", report)
        whole = json.loads(report.read_text())
        wrong, right, none = whole["cases"]
        whole["cases"] = [{**(wrong if i % 5 == 0 else none if i % 7 == 0 else right),
                           "file": f"{HOSTILE}/{i}.h5"} for i in range(count)]
        report.write_text(json.dumps(whole))
        return whole, self.page(1, "merge", report)[1]

    def test_a_page_of_ten_thousand_files_is_bounded(self):
        whole, text = self.many(10_000)
        self.assertLess(len(text.encode()), 2_000_000)
        shown = self.assert_harmless(text).text
        rows = re.findall(r"<tr><td>.*?</tr>", text)
        sections = text.count("<section")
        verdicts = [re.search(r"badge \w+\">(\w+)<", row)[1] for row in rows]
        self.assertGreater(len(rows), 500)
        self.assertGreater(sections, 20)
        self.assertEqual(verdicts, ["OUT_OF_BUDGET"] * len(rows))
        self.assertEqual([a["href"] for tag, a in Elements("".join(rows)).found if tag == "a"],
                         [f"#f{i}" for i in range(sections)])
        self.assertIn(f"{10_000 - len(rows):,} files have no row: "
                      f"1,143 ERROR 6,857 EXACT {2000 - len(rows):,} OUT_OF_BUDGET", shown)
        self.assertIn(f"{10_000 - sections:,} files have no section here", shown)
        self.assertIn("10,000 files: 1,143 ERROR 6,857 EXACT 2,000 OUT_OF_BUDGET", shown)
        self.assertIn("--shard I/N --html", shown)

    def test_what_fails_comes_first_then_what_is_not_judged(self):
        _, text = self.many(700)
        verdicts = [re.search(r"badge \w+\">(\w+)<", row)[1]
                    for row in re.findall(r"<tr><td>.*?</tr>", text)]
        order = ["OUT_OF_BUDGET", "ERROR", "EXACT"]
        self.assertEqual(verdicts, sorted(verdicts, key=order.index))
        self.assertEqual(set(verdicts), set(order))
        self.assertLess(len(text.encode()), 2_000_000)

    def test_texts_and_lists_without_end_are_bounded(self):
        report = self.folder / "report.json"
        self.assert_run(1, "check", self.failing(), "--no-explain", "--json", report)
        whole = json.loads(report.read_text())
        (case,) = whole["cases"]
        long = "<\x07\u00e9" * 400_000
        case["tensors"] *= 300
        for i, tensor in enumerate(case["tensors"]):
            case["tensors"][i] = {**tensor, "name": f"<{i}>"}
        whole["cases"] = [{**case, "source": long, "file": f"{i}{long}"} for i in range(2)]
        report.write_text(json.dumps(whole))
        _, text = self.page(1, "merge", report)
        self.assertLess(len(text.encode()), 2_000_000)
        self.assertIn("[shortened]", self.assert_harmless(text).text)
        # Two answers for each of 4,000 files are 4,000 problems.
        case["tensors"] = case["tensors"][:1]
        whole["cases"] = [{**case, "file": str(i // 2), "contract": str(i)} for i in range(8000)]
        report.write_text(json.dumps(whole))
        _, text = self.page(1, "merge", report)
        self.assertLess(len(text.encode()), 2_000_000)
        self.assertRegex(self.assert_harmless(text).text, r"and [\d,]+ more, all in the JSON report")

    def test_nothing_to_show(self):
        capture = self.capture(DECODE)
        path = self.folder / "page.html"
        self.assert_run(0, "check", capture, "--shard", "2/2", "--html", path)
        self.assertIn("0 files: nothing was judged", self.assert_harmless(path.read_text()).text)

        def unwritten(file):
            for name in ("o", "final_state"):
                put(file, f"outputs/{name}", np.full(file[f"outputs/{name}"].shape, np.nan))

        def unknown(file):
            put(file, "inputs/v", np.full(file["inputs/v"].shape, np.nan))
            unwritten(file)
        _, text = self.page(1, "check", self.capture(PREFILL, unwritten), "--no-explain")
        self.assertIn("as if never written", self.assert_harmless(text).text)
        _, text = self.page(2, "check", self.capture(PREFILL, unknown), "--only", "o")
        self.assertIn("no expectation is finite", self.assert_harmless(text).text)


if __name__ == "__main__":
    main()
