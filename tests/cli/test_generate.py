# SPDX-License-Identifier: Apache-2.0
# Length: the tests share one generated suite, which is the expensive part.
"""`goldenrule generate` and `list`: the files of a suite, their bytes, and what interrupts it."""

import hashlib
import json
import os
import re
import resource
import signal
import subprocess
import time
import unittest

import h5py
import numpy as np

from support import (DECODE, MTP_PADDED, PREFILL, PROGRAM, CommandLineTest, flip_a_bit, main,
                     make_capture, put, run)

SUITE = "smoke"


def contents(folder):
    """{name: bytes} of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def largest_file(size):
    """preexec_fn: a write beyond `size` bytes fails."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


class SuiteTest(CommandLineTest):
    def suite(self):
        """The folder of the whole suite, generated once; not to be changed."""
        folder = self.shared_folder() / SUITE
        if not folder.exists():
            self.assert_run(0, "generate", SUITE, "-o", folder)
        return folder

    def lines(self):
        return self.assert_run(0, "list", SUITE).out.splitlines()


class GenerateTest(SuiteTest):
    def test_list(self):
        suites = self.assert_run(0, "list").out
        for name in ("smoke", "boundary", "stress", "mtp", "production"):
            count = int(re.search(rf"(?m)^{name} +([0-9]+) cases ", suites)[1])
            lines = self.assert_run(0, "list", name).out.splitlines()
            self.assertEqual(len(lines), count)
            self.assertEqual(len(set(lines)), count)
        self.assert_one_line(self.assert_run(2, "list", "smok").err, "smoke", "'smok'")

    def test_every_line_becomes_one_file(self):
        found = {}
        for path in self.suite().iterdir():
            with h5py.File(path, "r") as file:
                found[file.attrs["case"]] = file.attrs["precision_bits"]
                for name, golden in file["golden"].items():
                    self.assertEqual(golden.dtype, "f8", name)
                    # Half an ulp of f64, rounded up to f32: nothing of the oracle shows.
                    largest = np.nanmax(np.abs(golden), initial=0)
                    self.assertLessEqual(golden.attrs["radius"],
                                         2.0 ** -53 * largest * (1 + 2.0 ** -23), name)
        self.assertEqual(sorted(found), sorted(self.lines()))
        self.assertEqual(set(found.values()), {168})

    def test_a_rerun_writes_nothing(self):
        before = {path: path.stat().st_mtime_ns for path in self.suite().iterdir()}
        result = self.assert_run(0, "generate", SUITE, "-o", self.suite())
        self.assertIn(f"0 written, {len(before)} were there already", result.out)
        self.assertEqual({p: p.stat().st_mtime_ns for p in self.suite().iterdir()}, before)

    def test_the_same_bytes_again_on_any_number_of_threads(self):
        for threads in ("1", "3"):
            self.assert_run(0, "generate", SUITE, "-o", self.folder / threads,
                            env={**os.environ, "OMP_NUM_THREADS": threads})
            self.assertEqual(contents(self.folder / threads), contents(self.suite()))

    def test_what_is_missing_or_damaged_is_written_again(self):
        whole = contents(self.suite())
        folder = self.folder / "again"
        folder.mkdir()
        for name, data in whole.items():
            (folder / name).write_bytes(data)
        first, second, third, *_ = sorted(whole)
        (folder / first).unlink()
        (folder / second).write_bytes(whole[second][:-7])
        flip_a_bit(folder / third, "inputs/q")
        result = self.assert_run(0, "generate", SUITE, "-o", folder)
        self.assertIn("3 written", result.out)
        self.assertEqual(contents(folder), whole)

    def test_shards_are_a_partition(self):
        union = {}
        for i in range(1, 6):
            folder = self.folder / str(i)
            self.assert_run(0, "generate", SUITE, "-o", folder, "--shard", f"{i}/5")
            part = contents(folder)
            self.assertGreater(len(part), 0)
            self.assertFalse(part.keys() & union.keys())
            union |= part
        self.assertEqual(union, contents(self.suite()))
        for shard in ("0/5", "6/5", "1", "1/0", "-1/5", "1/5x", "a/b"):
            result = self.assert_run(2, "generate", SUITE, "-o", self.folder, f"--shard={shard}")
            self.assertEqual(len(result.err.splitlines()), 1, result.err)

    def test_stages(self):
        self.assert_run(0, "generate", PREFILL, "-o", self.folder, "--stages", "4")
        (path,) = self.folder.iterdir()
        with h5py.File(path, "r") as file:
            shapes = {name: stage.shape for name, stage in file["stages"].items()}
        tokens, H, HV, K, V, chunks = 12, 1, 2, 16, 8, 2 + 0 + 2  # lengths 5, 0 and 7 in fours
        self.assertEqual(shapes, {
            "G": (tokens, HV), "beta": (tokens, HV), "q": (tokens, H, K), "k": (tokens, H, K),
            "A": (tokens, HV, 4), "T": (tokens, HV, 4), "w": (tokens, HV, K), "u": (tokens, HV, V),
            "v_new": (tokens, HV, V), "h": (chunks, HV, V, K)})
        self.assertIn("not in range", self.assert_run(
            2, "generate", PREFILL, "-o", self.folder, "--stages", 257).err)
        found = self.assert_run(2, "generate", "op=gdn mode=prefill lens=9000 H=1 HV=1 K=16 V=1", "-o",
                                self.folder, "--stages", 256, "--memory", "100MB")
        self.assertIn("104857600 bytes (--memory)", found.err)
        for chunk, count in ((4, 0), (8, 1)):
            result = self.assert_run(0, "generate", PREFILL, "-o", self.folder, "--stages", chunk)
            self.assertIn(f"{count} written", result.out)
        # Without --stages the file is another one, and is written again.
        self.assertIn("1 written", self.assert_run(0, "generate", PREFILL, "-o", self.folder).out)
        self.assertEqual(path.read_bytes(), self.fixture(PREFILL).read_bytes())

    def test_budgets(self):
        line = MTP_PADDED.replace("padded", "padded state=bf16")
        contracts = "recurrent_f32,chunk64_bf16,ideal"
        self.assert_run(0, "generate", line, "-o", self.folder, "--contract", contracts)
        (path,) = self.folder.iterdir()
        first = path.read_bytes()
        with h5py.File(path, "r") as file:
            shapes = {name: golden.shape for name, golden in file["golden"].items()}
            names = {c: set(group) for c, group in file["budget"].items()}
            # The chunk form has no states between tokens, so its contract says nothing of them.
            self.assertEqual(names, {"recurrent_f32": set(shapes), "ideal": set(shapes),
                                     "chunk64_bf16": {"o", "final_state"}})
            for contract, group in file["budget"].items():
                for name, budget in group.items():
                    self.assertEqual((budget.dtype, budget.shape), ("<f4", shapes[name]))
                    self.assertEqual(budget.attrs["sha256"],
                                     hashlib.sha256(budget[()].tobytes()).hexdigest())
                    golden = file[f"golden/{name}"][()]
                    # No kernel writes the intermediate states of the padded row.
                    np.testing.assert_array_equal(np.isnan(budget[()]), np.isnan(golden))
            # `ideal` grants half an ulp of the type that each output is stored in, here bf16.
            for name in ("o", "final_state"):
                golden = file[f"golden/{name}"][()]
                exponent = np.where(golden == 0, -126, np.frexp(golden)[1] - 1)
                expected = np.ldexp(0.5, exponent - 7).astype("f4")
                if name == "final_state":  # what no row writes is exactly what it was
                    slots = file["inputs/state_indices"][()]
                    kept = np.setdiff1d(np.arange(len(golden)), slots[slots >= 0])
                    self.assertGreater(len(kept), 0)
                    expected[kept] = 0
                np.testing.assert_array_equal(file[f"budget/ideal/{name}"], expected)
            # A fp32 kernel with bf16 outputs needs that, and a little for its own roundings; its
            # fp32 states need less.
            ratio = file["budget/recurrent_f32/o"][()] / file["budget/ideal/o"][()]
            self.assertGreaterEqual(ratio.min(), 1)
            self.assertLess(np.median(ratio), 1.1)
            self.assertLess(np.nanmax(file["budget/recurrent_f32/final_state"]),
                            0.1 * np.nanmax(file["budget/ideal/final_state"]))
        for wanted, count in ((contracts, 0), ("ideal", 1), ("ideal", 0), (contracts, 1)):
            result = self.assert_run(0, "generate", line, "-o", self.folder, "--contract", wanted)
            self.assertIn(f"{count} written", result.out)
        self.assertEqual(path.read_bytes(), first)

    def test_a_budget_is_what_check_grants(self):
        # On a kernel that is off by exactly the stored budget, `check` sees a ratio of 1.
        contract = "recurrent_f32"
        self.assert_run(0, "generate", DECODE, "-o", self.folder, "--contract", contract)
        (path,) = self.folder.iterdir()
        report = self.folder / "report.json"

        def off_by(factor):
            def change(file):
                with h5py.File(path, "r") as fixture:
                    moved = fixture["golden/final_state"][()] + (
                        factor * fixture[f"budget/{contract}/final_state"][()].astype("f8"))
                put(file, "outputs/final_state", moved, h5py.h5t.IEEE_F64LE)
            return change
        for factor, code in ((1 - 2.0 ** -20, 0), (1 + 2.0 ** -20, 1)):
            capture = make_capture(path, self.folder / "capture.h5", off_by(factor))
            for command in (("check", capture), ("diff", path, capture)):
                self.assert_run(code, *command, "--contract", contract, "--no-explain", "--json",
                                report)
                (case,) = json.loads(report.read_text())["cases"]
                ratio = {t["name"]: t["max_ratio"] for t in case["tensors"]}["final_state"]
                self.assertAlmostEqual(ratio, factor, delta=2.0 ** -22)
        # It is rounded up, never down: off by just that, an element is at its limit or beyond.
        capture = make_capture(path, self.folder / "capture.h5", off_by(1))
        self.assert_run(1, "diff", path, capture, "--contract", contract, "--no-explain", "--json",
                        report)
        (case,) = json.loads(report.read_text())["cases"]
        (states,) = (t for t in case["tensors"] if t["name"] == "final_state")
        self.assertGreaterEqual(states["max_ratio"], 1.0)
        self.assertLess(states["max_ratio"], 1.0 + 2.0 ** -22)

    def test_budgets_of_a_contract_of_ones_own(self):
        contract = self.folder / "mine.json"
        folder = self.folder / "fixtures"
        command = ("generate", DECODE, "-o", folder, "--contract", contract)
        for roundoff, count in (("1e-7", 1), ("1e-7", 0), ("2e-7", 1)):
            contract.write_text('{"name":"mine","kind":"recurrent","state":"f32","unit_roundoff":%s}' % roundoff)
            self.assertIn(f"{count} written", self.assert_run(0, *command).out)
        result = self.assert_run(2, "recompute", folder)
        self.assertIn("NOT RECOMPUTED: /budget/mine;", result.out)
        contract.write_text('{"name":"ideal"}')
        self.assert_one_line(self.assert_run(2, *command).err, contract, "name", "no built-in",
                             "'ideal'")
        result = self.assert_run(2, "generate", DECODE, "-o", folder, "--contract", "ideal,ideal")
        self.assert_one_line(result.err, "--contract", "'ideal' twice")
        result = self.assert_run(2, "generate", DECODE, "-o", folder, "--contract", "best")
        self.assert_one_line(result.err, "contract", "recurrent_f32", "'best'")

    def test_braces_make_several_cases(self):
        line = DECODE.replace("K=64", "K={16,32}")
        self.assertIn("2 fixtures", self.assert_run(0, "generate", line, "-o", self.folder).out)
        self.assertEqual(len(list(self.folder.iterdir())), 2)

    def test_wrong_lines(self):
        for line, parts in ((DECODE + " speed=9", ("speed",)),
                            (DECODE + " gate=exp", ("gate", "softplus", "'exp'")),
                            (DECODE.replace("H=2", "H=3"), ("HV", "3")),
                            (DECODE.replace(" V=32", ""), ("V",)),
                            (DECODE + " K=32", ("K",)),
                            (DECODE + " seed=1 seed=2", ("second 'seed'",)),
                            (DECODE.replace("=production", "=Q"), ("pattern", "'Q'")),
                            (DECODE + " l2_eps=-1", ("l2_eps", "at least 0", "-1")),
                            (DECODE + " pad_slot=-9223372036854775808",
                             ("pad_slot", "2^31-1", "-9223372036854775808")),
                            ("smock", ("smoke", "'smock'"))):
            with self.subTest(line):
                result = self.assert_run(2, "generate", line, "-o", self.folder)
                self.assert_one_line(result.err, "goldenrule: ", *parts)
                self.assertEqual(list(self.folder.iterdir()), [])
        (self.folder / "file").write_text("in the way")
        result = self.assert_run(2, "generate", DECODE, "-o", self.folder / "file")
        self.assert_one_line(result.err, "file", "expected", "actual")


class InterruptionTest(SuiteTest):
    """Whatever ends a run: under its final name a file is complete, and a rerun completes."""

    def assert_completes(self, folder):
        whole = contents(self.suite())
        for name, data in contents(folder).items():
            if not name.endswith(".partial"):
                self.assertEqual(data, whole[name], name)
        self.assert_run(0, "generate", SUITE, "-o", folder)
        self.assertEqual(contents(folder), whole)

    def test_kill_between_files(self):
        for count in (1, 4, 8):
            folder = self.folder / str(count)
            folder.mkdir()
            with subprocess.Popen([PROGRAM, "generate", SUITE, "-o", folder],
                                  stdout=subprocess.DEVNULL) as process:
                deadline = time.monotonic() + 120
                while len(list(folder.glob("*.h5"))) < count and time.monotonic() < deadline:
                    time.sleep(0.001)
                process.kill()
            self.assertEqual(process.returncode, -signal.SIGKILL)
            self.assertGreaterEqual(len(contents(folder)), count)
            self.assertLess(len(list(folder.glob("*.h5"))), len(self.lines()))
            self.assert_completes(folder)

    def test_killed_in_the_middle_of_a_write(self):
        # SIGXFSZ ends the program inside write(2) with the first 100 kB of the file written.
        result = run("generate", SUITE, "-o", self.folder, preexec_fn=largest_file(100_000))
        self.assertEqual(result.code, -signal.SIGXFSZ, result.err)
        (name,) = contents(self.folder)
        self.assertTrue(name.endswith(".partial"))
        self.assertEqual((self.folder / name).stat().st_size, 100_000)
        self.assert_completes(self.folder)

    def test_no_space(self):
        # With SIGXFSZ ignored the same write fails with an error, as on a full disk.
        result = run("generate", SUITE, "-o", self.folder, preexec_fn=largest_file(400_000),
                     restore_signals=False)
        self.assertEqual(result.code, 2)
        self.assert_one_line(result.err, "goldenrule: ", self.folder, "expected space for",
                             "File too large")
        self.assertFalse(any(name.endswith(".partial") for name in contents(self.folder)))
        self.assert_completes(self.folder)

    def test_full_disk(self):
        mount = self.folder / "disk"
        mount.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", mount],
                                 capture_output=True, check=False)
        if mounted.returncode != 0:
            raise unittest.SkipTest("may not mount a tmpfs of 1 MiB")
        try:
            result = self.assert_run(2, "generate", SUITE, "-o", mount)
            self.assert_one_line(result.err, mount, "expected space for", "No space left")
            names = contents(mount)
            self.assertGreater(len(names), 0)
            for name, data in names.items():
                self.assertEqual(data, (self.suite() / name).read_bytes())
        finally:
            subprocess.run(["umount", mount], check=True)


if __name__ == "__main__":
    main()
