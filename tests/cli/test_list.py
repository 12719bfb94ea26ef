# SPDX-License-Identifier: Apache-2.0
"""`goldenrule list`: the tables of the library, as text and as JSON."""

import json
import re

from support import REPOSITORY, CommandLineTest, main

NAMES = [name for folder in ("delta/mistakes", "backward", "attention", "drafts")
         for name in (REPOSITORY / f"tests/{folder}/names.txt").read_text().split()]
MODES = {"decode", "mtp", "prefill"}
OPERATIONS = ("gated_delta_rule", "kda", "gated_delta_rule_backward", "kda_backward", "attention",
              "draft_acceptance")
OF_DRAFTS = {"greedy", "rejection"}


class ListTest(CommandLineTest):
    _mistakes = None

    def rows(self, *what):
        return json.loads(self.assert_run(0, "list", *what, "--json").out)

    def mistakes(self):
        if ListTest._mistakes is None:  # they are asked about every case: a few seconds
            ListTest._mistakes = self.rows("mistakes")
        return ListTest._mistakes

    def test_mistakes_have_name_place_and_meaning(self):
        rows = self.mistakes()
        self.assertEqual({row["name"] for row in rows}, set(NAMES))
        text = self.assert_run(0, "list", "mistakes").out
        for row in rows:
            with self.subTest(row["name"]):
                self.assertIn(f"  {row['name']} ", text)
                self.assertIn(f"      {row['meaning']}\n", text)
                self.assertTrue(row["where"], "it can be made in no call of the suites")
                for operation, modes in row["where"].items():
                    self.assertIn(operation, OPERATIONS)
                    self.assertLessEqual(set(modes), OF_DRAFTS if operation == "draft_acceptance" else MODES)

    def test_where_a_mistake_can_be_made_is_what_it_says_itself(self):
        where = {}
        for row in self.mistakes():
            where.setdefault(row["name"], []).append(row["where"])
        everywhere = {"gated_delta_rule": sorted(MODES), "kda": sorted(MODES)}
        self.assertEqual(where["scale_ignored"], [everywhere])
        self.assertEqual(set(where["gate_channel_mean"][0]), {"kda"})  # a gate for each channel
        for modes in where["inverse_fp16_neumann"][0].values():
            self.assertEqual(modes, ["prefill"])  # decode and MTP invert nothing

    def test_other_tables(self):
        self.assertEqual([row["name"] for row in self.rows("suites")],
                         [row["name"] for row in self.rows()])
        self.assertIn("recurrent_f32", {row["name"] for row in self.rows("contracts")})
        self.assertIn("B95", {row["name"] for row in self.rows("patterns")})
        for table in ("suites", "patterns", "contracts"):
            text = self.assert_run(0, "list", table).out
            for row in self.rows(table):
                self.assertRegex(text, rf"(?m)^ *{row['name']} +.*{re.escape(row['meaning'])}$")

    def test_keys_of_scenario_lines(self):
        text = self.assert_run(0, "list", "scenario_keys").out
        rows = self.rows("scenario_keys")
        self.assertEqual({row["of"] for row in rows}, {"server", "convention"})
        for row in rows:
            default = " (always given)" if row["always_given"] else f" (default {row['default']})" if row["default"] else ""
            self.assertIn(f"  {row['name']:<12} {row['meaning']}{default}\n", text)
        keys = {row["name"] for row in rows}
        for suite in self.rows("chains"):
            for line in self.rows(suite["name"]):
                self.assertLessEqual({word.split("=")[0] for word in line.split()}, keys)

    def test_a_suite_is_its_case_lines(self):
        self.assertEqual(self.rows("smoke"),
                         self.assert_run(0, "list", "smoke").out.splitlines())

    def test_what_is_unknown_is_refused(self):
        self.assert_one_line(self.assert_run(2, "list", "mistake").err, "smoke", "'mistake'")


if __name__ == "__main__":
    main()
