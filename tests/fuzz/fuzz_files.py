# SPDX-License-Identifier: Apache-2.0
"""fuzz_files.py [--seed N] [--count N | --seconds N] [--keep DIRECTORY] [--batch N] [--reader
PROGRAM]: files from strangers, some of which kill their reader.

Captures in every dialect of the format that h5py writes are changed in their metadata (mutate.py)
and given to `goldenrule check`, many on one command line. Whatever a file holds, the program must
end by itself with exit code 0, 1 or 2, in time, with a verdict for every file and complete
reports. Prints how many files got which verdict and how many ended their reader; `--keep` stores
those that did. Exit 1 on anything that must not be. A file is made again by its seed and dialect.

With --reader, read_files built with sanitizers takes the place of the program (sanitized.py): a
report of a sanitizer in this project's code must not be, one in HDF5's is what the child is for.

Environment: GOLDENRULE, where there is no reader.
"""

import argparse
import json
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "cli")]

import h5py  # noqa: E402
import mutate  # noqa: E402
import sanitized  # noqa: E402
import support  # noqa: E402

CASES = ("op=gdn mode=decode B=2 H=1 HV=1 K=4 V=2",
         "op=kda mode=prefill lens=3,0 H=1 HV=1 K=4 V=2 gate=log h0=1")
DIED = re.compile(r"the process that reads? it (ended by signal \d+ \(\w+\)|took more than|needed "
                  r"more than|returned more than|did not end|ended with exit code \d+|answered)")
# By the clock of a busy machine: a file, and one whose reader takes all the CPU time that it may.
SECONDS_FOR_A_FILE, SECONDS_FOR_AN_ENDLESS_ONE = 1, 45
PEAK_KILOBYTES = 600_000    # of a program, or of one of its readers


def plain(file, name, values, kind):
    support.put(file, name, values, kind)


def chunked(maxshape, **filters):
    def write(file, name, values, kind):
        unlimited = {"none": None, "one": (None,) + values.shape[1:],
                     "all": (None,) * values.ndim}[maxshape]
        chunks = tuple(max(1, n // 2) for n in values.shape)
        file.create_dataset(name, data=values, dtype=values.dtype, chunks=chunks,
                            maxshape=unlimited, **filters)
    return write


def one_chunk(file, name, values, kind):
    file.create_dataset(name, data=values, dtype=values.dtype, chunks=values.shape, compression=4)


# name: (arguments of h5py.File, how a dataset is written). The extensible ones are refused as they
# are (../cli/test_dialects.py) and stay, for what else is in them.
DIALECTS = {
    "old": (dict(libver="earliest"), plain),
    "new": (dict(libver="latest"), plain),
    "v108": (dict(libver=("v108", "v108")), plain),
    "old, chunked": (dict(libver="earliest"), chunked("none")),
    "new, chunked": (dict(libver="latest"), chunked("none")),
    "deflated": (dict(libver="latest"), chunked("none", compression=4, shuffle=True,
                                                fletcher32=True)),
    "old, deflated": (dict(libver="earliest"), chunked("none", compression=4, fletcher32=True)),
    "extensible": (dict(libver="latest"), chunked("one")),
    "extensible twice": (dict(libver="latest"), chunked("all")),
    "user block": (dict(libver="latest", userblock_size=512), plain),
    "ordered": (dict(libver="latest", track_order=True), plain),
    "paged": (dict(libver="latest", fs_strategy="page"), plain),
    "old, user block": (dict(libver="earliest", userblock_size=512), plain),
    "old, ordered": (dict(libver="earliest", track_order=True), plain),
    "old, grows": (dict(libver="earliest"), chunked("all")),
    "free space kept": (dict(libver="latest", fs_strategy="fsm", fs_persist=True), plain),
    "one chunk": (dict(libver="latest"), one_chunk),
}
# Refused even where nobody has changed them: their datasets may grow.
GROWING = ("extensible", "extensible twice")


def generated(line, folder):
    """An honest capture, made by the program."""
    support.run("generate", line, "-o", folder)
    (fixture,) = folder.glob("*.h5")
    return support.make_capture(fixture, folder / "honest.h5")


def make_seeds(folder, make):
    """{dialect and case: bytes of a capture}; make(line, folder) gives its path."""
    seeds = {}
    for number, line in enumerate(CASES):
        honest = make(line, folder / f"fixtures{number}")
        for dialect, (options, write) in DIALECTS.items():
            path = folder / "dialect.h5"
            with h5py.File(honest) as source, h5py.File(path, "w", **options) as file:
                for key in ("schema", "op", "mode"):
                    file.attrs[key] = source.attrs[key]
                file.create_group("convention")
                for key, value in source["convention"].attrs.items():
                    file["convention"].attrs[key] = value
                for name in [f"{g}/{n}" for g in ("inputs", "outputs") for n in source[g]]:
                    values = source[name]
                    kind = values.id.get_type()
                    if values.ndim and kind.get_size() > 2:  # h5py has no bf16
                        write(file, name, values[()], kind)
                    else:
                        plain(file, name, values[()], kind)
            seeds[f"{dialect}, case {number}"] = path.read_bytes()
    return seeds


class Fuzzer:
    def __init__(self, folder, keep, reader):
        self.folder, self.keep, self.reader = folder, keep, reader
        self.verdicts, self.deaths, self.wrong = Counter(), Counter(), []

    def judge(self, files):
        return self.read(files) if self.reader else self.check(files)

    def read(self, files):
        """One command line of the sanitized reader."""
        allowed = 60 + 3 * SECONDS_FOR_AN_ENDLESS_ONE * len(files)
        result = sanitized.read(self.reader, [path for path, _ in files], allowed)
        if not result.ended and result.theirs and not result.ours and len(files) == 1:
            # HDF5 has survived the child and not this process: what the child is for.
            self.verdicts["died outside a child"] += 1
            return
        if result.ours or not result.ended or len(result.answers) != len(files):
            return self.accuse(files, result.ours or "it does not end, or answer")
        for answer, (path, origin) in zip(result.answers, files):
            self.verdicts[answer.split(" ")[0]] += 1
            if answer.startswith("wrong"):
                self.accuse([(path, origin)], answer)
            died = DIED.search(answer)
            if died:
                self.note_death(died[1], path, origin)
        self.deaths.update(result.theirs)

    def note_death(self, how, path, origin):
        self.deaths[how] += 1
        if self.keep:
            (self.keep / f"{origin}.h5").write_bytes(path.read_bytes())

    def check(self, files, options=()):
        """One command line with all of `files`: [(path, origin)]."""
        report, junit = self.folder / "report.json", self.folder / "report.xml"
        for old in (report, junit):
            old.unlink(missing_ok=True)
        command = [support.PROGRAM, "check", "--no-explain", *options, "--json", str(report),
                   "--junit", str(junit), *[str(p) for p, _ in files]]
        started = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace",
                                  timeout=60 + SECONDS_FOR_AN_ENDLESS_ONE * len(files), check=False)
        except subprocess.TimeoutExpired:
            return self.accuse(files, "it does not end")
        if done.returncode not in (0, 1, 2):
            return self.accuse(files, f"exit code {done.returncode}")
        cases = json.loads(report.read_text())["cases"]
        xml.etree.ElementTree.parse(junit)
        if len(cases) != len(files):
            return self.accuse(files, f"{len(cases)} verdicts")
        took = time.monotonic() - started
        endless = sum("took more than" in (case.get("reason") or "") for case in cases)
        allowed = (30 + SECONDS_FOR_A_FILE * len(files) + SECONDS_FOR_AN_ENDLESS_ONE * endless)
        if took > allowed:
            self.accuse(files, f"{took:.0f} s, allowed {allowed}")
        for case, (path, origin) in zip(cases, files):
            self.verdicts[case["verdict"]] += 1
            died = DIED.search(case.get("reason") or "")
            if died:
                self.note_death(died[1], path, origin)

    def accuse(self, files, what):
        if len(files) == 1:
            self.wrong.append(f"{what}: {files[0][1]}")
            print(self.wrong[-1], flush=True)
            if self.keep:
                (self.keep / f"wrong_{files[0][1]}.h5").write_bytes(files[0][0].read_bytes())
            return
        for one in files:  # which of them?
            self.judge([one])

    def refuse_blindness(self, seeds):
        """Files that nobody has changed are read, and judged, without a word."""
        files = []
        read = {name: data for name, data in seeds.items() if name.split(", case")[0] not in GROWING}
        for number, (name, data) in enumerate(sorted(read.items())):
            files.append((self.folder / f"{number}.h5", f"unchanged, {name}"))
            files[-1][0].write_bytes(data)
        self.judge(files)
        if set(self.verdicts) - {"taken", "EXACT", "WITHIN_BUDGET"} or self.deaths:
            self.wrong.append(f"unchanged files: {dict(self.verdicts)}")
        self.verdicts.clear()

    def run(self, seeds, first, count, seconds, batch):
        started, seed = time.monotonic(), first
        names = sorted(seeds)
        while seed < first + count and time.monotonic() - started < seconds:
            files = []
            for i in range(batch):
                name = random.Random(seed).choice(names)
                path = self.folder / f"{i}.h5"
                path.write_bytes(mutate.mutated(seeds[name], seed))
                files.append((path, f"seed {seed}, {name}"))
                seed += 1
            self.judge(files)
        return seed - first


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10 ** 9)
    parser.add_argument("--seconds", type=float, default=10 ** 9)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--reader", type=Path)
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        fuzzer = Fuzzer(folder, options.keep, options.reader)
        make = sanitized.maker(options.reader) if options.reader else generated
        seeds = make_seeds(folder, make)
        fuzzer.refuse_blindness(seeds)
        tried = fuzzer.run(seeds, options.seed, options.count, options.seconds, options.batch)
    print(f"{tried} files from seed {options.seed}:", dict(fuzzer.verdicts))
    print("readers that did not end by themselves:", dict(fuzzer.deaths) or "none")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"peak memory of a process: {peak} kB, allowed {PEAK_KILOBYTES}")
    if peak > PEAK_KILOBYTES and not options.reader:  # a sanitizer keeps what was freed
        fuzzer.wrong.append("memory")
    print("what must not be:", "; ".join(fuzzer.wrong[:5]) or "none",
          f"({len(fuzzer.wrong)} in all)" if fuzzer.wrong else "")
    return 1 if fuzzer.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
