# SPDX-License-Identifier: Apache-2.0
"""fuzz_lines.py PROGRAM [--seed N] [--count N | --seconds N]: case lines, suites and contracts from
strangers (texts.py), given to parse_texts by the hundred.

Every text must be taken or refused with goldenrule::Error, in time and in little memory; what was
taken must hold what the headers promise of it. A program that dies, a report of a sanitizer, a
wrong answer: one line that names the seed, `fuzz_lines.py PROGRAM --seed N --count 1` makes it
again, and exit 1. Exit 1 also where no text of a kind was taken or none refused: then nothing was
tried.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter

import texts

SECONDS = 60         # of a batch, by the clock of a busy machine
BATCH = 500
NAMES = {"l": "case lines", "s": "suites", "c": "contracts"}
REPORT = re.compile(r"^.*(?:ERROR: \w+Sanitizer|runtime error).*$", re.MULTILINE)
# A parser that asks for a gigabyte, once or in pieces, is reported.
LIMITS = dict(ASAN_OPTIONS="max_allocation_size_mb=1024:hard_rss_limit_mb=2048")


def answers(program, records):
    """(the lines that were answered, why there are no more)."""
    data = b"".join(letter.encode() + len(text).to_bytes(4, "little") + text
                    for letter, text in records)
    try:
        done = subprocess.run([program], input=data, capture_output=True, check=False,
                              timeout=SECONDS, env={**os.environ, **LIMITS})
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode(errors="replace").splitlines(), "it does not end"
    said = done.stdout.decode(errors="replace").splitlines()
    errors = done.stderr.decode(errors="replace")
    report = REPORT.search(errors)
    if report or done.returncode != 0:
        return said, report[0] if report else f"exit code {done.returncode}"
    return said, "" if len(said) == len(records) else "records without an answer"


class Fuzzer:
    def __init__(self, program):
        self.program, self.counts, self.wrong = program, Counter(), []

    def accuse(self, seed, letter, text, what):
        self.wrong.append(seed)
        print(f"seed {seed}: {NAMES[letter]}: {what[:300]}: {text[:200]!r}", flush=True)

    def judge(self, seeds):
        records = [texts.text_of(seed) for seed in seeds]
        first = 0
        while first < len(records):  # again behind each one that ends the program
            said, end = answers(self.program, records[first:])
            for i, line in enumerate(said, first):
                letter, text = records[i]
                self.counts[letter, line.split(":")[0]] += 1
                if line not in ("taken", "refused"):
                    self.accuse(seeds[i], letter, text, line)
            first += len(said)
            if end and first < len(records):
                self.accuse(seeds[first], *records[first], end)
                first += 1
            elif end:
                self.accuse(seeds[-1], *records[-1], "after the last text: " + end)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10 ** 9)
    parser.add_argument("--seconds", type=float, default=10 ** 9)
    options = parser.parse_args()
    fuzzer, started, seed = Fuzzer(options.program), time.monotonic(), options.seed
    end = options.seed + options.count
    while seed < end and time.monotonic() - started < options.seconds:
        batch = range(seed, min(seed + BATCH, end))
        fuzzer.judge(batch)
        seed = batch.stop
    print(f"{seed - options.seed} texts from seed {options.seed}, "
          f"{time.monotonic() - started:.0f} s")
    for letter, name in NAMES.items():
        taken, refused = fuzzer.counts[letter, "taken"], fuzzer.counts[letter, "refused"]
        print(f"{name}: {taken} taken, {refused} refused")
        if seed - options.seed >= 2 * BATCH and not (taken and refused):
            fuzzer.wrong.append(name)
    print("what must not be:", fuzzer.wrong or "none")
    return 1 if fuzzer.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
