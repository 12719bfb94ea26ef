#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs the peers of peer.py, peer_prefill.py and peer_attention.py for a machine without a network.

    pack_peers.py FOLDER [--part BYTES] [--python 3.12] [--wheels FOLDER]

It downloads the wheels of PACKAGES, the versions that README.md's figures were measured with, leaves out what
no row uses (headers and kernels of other operations, 400 MB of them) and writes to FOLDER

    peers.tar.xz.00 ..   at most --part bytes each (default 24 MiB)
    SHA256SUMS           of the parts
    unpack.sh            sh unpack.sh TARGET, in a folder that holds the parts: checks and unpacks them, and
                         prints the line to evaluate before a peer is imported

PyTorch, Triton and a CUDA compiler are the target's own. --wheels keeps the downloads, and takes
those that are there already. SGLang is not packed: importing one kernel of it imports its server.
Exit code 0: packed; 1: a wheel could not be had; 2: wrong arguments.
"""
import argparse
import fnmatch
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

MIB = 1 << 20
# Package, version, what is left out of it (patterns of paths).
PACKAGES = (
    ("apache-tvm-ffi", "0.1.12", ()),
    ("cloudpickle", None, ()),
    ("cuda-tile", "1.7.0", ()),
    ("einops", None, ()),
    ("fa3-fwd", "0.0.3", ()),
    ("fla-core", "0.6.0", ()),
    ("flash-attn-4", "4.0.0b36", ()),
    ("flash-qla", "0.1.3", ()),
    ("flashinfer-python", "0.7.2", (
        "flashinfer/data/cutlass/examples/*", "flashinfer/data/cutlass/python/*",
        "flashinfer/data/cutlass/test/*", "flashinfer/data/csrc/cake_*", "flashinfer/data/csrc/*moe*",
        "flashinfer/data/csrc/experimental/*", "flashinfer/data/csrc/blackwell*",
        "flashinfer/data/csrc/*.cubin*", "flashinfer/fused_moe/backends/*",
        "flashinfer/fused_moe/*.json", "flashinfer/experimental/*.json")),
    ("nvidia-cudnn-frontend", "1.32.0", ()),
    ("nvidia-cutlass-dsl", "4.8.1", ()),
    ("nvidia-cutlass-dsl-libs-base", "4.8.1", ()),
    ("nvidia-cutlass-dsl-libs-core", "4.8.1", ()),
    ("nvidia-cutlass-dsl-libs-cu13", "4.8.1", ("*/lib/stubs/*", "*.a")),
    ("nvidia-ml-py", None, ()),
    ("quack-kernels", "0.6.5", ()),
    ("tabulate", None, ()),
    ("tilelang", "0.1.15", ("tilelang/3rdparty/composable_kernel/*",)),
    ("torch-c-dlpack-ext", "0.1.5", ()),
    ("z3-solver", "4.15.4.0", ("*/include/*", "*/bin/*", "*.data/*")),
)
PLATFORMS = ["any"] + [f"manylinux_2_{n}_x86_64" for n in (17, 24, 27, 28, 31, 34, 35)] + [
    "manylinux1_x86_64", "manylinux2014_x86_64"]
UNPACK = """#!/bin/sh
# sh unpack.sh TARGET: the peers of goldenrule's benchmark, into TARGET.
set -eu
target=${1:?usage: sh unpack.sh TARGET}
cd "$(dirname "$0")"
sha256sum --quiet -c SHA256SUMS >&2
mkdir -p "$target"
cat peers.tar.xz.* | xz -dc -T0 | tar -x -C "$target"
site=$(cd "$target" && pwd)
echo "export PYTHONPATH=$site:$site/nvidia_cutlass_dsl/dsl_packages\\${PYTHONPATH:+:\\$PYTHONPATH}" \\
     "FLASHINFER_WORKSPACE_BASE=$site/.cache TILELANG_CACHE_DIR=$site/.cache/tilelang"
"""


def download(package, version, python, folder):
    """The wheel of a package, or None with pip's words on stderr."""
    name = package.replace("-", "_")

    def found():
        return sorted(folder.glob(f"{name}-{version or '*'}-*.whl"))
    if not found():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(folder),
                   "--only-binary=:all:", "--python-version", python, "--implementation", "cp", "--abi", "abi3",
                   "--abi", "cp" + python.replace(".", ""), "--abi", "none",
                   f"{package}=={version}" if version else package]
        for platform in PLATFORMS:
            command += ["--platform", platform]
        subprocess.run(command, check=False)
    return found()[-1] if found() else None


def unzip(wheel, left_out, site):
    """Unpacks a wheel without what is left out; bytes kept, bytes left out."""
    kept = dropped = 0
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if any(fnmatch.fnmatch(entry.filename, pattern) for pattern in left_out):
                dropped += entry.file_size
                continue
            kept += entry.file_size
            archive.extract(entry, site)
    return kept, dropped


def pack(site, folder, part):
    """Writes the parts and their sums; their sizes."""
    sizes, sums = [], []
    tar = subprocess.Popen(["tar", "-c", "--sort=name", "--owner=0", "--group=0", "-C", str(site), "."],
                           stdout=subprocess.PIPE)
    xz = subprocess.Popen(["xz", "-3", "-T0", "-c"], stdin=tar.stdout, stdout=subprocess.PIPE)
    tar.stdout.close()
    while block := xz.stdout.read(part):
        name = f"peers.tar.xz.{len(sizes):02}"
        (folder / name).write_bytes(block)
        sizes.append(len(block))
        sums.append(f"{hashlib.sha256(block).hexdigest()}  {name}\n")
    if xz.wait() or tar.wait():
        raise SystemExit("pack_peers.py: tar or xz failed")
    (folder / "SHA256SUMS").write_text("".join(sums))
    (folder / "unpack.sh").write_text(UNPACK)
    return sizes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", type=int, default=24 * MIB)
    parser.add_argument("--python", default="3.12")
    parser.add_argument("--wheels", type=Path)
    options = parser.parse_args()
    if options.part < MIB:
        parser.error(f"--part: expected at least {MIB} bytes, actual {options.part}")
    with tempfile.TemporaryDirectory() as temporary:
        wheels, site = options.wheels or Path(temporary) / "wheels", Path(temporary) / "site"
        for folder in (wheels, site, options.folder):
            folder.mkdir(parents=True, exist_ok=True)
        for old in options.folder.glob("peers.tar.xz.*"):
            old.unlink()
        for package, version, left_out in PACKAGES:
            wheel = download(package, version, options.python, wheels)
            if wheel is None:
                print(f"pack_peers.py: no wheel of {package} {version or ''}", file=sys.stderr)
                return 1
            kept, dropped = unzip(wheel, left_out, site)
            print(f"{wheel.name[:64]:64} {kept / MIB:7.1f} MiB, {dropped / MIB:.1f} left out")
        sizes = pack(site, options.folder, options.part)
    print(f"{len(sizes)} parts, {sum(sizes) / MIB:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
