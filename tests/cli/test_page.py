# SPDX-License-Identifier: Apache-2.0
"""`goldenrule check --html`: the page, read as text and, where there is Chromium, looked at."""

import json
import random
import re
import shutil
import subprocess
import unittest

import h5py
import numpy as np

from page import HOSTILE, PageCase, count, pixels, spoil
from support import DECODE, PREFILL, main, put, run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
                None)


class PageTest(PageCase):
    def test_a_failing_file(self):
        capture = self.failing()
        _, text = self.page(1, "check", capture, "--explain-seconds", 0)
        shown = self.assert_harmless(text).text
        for words in ("OUT_OF_BUDGET", "elements are out of budget", "head 1",
                      "packed token by head", "key by value at", "token by value at sequence",
                      "None of", "Pattern:", f"goldenrule check {capture}"):
            self.assertIn(words, shown)
        self.assertLess(len(text), 200_000)

    def test_the_matrix_names_the_mistake_and_says_ratios_in_words(self):
        def tiled(file):
            with h5py.File(self.fixture(f"{DECODE} head_map=tiled")) as other:
                for name in ("o", "final_state"):
                    put(file, f"outputs/{name}", other[f"golden/{name}"][()])
        captures = [self.capture(DECODE, name="right.h5"), self.capture(DECODE, tiled, "wrong.h5")]
        _, text = self.page(1, "check", *captures)
        matrix = text[:text.index("<section")]
        self.assertRegex(matrix, r"OUT_OF_BUDGET</span><br><b>\w+</b></td>")
        self.assertRegex(matrix, r">\d+(\.\d+)? million times its budget<")
        self.assertRegex(matrix, r">0\.\d+ of its budget<")
        self.assertIn("An element passes when its error is at most its budget", matrix)

    def test_what_is_found_stands_in_text_json_and_page(self):
        line = ("op=attention mode=prefill lens=40,50 H=2 HV=4 K=32 V=32 mask=causal pattern=A "
                "window_left=")

        def wider(file):
            with h5py.File(self.fixture(f"{line}13")) as other:
                for name in ("o", "lse"):
                    put(file, f"outputs/{name}", other[f"golden/{name}"][()])
        report = self.folder / "found.json"
        path = self.folder / "found.html"
        out = self.assert_run(1, "check", self.capture(f"{line}9", wider), "--json", report,
                              "--html", path).out
        said = ("every query sees its keys and 4 before the first that it should see; this "
                "reproduces all 280 failing rows (query and head)")
        self.assertIn(f"  found: {said}\n", out)
        self.assertEqual(json.loads(report.read_text())["cases"][0]["found"], [said])
        self.assertIn(f"Found: {said}", self.assert_harmless(path.read_text(encoding="utf-8")).text)

    def test_maps_show_the_place_and_the_json_holds_them(self):
        report = self.folder / "report.json"
        self.assert_run(1, "check", self.failing(), "--json", report, "--no-explain")
        (case,) = json.loads(report.read_text())["cases"]
        tensors = {t["name"]: t for t in case["tensors"]}
        overview, nearby = tensors["o"]["maps"]
        self.assertEqual((overview["down"]["extent"], overview["across"]["extent"]), (110, 2))
        self.assertEqual(overview["down"]["sequences"], [70])
        self.assertEqual(overview["down"]["chunks"], [64])
        for line in overview["levels"]:
            self.assertLessEqual(line[0], "4")
            self.assertGreater(line[1], "4")
        self.assertIn("head 1", nearby["where"])
        state, zoom = tensors["final_state"]["maps"]
        self.assertEqual([[c > "4" for c in line] for line in state["levels"]],
                         [[False, True], [False, False], [False, False]])
        wrong = [k for k, line in enumerate(zoom["levels"]) if max(line) > "4"]
        self.assertEqual((zoom["down"]["axis"], wrong), ("key", [5]))
        self.assertEqual(sum(tensors["o"]["ratio_histogram"]), tensors["o"]["compared"])
        self.assertEqual(sum(tensors["o"]["ratio_histogram"][26:]), tensors["o"]["out_of_budget"])

    def test_nonfinite_and_unwritten(self):
        def change(file):
            values = file["outputs/o"][()].astype("f8")
            values[3] = np.nan
            values[4, 0, 0] = np.inf
            put(file, "outputs/o", values)
        _, text = self.page(1, "check", self.capture(PREFILL, change), "--no-explain")
        shown = self.assert_harmless(text).text
        self.assertIn("as if never written", shown)
        self.assertIn("NaN or Inf", shown)
        self.assertIn('class="lb"', text)

    def test_many_files_are_a_matrix(self):
        files = [self.capture(DECODE, name="right.h5"), self.failing(), self.folder / "none.h5"]
        _, text = self.page(1, "check", *files, "--no-explain")
        elements = self.assert_harmless(text)
        links = [a["href"] for tag, a in elements.found if tag == "a"]
        ids = ["#" + a["id"] for _, a in elements.found if "id" in a]
        self.assertLessEqual(set(links), set(ids))
        rows = re.findall(r"<tr><td>.*?</tr>", text)
        self.assertEqual([("wrong" in r, "none" in r, "right" in r) for r in rows],
                         [(True, False, False), (False, True, False), (False, False, True)])

    def test_texts_of_strangers_stay_texts(self):
        def change(file):
            spoil(file)
            file.attrs["source"] = HOSTILE
            file.attrs["case"] = HOSTILE
        path = self.folder / "<script>alert(1)<!--'\" &.h5"
        capture = self.capture(PREFILL, change).rename(path)
        _, text = self.page(1, "check", capture, "--no-explain")
        self.assertIn(HOSTILE, self.assert_harmless(text).text)
        _, text = self.page(2, "check", self.folder / "<b>\n\x1b[31m none.h5")
        self.assert_harmless(text)

    def test_any_json_gives_a_harmless_page_or_one_line(self):
        """Values of a report, replaced at random: the seed is printed with what goes wrong."""
        report = self.folder / "report.json"
        self.assert_run(1, "check", self.failing(line=PREFILL), "--json", report,
                        "--explain-seconds", 0)
        whole = report.read_text()
        for seed in range(60):
            with self.subTest(seed=seed):
                draw = random.Random(seed)
                changed = json.loads(whole)
                for _ in range(draw.choice((1, 1, 4))):
                    self.replace_somewhere(changed, draw)
                path = self.folder / "changed.json"
                path.write_text(json.dumps(changed))
                page = self.folder / "changed.html"
                page.unlink(missing_ok=True)
                result = run("merge", path, "--html", page)
                self.assertIn(result.code, (0, 1, 2), result.err)
                self.assertLessEqual(len(result.err.splitlines()), 1)
                if page.exists():
                    self.assert_harmless(page.read_text())

    def replace_somewhere(self, value, draw):
        while True:
            keys = list(value) if isinstance(value, dict) else list(range(len(value)))
            key = draw.choice(keys)
            if isinstance(value[key], (dict, list)) and value[key] and draw.random() < 0.9:
                value = value[key]
                continue
            value[key] = draw.choice((HOSTILE, None, -1, 10 ** 18, 1e308, [], {}, [HOSTILE], True,
                                      "\u202e\u0000", {"levels": [HOSTILE]}))
            return

    def chromium(self, *arguments):
        return subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--force-device-scale-factor=0.5", f"--user-data-dir={self.folder / 'browser'}", *map(str, arguments)],
            cwd=self.folder, capture_output=True, timeout=60, check=True).stdout

    @unittest.skipIf(CHROMIUM is None, "no Chromium: Debian package chromium")
    def test_in_a_browser(self):
        page, _ = self.page(1, "check", self.failing(), self.capture(DECODE, name="right.h5"),
                            "--no-explain")
        shot = self.folder / "page.png"
        # On a telephone: bars within and beyond the budget, levels of the maps, nothing cut off.
        self.chromium("--window-size=390,3000", f"--screenshot={shot}", page.as_uri())
        image = pixels(shot.read_bytes())
        self.assertEqual(image.shape[1], 195)
        self.assertTrue((image[:, -3:] == 255).all(), "something reaches beyond the right edge")
        for colour, least in (("2f6fb5", 50), ("c8102e", 50), ("b92d1e", 25), ("a9c7e8", 25)):
            self.assertGreater(count(image, colour), least, colour)
        # In the dark, and with the DOM that the browser made of the page.
        dom = self.chromium("--force-dark-mode", "--window-size=1000,1600", "--dump-dom",
                            f"--screenshot={shot}", page.as_uri()).decode()
        dark = pixels(shot.read_bytes())
        self.assertGreater(count(dark, "0d1117"), dark.shape[0] * dark.shape[1] // 8)
        self.assertEqual(dom.count("<svg"), page.read_text().count("<svg"))


if __name__ == "__main__":
    main()
