#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""exports_test.py LIBRARY HEADER: the shared library has a name with the version of its interface, and shows
the functions of its header and nothing else. A CUDA runtime or a C++ symbol that it showed would be
taken for that of another library in the same process. Needs no GPU."""
import re
import subprocess
import sys

library, header = sys.argv[1:]


def output_of(*command):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


shown = {line.split()[-1] for line in output_of("nm", "-D", "--defined-only", library).splitlines()}
with open(header, encoding="utf-8") as file:
    text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
declared = set(re.findall(r"\b(goldenrule_gpu_\w+)\(", text))
assert len(declared) > 15, declared
assert shown == declared, f"only shown: {shown - declared}, only declared: {declared - shown}"
names = re.findall(r"\(SONAME\).*\[(.*)\]", output_of("readelf", "-d", library))
assert names == ["libgoldenrule_gpu_shared.so.1"], names
needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", library))
assert not [name for name in needed if "cuda" in name], needed
