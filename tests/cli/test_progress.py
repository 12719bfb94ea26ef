# SPDX-License-Identifier: Apache-2.0
"""Progress within one file: on a terminal, for what lasts; nothing anywhere else."""

import os
import pty
import re
import subprocess
import time
import unittest

from support import PROGRAM, CommandLineTest, main

# Long enough for progress to be shown on any machine: on one thread the multiprecision oracle does
# some hundred tokens of a head in a second.
LONG = "op=gdn mode=prefill lens=400,100 H=4 HV=8 K=64 V=64 gate=log h0=1"
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def on_a_terminal(*arguments):
    """Exit code, what a terminal saw of stderr, and the times at which it did."""
    terminal, child = pty.openpty()
    with subprocess.Popen([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=child, env=ONE_THREAD) as process:
        os.close(child)
        seen, times = b"", []
        while True:
            try:
                chunk = os.read(terminal, 65536)
            except OSError:  # the other side is gone
                break
            if not chunk:
                break
            seen += chunk
            times.append(time.monotonic())
        code = process.wait()
    os.close(terminal)
    return code, seen.decode(), times


class ProgressTest(CommandLineTest):
    def test_a_long_file_says_how_far_it_is(self):
        path = self.capture(LONG)
        # Without the search for the tightest contract, which evaluates once for each.
        code, seen, times = on_a_terminal("check", "--no-explain", "--precision", "multi", path)
        self.assertEqual(code, 0)
        lines = seen.split("\r")
        steps = [re.search(r": oracle (\d+) of (\d+)", line) for line in lines]
        steps = [(int(m[1]), int(m[2])) for m in steps if m]
        self.assertGreater(len(steps), 1, seen)
        # One count for every evaluation, in however many batches it works: the oracle of the
        # precision asked for, then the one in double that follows the roundings.
        totals = list(dict.fromkeys(total for _, total in steps))
        self.assertLessEqual(len(totals), 2)
        self.assertEqual([t for _, t in steps], sorted((t for _, t in steps), key=totals.index))
        for total in totals:
            done = [d for d, t in steps if t == total]
            self.assertEqual(done, sorted(done))
            self.assertLessEqual(done[-1], total)
        # Ten times a second at most, from two seconds on.
        self.assertLessEqual(len(steps), 10 * (times[-1] - times[0] - 2) + 1)
        self.assertTrue(all(line.startswith("\x1b[K") for line in lines[1:]))
        self.assertTrue(seen.endswith("\r\x1b[K"))  # and leaves nothing

    def test_a_short_file_is_only_named(self):
        path = self.capture("op=gdn mode=decode B=1 H=1 HV=1 K=8 V=8")
        fixture = self.fixture("op=gdn mode=decode B=1 H=1 HV=1 K=8 V=8")
        for command in (("check", path), ("diff", fixture, path)):
            code, seen, _ = on_a_terminal(*command)
            self.assertEqual(code, 0)
            self.assertIn("[1/1]", seen)
            self.assertNotIn(" of ", seen)

    def test_nothing_where_stderr_is_no_terminal(self):
        result = self.assert_run(0, "check", "--precision", "multi", self.capture(LONG))
        self.assertEqual(result.err, "")


if __name__ == "__main__":
    main()
