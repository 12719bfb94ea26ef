# SPDX-License-Identifier: Apache-2.0
"""The dialects of the format: what h5py writes for an honest capture is read, in every dialect but
those of datasets that may grow, which are refused under their own name."""

import json
import sys
from pathlib import Path

import h5py
import numpy as np

from support import MTP_PADDED, CommandLineTest, main

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "fuzz")]

import fuzz_files  # noqa: E402


class DialectsTest(CommandLineTest):
    def check(self, code, *paths):
        report = self.folder / "report.json"
        self.assert_run(code, "--trust", "check", "--no-explain", *paths, "--json", report)
        return json.loads(report.read_text())["cases"]

    def test_every_dialect_of_the_fuzzer(self):
        seen = set()
        for name, data in fuzz_files.make_seeds(self.folder, fuzz_files.generated).items():
            dialect = name.split(", case")[0]
            seen.add(dialect)
            with self.subTest(name):
                path = self.folder / "one.h5"
                path.write_bytes(data)
                (case,) = self.check(2 if dialect in fuzz_files.GROWING else 0, path)
                if dialect in fuzz_files.GROWING:
                    self.assertRegex(case["reason"], "/inputs/.*: expected a dataset that cannot "
                                     "grow .*, actual chunks in an extensible array")
                else:
                    self.assertEqual(case["verdict"], "EXACT")
        self.assertEqual(seen, set(fuzz_files.DIALECTS))

    def test_notes_of_a_user(self):
        """A few attributes more, long and short, and datasets with a limit that is no growth."""
        for options in (dict(), dict(libver="latest"), dict(libver="latest", track_order=True)):
            def annotate(file):
                for i in range(8):
                    file.attrs[f"note{i}"] = "short"
                    file.attrs[f"text{i}"] = np.bytes_(b"x" * 400)
                file["outputs/o"].attrs["note"] = "an attribute of a dataset"
                for name in ("A_log", "dt_bias"):
                    values = file[f"inputs/{name}"][()]
                    del file[f"inputs/{name}"]
                    file.create_dataset(f"inputs/{name}", data=values, chunks=(1,),
                                        maxshape=(2 * values.size,))
            with self.subTest(options):
                source = self.capture(MTP_PADDED)
                path = self.folder / "noted.h5"
                with h5py.File(source) as old, h5py.File(path, "w", **options) as new:
                    new.attrs.update(old.attrs)
                    for name in ("inputs", "outputs"):
                        group = new.create_group(name)
                        for dataset in old[name].values():
                            old.copy(dataset, group)
                    new.create_group("convention").attrs.update(old["convention"].attrs)
                    annotate(new)
                self.assertEqual(self.check(0, path)[0]["verdict"], "EXACT")


if __name__ == "__main__":
    main()
