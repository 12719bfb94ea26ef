#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which of the looks sees which planted mistake.

    planted_test.py TEST_GPU_PLANTED SANITIZE

Runs a small decode kernel with each mistake planted (planted/kernels.hpp), looks for it in guarded
memory, against expected values, in a pool beyond 8 GiB and with the four tools of compute-sanitizer
(tools/sanitize), and prints the table. Exit 0: every mistake is seen by the looks that have to see
it, the kernel without one by none, and each tool of the sanitizer sees something; or SKIPPED with
the reason.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
LOOKS = ("guards", "matrix", "pool", *TOOLS)

# The looks that have to see a mistake; others may.
MUST_SEE = {
    "none": (),
    "v_tail_garbage": ("guards", "memcheck"),
    "k_tail_ignored": ("matrix",),
    "remainder_tiles_dropped": ("matrix",),
    "int32_offset": ("pool", "memcheck"),
    "pad_writes_slot0": ("guards", "matrix"),
    "shared_memory_race": ("racecheck",),
    "uninitialised_read": ("matrix", "initcheck"),
    "barrier_in_branch": ("synccheck",),
}


def run(seconds, *command):
    """Exit code and output; a kernel that hangs has been seen too."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        return done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        return 1, f"no end after {seconds} s"


def look_for(program, sanitize, mistake):
    """{look: the line that says what was seen, or ""}; a text instead where it was skipped."""
    seen = {}
    for look in ("guards", "matrix", "pool"):
        code, text = run(60, program, mistake, look)
        if "SKIPPED" in text:
            return text.strip()
        if code not in (0, 1):  # died of it
            text = f"exit code {code}"
        seen[look] = text.strip() if code else ""
    code, text = run(600, sanitize, program, mistake, "bare")
    if "SKIPPED" in text:
        return text.strip()
    for tool in TOOLS:
        lines = [line for line in text.splitlines() if line.startswith(f"{tool}:")]
        if len(lines) != 1:
            sys.exit(f"tools/sanitize said nothing of {tool}:\n{text}")
        seen[tool] = "" if lines[0].endswith("no finding") else lines[0]
    if (code != 0) != any(seen[tool] for tool in TOOLS):
        sys.exit(f"tools/sanitize ended with {code}:\n{text}")
    return seen


def word(text):
    """For the table; a tool does not count for what the program died of."""
    return "-" if not text else "died" if "the program ended" in text else "seen"


def main():
    program, sanitize = sys.argv[1:]
    with ThreadPoolExecutor(4) as pool:
        results = dict(zip(MUST_SEE, pool.map(lambda m: look_for(program, sanitize, m), MUST_SEE)))
    for result in results.values():
        if isinstance(result, str):
            print(result)
            return 0
    row = "{:<24}" + "{:<11}" * len(LOOKS)
    print(row.format("mistake", *LOOKS))
    failures = []
    for mistake, seen in results.items():
        print(row.format(mistake, *(word(seen[look]) for look in LOOKS)))
        failures += [f"{look} does not see {mistake}" for look in MUST_SEE[mistake]
                     if word(seen[look]) != "seen"]
    failures += [f"{look} sees a mistake where none is: {text}"
                 for look, text in results["none"].items() if text]
    for mistake, seen in results.items():
        for look, text in seen.items():
            if text:
                print(f"{mistake}, {look}: {text.splitlines()[0]}")
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
