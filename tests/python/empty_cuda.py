# SPDX-License-Identifier: Apache-2.0
"""empty_cuda.py: puts libraries without content where torch, as PyPI has it, looks for those of CUDA.

torch for Linux needs about 4 GB of CUDA's libraries to be imported, and calls none of them without a GPU.
Run with the interpreter of an environment that has torch and nvidia-cuda-runtime: every other library that
torch's own name, and that is nowhere, is made with the symbols that torch takes from it, each of which ends
the process. Such an environment is for the CPU alone. Needs gcc and readelf.
"""

import collections
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

VENDOR = re.compile(r"lib(cu(?!da\.)|nv|nccl)[A-Za-z_]*\.so\.\d+$")  # libcuda.so.1 is the driver's
SYMBOL = re.compile(r"\bUND (?P<name>(?:cu|nv|nccl)\w+)(?:@(?P<version>[\w.]+))?")
VERSION = re.compile(r"File: (?P<file>\S+)|Name: (?P<version>\S+) ")


def read(flags, library):
    return subprocess.run(["readelf", "-W", *flags, library], capture_output=True, text=True,
                          check=True).stdout


def wanted_of(libraries):
    """Library to {version or "": symbols}. A symbol without a version is looked for everywhere: it is in one."""
    wanted, files, loose = {}, {}, set()
    for library in libraries:
        for name in re.findall(r"NEEDED.*\[(.*)\]", read(["-d"], library)):
            if VENDOR.match(name):
                wanted.setdefault(name, collections.defaultdict(set))
        file = ""
        for found in VERSION.finditer(read(["-V"], library)):
            file = found["file"] or file
            if found["version"]:
                files[found["version"]] = file
    for library in libraries:
        for symbol in SYMBOL.finditer(read(["--dyn-syms"], library)):
            file = files.get(symbol["version"])
            if file in wanted:
                wanted[file][symbol["version"]].add(symbol["name"])
            elif symbol["version"] is None:
                loose.add(symbol["name"])
    if wanted:
        wanted[min(wanted)][""] = loose
    return wanted


def make(path, symbols):
    """A library at that path, of that name, with those symbols."""
    names = sorted(set().union(*symbols.values()))
    source = "void abort(void);\n" + "".join(f"void {name}(void) {{ abort(); }}\n" for name in names)
    script = "".join(f"{version} {{ global: {'; '.join(sorted(of))}; }};\n"
                     for version, of in symbols.items() if version)
    with tempfile.TemporaryDirectory() as folder:
        versions = Path(folder, "versions")
        versions.write_text(script or "{ global: *; };\n")
        subprocess.run(["gcc", "-shared", "-fPIC", "-fno-builtin", "-w", "-x", "c", "-", "-o", path,
                        f"-Wl,-soname,{path.name}", f"-Wl,--version-script,{versions}"],
                       input=source, text=True, check=True)


def main():
    found = importlib.util.find_spec("torch")
    if found is None or not found.submodule_search_locations:
        sys.exit("empty_cuda.py: expected torch in this environment, actual none")
    torch = Path(found.submodule_search_locations[0])
    site = torch.parent
    there = {path.name for path in site.glob("nvidia/**/*.so*")}
    for name, symbols in wanted_of(sorted(torch.glob("lib/*.so"))).items():
        if name not in there:
            make(torch / "lib" / name, symbols)
            print(f"{name}: empty, {sum(map(len, symbols.values()))} symbols")


if __name__ == "__main__":
    main()
