# SPDX-License-Identifier: Apache-2.0
"""The check `words` of tools/check_style: what pages and comments name exists.

  files     a path or a file with the suffix of a source: from the root, from the folder of the file
            that names it, or as the end of a path; of several files of a bare name one is above or
            below that folder; and what stands in the first column of a table of files or folders
  links     their files, and the anchors of their headings
  commands  subcommands and options of goldenrule, options of scripts and of other programs, presets,
            targets, and tests and labels of ctest
  words     what begins with goldenrule_ or GOLDENRULE_, a name of code in backticks, and in a comment
            a constant or a call without arguments, occur in a source or are the end of such a word

A word in capitals, <word>, * and {a,b} stand for parts of a path. What is not of this repository, or is
made by a command, is a row of words/elsewhere.py.
"""

import fnmatch
import re
import shlex

from words.elsewhere import FILES, OPTIONS, WORDS
from words.known import Known, OPTION, TABLE, resolved
from words.texts import LINK, anchors, pieces

SOURCE = r"hpp|cpp|cuh|cu|h|md|py|sh|txt|cmake|toml|awk"
PATH = re.compile(r"(?<![\w./:@$%~\\*<>{}+-])\.{0,2}[\w*{<][\w./*{},<>+-]*")
NAMED = re.compile(r"(?<![\w.:/-])(?:goldenrule|GOLDENRULE)_\w*\w\b(?![\w*{.<-])")
LONG_TESTS = "tests/long.txt"
PLACE = re.compile(r"(?<![A-Za-z0-9])[A-Z]+(?![A-Za-z0-9])")
# A name of code: snake_case, CamelCase, kConstant, a::b.
CODE = r"[A-Za-z]\w*(?:_\w|::\w|[a-z][A-Z])\w*(?:::\w+)*"
# The same in a comment: in backticks, a constant, or called.
PLAIN = rf"(?<=`){CODE}(?=`)|(?<![\w:.])k[A-Z]\w+(?![\w*.<{{])|(?<![\w:./-])[a-z]+_[a-z_]+(?=\(\))"
PROGRAM = re.compile(r"[\w./-]+")
# A command in a comment, from the end of the name of its program; and an option anywhere.
BEGIN = re.compile(r"(?:\b(?:goldenrule|ctest|cmake)|\btools/[a-z_]+|\.py) [^`;\n]*")
OPTION_ALONE = re.compile(r"(?<![\w-])--[a-z][\w-]*(?![\w*-])")


def near(a, b):
    """One of two folders is in the other, or both are the same."""
    return f"{a}/".startswith(f"{b}/" if b else "") or f"{b}/".startswith(f"{a}/" if a else "")


def folder_of(file):
    return file.rpartition("/")[0]


def braces(name):
    found = re.search(r"\{([^{}]*)\}", name)
    if not found:
        return [name]
    return [full for part in found[1].split(",")
            for full in braces(name[:found.start()] + part + name[found.end():])]


def commands_in(text):
    """The words of each simple command of a shell text, its options without brackets and quotes."""
    text = re.sub(r"\\\n", " ", text)
    for line in re.split(r"\n|;|\||&&|[\s$]\(|(?<!\S)#.*", text):
        if " -" not in line and "goldenrule" not in line:
            continue
        try:
            row = shlex.split(line, posix=True)
        except ValueError:
            row = line.split()
        row = [word.strip("[]()") for word in row]
        while row and (row[0] in ("if", "!", "then", "do", "else", "time", "nice", "python3", "python", "")
                       or re.match(r"\w+=", row[0])):
            row = row[1:]
        if row:
            yield row


class Check:
    def __init__(self, root, files):
        self.known = Known(root, files)
        self.tops = {name.split("/")[0] for name in self.known.folders}
        self.names = {folder.rsplit("/", 1)[-1] for folder in self.known.folders}
        self.anchors = {name: set(anchors(text)) for name, text in self.known.text.items()
                        if name.endswith(".md")}
        self.found, self.used = [], set()

    def run(self):
        for name in sorted(self.known.text):
            for piece in pieces(name, self.known.text[name]):
                self.look(name, piece)
        self.long_tests()
        self.rows()
        return [f"{name}:{line}: {text}" for name, line, text in sorted(set(self.found))]

    def long_tests(self):
        for number, line in enumerate(self.known.text.get(LONG_TESTS, "").splitlines(), 1):
            if not line.startswith("#") and not self.is_test(line):
                self.found.append((LONG_TESTS, number, f"{line}: no test"))

    def rows(self):
        """A row of the table that nothing needs any more is none."""
        for number, line in enumerate(self.known.text.get(TABLE, "").splitlines(), 1):
            row = re.match(r'    "([^"]+)": "', line)
            if row and row[1] not in self.used:
                self.found.append((TABLE, number, f"{row[1]}: nothing names it"))

    def is_elsewhere(self, name, table):
        rows = [row for row in table if fnmatch.fnmatchcase(name, row)]
        self.used.update(rows)
        return bool(rows)

    def is_test(self, pattern):
        return any(re.search(pattern, name) for name in self.known.tests)

    def look(self, file, piece):
        def say(at, text):
            self.found.append((file, piece.line + piece.text.count("\n", 0, at), text))

        text = re.sub(r"\w+://[^\s)>]*", lambda url: " " * len(url[0]), piece.text)
        folder = folder_of(file)
        self.presets(text, say)
        if piece.kind == "prose":
            self.links(file, text, say)
            self.rows_of_files(folder, text, say)
        else:
            self.files(folder, text, piece.kind, say)
            self.shell(text, piece.kind, say)
        for word in [*NAMED.finditer(text), *self.quoted(text, piece.kind)]:
            if not self.known.is_word(word[0]) and not self.is_elsewhere(word[0], WORDS):
                say(word.start(), f"{word[0]}: no source has this word")

    @staticmethod
    def quoted(text, kind):
        """The names of code: in backticks by themselves, and what a comment cannot mean otherwise."""
        if kind == "span":
            return filter(None, [re.fullmatch(CODE, text)])
        return re.finditer(PLAIN, text) if kind == "comment" else ()

    def presets(self, text, say):
        for found in re.finditer(r"\b(preset|label)\s+`([\w-]+)`", text):
            known = self.known.cmake.labels if found[1] == "label" else self.known.presets["configure"]
            if found[2] not in known:
                say(found.start(2), f"{found[2]}: no {found[1]}")

    def links(self, file, text, say):
        for link in LINK.finditer(text):
            target, _, anchor = link[1].partition("#")
            if ":" in target or target.startswith(" "):
                continue
            path = resolved(folder_of(file), target) if target else file
            if path not in self.known.files and path not in self.known.folders:
                say(link.start(), f"link to {link[1]}: no such file")
            elif anchor and anchor not in self.anchors.get(path, ()):
                say(link.start(), f"link to {link[1]}: no such heading")

    def rows_of_files(self, folder, text, say):
        """What stands in the first column of a table of files or folders."""
        at, listed = 0, False
        for line in text.splitlines(keepends=True):
            cell = line.split("|")[1] if line.count("|") > 1 else ""
            if not cell or not listed:
                listed = bool(re.fullmatch(r" *(files?|folders?)( or (files?|folders?))? *", cell))
            for span in re.finditer(r"`([^`]+)`", cell) if listed else ():
                missing = [name for name in braces(span[1]) if not self.exists(name, folder)]
                if missing:
                    say(at + span.start(), f"{', '.join(missing)}: no such file")
            at += len(line)

    def files(self, folder, text, kind, say):
        for found in PATH.finditer(text):
            word = re.split(r",(?![^{]*\})", found[0].rstrip(".,-"))[0]
            if "..." in word or not self.is_path(word, kind, text) or self.is_elsewhere(word, FILES):
                continue
            missing = [name for name in braces(word) if not self.exists(name, folder)]
            if missing:
                say(found.start(), f"{', '.join(missing)}: no such file")
            elif "/" not in word and not re.search(r"[*{<]", word):
                self.say_if_many(word, folder, found.start(), say)

    def is_path(self, word, kind, text):
        first = word.split("/")[0]
        if re.search(rf"[\w*}}>]\.({SOURCE})$", word):
            return True
        if "/" not in word or word.startswith(("/", "<")):
            return False
        return first in self.tops or (kind == "span" and word.rstrip("/") == text.strip().rstrip("/")
                                      and (first in self.names or word.startswith(".")))

    def exists(self, name, folder):
        if self.known.paths(name, folder):
            return True
        pattern = PLACE.sub("*", re.sub(r"<[^>]*>", "*", name))
        return pattern != name and bool(self.known.paths(pattern, folder))

    def say_if_many(self, word, folder, at, say):
        """One of them stands above the folder or below it, or there is no other."""
        paths = self.known.paths(word, folder)
        if len(paths) > 1 and not any(near(folder_of(path), folder) for path in paths):
            say(at, f"{word}: {len(paths)} files have this name: {', '.join(sorted(paths)[:3])}")

    def shell(self, text, kind, say):
        spans = [(0, text, False)]
        if kind == "comment":
            spans = [(found.start(1), found[1], False) for found in re.finditer(r"`([^`]+)`", text)]
            for found in BEGIN.finditer(text):
                begin = re.search(r"[\w./-]*$", text[:found.start()]).start()
                spans.append((begin, text[begin:found.end()], True))
        for at, span, prose in spans:
            for row in commands_in(span if kind == "block" else span.replace("\n", " ")):
                for complaint in self.command(row, prose):
                    say(at + max(span.find(complaint.split(":")[0]), 0), complaint)
        for found in OPTION_ALONE.finditer(text):
            if found[0] not in self.known.options and not self.is_elsewhere(found[0], OPTIONS):
                say(found.start(), f"{found[0]}: no program has this option")

    def command(self, row, prose):
        program = row[0].rsplit("/", 1)[-1]
        if program == "goldenrule":
            yield from self.subcommand(row[1:], prose)
        elif row[0] in self.known.commands and len(row) > 1 and row[1].startswith("--"):
            yield from self.subcommand(row, prose)
        elif program in ("ctest", "cmake"):
            yield from self.build(program, row[1:])
        elif PROGRAM.fullmatch(row[0]):
            options = self.known.options_of(row[0])
            yield from () if options is None else self.unknown(row[1:], options, row[0])

    def subcommand(self, row, prose):
        if not row or (prose and row[0] not in self.known.commands and not any(
                word.startswith("--") for word in row[1:2])):
            return
        if re.fullmatch(r"[a-z_]+", row[0]) and row[0] not in self.known.commands:
            yield f"{row[0]}: goldenrule has no such command"
            return
        name = next((word for word in row if word in self.known.commands), "")
        yield from self.unknown(row, self.known.commands.get(name, set()), f"goldenrule {name}".strip())

    def unknown(self, row, options, program):
        for word in row:
            option = re.fullmatch(r"(--?[A-Za-z][\w-]*)(=.*)?[.,:)]*", word)
            if option and option[1] not in options and not self.is_elsewhere(option[1], OPTIONS):
                yield f"{option[1]}: {program} has no such option"

    def build(self, tool, row):
        stage = "test" if tool == "ctest" else "build" if "--build" in row else "configure"
        for option, value in zip(row, row[1:]):
            value = value.rstrip(".,:)")
            if "$" in value or not value or value.isupper() or value.startswith("-"):
                continue
            if option == "--preset" and value not in self.known.presets[stage]:
                yield f"{value}: no {stage} preset"
            elif option == "--target" and value not in self.known.cmake.targets:
                yield f"{value}: no target"
            elif option == "-R" and not self.is_test(value):
                yield f"{value}: no test"
            elif option in ("-L", "-LE", "--label-exclude") and not any(
                    re.search(value, label) for label in self.known.cmake.labels):
                yield f"{value}: no label of tests"


def findings(root, files):
    return Check(root, files).run()
