# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command line share: running it, and captures made from its fixtures.

A capture is a fixture whose golden values, rounded to the storage type of the kernel, are written
under /outputs: the most accurate kernel there can be. A test then changes one thing in it. None of
this uses the project's own Python module, which is under test elsewhere.

Environment: GOLDENRULE (the program), GOLDENRULE_CAPTURES_DIR (real captures: those of the
repository where it is not set).
"""

import decimal
import functools
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from collections import namedtuple
from pathlib import Path

import h5py
import numpy as np

PROGRAM = os.environ.get("GOLDENRULE", "goldenrule")
REPOSITORY = Path(__file__).resolve().parents[2]
CAPTURES = Path(os.environ.get("GOLDENRULE_CAPTURES_DIR") or REPOSITORY / "fixtures/captures/public")
SKIPPED = 77  # SKIP_RETURN_CODE of the CTest entries

# Small, and with everything that a mode can have: a padded row, slots that nobody touches, a
# sequence of no tokens.
DECODE = "op=gdn mode=decode B=3 H=2 HV=4 K=64 V=32 slots=padded pattern=production"
DECODE_BF16_STATE = "op=gdn mode=decode B=3 H=2 HV=4 K=16 V=8 state=bf16"
MTP = "op=gdn mode=mtp B=3 T=3 H=1 HV=2 K=16 V=8 slots=permuted"
MTP_PADDED = "op=gdn mode=mtp B=3 T=3 H=1 HV=2 K=16 V=8 slots=padded"
SCATTER = "op=gdn mode=mtp B=2 T=3 H=1 HV=2 K=16 V=8 slots=scatter"
RINGS = "op=gdn mode=mtp B=3 T=3 H=1 HV=2 K=16 V=8 slots=permuted ring=io window=7"
PREFILL = "op=gdn mode=prefill lens=5,0,7 H=1 HV=2 K=16 V=8 gate=log h0=1"
KDA = "op=kda mode=decode B=2 H=1 HV=2 K=16 V=8"

Result = namedtuple("Result", "code out err")


def run(*arguments, timeout=300, **options):
    """The program's exit code and texts. A signal gives a negative code, as in subprocess."""
    done = subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, timeout=timeout, check=False, **options)
    return Result(done.returncode, done.stdout, done.stderr)


# A process starts with the resident set of the one that it was forked from, which must be small.
LAUNCHER = """
import os, sys
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(child, 0)
os.write(int(sys.argv[1]), str(usage.ru_maxrss).encode())
os._exit(os.waitstatus_to_exitcode(status) & 255)
"""


def peak(*arguments, timeout=300):
    """(exit code, stdout and stderr, bytes): the largest resident set of the program, or of one of
    its children if that is larger."""
    read, write = os.pipe()
    done = subprocess.run([sys.executable, "-I", "-S", "-c", LAUNCHER, str(write), PROGRAM,
                           *map(str, arguments)], stdin=subprocess.DEVNULL, pass_fds=[write],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=timeout, check=False)
    os.close(write)
    with open(read) as kilobytes:
        return done.returncode, done.stdout, int(kilobytes.read()) * 1024


def float_fields(type_id):
    """(significand bits with the hidden one, smallest normal exponent) of an HDF5 float type."""
    _, _, exponent_bits, _, mantissa_bits = type_id.get_fields()
    return mantissa_bits + 1, 2 - 2 ** (exponent_bits - 1)


def rounded(values, type_id):
    """f64 values rounded once, to nearest even, to what an HDF5 float type can hold."""
    bits, smallest = float_fields(type_id)
    step = np.maximum(np.frexp(values)[1] - 1, smallest) - (bits - 1)
    return np.ldexp(np.rint(np.ldexp(values, -step)), step)


def bfloat16_type():
    """1 sign, 8 exponent and 7 mantissa bits, bias 127."""
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_size(2)
    kind.set_ebias(127)
    return kind


def put(file, name, values, type_id=None):
    """Replaces the dataset `name`, keeping its type unless another is given."""
    if type_id is None:
        type_id = file[name].id.get_type()
    if name in file:
        del file[name]
    group = file.require_group(os.path.dirname(name))
    values = np.ascontiguousarray(values)
    dataset = h5py.h5d.create(group.id, os.path.basename(name).encode(), type_id,
                              h5py.h5s.create_simple(values.shape))
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, values)


def output_type(file, name):
    """Kernels write o as they read v (attention: q), states and rings as they read them, counts as i64."""
    if file.attrs["op"] == "draft_acceptance":
        return h5py.h5t.STD_I64LE
    values = "inputs/q" if file.attrs["op"] == "attention" else "inputs/v"
    like = values if name == "o" else "inputs/initial_state"
    like = f"inputs/initial_{name}" if name.startswith("ring_") else like
    like = f"inputs/{name[1:]}" if file.attrs["op"].endswith("_backward") else like  # that it is by
    return file[like].id.get_type() if like in file else h5py.h5t.IEEE_F32LE


def make_capture(fixture, path, change=None, contract=None):
    """A capture of a perfect kernel on the inputs of `fixture`; change(file) spoils it."""
    with h5py.File(fixture, "r") as source, h5py.File(path, "w") as file:
        for name in ("schema", "op", "mode"):
            file.attrs[name] = source.attrs[name]
        if contract:
            file.attrs["contract"] = contract
        source.copy("convention", file)
        source.copy("inputs", file)
        for name, golden in source["golden"].items():
            kind, values = output_type(source, name), golden[()]
            whole = isinstance(kind, h5py.h5t.TypeIntegerID)
            put(file, f"outputs/{name}", values.astype("i8") if whole else rounded(values, kind), kind)
        if change:
            change(file)
    return path


def flip_a_bit(path, name):
    """Changes one bit of a contiguous dataset in the file itself."""
    with h5py.File(path, "r") as file:
        position = file[name].id.get_offset() + 1
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def next_value(file, name, index):
    """Moves one element of an output to the next value of its type, away from zero."""
    values = file[name][()].astype(np.float64)
    bits, smallest = float_fields(file[name].id.get_type())
    exponent = max(np.frexp(values[index])[1] - 1, smallest)
    values[index] += np.copysign(2.0 ** (exponent - (bits - 1)), values[index])
    put(file, name, values)


@functools.cache
def default_convention(op):
    """What an absent attribute of /convention stands for, but for the scale, which depends on K."""
    schema = json.loads(run("schema", "--json").out)
    (family,) = [row["family"] for row in schema["operations"] if row["name"] == op]
    return {row["name"]: row["default"] for row in schema["conventions"]
            if "default" in row and family in row["readers"]}


def element_type(type_id):
    """The schema's name of an HDF5 type."""
    if isinstance(type_id, h5py.h5t.TypeIntegerID):
        return f"i{8 * type_id.get_size()}"
    return "bf16" if type_id.get_fields()[4] == 7 else f"f{8 * type_id.get_size()}"


def meaning(file):
    """{path: value}: what fixtures/schema/meaning.hpp says that a file means, from its text."""
    def shown(value):
        if isinstance(value, (float, np.floating)):
            return struct.pack(">d", value).hex()
        return value if isinstance(value, str) else str(int(value))

    def tensor(dataset):
        data = np.empty(dataset.shape, f"V{dataset.id.get_type().get_size()}")
        dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, data, dataset.id.get_type())
        shape = ",".join(map(str, dataset.shape))
        return (f"{element_type(dataset.id.get_type())} [{shape}] "
                f"{hashlib.sha256(data.tobytes()).hexdigest()}")

    found = {f"/@{name}": shown(file.attrs[name])
             for name in ("schema", "op", "mode", "source", "contract", "case", "pattern", "seed",
                          "precision_bits", "generator") if name in file.attrs}
    K = file["inputs/q"].shape[-1]
    with decimal.localcontext(decimal.Context(prec=60)):
        scale = float(decimal.Decimal(K) ** decimal.Decimal("-0.5"))
    convention = {**default_convention(file.attrs["op"]), "scale": scale, **file["convention"].attrs}
    found.update({f"/convention@{name}": shown(value) for name, value in convention.items()})

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and not name.startswith("outputs/"):
            found[f"/{name}"] = tensor(item)
            if name.startswith("golden/"):
                found[f"/{name}@radius"] = shown(item.attrs["radius"])
    file.visititems(visit)
    return found


def meaning_digest(file):
    text = b"".join(b"%d:%s," % (len(part), part)
                    for entry in sorted((path.encode(), value.encode())
                                        for path, value in meaning(file).items())
                    for part in entry)
    return hashlib.sha256(text).hexdigest()


def forge(path, edit):
    """Changes a fixture and makes all of its digests fit, as a careful liar would."""
    with h5py.File(path, "r+") as file:
        edit(file)
        for group in ("inputs", "golden", "budget", "stages"):
            if group in file:
                file[group].visititems(reseal_dataset)
        file.attrs["meaning_sha256"] = meaning_digest(file)
    return path


def reseal_dataset(_, item):
    if isinstance(item, h5py.Dataset) and "sha256" in item.attrs:
        data = np.empty(item.shape, f"V{item.id.get_type().get_size()}")
        item.id.read(h5py.h5s.ALL, h5py.h5s.ALL, data, item.id.get_type())
        item.attrs["sha256"] = hashlib.sha256(data.tobytes()).hexdigest()


def needs_captures(*names):
    """Skips a test where CAPTURES lacks one of its files: the repository has only small ones."""
    missing = [name for name in names if not (CAPTURES / name).is_file()]
    return unittest.skipIf(missing, f"{CAPTURES} has no {', '.join(missing)}")


class CommandLineTest(unittest.TestCase):
    """A folder for each test, fixtures that are generated once for each program run."""

    _shared = None
    _fixtures = {}

    @classmethod
    def shared_folder(cls):
        if CommandLineTest._shared is None:
            CommandLineTest._shared = tempfile.TemporaryDirectory(prefix="goldenrule_cli_")
            unittest.addModuleCleanup(CommandLineTest._forget)
        return Path(CommandLineTest._shared.name)

    @staticmethod
    def _forget():
        CommandLineTest._shared.cleanup()
        CommandLineTest._shared = None
        CommandLineTest._fixtures.clear()

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="goldenrule_cli_")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def fixture(self, line):
        """The path of the fixture of a case line; not to be changed."""
        if line not in self._fixtures:
            folder = self.shared_folder() / str(len(self._fixtures))
            result = run("generate", line, "-o", folder)
            self.assertEqual(result.code, 0, result.err)
            (self._fixtures[line],) = folder.iterdir()
        return self._fixtures[line]

    def copy_of_fixture(self, line):
        return Path(shutil.copy(self.fixture(line), self.folder))

    def capture(self, line, change=None, name="capture.h5", contract=None):
        return make_capture(self.fixture(line), self.folder / name, change, contract)

    def assert_run(self, code, *arguments, **options):
        """Runs the program and returns its texts; the exit code must be `code`."""
        result = run(*arguments, **options)
        self.assertEqual(result.code, code, f"{arguments}\n{result.out}\n{result.err}")
        return result

    def assert_one_line(self, text, *parts):
        """`text` is one line and contains the parts in this order."""
        self.assertEqual(len(text.splitlines()), 1, text)
        position = 0
        for part in map(str, parts):
            found = text.find(part, position)
            self.assertGreaterEqual(found, 0, f"no '{part}' from {position} on in: {text}")
            position = found + len(part)


def main():
    """unittest.main, but no test at all is a failure and only skipped ones are SKIPPED."""
    result = unittest.main(verbosity=2, exit=False).result
    if not result.wasSuccessful() or result.testsRun == 0:
        sys.exit(1)
    sys.exit(SKIPPED if len(result.skipped) == result.testsRun else 0)
