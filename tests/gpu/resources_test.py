#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the compiler made of every kernel, against a table in the repository.

    resources_test.py CUOBJDUMP NVCC LIBRARY TABLE [--write]

A row is a kernel for an architecture: registers of a thread, bytes of its stack (spills are there, and
they cost more than the registers that they save), products of a warpgroup, and how many groups they form.
When ptxas finds that it cannot follow which registers products in flight use (C7510 to C7520), it puts
every product into a group of its own and waits for it: the kernel is right and several times slower, and
no test of results would see it. Rows of architectures that the library holds no code for are kept.

Another version of nvcc makes other code, so its rows are not compared: SKIPPED. After a change that is
meant, `--write` puts the rows of this library into the table; the difference is to be read. Needs no GPU."""
import re
import subprocess
import sys

CUOBJDUMP, NVCC, LIBRARY, TABLE = sys.argv[1:5]
COLUMNS = ("architecture", "kernel", "registers", "stack", "products", "groups")


def run(*command, text=None):
    return subprocess.run(command, check=True, text=True, input=text, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout


def readable(mangled):
    """prefill::prefill_gdn_prepare: without outer namespaces, return type and parameters."""
    text = run("c++filt", text=mangled).strip()
    text = re.sub(r"goldenrule::gpu::|\(anonymous namespace\)::|\([\w:]+\)(?=\w)|^void ", "", text)
    return text.split("(")[0]


def rows_of(library):
    """{(architecture, kernel): (registers, stack, products, groups)}"""
    found, architecture, kernel = {}, None, None
    for line in run(CUOBJDUMP, "--dump-resource-usage", library).splitlines():
        if match := re.match(r"arch = (\w+)", line):
            architecture = match[1]
        elif match := re.match(r" Function (\w+):", line):
            kernel = match[1]
        elif match := re.match(r"  REG:(\d+) STACK:(\d+)", line):
            found[architecture, kernel] = [int(match[1]), int(match[2]), 0, 0]
    with_products = ",".join(sorted({name for _, name in found
                                     if "prefill_" in name or "attention_" in name}))
    for line in run(CUOBJDUMP, "-sass", "-fun", with_products, library).splitlines():
        if match := re.match(r"\s*arch = (\w+)", line):
            architecture = match[1]
        elif match := re.match(r"\s*Function : (\w+)", line):
            kernel = match[1]
        elif re.search(r"\bHGMMA\.", line):
            found[architecture, kernel][2] += 1
            found[architecture, kernel][3] += "gsb0" in line
    rows = {(architecture, readable(kernel)): tuple(values)
            for (architecture, kernel), values in found.items()}
    if len(rows) != len(found):
        sys.exit(f"{len(found) - len(rows)} kernels share the name of another")
    return rows


def read(path):
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    if not rows or tuple(rows[0]) != COLUMNS:
        sys.exit(f"{path}: expected the columns {', '.join(COLUMNS)}")
    version = next((line.split()[-1] for line in lines if line.startswith("# nvcc ")), "")
    return version, {(row[0], row[1]): tuple(map(int, row[2:])) for row in rows[1:]}


def write(path, version, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.write("# SPDX-License-Identifier: Apache-2.0\n"
                   "# tests/gpu/resources_test.py says what this is, and writes it.\n"
                   f"# nvcc {version}\n" + "\t".join(COLUMNS) + "\n")
        for key in sorted(rows):
            file.write("\t".join(map(str, key + rows[key])) + "\n")


def main():
    if not CUOBJDUMP or CUOBJDUMP.endswith("-NOTFOUND"):
        print("SKIPPED: no cuobjdump")
        return 77
    version = re.search(r"V([\d.]+)", run(NVCC, "--version"))[1]
    actual = rows_of(LIBRARY)
    architectures = sorted({architecture for architecture, _ in actual})
    if not actual:
        sys.exit("the library holds no machine code")
    try:
        expected_version, table = read(TABLE)
    except FileNotFoundError:
        if "--write" not in sys.argv:
            raise
        expected_version, table = version, {}
    if "--write" in sys.argv:
        if expected_version != version:
            table = {}
        kept = {key: row for key, row in table.items() if key[0] not in architectures}
        write(TABLE, version, kept | actual)
        return 0
    others = sorted({architecture for architecture, _ in table} - set(architectures))
    print(f"{len(actual)} kernels for {', '.join(architectures)}"
          + (f"; not looked at: {', '.join(others)}" if others else ""))
    if expected_version != version:
        print(f"SKIPPED: the table is of nvcc {expected_version}, this is {version}")
        return 77
    expected = {key: row for key, row in table.items() if key[0] in architectures}
    failures = 0
    for key in sorted(expected.keys() | actual.keys()):
        if expected.get(key) == actual.get(key):
            continue
        failures += 1
        print(f"{' '.join(key)}: expected {expected.get(key)}, actual {actual.get(key)}"
              f" ({', '.join(COLUMNS[2:])})")
    return int(failures > 0)


sys.exit(main())
