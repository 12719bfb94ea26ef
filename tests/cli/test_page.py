# SPDX-License-Identifier: Apache-2.0
"""`goldenrule check --html`: the page, read as text and, where there is Chromium, looked at."""

import html.parser
import json
import random
import re
import shutil
import struct
import subprocess
import unittest
import zlib

import h5py
import numpy as np

from support import DECODE, PREFILL, CommandLineTest, main, put, run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
                None)
LONG_PREFILL = "op=gdn mode=prefill lens=70,0,40 H=1 HV=2 K=16 V=8 gate=log h0=1"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;"
VOID = {"meta", "br"}
# Elements that load or run something are none of these.
ELEMENTS = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "span", "b",
            "br", "section", "div", "table", "tr", "th", "td", "a", "code", "pre", "figure",
            "figcaption", "svg", "path", "rect", "text", "i"}


def spoil(file):
    """One head of o is wrong, and one key channel of the state."""
    values = file["outputs/o"][()].astype("f8")
    values[..., 1, :] += 1.0
    put(file, "outputs/o", values)
    state = file["outputs/final_state"][()].astype("f8")
    state[0, 1, :, 5] *= 3.0
    put(file, "outputs/final_state", state)


class Elements(html.parser.HTMLParser):
    """Elements, attributes and text of a page; an end that fits no beginning is an error."""

    def __init__(self, text):
        super().__init__()
        self.open, self.found, self.text = [], [], ""
        self.feed(text)
        if self.open:
            raise ValueError(f"not closed: {self.open}")

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            raise ValueError(f"</{tag}> ends nothing")

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data


def pixels(png):
    """An RGB array of a PNG with 8 bits a channel, without interlace."""
    position, data = 8, b""
    while position < len(png):
        length, kind = struct.unpack(">I4s", png[position:position + 8])
        body = png[position + 8:position + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert depth == 8 and colour in (2, 6), (depth, colour)
        data += body if kind == b"IDAT" else b""
        position += 12 + length
    channels = 3 if colour == 2 else 4
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + width * channels)
    rows, above = [], bytes(width * channels)
    for line in lines:
        above = unfiltered(line[0], line[1:].tobytes(), above, channels)
        rows.append(np.frombuffer(above, np.uint8).reshape(width, channels)[:, :3])
    return np.array(rows)


def unfiltered(kind, row, above, channels):
    """One line of a PNG from its differences: the filters None, Sub, Up, Average and Paeth."""
    if kind == 0:
        return row
    now = bytearray(row)
    for i, raw in enumerate(row):
        left = now[i - channels] if i >= channels else 0
        up, corner = above[i], above[i - channels] if i >= channels else 0
        if kind == 4:
            a, b, c = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
            guess = left if a <= b and a <= c else up if b <= c else corner
        else:
            guess = (left, up, (left + up) // 2)[kind - 1]
        now[i] = (raw + guess) & 255
    return bytes(now)


def count(image, colour):
    return int(np.all(image == [int(colour[i:i + 2], 16) for i in (0, 2, 4)], axis=-1).sum())


class PageTest(CommandLineTest):
    def page(self, code, *arguments):
        path = self.folder / "page.html"
        self.assert_run(code, *arguments, "--html", path)
        return path, path.read_text(encoding="utf-8")

    def assert_harmless(self, text):
        elements = Elements(text)
        for tag, attributes in elements.found:
            self.assertIn(tag, ELEMENTS)
            self.assertFalse([a for a in attributes if a.startswith("on") or a == "src"], tag)
            self.assertTrue(attributes.get("href", "#").startswith("#"), attributes)
        self.assertNotIn("url(", text)
        self.assertIn("default-src 'none'", text)
        return elements

    def failing(self, name="wrong.h5", line=LONG_PREFILL):
        return self.capture(line, spoil, name)

    def test_a_failing_file(self):
        capture = self.failing()
        _, text = self.page(1, "check", capture, "--explain-seconds", 0)
        shown = self.assert_harmless(text).text
        for words in ("OUT_OF_BUDGET", "elements are out of budget", "head 1",
                      "packed token by head", "key by value at", "token by value at sequence",
                      "None of", "Pattern:", f"goldenrule check {capture}"):
            self.assertIn(words, shown)
        self.assertLess(len(text), 200_000)

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
