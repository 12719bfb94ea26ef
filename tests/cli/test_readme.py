# SPDX-License-Identifier: Apache-2.0
"""The report that README.md shows first is the one that the program prints."""

import re

from support import CommandLineTest, REPOSITORY, main

COMMAND = re.compile(r"^\(`goldenrule (check .*)`, shortened\):\n\n((?:    .*\n)+)", re.MULTILINE)


class Readme(CommandLineTest):
    def test_the_first_report(self):
        found = COMMAND.search((REPOSITORY / "README.md").read_text())
        # Whether the mistake is found is not a question of the machine's speed.
        arguments = [re.sub("^60$", "600", word) for word in found[1].split()]
        rest = " ".join(self.assert_run(1, *arguments, cwd=REPOSITORY).out.split())
        for line in found[2].splitlines():
            for piece in line.split("[..]"):
                words = " ".join(piece.split())
                self.assertIn(words, rest)
                rest = rest[rest.index(words) + len(words):]


if __name__ == "__main__":
    main()
