# SPDX-License-Identifier: Apache-2.0
"""`--shard I/N` of the long commands, and `goldenrule merge`: the whole of many machines."""

import json
import os
import subprocess
import sys
import types
import unittest

from support import (DECODE, KDA, MTP, PREFILL, PROGRAM, REPOSITORY, CommandLineTest, forge, main,
                     put)

SUITE = "op=gdn mode=decode B={1,2,3} H=1 HV=2 K=16 V={4,8}"
CHAINS = "op=gdn requests=4 calls=24 H=1 HV=2 K=4 V={4,8} T=3 mtp=scatter preempt=zero seed=2"

# The recipe of the documentation: each test judges its captures, each worker leaves its reports.
WORKERS = """
import os, pathlib, subprocess
import pytest

@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
def test_kernel(name):
    folder = pathlib.Path(os.environ["CAPTURES"])
    done = subprocess.run([os.environ["GOLDENRULE"], "check", str(folder / (name + ".h5")),
                           "--no-explain", "--json", str(folder / (name + ".json"))])
    assert done.returncode == 0
"""


def wrong(file):
    put(file, "outputs/o", file["outputs/o"][()].astype("f8") + 1.0)


def has_xdist():
    return subprocess.run([sys.executable, "-c", "import pytest, xdist"], check=False,
                          capture_output=True).returncode == 0


class MergeTest(CommandLineTest):
    def shares(self, count, code_of, *command):
        """The reports of `count` shares; code_of(i) is the exit code of the i-th."""
        paths = []
        for i in range(1, count + 1):
            paths.append(self.folder / f"share{i}.json")
            self.assert_run(code_of(i), *command, "--shard", f"{i}/{count}", "--json", paths[-1])
        return paths

    def merged(self, code, *reports, extra=()):
        path = self.folder / "merged.json"
        result = self.assert_run(code, "merge", *reports, "--json", path, *extra)
        return result, json.loads(path.read_text())

    def captures(self):
        lines = (DECODE, KDA, MTP, PREFILL, DECODE)
        return [self.capture(line, wrong if i == 3 else None, f"{i}.h5")
                for i, line in enumerate(lines)]

    def test_shares_of_check_are_the_whole(self):
        files = self.captures()
        command = ("check", *files, "--no-explain")
        whole = self.folder / "whole.json"
        self.assert_run(1, *command, "--json", whole)
        shares = self.shares(3, lambda i: 1 if i == 1 else 0, *command)
        page = self.folder / "page.html"
        result, merged = self.merged(1, *shares, extra=("--html", page))
        by_file = lambda cases: sorted(cases, key=lambda case: case["file"])  # noqa: E731
        self.assertEqual(by_file(merged["cases"]), by_file(json.loads(whole.read_text())["cases"]))
        self.assertEqual((merged["problems"], merged["notes"]), ([], []))
        self.assertIn("5 files: 4 EXACT, 1 OUT_OF_BUDGET", result.out)
        self.assertEqual(page.read_text().count("<section"), 5)
        # What was merged merges again, in any order.
        part = self.folder / "part.json"
        self.assert_run(2, "merge", shares[2], shares[1], "--json", part)
        self.assertEqual(by_file(self.merged(1, shares[0], part)[1]["cases"]),
                         by_file(merged["cases"]))

    def test_what_is_missing_is_said(self):
        files = self.captures()[:3]
        shares = self.shares(4, lambda i: 0, "check", *files, "--no-explain")
        self.merged(0, *shares)
        result, merged = self.merged(2, shares[0], shares[2])
        self.assertIn("missing: 2 of 4 shares of check over 3 items", result.out)
        self.assertIn(": 2, 4", merged["problems"][0])
        page = self.folder / "page.html"
        self.assert_run(2, "merge", shares[0], "--html", page)
        self.assertIn("missing: 3 of 4 shares", page.read_text())
        # Shares of two runs are not the shares of one.
        other = self.folder / "other.json"
        self.assert_run(0, "check", *files, "--only", "o", "--shard", "2/4", "--json", other)
        self.merged(2, shares[0], other, shares[2], shares[3])

    def test_one_item_twice(self):
        first, second = self.folder / "1.json", self.folder / "2.json"
        capture = self.capture(DECODE)
        self.assert_run(0, "check", capture, "--json", first)
        self.assert_run(0, "check", capture, "--json", second)
        result, merged = self.merged(0, first, second)
        self.assertIn("counted once", result.out)
        self.assertEqual(len(merged["cases"]), 1)
        self.assert_run(0, "check", capture, "--contract", "ideal", "--json", second)
        result, merged = self.merged(2, first, second)
        self.assertIn(f"conflict: {capture}: EXACT in {first}", result.out)
        self.assertEqual(len(merged["cases"]), 2)

    def test_generate_and_recompute(self):
        folder = self.folder / "fixtures"
        shares = self.shares(2, lambda i: 0, "generate", SUITE, "-o", folder)
        _, merged = self.merged(0, *shares)
        self.assertEqual(len(merged["fixtures"]), 6)
        self.assertEqual(sorted(p.name for p in folder.glob("*.h5")),
                         sorted(f["file"] for f in merged["fixtures"]))
        forge(min(folder.glob("*.h5")), lambda f: put(f, "inputs/q", f["inputs/q"][()] * 2))
        shares = self.shares(2, lambda i: 1 if i == 1 else 0, "recompute", folder)
        result, merged = self.merged(1, *shares)
        self.assertIn("6 files: 1 differs, 5 right", result.out)
        self.merged(2, shares[1])

    def test_mutate(self):
        command = ("mutate", "--suite", SUITE, "--all", "--mutant", "no_delta", "--mutant",
                   "state_transposed", "--mutant", "tail_chunk_dropped")
        whole = self.folder / "whole.json"
        code = self.assert_run(1, *command, "--json", whole).code
        shares = self.shares(3, lambda i: 0, *command)
        result, merged = self.merged(code, *shares, shares[1])
        expected = json.loads(whole.read_text())
        for report in (merged, expected):
            del report["runs"]
            for row in report["rows"]:
                row["survivors"].sort()
                for cell in row["cells"]:
                    del cell["most_case"]
            report["rows"].sort(key=lambda row: (row["mutant"], row["contract"]))
        self.assertEqual(merged, expected)
        self.assertIn("SURVIVE; 1 applies to no case. 6 cases", result.out)
        self.assertIn("missing: 1 of 3 shares", self.merged(2, shares[0], shares[2])[0].out)

    def test_mutate_chains(self):
        command = ("mutate", "--chains", "--suite", CHAINS, "--mutant", "mtp_column_zero",
                   "--mutant", "replay_applied_again")
        whole = self.folder / "whole.json"
        text = self.assert_run(1, *command, "--json", whole).out
        # A mistake that a share has no occasion for is not held against it.
        shares = self.shares(2, lambda i: 0, *command)
        result, merged = self.merged(1, *shares, shares[0])
        self.assertEqual(result.out, text)
        expected = json.loads(whole.read_text())
        del merged["runs"], expected["runs"]
        self.assertEqual(merged, expected)
        self.assertEqual([(row["made"] > 0, row["seen"] == row["made"]) for row in merged["rows"]],
                         [(True, True), (False, True)])
        self.assertIn("missing: 1 of 2 shares of mutate --chains", self.merged(2, shares[0])[0].out)
        # A contract is part of the run, and the judge uses it.
        ideal = self.folder / "ideal.json"
        alarm = self.assert_run(1, *command, "--contract", "ideal", "--shard", "2/2", "--json", ideal)
        self.assertIn("FALSE ALARM: an honest server", alarm.out)
        self.assert_one_line(self.assert_run(2, "merge", shares[0], ideal).err, "another run")
        self.assert_run(2, *command, "--contract", "none")
        broken = json.loads(shares[1].read_text())
        del broken["rows"][0]["seen"]
        ideal.write_text(json.dumps(broken))
        self.assert_one_line(self.assert_run(2, "merge", shares[0], ideal).err, "seen")
        alone = self.assert_run(2, "merge", ideal)
        self.assert_one_line(alone.err, "seen")
        self.assertEqual(alone.out, "")

    def test_mistakes_within_a_call_may_be_refused_alone(self):
        line = "op=gdn requests=4 calls=24 H=1 HV=2 K=4 V=4 seed=2"
        command = ("mutate", "--chains", "--suite", line, "--mutant", "key_buffer_reused",
                   "--mutant", "bounds_divided")
        whole = self.folder / "whole.json"
        self.assert_run(0, *command, "--json", whole)
        keys, bounds = json.loads(whole.read_text())["rows"][::-1]
        self.assertGreater(keys["alone"], 0)
        self.assertEqual(bounds["first_said"], "tokens_missing")
        self.assert_run(0, "merge", whole)

    def test_mutate_peers(self):
        """Peers take minutes: shares without any, to which rows are added by hand."""
        shares = [self.folder / "late.json", self.folder / "early.json"]
        for number, share in ((5, shares[0]), (0, shares[1])):
            self.assert_run(0, "mutate", "--peers", "--shard", f"{100 - number}/100", "--json", share)
            report = json.loads(share.read_text())
            self.assertEqual(report["peers"], [])
            report["peers"] = [{"number": number, "name": f"peer{number}", "rule": "r", "inputs": "i",
                                "possible": ["no_delta", "gate_bf16"], "inert": 0,
                                "missed": ["gate_bf16", "gate_bf16"], "missed_by_budget": [],
                                "refuses": ""}]
            share.write_text(json.dumps(report))
        result, merged = self.merged(2, *shares)
        self.assertEqual([peer["number"] for peer in merged["peers"]], [0, 5])
        self.assertIn("| peer0 | r | i | 2 | 0 | 2 | 0 |\n| peer5 |", result.out)
        self.assertIn("**peer5** misses `gate_bf16`. A budget on the same inputs misses none.",
                      result.out)
        self.assertIn("missing: 98 of 100 shares of mutate --peers", result.out)
        self.assert_one_line(self.assert_run(2, "merge", shares[0], "--html", shares[1]).err, "--html")

    def test_shares_of_the_campaign(self):
        """False alarms against real kernels: each machine makes and judges every N-th call."""
        sys.path.append(str(REPOSITORY / "tools/campaign"))
        import campaign
        right, wrong_one = self.captures()[2:4]
        judged = self.folder / "judged.json"
        self.assert_run(1, "check", right, wrong_one, "--no-explain", "--json", judged)
        cases = json.loads(judged.read_text())["cases"]
        peers = [types.SimpleNamespace(name="kernel", share=1.0)]
        shares, drawn = [], []
        for part in (1, 2, 3):
            options = types.SimpleNamespace(first=5, calls=7, shard=f"{part}/3", contract="",
                                            configurations=2)
            tally = campaign.Tally()
            for seed in campaign.seeds(options):
                drawn.append(seed)
                line = f"peer=kernel seed={seed}"
                if seed == 7:
                    tally.failed.append((line, "RuntimeError: out of memory (x.py:1)"))
                else:
                    tally.add(line, cases[seed == 10])
            shares.append(self.folder / f"share{part}.json")
            shares[-1].write_text(json.dumps(
                campaign.report(options, peers, {"kernel": tally}, "0.1.0")))
        self.assertEqual(sorted(drawn), list(range(5, 12)))
        page = self.folder / "page.html"
        result, merged = self.merged(1, *shares, extra=("--html", page))
        self.assertIn("7 files: 5 EXACT, 1 OUT_OF_BUDGET, 1 SKIPPED", result.out)
        self.assertEqual(merged["problems"], [])
        for words in ("peer=kernel seed=10", "the call raised RuntimeError", "campaign.py --replay"):
            self.assertIn(words, page.read_text())
        self.assertIn("missing: 1 of 3 shares", self.merged(1, *shares[1:])[0].out)

    def test_refusals_are_one_line(self):
        good, bad = self.folder / "good.json", self.folder / "bad.json"
        self.assert_run(0, "check", self.capture(DECODE), "--json", good)
        matrix = self.folder / "matrix.json"
        self.assert_run(0, "mutate", "--suite", SUITE, "--mutant", "no_delta", "--json", matrix)
        deep = "[" * 100_000
        for text, words in (("", "a JSON report"), ("{", "a JSON report"), ("[]", "runs"),
                            (deep, "report"), ('{"runs": [{}]}', "runs/command"),
                            ('{"runs": [1]}', "runs"), (b"\xff", "a JSON report"),
                            (matrix.read_text(), "reports of check"),
                            (good.read_text().replace('"have": [\n    1\n', '"have": [\n    2\n'),
                             "runs/have"),
                            (good.read_text().replace('"cases"', '"kases"'), "bad.json")):
            with self.subTest(text[:20]):
                bad.write_bytes(text if isinstance(text, bytes) else text.encode())
                result = self.assert_run(2, "merge", good, bad)
                self.assert_one_line(result.err, words)
        self.assert_one_line(self.assert_run(2, "merge", good, "--json", good).err, "--json")
        self.assert_one_line(self.assert_run(2, "merge", matrix, "--html", bad).err, "--html")
        self.assert_one_line(self.assert_run(2, "merge", self.folder / "none").err, "readable")
        for share in ("0/2", "3/2", "1", "/", "-1/2", "1/2/3", "1/99999999999999999999"):
            self.assert_one_line(self.assert_run(2, "check", good, "--shard", share).err, "I/N")

    @unittest.skipUnless(has_xdist(), "no pytest-xdist: Debian packages python3-pytest-xdist")
    def test_the_recipe_of_xdist(self):
        for name in "abcd":
            self.capture(DECODE, name=f"{name}.h5")
        test = self.folder / "test_kernel.py"
        test.write_text(WORKERS)
        subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider",
                        str(test)], check=True, cwd=self.folder, capture_output=True,
                       env={"CAPTURES": str(self.folder), "GOLDENRULE": os.path.abspath(PROGRAM),
                            "PATH": "/usr/bin:/bin"})
        result, _ = self.merged(0, *sorted(self.folder.glob("?.json")))
        self.assertIn("4 files: 4 EXACT", result.out)


if __name__ == "__main__":
    main()
