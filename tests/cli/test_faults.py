# SPDX-License-Identifier: Apache-2.0
"""What happens to the program from outside: full disks and pipes, threads that cannot be made,
names that a terminal would obey, reports that would replace their inputs, files that kill their
reader. Exit codes are the program's own, and nothing is lost but what was bad."""

import json
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
import xml.etree.ElementTree
from pathlib import Path

from support import DECODE, KDA, PROGRAM, CommandLineTest, main, run

SMALL = "op=gdn mode=decode B=2 H=1 HV=1 K=4 V=2"
CORPUS = Path(__file__).resolve().parent.parent / "fuzz" / "corpus"
KILLER = CORPUS / "wild_fixed_array.h5"
REFUSED = sorted(set(CORPUS.glob("*.h5")) - {KILLER})


class OutputTest(CommandLineTest):
    def test_a_full_standard_output_is_no_success(self):
        path = self.capture(SMALL)
        for command in (("check", path), ("info", path), ("list",), ("contract",)):
            with open("/dev/full", "w") as full:
                done = subprocess.run([PROGRAM, *map(str, command)], stdout=full, check=False,
                                      stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 2, command)
            self.assert_one_line(done.stderr)

    def test_a_closed_standard_output_does_not_become_a_file(self):
        path, report = self.capture(SMALL), self.folder / "report.json"
        done = subprocess.run(["sh", "-c", 'exec "$0" "$@" >&-', PROGRAM, "check", str(path),
                               "--json", str(report)], stderr=subprocess.PIPE, text=True,
                              check=False)
        self.assertEqual(done.returncode, 2)
        self.assert_one_line(done.stderr)
        self.assertEqual(json.loads(report.read_text())["cases"][0]["verdict"], "EXACT")

    def test_a_report_does_not_replace_what_it_reports_on(self):
        path = self.capture(SMALL)
        before = path.read_bytes()
        link = self.folder / "link.h5"
        link.symlink_to(path)
        for option in ("--json", "--junit"):
            for name in (path, link, self.folder / "." / path.name):
                self.assert_one_line(self.assert_run(2, "check", path, option, name).err, option)
                self.assert_run(2, "diff", self.fixture(SMALL), path, option, name)
        self.assertEqual(path.read_bytes(), before)
        own = self.folder / "own.json"
        own.write_text('{"name": "own", "base": "recurrent_f32"}')
        for command in (("check", path), ("mutate", "--suite", SMALL, "--mutant", "no_delta"),
                        ("mutate", "--chains", "--suite", "chains_smoke"),
                        ("generate", SMALL, "-o", self.folder / "made")):
            refused = self.assert_run(2, *command, "--contract", own, "--json", own)
            self.assert_one_line(refused.err, "--json")
            self.assertIn("recurrent_f32", own.read_text())
        both = self.folder / "both"
        self.assert_run(2, "check", path, "--json", both, "--junit", both)

    def test_a_report_is_replaced_whole(self):
        """Somebody who has the old report open, as merge may, goes on reading that."""
        path, report = self.capture(SMALL), self.folder / "report"
        old, target = self.folder / "old", self.folder / "target"
        for option in ("--json", "--junit", "--html"):
            report.write_text("old")
            old.hardlink_to(report)
            target.write_text("old")
            (self.folder / "link").symlink_to(target)
            self.assert_run(0, "check", path, option, report)
            self.assertEqual(old.read_text(), "old", option)
            self.assert_run(0, "check", path, option, self.folder / "link")
            self.assertEqual(target.read_text(), report.read_text().replace(str(report), str(
                self.folder / "link")), option)
            self.assertTrue((self.folder / "link").is_symlink())
            self.assertEqual(list(self.folder.glob("*.partial")), [])
            old.unlink()
            (self.folder / "link").unlink()
        self.assert_one_line(self.assert_run(2, "check", path, "--json", path / "no.json").err)
        self.assertEqual(self.assert_run(0, "check", path, "--json", "/dev/null").err, "")


class NamesTest(CommandLineTest):
    def test_a_file_with_the_name_that_hdf5_is_given_is_in_nobodys_way(self):
        path = self.capture(SMALL)
        for name in ("goldenrule", "image"):
            (self.folder / name).write_text("a file of another program")
        for trust in ((), ("--trust",)):
            result = run(*trust, "check", path, cwd=self.folder)
            self.assertEqual(result.code, 0, result.out + result.err)
        self.assertEqual((self.folder / "goldenrule").read_text(), "a file of another program")

    NAMES = (b"\x1b[2Jx.h5: EXACT.h5", b"two\nlines.h5", b"not utf8 \xff\xc0.h5", b"<&\">.h5",
             "right to left \u202e.h5".encode(), "umlaut \u00e4.h5".encode())

    def test_nothing_is_printed_that_a_terminal_would_obey(self):
        paths = []
        for name in self.NAMES:
            path = os.path.join(os.fsencode(self.folder), name)
            shutil.copy(self.capture(SMALL), path)
            paths.append(path)
        broken = os.path.join(os.fsencode(self.folder), b"\x1b]0;broken\x07.h5")
        Path(os.fsdecode(broken)).write_bytes(b"nothing")
        paths.append(broken)
        report, junit = self.folder / "report.json", self.folder / "report.xml"
        for command in (["check", *paths, "--json", report, "--junit", junit],
                        ["recompute", self.folder], *(["info", p] for p in paths)):
            done = subprocess.run([PROGRAM, *command], capture_output=True, check=False)
            self.assertIn(done.returncode, (0, 2))
            for text in (done.stdout, done.stderr):
                shown = text.decode("utf-8")
                self.assertTrue(all(c == "\n" or c.isprintable() for c in shown), shown)
        cases = json.loads(report.read_text("utf-8"))["cases"]
        self.assertEqual([c["verdict"] for c in cases], ["EXACT"] * len(self.NAMES) + ["ERROR"])
        self.assertTrue(cases[1]["file"].endswith("two\\x0alines.h5"))
        self.assertTrue(cases[2]["file"].endswith("not utf8 \\xff\\xc0.h5"))
        self.assertTrue(cases[5]["file"].endswith("umlaut \u00e4.h5"))
        xml.etree.ElementTree.parse(junit)


class ResourcesTest(CommandLineTest):
    def test_threads_that_cannot_be_made(self):
        path = self.capture(KDA)
        result = run("check", path, env={**os.environ, "OMP_NUM_THREADS": "100000"})
        self.assertEqual(result.code, 0, result.err)
        codes = set()
        for megabytes in (40, 60, 80, 100, 120, 160, 200, 400):
            def limit(size=megabytes << 20):
                resource.setrlimit(resource.RLIMIT_AS, (size, size))
            result = run("check", path, preexec_fn=limit,
                         env={**os.environ, "OMP_NUM_THREADS": "8"})
            self.assertIn(result.code, (0, 2, 127), (megabytes, result.err))  # 127: not loaded
            codes.add(result.code)
        self.assertIn(0, codes)
        self.assertIn(2, codes)

    def test_a_call_that_needs_too_much_memory_is_one_error(self):
        # 79 MB of tensors and 16 bytes for each of 9.8 million elements of states.
        small = self.capture(SMALL)
        large = self.capture("op=gdn mode=decode B=2 H=1 HV=1 K=128 V=128 slots=identity P=600",
                             name="large.h5")

        def limit(size=220 << 20):
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
        report = self.folder / "report.json"
        result = run("check", large, small, "--json", report, preexec_fn=limit,
                     env={**os.environ, "OMP_NUM_THREADS": "2"})
        self.assertEqual(result.code, 2, result.err)
        first, second = json.loads(report.read_text())["cases"]
        self.assertEqual(first["verdict"], "ERROR")
        self.assertIn("memory", first["reason"])
        self.assertIn(large.name, first["reason"])
        self.assertEqual(second["verdict"], "EXACT")
        self.assert_run(0, "check", large, small)

    def test_contracts_that_are_no_files(self):
        path, fifo = self.capture(SMALL), self.folder / "fifo.json"
        os.mkfifo(fifo)
        endless = self.folder / "endless.json"
        endless.symlink_to("/dev/zero")
        large = self.folder / "large.json"
        large.write_bytes(b" " * (2 << 20))
        for name in (fifo, endless, large, self.folder / "none.json"):
            result = run("check", path, "--contract", name, timeout=20)
            self.assertEqual(result.code, 2)
            self.assert_one_line(result.err, name.name)

    def test_several_writers_of_one_directory(self):
        folder = self.folder / "fixtures"
        line = "op=gdn mode=decode B={1,2,3,4,5,6} H=1 HV=1 K=8 V=4"
        alone = self.folder / "alone"
        for k in range(1, 7):
            self.assert_run(0, "generate", line.replace("{1,2,3,4,5,6}", str(k)), "-o", alone)
        for _ in range(5):
            results = [None] * 4

            def work(i):
                results[i] = [run("generate", line.replace("{1,2,3,4,5,6}", str(k)), "-o",
                                  folder).code for k in range(1, 7)]
            threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(results, [[0] * 6] * 4)
            self.assertEqual({p.name: p.read_bytes() for p in folder.iterdir()},
                             {p.name: p.read_bytes() for p in alone.iterdir()})
            shutil.rmtree(folder)


class ReaderTest(CommandLineTest):
    def test_files_that_kill_their_reader_are_one_error_each(self):
        good = self.capture(SMALL)
        files = [KILLER if i % 10 == 0 else good for i in range(200)]
        report, junit = self.folder / "report.json", self.folder / "report.xml"
        done = run("check", *files, "--json", report, "--junit", junit)
        self.assertEqual(done.code, 2, done.err)
        cases = json.loads(report.read_text())["cases"]
        self.assertEqual(len(cases), 200)
        for name, case in zip(files, cases):
            self.assertEqual(case["verdict"], "ERROR" if name == KILLER else "EXACT", case)
            if name == KILLER:
                self.assertIn("the process that reads it", case["reason"])
                self.assertIn(name.name, case["reason"])
        self.assertEqual(len(list(xml.etree.ElementTree.parse(junit).iter("error"))), 20)

    def test_what_is_refused_before_hdf5_sees_it_kills_nobody(self):
        self.assertEqual(len(REFUSED), 5)
        for path in REFUSED:
            for how in ((), ("--trust",)):
                result = self.assert_run(2, "check", path, *how)
                self.assertRegex(result.out, r"h5: /\S*: expected .*, actual ")
                self.assertNotIn("the process that reads it", result.out)

    def test_what_kills_the_process_itself_when_it_is_trusted(self):
        # Otherwise this file would prove nothing.
        self.assertLess(run("check", "--trust", KILLER).code, 0)

    def test_trusted_files_get_the_same_verdict(self):
        path = self.capture(DECODE)
        texts = [self.assert_run(0, "check", *how, path).out for how in ((), ("--trust",))]
        self.assertEqual(*texts)
        self.assertEqual(run("--trust", "check", path).code, 0)

    def test_a_reader_does_not_outlive_the_program(self):
        path = self.capture(SMALL)
        for delay in (0.002, 0.005, 0.01, 0.02):
            with subprocess.Popen([PROGRAM, "check", *[str(path)] * 20],
                                  stdout=subprocess.DEVNULL) as process:
                time.sleep(delay)
                process.send_signal(signal.SIGKILL)
            time.sleep(0.2)
            left = [p for p in Path("/proc").iterdir() if p.name.isdigit() and self.reads(p, path)]
            self.assertEqual(left, [])

    @staticmethod
    def reads(process, path):
        try:
            command = (process / "cmdline").read_bytes()
            state = (process / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return False
        return os.fsencode(path) in command and state != "Z"


if __name__ == "__main__":
    main()
