# SPDX-License-Identifier: Apache-2.0
"""measure_package.py [FOLDER]: what the installed package costs, as CPU time of all threads, which a busy
machine changes least: the import, a judgement beside `goldenrule check` of the same call, and the page of a
failing call (its size; with Chromium, how long that takes to show it). A measurement, not a test."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_WAIT_POLICY"] = "passive"  # threads that spin would count

LINE = "op=gdn mode=decode B=32 H=16 HV=32 K=128 V=128 pattern=production"


def cpu_of(*command):
    """Seconds of user and system time of a command, and its exit code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(part) for part in command], check=False, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, done.returncode


def least(count, measure):
    return min(measure() for _ in range(count))


def measure_import():
    empty = least(5, lambda: cpu_of(sys.executable, "-c", "pass")[0])
    for name, code in (("import goldenrule", "import goldenrule"),
                       ("NumPy and ml_dtypes alone", "import numpy, ml_dtypes"),
                       ("all that a judgement needs", "import goldenrule; goldenrule.judge")):
        taken = least(5, lambda code=code: cpu_of(sys.executable, "-c", code)[0])
        print(f"{name}: {1e3 * (taken - empty):.0f} ms of CPU over an empty interpreter")


def measure_judge(folder, program):
    import ml_dtypes
    import numpy as np

    import goldenrule

    call = goldenrule.fixture(LINE).call()
    call.outputs = {name: output.golden.astype(ml_dtypes.bfloat16 if name == "o" else np.float32)
                    for name, output in call.expected().outputs.items()}
    call.save(folder / "right.h5")
    call.outputs["o"][3, 0, 5, :] = 0
    call.outputs["final_state"] *= np.float32(1.001)
    call.save(folder / "wrong.h5")

    def judged():
        begin = time.process_time()
        assert call.judge(explain=False).verdict == "OUT_OF_BUDGET"
        return time.process_time() - begin

    checked = least(3, lambda: cpu_of(program, "check", "--no-explain", folder / "wrong.h5")[0])
    judgement = least(3, judged)
    print(f"judge of {LINE}: {judgement:.2f} s of CPU, {judgement / checked:.2f} of check ({checked:.2f} s)")


def measure_page(folder, program):
    page = folder / "page.html"
    cpu_of(program, "check", "--no-explain", "--html", page, folder / "wrong.h5")
    print(f"page of a capture of {(folder / 'wrong.h5').stat().st_size / 1e6:.0f} MB: "
          f"{page.stat().st_size / 1e6:.2f} MB")
    browser = shutil.which("chromium")
    if browser is None:
        print("no Chromium: the Debian package chromium")
        return
    command = (browser, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
               f"--screenshot={folder}/page.png")
    empty = folder / "empty.html"
    empty.write_text("<!doctype html><title>empty</title>")
    cpu_of(*command, f"file://{empty}")  # makes the profile
    nothing = least(2, lambda: cpu_of(*command, f"file://{empty}")[0])
    shown = least(2, lambda: cpu_of(*command, f"file://{page}")[0])
    print(f"Chromium shows it with {shown - nothing:.2f} s of CPU over an empty page ({nothing:.2f} s)")


def main():
    program = shutil.which("goldenrule", path=str(Path(sys.executable).parent))
    if program is None:
        sys.exit("no program beside this interpreter: pip install .")
    measure_import()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch)
        measure_judge(folder, program)
        measure_page(folder, program)


if __name__ == "__main__":
    main()
