# SPDX-License-Identifier: Apache-2.0
"""Files that cannot be judged: exit code 2 and one line with file, dataset, expected and actual."""

import os
from collections import namedtuple

import h5py
import numpy as np

from edits import attribute, element, remove
from support import DECODE, MTP, PREFILL, SCATTER, CommandLineTest, bfloat16_type, main, put, run


def reshape(name, *shape, dtype=np.float32):
    """A dataset of zeros in place of `name`."""
    def edit(file):
        del file[name]
        file[name] = np.zeros(shape, dtype)
    return edit


def replace(name, **options):
    """A dataset of the same shape, made as h5py.create_dataset is told."""
    def edit(file):
        values = file[name][()]
        del file[name]
        file.create_dataset(name, data=values, **options)
    return edit


def huge(name, shape, chunks):
    """A few hundred bytes of file that claim terabytes: no chunk of it was ever written."""
    def edit(file):
        group, base = os.path.split(name)
        del file[name]
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_chunk(chunks)
        h5py.h5d.create(file[group].id, base.encode(), bfloat16_type(),
                        h5py.h5s.create_simple(shape), creation)
    return edit


def scale_offset(file):
    values = file["inputs/A_log"][()]
    del file["inputs/A_log"]
    file.create_dataset("inputs/A_log", data=values, chunks=True, scaleoffset=3)


def external_link(file):
    del file["inputs/v"]
    file["inputs/v"] = h5py.ExternalLink("/etc/passwd", "/inputs/v")


def soft_link(file):
    del file["inputs/k"]
    file["inputs/k"] = h5py.SoftLink("/inputs/q")


def external_storage(file):
    del file["inputs/A_log"]
    file.create_dataset("inputs/A_log", (4,), "f4", external=[("/etc/passwd", 0, 16)])


def virtual(file):
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource("/etc/other.h5", "inputs/A_log", (4,))
    del file["inputs/A_log"]
    file.create_virtual_dataset("inputs/A_log", layout)


# `where`, `expected` and `actual` are parts of the message, in this order.
Bad = namedtuple("Bad", "name line edit where expected actual")

FILES = (
    Bad("another schema", DECODE, attribute("schema", "goldenrule/2"),
        "/@schema", "goldenrule/1", "'goldenrule/2'"),
    Bad("no schema", DECODE, lambda f: f.attrs.__delitem__("schema"),
        "/@schema", "goldenrule/1", "no such attribute"),
    Bad("unknown operation", DECODE, attribute("op", "mamba"),
        "/@op", "gated_delta_rule, kda", "'mamba'"),
    Bad("unknown mode", DECODE, attribute("mode", "train"),
        "/@mode", "decode, mtp, prefill", "'train'"),
    Bad("no inputs", DECODE, remove("inputs"), "/inputs", "a group", "none"),
    Bad("missing k", DECODE, remove("inputs/k"), "/inputs/k", "[3,1,2,64]", "none"),
    Bad("missing v", DECODE, remove("inputs/v"), "/inputs/v", "a dataset of rank 4", "none"),
    Bad("missing A_log", DECODE, remove("inputs/A_log"), "/inputs/A_log", "[4]", "none"),
    Bad("missing cu_seqlens", PREFILL, remove("inputs/cu_seqlens"),
        "/inputs/cu_seqlens", "a dataset of rank 1", "none"),
    Bad("integers for q", DECODE, reshape("inputs/q", 3, 1, 2, 64, dtype=np.int32),
        "/inputs/q", "floating-point", "i32"),
    Bad("unsigned q", DECODE, reshape("inputs/q", 3, 1, 2, 64, dtype=np.uint16),
        "/inputs/q", "f64, f32, f16, bf16", "u16"),
    Bad("text for q", DECODE, reshape("inputs/q", 3, 1, 2, 64, dtype="S4"),
        "/inputs/q", "f64, f32, f16, bf16", "string"),
    Bad("slots in floating point", DECODE, reshape("inputs/state_indices", 3),
        "/inputs/state_indices", "i32 or i64", "f32"),
    Bad("rank of q", DECODE, reshape("inputs/q", 3, 2, 64),
        "/inputs/q", "rank 4", "rank 3 [3,2,64]"),
    Bad("rank of the state", DECODE, reshape("inputs/initial_state", 5, 32, 64),
        "/inputs/initial_state", "rank 4", "rank 3"),
    Bad("K of k", DECODE, reshape("inputs/k", 3, 1, 2, 32),
        "/inputs/k", "[3,1,2,64]", "[3,1,2,32]"),
    Bad("rows of v", DECODE, reshape("inputs/v", 2, 1, 4, 32),
        "/inputs/v", "[3,1,4,32]", "[2,1,4,32]"),
    Bad("layout of the state", DECODE, reshape("inputs/initial_state", 5, 4, 64, 32),
        "/inputs/initial_state", "[5,4,32,64]", "[5,4,64,32]"),
    Bad("tokens in decode", MTP, attribute("mode", "decode"), "/inputs/q", "T=1", "T=3"),
    Bad("shape of o", DECODE, reshape("outputs/o", 3, 4, 32),
        "/outputs/o", "[3,1,4,32]", "[3,4,32]"),
    Bad("unknown output", DECODE,
        lambda f: f.__setitem__("outputs/out", np.zeros(3)), "/outputs/out", "o or final_state",
        "'out'"),
    Bad("cu_seqlens does not start at 0", PREFILL, element("inputs/cu_seqlens", 0, 1),
        "/inputs/cu_seqlens[0]", "0", "1"),
    Bad("cu_seqlens decreases", PREFILL, element("inputs/cu_seqlens", 2, 4),
        "/inputs/cu_seqlens[2]", "at least 5", "4"),
    Bad("cu_seqlens beyond the tokens", PREFILL, element("inputs/cu_seqlens", 3, 13),
        "/inputs/cu_seqlens[3]", "at most 12 tokens", "13"),
    Bad("cu_seqlens short of the tokens", PREFILL, element("inputs/cu_seqlens", 3, 11),
        "/inputs/cu_seqlens[3]", "12", "11"),
    Bad("slot beyond the pool", DECODE, element("inputs/state_indices", 1, 5),
        "/inputs/state_indices[1]", "a slot below 5", "5"),
    Bad("negative slot", DECODE, element("inputs/state_indices", 0, -2),
        "/inputs/state_indices[0]", "the pad slot -1", "-2"),
    Bad("slot written twice", DECODE, element("inputs/state_indices", slice(None), 2),
        "/inputs/state_indices[1]", "each slot written once (element 0", "2"),
    Bad("scattered slot beyond the pool", SCATTER, element("inputs/ssm_state_indices", (1, 2), 99),
        "/inputs/ssm_state_indices[5]", "a slot below", "99"),
    Bad("accepted tokens", SCATTER, element("inputs/num_accepted_tokens", 0, 4),
        "/inputs/num_accepted_tokens[0]", "1 to 3", "4"),
    Bad("HV % H", DECODE, lambda f: [reshape(f"inputs/{n}", 3, 1, 3, 64)(f) for n in "qk"],
        "/inputs/v", "a multiple of H=3", "HV=4"),
    Bad("unknown gate", DECODE, attribute("gate", "exp", "convention"),
        "/convention@gate", "softplus, bounded, log", "'exp'"),
    Bad("unknown convention", DECODE, attribute("gatte", "log", "convention"),
        "/convention", "state_layout, gate", "'gatte'"),
    Bad("scale that is no number", DECODE, attribute("scale", np.nan, "convention"),
        "/convention@scale", "a finite number", "nan"),
    Bad("threshold that is no number", DECODE, attribute("softplus_threshold", np.inf, "convention"),
        "/convention@softplus_threshold", "a finite number", "inf"),
    Bad("negative eps", DECODE, attribute("l2_eps", -1e-30, "convention"),
        "/convention@l2_eps", "at least 0", "-1e-30"),
    Bad("softplus_beta 0", DECODE, attribute("softplus_beta", 0.0, "convention"),
        "/convention@softplus_beta", "above 0", "0"),
    Bad("lower bound 0", DECODE, attribute("lower_bound", 0.0, "convention"),
        "/convention@lower_bound", "below 0", "0"),
    Bad("flag 2", DECODE, attribute("disable_state_update", 2, "convention"),
        "/convention@disable_state_update", "0 or 1", "2"),
    Bad("lowest pad slot", DECODE, attribute("pad_slot", -2**63, "convention"),
        "/convention@pad_slot", "2^31-1", "-9223372036854775808"),
    Bad("terabytes claimed", DECODE, huge("inputs/q", (3, 1, 2, 1 << 40), (1, 1, 1, 1 << 10)),
        "/inputs/q", "at most 0 bytes", "1099511627776"),
    Bad("external link", DECODE, external_link, "/inputs/v", "a hard link", "external link"),
    Bad("soft link", DECODE, soft_link, "/inputs/k", "a hard link", "soft link"),
    Bad("external storage", DECODE, external_storage,
        "/inputs/A_log", "data in this file", "external"),
    Bad("virtual dataset", DECODE, virtual,
        "/inputs/A_log", "data in this file", "virtual"),
    Bad("LZF, a plug-in filter", DECODE, replace("inputs/A_log", compression="lzf"),
        "/inputs/A_log", "filters shuffle, deflate", "filter 32000"),
    Bad("scale-offset filter", DECODE, scale_offset,
        "/inputs/A_log", "filters shuffle, deflate", "filter 6"),
)


class BadInputTest(CommandLineTest):
    def assert_refused(self, path, *parts):
        """`check` says ERROR and one line of reason, nothing else; `info` does not break."""
        result = self.assert_run(2, "check", path)
        self.assertEqual(result.err, "")  # not a word from HDF5 itself
        lines = [line.strip() for line in result.out.splitlines() if line.strip()]
        self.assertEqual(len(lines), 2, result.out)
        self.assertEqual(lines[0], f"{path}: ERROR")
        self.assert_one_line(lines[1], f"{path}: ", *parts)
        self.assertIn(run("info", path).code, (0, 2))

    def test_files(self):
        for bad in FILES:
            with self.subTest(bad.name):
                path = self.capture(bad.line, bad.edit)
                self.assert_refused(path, f"{bad.where}: expected ", bad.expected, ", actual ",
                                    bad.actual)

    def test_the_unedited_files_are_judged(self):
        for line in {bad.line for bad in FILES}:
            self.assert_run(0, "check", self.capture(line), "--contract", "ideal")

    def test_what_is_no_file(self):
        path = self.folder / "capture.h5"
        self.assert_refused(path, "an HDF5 file", "No such file")
        self.assert_refused(self.folder, "an HDF5 file", "not a regular file")
        path.write_bytes(b"")
        self.assert_refused(path, "an HDF5 file", "empty")
        path.write_bytes(b"PK\x03\x04 torch.save'd by mistake" * 100)
        self.assert_refused(path, "an HDF5 file", "without the HDF5 signature")
        path.unlink()
        os.mkfifo(path)
        self.assert_refused(path, "an HDF5 file", "not a regular file")

    def test_truncated_files(self):
        path = self.capture(DECODE)
        whole = path.read_bytes()
        for size in (len(whole) - 1, len(whole) // 2, 600, 100, 10):
            with self.subTest(size):
                path.write_bytes(whole[:size])
                self.assert_refused(path, "expected", "actual")

    def test_the_other_commands_refuse_too(self):
        path = self.capture(DECODE, external_link)
        result = self.assert_run(2, "info", path)
        self.assert_one_line(result.err, path, "/inputs/v", "expected", "external link")
        result = self.assert_run(2, "diff", self.fixture(DECODE), path)
        self.assert_one_line(result.err, path, "/inputs/v", "expected", "external link")
        result = self.assert_run(2, "recompute", self.folder)
        self.assertRegex(result.out, r"(?m)^ERROR .*capture\.h5: /inputs/v: expected .*, actual ")

    def test_a_command_that_there_is_not(self):
        result = self.assert_run(2, "chek", self.folder)
        self.assert_one_line(result.err, "command: expected ", "check", ", actual 'chek'")


if __name__ == "__main__":
    main()
