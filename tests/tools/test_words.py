#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_style words over a small planted tree: what is right passes, each planted mistake is found.

    test_words.py ROOT      ROOT: of the repository, whose script is tried

Exit code 77: skipped, where git is missing.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ELSEWHERE = '''"""Names of others."""
FILES = {
    "other.h": "another project",
}
OPTIONS = {
    "--far": "another program",
    "--[bpt]*": "CMake",
}
WORDS = {
    "far_word": "another project",
}
'''
PROGRAM = '''#include <CLI/CLI.hpp>
void add_reports(CLI::App* sub, Reports& reports) {
  sub->add_option("--json", reports.json, "as JSON");
}

void add_check(CLI::App& app, Options& all) {
  CLI::App* sub = app.add_subcommand("check", "Judge");
  sub->add_option("files", all.files, "captures");
  sub->add_flag("!--no-explain", all.explain, "not --hidden");
  add_reports(sub, all.reports);
}

void add_list(CLI::App& app, Options& all) {
  CLI::App* sub = app.add_subcommand("list", "List");
  sub->add_option("-o,--output", all.output, "folder");
}

int run(int argc, char** argv) {
  CLI::App app{"goldenrule"};
  app.add_flag("--trust", all.trust, "read here");
}
'''
TREE = {
    "tools/cli/main.cpp": PROGRAM,
    "tools/try": '#!/bin/sh\ncase $1 in --fast) ;; esac\n',
    "tests/CMakeLists.txt": '''add_executable(test_a a.cpp)
foreach(part one two)
  add_test(NAME "cli: ${part}" COMMAND test_a)
  set_tests_properties("cli: ${part}" PROPERTIES LABELS quick)
endforeach()
''',
    "tests/long.txt": "# those that take long\n^cli: two$\n",
    "tests/a.cpp": "int snake_word = 1'000;  // a digit separator begins no literal\n",
    "reference/a/same.hpp": "#pragma once\n",
    "reference/b/same.hpp": "#pragma once\n",
    "CMakePresets.json": '''{"version": 6,
 "configurePresets": [{"name": "base", "hidden": true}, {"name": "ci"}, {"name": "style"}],
 "buildPresets": [{"name": "ci"}], "testPresets": [{"name": "ci"}]}''',
}
RIGHT_PAGE = '''# Right page

## What `it` is, twice

See [below](#what-it-is-twice), [code](../tools/cli/main.cpp), [folder](../tools) and
[elsewhere](https://example.org/tools/none.md). `tools/cli/*.cpp`, `cli/{main,main}.cpp`, `reference/NAME/same.hpp`,
`reference/<part>/same.hpp`, `tools/...`, `x/y`, `/golden`, `other.h` of another and `far_word`.

| folder or file | what |
|---|---|
| `same.hpp`, `a/` | twice |

`goldenrule check --no-explain
--json report.json FILE`, `check --json`, `goldenrule --trust list -o d`, `tools/try --fast`, `--far`, `snake_word`,
preset `style`, label `quick`.

    cmake --preset style && cmake --build --preset ci --target test_a
    ctest --preset ci -R 'cli: one' -L quick
    tools/try --fast; goldenrule check \\
      --trust FILE
'''
RIGHT_SOURCE = '''// As tools/cli/main.cpp, cli/main.cpp and main.cpp say; `goldenrule list` prints goldenrule, and
// goldenrule judges. The literal below is no comment.
const char* text = "// tools/none.cpp --none";
'''
# File, its text, and what is said of it: line and words.
WRONG = [
    ("reference/file.md", "Text\n\n`tools/none` here.\n", "3: tools/none: no such file"),
    ("reference/suffix.md", "`gone.hpp`\n", "1: gone.hpp: no such file"),
    ("reference/block.md", "Text\n\n    cat one\n    cat tests/none/*.h5\n", "4: tests/none/*.h5: no such file"),
    ("reference/brace.md", "`cli/{main,none}.cpp`\n", "1: cli/none.cpp: no such file"),
    ("reference/table.md", "| file | what |\n|---|---|\n| `none` | it |\n", "3: none: no such file"),
    ("reference/link.md", "A\n[link](none.md)\n", "2: link to none.md: no such file"),
    ("reference/anchor.md", "# Head\n\n[link](#had)\n", "3: link to #had: no such heading"),
    ("reference/other_anchor.md", "[link](right.md#had)\n", "1: link to right.md#had: no such heading"),
    ("reference/command.md", "`goldenrule judge FILE`\n", "1: judge: goldenrule has no such command"),
    ("reference/option.md", "A\n`goldenrule check\n--output d`\n", "3: --output: goldenrule check has no such option"),
    ("reference/global.md", "`goldenrule list --json`\n", "1: --json: goldenrule list has no such option"),
    ("reference/lone.md", "`--gone`\n", "1: --gone: no program has this option"),
    ("reference/script.md", "`tools/try --json`\n", "1: --json: tools/try has no such option"),
    ("reference/preset.md", "Preset, the preset\n`base`.\n", "2: base: no preset"),
    ("reference/build.md", "`cmake --build --preset style`\n", "1: style: no build preset"),
    ("reference/target.md", "`cmake --build . --target test_b`\n", "1: test_b: no target"),
    ("reference/test.md", "`ctest -R 'cli: three'`\n", "1: cli: three: no test"),
    ("reference/label.md", "`ctest -L slow`\n", "1: slow: no label of tests"),
    ("reference/word.md", "`snail_word`\n", "1: snail_word: no source has this word"),
    ("reference/name.md", "`a::kNone`\n", "1: a::kNone: no source has this word"),
    ("reference/call.cpp", "int d;  // kSnake, a_i; by no_call().\nint kSnake;\n", "1: no_call: no source has this word"),
    ("reference/constant.cpp", "// kSnail\n", "1: kSnail: no source has this word"),
    ("reference/macro.md", "GOLDENRULE_NONE is set\n", "1: GOLDENRULE_NONE: no source has this word"),
    ("reference/comment.cpp", "\n\n/* As\n   gone.cpp says. */\nint a;\n", "4: gone.cpp: no such file"),
    ("reference/many.cpp", "int b;\n", ""),
    ("tools/many.cpp", "int c;  // see same.hpp\n", "1: same.hpp: 2 files have this name"),
    ("reference/usage.py", '"""Use.\n\n    goldenrule check --hide\n"""\n', "3: --hide: no program has this option"),
    ("reference/usage.sh", "# goldenrule list --no-explain\n", "1: --no-explain: goldenrule list has no such option"),
]


def words(tree):
    """(exit code, findings) of the script in a tree."""
    done = subprocess.run([sys.executable, "-B", tree / "tools/check_style", "words"], text=True,
                          capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout.splitlines()[:-1]


def write(tree, name, text):
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test(root, tree):
    for script in ("tools/check_style", "tools/layers.py", *(f"tools/words/{part}.py" for part in ("check", "known", "texts"))):
        write(tree, script, (root / script).read_text())
    write(tree, "tools/words/elsewhere.py", ELSEWHERE)
    for name, text in TREE.items():
        write(tree, name, text)
    write(tree, ".gitignore", "/tools/words/\n/tools/check_style\n/tools/layers.py\n")
    subprocess.run(["git", "init", "--quiet", tree], check=True)
    write(tree, "reference/right.md", RIGHT_PAGE)
    write(tree, "reference/right.cpp", RIGHT_SOURCE)
    code, found = words(tree)
    assert code == 0 and not found, found

    for name, text, _ in WRONG:
        write(tree, name, text)
    code, found = words(tree)
    assert code == 1, found
    for name, _, said in WRONG:
        lines = [line for line in found if line.startswith(f"{name}:")]
        assert any(line.startswith(f"{name}:{said}") for line in lines) if said else not lines, (said, lines)
    assert len({line.split(":")[0] for line in found}) == sum(bool(said) for _, _, said in WRONG), found
    for name, _, _ in WRONG:
        (tree / name).unlink()

    # A list of tests that names none, and a row of the table that nothing names.
    write(tree, "tests/long.txt", "^cli: three$\n")
    write(tree, ".gitignore", "/tools/check_style\n/tools/layers.py\n/tools/words/[ckt]*\n")
    write(tree, "tools/words/elsewhere.py", ELSEWHERE.replace("far_word", "near_word"))
    code, found = words(tree)
    assert code == 1 and found == [
        "reference/right.md:7: far_word: no source has this word",
        "tests/long.txt:1: ^cli: three$: no test",
        "tools/words/elsewhere.py:10: near_word: nothing names it"], found


def main():
    if not shutil.which("git"):
        print("SKIPPED: git is missing")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        test(Path(sys.argv[1]).resolve(), Path(folder))
    print(f"{sum(bool(said) for _, _, said in WRONG) + 2} planted mistakes are found, what is right passes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
