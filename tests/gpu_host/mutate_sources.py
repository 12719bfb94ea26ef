#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies of kernel sources with mistakes to choose from when the program runs.

    mutate_sources.py MUTANTS ROOT OUT

MUTANTS (mutants.toml) lists mistakes: a file of ROOT, a text that stands in it exactly once, and what
stands there instead. A text that ends with a semicolon, or with a comment behind one, is a statement,
any other an expression. Each file that is named is written below OUT, with

    if (::goldenrule::simt::mutant == N) { instead } else { text }

for a statement, and the same with ? : for an expression; N counts from 1. OUT/mutant.hpp declares the
number, which the environment variable GOLDENRULE_GPU_MUTANT sets. So one build serves all mistakes,
and the sources themselves know nothing of them.
"""

import re
import sys
import tomllib
from pathlib import Path

HEADER = """// Made by tests/gpu_host/mutate_sources.py.
#pragma once
#include <cstdlib>
namespace goldenrule::simt {
/// Which mistake is made; 0: none.
inline const int mutant = [] {
  const char* text = std::getenv("GOLDENRULE_GPU_MUTANT");
  return text == nullptr ? 0 : std::atoi(text);
}();
}  // namespace goldenrule::simt
"""


def mutated(name, source, mutants):
    """The source with all of its (number, mutant)."""
    for number, mutant in mutants:
        text, instead = mutant["text"], mutant["instead"]
        found = source.count(text)
        if found != 1:
            sys.exit(f"{name}: mutant {mutant['name']}: expected its text once, found it {found} times:"
                     f"\n{text}")
        test = f"::goldenrule::simt::mutant == {number}"
        if re.sub(r"//.*", "", text).rstrip().endswith(";"):
            changed = f"if ({test}) {{ {instead} }} else {{ {text}\n }}"
        else:
            changed = f"({test} ? ({instead}) : ({text}))"
        source = source.replace(text, changed)
    return source


def main():
    table, root, out = map(Path, sys.argv[1:])
    by_file = {}
    for number, mutant in enumerate(tomllib.loads(table.read_text())["mutant"], 1):
        by_file.setdefault(mutant["file"], []).append((number, mutant))
    sources = {"mutant.hpp": HEADER}
    for name, mutants in by_file.items():
        sources[name] = mutated(name, (root / name).read_text(), mutants)
    for name, text in sources.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    for path in out.rglob("*"):  # of mistakes that are gone
        if path.is_file() and str(path.relative_to(out)) not in sources:
            path.unlink()


if __name__ == "__main__":
    main()
