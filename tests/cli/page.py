# SPDX-License-Identifier: Apache-2.0
"""What the tests of the page share: reading it as text, and pictures of it as pixels."""

import html.parser
import struct
import zlib

import numpy as np

from support import CommandLineTest, put

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


class PageCase(CommandLineTest):
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
