# SPDX-License-Identifier: Apache-2.0
"""What read_files says of files, and whose fault the sanitizers' reports are.

HDF5 is not compiled with sanitizers, so UBSan speaks of this project's code alone. But the allocator
and the functions of the C library that HDF5 calls are AddressSanitizer's, and so are the signals:
there the first frame outside of sanitizer and C library says whose fault it is.
"""

import os
import re
import subprocess
from collections import namedtuple

Result = namedtuple("Result", "answers ended ours theirs")

REPORT = re.compile(r"ERROR: (\w+Sanitizer: [\w-]+)|^(.*runtime error: .*)$")
FRAME = re.compile(r"^\s*#\d+ 0x[0-9a-f]+ (.*)$")
BENEATH = re.compile(r"\((?:/\S*/)?(?:libasan|libubsan|libtsan|libc|libm|ld-linux)[-.]|"
                     r"libsanitizer/|sysdeps/")
HDF5 = re.compile(r"\((?:/\S*/)?libhdf5[\w]*\.so")
# malloc may fail: what HDF5 asks for damaged files is refused. `new` for which there is no memory
# would be a bad_alloc, and the end of the child, but for the sanitizer, which reports it.
OPTIONS = dict(ASAN_OPTIONS="allocator_may_return_null=1:max_allocation_size_mb=512:"
                            "detect_leaks=0:abort_on_error=0",
               UBSAN_OPTIONS="print_stacktrace=1")
NO_MEMORY = ("AddressSanitizer: out-of-memory", "AddressSanitizer: allocation-size-too-big",
             "AddressSanitizer: requested")


def reports(errors):
    """[(what, is it in HDF5)] of a standard error."""
    found = []
    lines = errors.splitlines()
    for number, line in enumerate(lines):
        report = REPORT.search(line)
        if not report:
            continue
        if report[2]:
            found.append((report[2], False))
            continue
        frames = [f[1] for f in map(FRAME.match, lines[number + 1:number + 40]) if f]
        own = next((f for f in frames if not BENEATH.search(f)), "")
        in_hdf5 = bool(HDF5.search(own))
        place = "HDF5" if in_hdf5 else own or "an unknown place"
        found.append((f"{report[1]} in {place}", in_hdf5))
    return found


def read(program, paths, seconds):
    try:
        done = subprocess.run([str(program), *map(str, paths)], capture_output=True, check=False,
                              timeout=seconds, env={**os.environ, **OPTIONS})
    except subprocess.TimeoutExpired:
        return Result([], False, "", [])
    found = reports(done.stderr.decode(errors="replace"))
    ours = [what for what, in_hdf5 in found if not in_hdf5 and not what.startswith(NO_MEMORY)]
    theirs = [what for what, in_hdf5 in found if in_hdf5]
    answers = done.stdout.decode(errors="replace").splitlines()
    return Result(answers, done.returncode == 0, "; ".join(ours), theirs)


def maker(program):
    """make(line, folder): the path of a capture of the case, made by the reader itself."""
    def make(line, folder):
        folder.mkdir()
        subprocess.run([str(program), "--make", line, str(folder / "made.h5")], check=True)
        return folder / "made.h5"
    return make
