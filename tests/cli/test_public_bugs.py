# SPDX-License-Identifier: Apache-2.0
"""tests/public_bugs.md: its names are those of the tables, its counts are those of its rows."""

import json
import re

from support import REPOSITORY, CommandLineTest, main

PAGE = REPOSITORY / "tests/public_bugs.md"
RELATIONS = "reference/delta/relations"


class PublicBugsTest(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        one, several = PAGE.read_text().split("## Only several calls show it")
        cls.one, cls.several = cls.rows(one), cls.rows(several)

    @staticmethod
    def rows(text):
        lines = [line for line in text.splitlines() if line.startswith("| ")]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]

    def names(self, table):
        return {row["name"]: row for row in json.loads(
            self.assert_run(0, "list", table, "--json").out)}

    def test_every_bug_has_all_columns_and_stands_once(self):
        self.assertEqual((len(self.one), len(self.several)), (44, 27))
        bugs = [row[0] for row in self.one + self.several]
        self.assertEqual(len(set(bugs)), 71)
        for row in self.one + self.several:
            self.assertTrue(all(row), row)
        for rows, columns in ((self.one, 7), (self.several, 6)):
            self.assertEqual({len(row) for row in rows}, {columns})

    def test_first_names_are_counted(self):  # measured by tests/explain/test_named_first.cpp
        counts = [tuple(map(int, re.fullmatch(r"(\d+) of (\d+)", row[6]).groups()))
                  for row in self.one]
        self.assertTrue(all(0 < right <= shown for right, shown in counts), counts)
        always = sum(right == shown for right, shown in counts)
        text = " ".join(PAGE.read_text().split())
        self.assertIn(f"{always} of {len(counts)} are named first in every call", text)

    def test_names_are_those_of_the_tables(self):
        kernels, servers = self.names("mistakes"), self.names("server_mistakes")
        relations = "".join(
            path.read_text() for path in sorted((REPOSITORY / RELATIONS).glob("*.cpp")))
        named_servers = set()
        for row in self.one + self.several:
            found = re.findall(r"`(\w+)`", row[4])
            self.assertTrue(found or row[4].startswith("none: "), row)
            for name in found:
                if row[5].startswith("`check`"):
                    self.assertIn(name, kernels)
                elif row[5].startswith("`chain`"):
                    self.assertIn(name, servers)
                    self.assertEqual(row[0].removesuffix(" (1)"), servers[name]["reported"])
                    named_servers.add(name)
                else:
                    self.assertIn(f'Relation{{"{name}"', relations)
        reported = {name for name, row in servers.items() if row["reported"]}
        self.assertEqual(named_servers, reported)

    def test_numbers_are_those_of_the_rows(self):
        text = " ".join(PAGE.read_text().split("## In numbers")[1].split())
        named = sum(not row[4].startswith("none") for row in self.one)
        chains = sum(row[5].startswith("`chain`") for row in self.several)
        races = sum(row[4] == "none: a race" for row in self.several)
        outside = sum(row[5].startswith("not") for row in self.several)
        words = {2: "two", 3: "three", 4: "four"}
        self.assertIn(f"Of 71 bugs {len(self.one)} are seen in one call and {named} of these", text)
        self.assertIn(f"Of the {len(self.several)} others {chains} are mistakes", text)
        self.assertIn(f"{words[races]} are races", text)
        self.assertIn(f"{words[outside]} lie outside", text)


if __name__ == "__main__":
    main()
