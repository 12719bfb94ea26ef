# SPDX-License-Identifier: Apache-2.0
"""`goldenrule simulate`: chains as files, which `goldenrule chain` and `goldenrule check` read."""

import tempfile
from pathlib import Path

from support import CommandLineTest, main

LINE = "op=gdn requests=3 calls=24 H=1 HV=2 K=8 V=8 T=3 block=8 seed=11"


class SimulateTest(CommandLineTest):
    def chain(self, line):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        out = self.assert_run(0, "simulate", line, "-o", folder).out
        chains = sorted(folder.iterdir())
        self.assertEqual(len(chains), 1)
        return chains[0], out

    def test_an_honest_server_passes_and_is_the_same_twice(self):
        chain, out = self.chain(LINE)
        again, _ = self.chain(LINE)
        self.assertIn(": 24 calls, ", out)
        files = sorted(chain.iterdir())
        self.assertEqual([file.name for file in files], [f"{i:06}.h5" for i in range(24)])
        for file in files:
            self.assertEqual(file.read_bytes(), (again / file.name).read_bytes())
        self.assert_run(0, "chain", chain)

    def test_a_mistake_shows_in_the_chain_and_in_no_call(self):
        chain, out = self.chain(LINE + " mistake=rollback_one_short")
        self.assertIn("; rollback_one_short before or in ", out)
        self.assert_run(0, "check", "--no-explain", *sorted(chain.iterdir()))
        self.assertIn("rollback_by_wrong_number", self.assert_run(1, "chain", chain).out)

    def test_a_mistake_without_an_occasion_is_said(self):
        _, out = self.chain(LINE + " mistake=preempted_not_reset")
        self.assertIn("no occasion for preempted_not_reset", out)

    def test_a_server_beyond_the_memory_is_refused_before_it_begins(self):
        line = "op=gdn requests=4096 calls=2 H=64 HV=64 K=256 V=256 prompt=900 output=9"
        for command in (("simulate", line, "-o", "unused"), ("mutate", "--chains", "--suite", line)):
            with self.subTest(command[0]):
                result = self.assert_run(2, *command, "--memory", "1GiB")
                self.assert_one_line(result.err, "expected a server that takes at most 1073741824 bytes "
                                                 "(--memory), actual one that takes ")

    def test_what_cannot_be_is_refused(self):
        for line, part in ((LINE + " mistake=nonsense", "'nonsense'"), (LINE + " T=2", "'T'"),
                           ("chains", "chains_smoke"), ("op=gdn", "'requests'"), (LINE + " requests=2", "'requests'"),
                           (LINE.replace("requests=3", "requests=1000000000"),
                            "expected 1 to 4096, actual 1000000000"),
                           (LINE.replace("requests=3", "requests=4096 prompt=65536"),
                            "expected 1 to 4194304, actual ")):
            with self.subTest(line):
                self.assert_one_line(self.assert_run(2, "simulate", line, "-o", "unused").err, part)


if __name__ == "__main__":
    main()
