# SPDX-License-Identifier: Apache-2.0
"""What there is to be named: files, commands with their options, targets, presets, tests, words.

Everything is read from the text of the sources that define it; nothing is built or run.
"""

import fnmatch
import json
import re
from pathlib import Path

from words.texts import comments_and_code

TABLE = "tools/words/elsewhere.py"
OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
CALL = re.compile(r"(?s)\b(\w+)\s*\(\s*(.*?)\)")
TARGET = re.compile(r"\badd_(?:executable|library|custom_target)\(\s*([^\s)]+)|\bpybind11_add_module\(\s*(\w+)")
TEST = re.compile(r"\b(?:add_test\(\s*NAME|goldenrule_python_test\()\s*\"([^\"]+)\"")


class Cmake:
    """Names that CMake files give to targets and tests, with loops and functions followed."""

    def __init__(self, texts):
        self.texts = texts
        self.calls = {}
        for text in texts.values():
            for call in CALL.finditer(text):
                first = call[2].split()
                self.calls.setdefault(call[1].lower(), []).append(first[0].strip('"') if first else "")
        self.targets = set(self.names(TARGET))
        self.tests = set(self.names(TEST))
        self.labels = {label for text in texts.values()
                       for run in re.findall(r"\bLABELS\s+((?:\"?[\w;]+\"?\s*)+)", text)
                       for label in re.findall(r"\b[a-z]\w*", run)}

    def names(self, pattern):
        for text in self.texts.values():
            for found in pattern.finditer(text):
                yield from self.expand(next(filter(None, found.groups())), text, found.start())

    def expand(self, name, text, at):
        """The names that a name with variables stands for, at a position of a text."""
        variable = re.search(r"\$\{(\w+)\}", name)
        if not variable:
            return [name]
        values = self.values(variable[1], text, at)
        return [full for value in values
                for full in self.expand(name.replace(variable[0], value), text, at)]

    def values(self, variable, text, at):
        loops = list(re.finditer(rf"\bforeach\(\s*{variable}\s+([^)]*)\)", text[:at]))
        if loops and "endforeach" not in text[loops[-1].end():at]:
            return [value for value in loops[-1][1].split() if value not in ("IN", "ITEMS", "LISTS")]
        function = list(re.finditer(rf"\bfunction\(\s*(\w+)\s+{variable}\b", text[:at]))
        if function:
            return [value for value in self.calls.get(function[-1][1].lower(), ())
                    if "$" not in value and value != function[-1][1]]
        sets = re.findall(rf"\bset\(\s*{variable}\s+([^\s)$]*)(\$\{{\w+\}})?", text[:at])
        return [full for head, rest in sets[-1:] for full in self.expand(head + rest, text, at)]


class Known:
    """What a tree has: `files` is the list of its files, `program` the source of the commands."""

    def __init__(self, root, files, program="tools/cli/main.cpp"):
        self.root, self.files = root, set(files)
        self.folders = {str(parent) for name in files for parent in Path(name).parents} - {"."}
        self.last = {}
        for name in self.files | self.folders:
            self.last.setdefault(name.rsplit("/", 1)[-1], []).append(name)
        self.text, self.code = {}, {}
        for name in files:
            text = (root / name).read_bytes()
            if b"\0" not in text:
                self.text[name] = text.decode(errors="replace")
                self.code[name] = ("" if name.endswith(".md") or name == TABLE else
                                   comments_and_code(name, self.text[name])[1])
        code = "\n".join(self.code.values())
        self.words = set(re.findall(r"\b[A-Za-z_]\w*", code))
        self.options = set(OPTION.findall(code))
        self.cmake = Cmake({name: text for name, text in self.code.items()
                            if name.endswith((".cmake", "CMakeLists.txt"))})
        self.words |= self.cmake.targets
        self.tests = set(self.cmake.tests)
        self.tests |= set(self.doctest_names())
        self.commands = commands(self.code.get(program, ""))
        self.presets = presets(self.code.get("CMakePresets.json", "{}"))

    def is_word(self, name):
        return name in self.words or all(
            part in self.words or any(word.endswith("_" + part) for word in self.words)
            for part in name.split("::"))

    def doctest_names(self):
        """The names that CTest gives to test cases: that of the program, and that of the case."""
        for path, text in self.cmake.texts.items():
            for program in re.findall(r"\bgoldenrule_test\(\s*(\w+)", text):
                folder = path.rsplit("/", 1)[0] + "/"
                for name, code in self.code.items():
                    if name.startswith(folder):
                        for case in re.findall(r'\bTEST_CASE\w*\(\s*"([^"]+)"', code):
                            yield f"{program}:{case}"

    def paths(self, name, folder):
        """The files and folders that a name in a file of this folder may mean."""
        name = name.rstrip("/")
        pattern = re.compile(fnmatch.translate(name)) if re.search(r"[*?\[]", name) else None
        here = resolved(folder, name)
        if pattern:
            tail = re.compile("(?:.*/)?" + fnmatch.translate(name.lstrip("./")))
            return [path for path in self.files | self.folders if tail.match(path)]
        if here in self.files or here in self.folders:
            return [here]
        if name.startswith("../"):
            return []
        name = name.removeprefix("./")
        return [path for path in self.last.get(name.rsplit("/", 1)[-1], ())
                if path == name or path.endswith("/" + name)]

    def options_of(self, program):
        """The options of a script or built program, None where nothing is known of it."""
        name = program.rsplit("/", 1)[-1]
        scripts = [path for path in self.paths(program.removeprefix("./"), "") if path in self.code]
        if len(scripts) == 1 and (scripts[0].endswith((".py", ".sh")) or "." not in name):
            return set(OPTION.findall(self.code[scripts[0]])) | {"-h", "--help"}
        if name in self.cmake.targets:
            folders = {path.rsplit("/", 1)[0] for path, text in self.cmake.texts.items()
                       if re.search(rf"\badd_executable\(\s*{name}\b", text)}
            return {option for path, text in self.code.items()
                    if path.rsplit("/", 1)[0] in folders for option in OPTION.findall(text)} or None
        return None


def resolved(folder, name):
    parts = [part for part in folder.split("/") if part]
    for part in name.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in (".", ""):
            parts.append(part)
    return "/".join(parts)


def commands(source):
    """{command: options} as the source of the program declares them; '' has those of all commands."""
    functions = re.split(r"(?m)^(?=\w[\w:<>& ]* \w+\()", source)
    options, named = {}, {}
    for body in functions:
        head = re.match(r"\w[\w:<>& ]* (\w+)\(", body)
        found = re.findall(r'\badd_(?:option|flag)\(\s*"([^"]+)"', body)
        own = {name.strip("!") for text in found for name in text.split(",") if name.startswith(("-", "!-"))}
        if head:
            options[head[1]] = own
        for command in re.findall(r'\badd_subcommand\(\s*"([^"]+)"', body):
            named[command] = (own, re.findall(r"\b(\w+)\(sub\b", body))
        if "CLI::App app" in body:
            named[""] = (own | set(re.findall(r'set_version_flag\("([^"]+)"', body)) | {"-h", "--help"}, ())
    everywhere = named.get("", (set(), ()))[0]
    return {command: own.union(everywhere, *(options.get(name, ()) for name in helpers))
            for command, (own, helpers) in named.items()}


def presets(text):
    """{tool and stage: names}, those that are hidden left out."""
    read = json.loads(text)
    return {kind: {preset["name"] for preset in read.get(f"{kind}Presets", ()) if not preset.get("hidden")}
            for kind in ("configure", "build", "test")}
