# SPDX-License-Identifier: Apache-2.0
"""memory.py [--suite NAME] [--explain] [CASE_LINE ..]: the memory that `check` takes.

For each case of a suite a capture is made whose outputs are right (with --explain: wrong in a way
that no known mistake explains), and judged. Prints the size of its tensors, the largest resident
set of the program and of its reading child, what the program had declared, and the quotients.
Exit 1 where more was taken than declared.

Environment: GOLDENRULE.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "cli")]

import h5py  # noqa: E402
import numpy as np  # noqa: E402
import support  # noqa: E402

MIB = 2 ** 20
GOAL = 6.0  # times the tensors, without explanation


def tensor_bytes(path):
    with h5py.File(path) as file:
        return sum(d.size * d.dtype.itemsize for group in ("inputs", "outputs")
                   for d in file[group].values())


def declared_bytes(path, options):
    """What the program says that it needs, of a limit that nothing keeps."""
    refused = support.run("check", path, "--memory", "1", *options)
    return int(re.search(r"needs (\d+) bytes", refused.out)[1])


def spoil(file):
    """Noise that no mistake makes."""
    values = file["outputs/o"][()].astype(np.float64)
    noise = np.random.default_rng(1).standard_normal(values.shape)
    support.put(file, "outputs/o", values + 0.1 * noise * np.abs(values).max())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", default="production")
    parser.add_argument("--explain", action="store_true")
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    lines = options.cases or support.run("list", options.suite).out.split("\n")
    arguments = [] if options.explain else ["--no-explain"]
    worst = 0.0
    beyond = 0
    print(f"{'tensors':>9} {'peak':>9} {'declared':>9}   MiB, and times the tensors")
    for line in filter(None, lines):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            made = support.run("generate", line, "-o", folder)
            if made.code != 0:
                raise SystemExit(made.err)
            (fixture,) = folder.glob("*.h5")
            capture = support.make_capture(fixture, folder / "capture.h5",
                                           spoil if options.explain else None)
            fixture.unlink()
            size, declared = tensor_bytes(capture), declared_bytes(capture, arguments)
            _, text, peak = support.peak("check", capture, *arguments)
        worst = max(worst, peak / size)
        beyond += peak > declared
        print(f"{size / MIB:9.1f} {peak / MIB:9.1f} {declared / MIB:9.1f}   {peak / size:5.2f} "
              f"{declared / size:6.2f}   {line}   {text.split(':', 2)[1].split()[0]}", flush=True)
    print(f"largest: {worst:.2f} times the tensors"
          + ("" if options.explain else f", goal {GOAL:.0f}") + f"; beyond the declared: {beyond}")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
