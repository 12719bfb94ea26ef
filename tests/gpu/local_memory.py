#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels that use local memory where no kernel shall: off 9.0, where registers are what is short.

    local_memory.py NVCC ROOT [--architectures 80,89,..] [--sources TEXT]

Compiles the sources of gpu/CMakeLists.txt one after the other, for one architecture after the other, and
prints a line for every kernel with a stack: bytes of it, bytes of spilled stores and loads, registers. Exit 1
if one has more of a stack than local_memory.txt beside this expects; what has less is said, so that the
table can be made shorter. `--sources`: those whose path contains the text.

Without --architectures: those of the preset `release` but 9.0, whose stacks are in gpu/resources.txt,
which resources_test.py compares with every build. The preset `ci` builds 9.0 alone, since the others take
half an hour, so this is no test of CTest. Other versions of nvcc make other code. Needs no GPU."""
import argparse
import os
import re
import subprocess
import sys
import tempfile

FUNCTION = re.compile(
    r"Compiling entry function '(\w+)' for '\w+'\n.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
    r"(\d+) bytes spill loads\n[^\n]*Used (\d+) registers", re.DOTALL)


def sources_of(root):
    """Those for every architecture; kernels of instructions that 9.0 alone has are another library."""
    with open(f"{root}/gpu/CMakeLists.txt", encoding="utf-8") as file:
        listed = re.search(r"goldenrule_library\(([^)]*)\)", file.read())[1].split()
    return [path for path in listed if path.endswith(".cu")]


def kernels(nvcc, root, source, architecture):
    """(mangled name, stack, stores, loads, registers) of every kernel."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [nvcc, "-std=c++20", "-O3", "-DNDEBUG", "--fmad=false", f"-I{root}", "-cubin",
             f"-gencode=arch=compute_{architecture},code=sm_{architecture}", "-Xptxas", "-v",
             f"{root}/gpu/{source}", "-o", f"{folder}/cubin"],
            text=True, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"{source} for {architecture}: {done.stderr}")
    found = [(m[1], *map(int, m.groups()[1:])) for m in FUNCTION.finditer(done.stderr)]
    if len(found) != done.stderr.count("Compiling entry function"):
        sys.exit(f"{source} for {architecture}: ptxas says something else than this reads")
    return found


def expected():
    """{(architecture, kernel): bytes of stack}"""
    with open(f"{os.path.dirname(os.path.abspath(__file__))}/local_memory.txt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file if not line.startswith("#")]
    return {(row[0], row[1]): int(row[2]) for row in rows[1:]}


def readable(mangled):
    text = subprocess.run(["c++filt", mangled], text=True, stdout=subprocess.PIPE, check=True).stdout
    return re.sub(r"goldenrule::gpu::|\([\w:]+\)(?=\w)|^void ", "", text.strip()).split("(")[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nvcc")
    parser.add_argument("root")
    parser.add_argument("--architectures", default="80,89,100f,120f")
    parser.add_argument("--sources", default="")
    options = parser.parse_args()
    sources = [s for s in sources_of(options.root) if options.sources in s]
    if not sources:
        sys.exit(f"no source with {options.sources}")
    table = expected()
    seen = with_stack = more = 0
    for source in sources:
        for architecture in options.architectures.split(","):
            for name, stack, stores, loads, registers in kernels(
                    options.nvcc, options.root, source, architecture):
                seen += 1
                key = f"sm_{architecture}", readable(name)
                may = table.get(key, 0)
                if stack != may:
                    print(f"{key[0]}\t{key[1]}\texpected a stack of {may} bytes, actual {stack}")
                if stack == 0:
                    continue
                with_stack += 1
                more += stack > may
                print(f"{key[0]}\t{key[1]}\tstack {stack}, spilled {stores} and {loads}, "
                      f"registers {registers}", flush=True)
    print(f"{seen} kernels, {with_stack} with local memory, {more} with more than expected")
    return int(more > 0)


sys.exit(main())
