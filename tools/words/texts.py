# SPDX-License-Identifier: Apache-2.0
"""What a file tells its reader (comments, pages) apart from what a machine reads (code)."""

import ast
import functools
import io
import re
import tokenize
from pathlib import Path
from typing import NamedTuple

C_LIKE = {".hpp", ".cpp", ".h", ".c", ".cu", ".cuh"}
HASHED = {".sh", ".cmake", ".txt", ".toml", ".awk", ""}
C_TOKEN = re.compile(r"""R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'"""
                     r"|(?P<comment>//[^\n]*|/\*.*?\*/)", re.S)
HASH_COMMENT = re.compile(r"(?m)(?:^|(?<=\s))#.*$")
SPAN = re.compile(r"(`+)(.+?)\1", re.S)
LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")


class Piece(NamedTuple):
    """A part of a file, its first line, and what it is: comment, prose, span or block."""
    line: int
    text: str
    kind: str


def blank(text):
    return "\n".join(" " * len(line) for line in text.split("\n"))


def cut(text, ranges):
    """(what lies in these ranges, what lies outside), both with the lines of the text."""
    inside, outside, at = [], [], 0
    for begin, end in sorted(ranges):
        inside += [blank(text[at:begin]), text[begin:end]]
        outside += [text[at:begin], blank(text[begin:end])]
        at = end
    return "".join(inside) + blank(text[at:]), "".join(outside) + text[at:]


def python_ranges(text):
    """Comments and docstrings."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            begin = starts[token.start[0] - 1] + token.start[1]
            yield begin, begin + len(token.string)
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if (isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and body
                and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
                and isinstance(body[0].value.value, str)):
            yield starts[body[0].lineno - 1], starts[body[0].end_lineno]


@functools.cache
def comments_and_code(name, text):
    """Both as texts with the lines of the file."""
    suffix = Path(name).suffix
    if suffix in C_LIKE:
        ranges = [found.span() for found in C_TOKEN.finditer(text) if found["comment"]]
    elif suffix == ".py" or (not suffix and "python" in text.split("\n", 1)[0]):
        ranges = list(python_ranges(text))
    elif suffix in HASHED:
        ranges = [found.span() for found in HASH_COMMENT.finditer(text)]
    else:
        return "", text
    comments, code = cut(text, ranges)
    return re.sub(r"(?m)^[ \t]*(?:///?<?|/\*+|\*+/?|#+|\"\"\"|r\"\"\")", lambda m: " " * len(m[0]), comments), code


def paragraphs(text, kind):
    """Runs of lines that are not empty."""
    for found in re.finditer(r"(?m)(?:^[^\n]*\S[^\n]*\n?)+", text):
        yield Piece(text.count("\n", 0, found.start()) + 1, found[0], kind)


def page_pieces(text):
    """Blocks of code, spans of code, and prose without them."""
    prose, fenced, block, before = [], False, [], ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        indented = line.startswith("    ") and (not before.strip() or bool(block))
        if fenced != fence or (indented and not fence):
            block.append((number, "" if fence else line))
            prose.append("")
        else:
            if block and line.strip() or (block and fence):
                yield Piece(block[0][0], "\n".join(row for _, row in block), "block")
                block = []
            prose.append("" if fence else line)
        fenced ^= fence
        before = line
    if block:
        yield Piece(block[0][0], "\n".join(row for _, row in block), "block")
    for piece in paragraphs("\n".join(prose), "prose"):
        for span in SPAN.finditer(piece.text):
            yield Piece(piece.line + piece.text.count("\n", 0, span.start()), span[2], "span")
        yield piece


def pieces(name, text):
    if Path(name).suffix == ".md":
        return list(page_pieces(text))
    return list(paragraphs(comments_and_code(name, text)[0], "comment"))


def anchors(text):
    """The anchors that a page's headings make."""
    seen = {}
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        heading = re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        if fenced or not heading:
            continue
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        yield f"{slug}-{count}" if count else slug
