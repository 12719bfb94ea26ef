#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each mistake of mutants.toml, chosen in turn, makes the test fail that is named there; without a
mistake all of these tests pass.

    mutants_test.py PROGRAM MUTANTS [NAME...]

Prints one line per mistake: which test saw it, and the first words in which it said so.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ONE_LINE = "one line"
SECONDS = 120


def run(program, mutant, number):
    """(whether the test failed, what it said) with mistake `number` made."""
    environment = dict(os.environ, GOLDENRULE_GPU_MUTANT=str(number), OMP_WAIT_POLICY="passive",
                       GOLDENRULE_GPU_CASE=mutant.get("cases", ""))
    command = [program, "--test-case=" + mutant.get("test", ONE_LINE).replace(",", "\\,"), "--no-version",
               "--abort-after=1"]
    try:
        done = subprocess.run(command, env=environment, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS,
                              check=False)
    except subprocess.TimeoutExpired:
        return True, f"no end within {SECONDS} s"
    if re.search(r"test cases: +0 ", done.stdout):
        sys.exit(f"{mutant['name']}: no test is called {mutant['test']}")
    return done.returncode != 0, done.stdout


def first_words(text):
    for pattern in (r"on the host: (.*)", r"(\w+: OUT_OF_BUDGET[^:]*|\w+ \([a-z]+\): byte.*)",
                    r"(CRASHED: .*)", r"ERROR: (.*)", r"MESSAGE: (.*)"):
        found = re.search(pattern, text)
        if found:
            return found[1].strip()[:120]
    return text.strip()[-120:]


def main():
    program, table, *names = sys.argv[1:]
    mutants = tomllib.loads(Path(table).read_text())["mutant"]
    chosen = [(n, m) for n, m in enumerate(mutants, 1) if not names or m["name"] in names]
    bad = []
    # The same tests without a mistake; each once.
    for test, cases in dict.fromkeys((m.get("test"), m.get("cases")) for _, m in chosen):
        clean = {k: v for k, v in (("name", "none"), ("test", test), ("cases", cases)) if v}
        failed, text = run(program, clean, 0)
        if failed:
            bad.append(f"fails without a mistake: {test or cases}\n{text[-2000:]}")
    for number, mutant in chosen:
        failed, text = run(program, mutant, number)
        where = mutant.get("test") or mutant["cases"]
        if failed:
            print(f"{mutant['name']}: seen by '{where}': {first_words(text)}", flush=True)
        else:
            bad.append(f"{mutant['name']}: not seen by '{where}'")
    print(f"{len(chosen)} mistakes, {len(chosen) - sum('not seen' in b for b in bad)} seen")
    for line in bad:
        print(line)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
