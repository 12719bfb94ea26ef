# SPDX-License-Identifier: Apache-2.0
"""Do programs that know HDF5 and nothing of this project read a generated fixture?

    test_readers.py DIR     (fixtures of the smoke suite)

What was written is known without a reader: the bytes of a contiguous dataset lie in the file at
its offset, and their SHA-256 is the dataset's attribute. A bf16 is the upper half of an f32.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import h5py
import numpy as np

FOLDER = None
BF16_FIELDS = (15, 7, 8, 0, 7)


def bf16_datasets():
    """(file, dataset name, values decoded from the bytes in the file): contiguous ones."""
    found = []
    for path in sorted(FOLDER.glob("*.h5")):
        with h5py.File(path, "r") as file:
            for name, dataset in file["inputs"].items():
                kind = dataset.id.get_type()
                if not isinstance(kind, h5py.h5t.TypeFloatID) or kind.get_fields() != BF16_FIELDS:
                    continue
                offset = dataset.id.get_offset()
                if offset is None:
                    continue
                raw = path.read_bytes()[offset:offset + 2 * dataset.size]
                assert hashlib.sha256(raw).hexdigest() == dataset.attrs["sha256"], (path, name)
                bits = np.frombuffer(raw, "<u2").astype(np.uint32) << 16
                values = bits.view(np.float32).reshape(dataset.shape)
                found.append((path, f"/inputs/{name}", values))
    return found


class ReadersTest(unittest.TestCase):
    def test_h5py_reads_the_bf16_values(self):
        datasets = bf16_datasets()
        self.assertGreaterEqual(len(datasets), 20)
        self.assertGreater(len(np.unique(np.concatenate([d[2].ravel() for d in datasets]))), 1000)
        for path, name, values in datasets:
            with h5py.File(path, "r") as file:
                np.testing.assert_array_equal(file[name][()], values, f"{path.name} {name}")
                self.assertEqual(file[name].id.get_type().get_ebias(), 127)

    def test_h5dump_reads_the_bf16_values(self):
        h5dump = shutil.which("h5dump")
        if h5dump is None:
            self.skipTest("no h5dump: package hdf5-tools")
        datasets = [d for d in bf16_datasets() if d[2].size <= 4096]
        for path, name, values in datasets[::5]:
            text = subprocess.run([h5dump, "-y", "-w", "0", "-m", "%.9g", "-d", name, path],
                                  check=True, text=True, capture_output=True).stdout
            data = re.search(r"DATA \{(.*?)\}", text, re.DOTALL)[1]
            shown = np.array([float(x) for x in re.findall(r"[^\s,]+", data)], np.float32)
            np.testing.assert_array_equal(shown, values.ravel(), f"{path.name} {name}")
            header = subprocess.run([h5dump, "-H", "-d", name, path], check=True, text=True,
                                    capture_output=True).stdout
            self.assertIn("16-bit little-endian floating-point", header)

    def test_h5dump_reads_whole_files(self):
        h5dump = shutil.which("h5dump")
        if h5dump is None:
            self.skipTest("no h5dump: package hdf5-tools")
        for path in sorted(FOLDER.glob("*.h5"))[:12]:
            done = subprocess.run([h5dump, path], text=True, capture_output=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), path.name)
            self.assertIn('ATTRIBUTE "schema"', done.stdout)

    def test_golden_values_are_native_doubles(self):
        for path in sorted(FOLDER.glob("*.h5")):
            with h5py.File(path, "r") as file:
                self.assertGreaterEqual(len(file["golden"]), 2)
                for name, golden in file["golden"].items():
                    self.assertEqual(golden.dtype, np.float64)
                    self.assertEqual(golden.fletcher32, golden.chunks is not None)
                    self.assertEqual(hashlib.sha256(golden[()].tobytes()).hexdigest(),
                                     golden.attrs["sha256"], f"{path.name} {name}")


if __name__ == "__main__":
    FOLDER = Path(sys.argv.pop(1))
    unittest.main(verbosity=2)
