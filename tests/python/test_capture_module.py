# SPDX-License-Identifier: Apache-2.0
"""tools/python/goldenrule_capture.py: what it writes, seen through h5py's low-level interface.

Run directly, with an interpreter that has h5py and NumPy. Where torch or ml_dtypes are missing,
their tests are skipped. GOLDENRULE_TOOL=path of the `goldenrule` executable adds a check by the
C++ reader.
"""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import unittest

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "python"))
import goldenrule_capture as gc  # noqa: E402

BF16_FIELDS = (15, 7, 8, 0, 7)
F16_FIELDS = (15, 10, 5, 0, 10)
F32_FIELDS = (31, 23, 8, 0, 23)


def decode_call(K=4, V=3, B=2, H=1, HV=2, dtype=np.float32):
    """Inputs and outputs with values that are exact in bfloat16."""

    def fill(*shape):
        n = int(np.prod(shape))
        return ((np.arange(n) * 37 % 101) / 64 - 0.5).reshape(shape).astype(dtype)

    inputs = dict(q=fill(B, 1, H, K), k=fill(B, 1, H, K), v=fill(B, 1, HV, V), a=fill(B, 1, HV),
                  b=fill(B, 1, HV), A_log=fill(HV), dt_bias=fill(HV),
                  initial_state=fill(3, HV, V, K), state_indices=np.array([2, 0], np.int32))
    outputs = dict(o=fill(B, 1, HV, V), final_state=fill(3, HV, V, K))
    return inputs, outputs


class CaptureTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="goldenrule-")
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.path = self.directory / "capture.h5"

    def write(self, inputs=None, outputs=None, **options):
        default_inputs, default_outputs = decode_call()
        arguments = dict(op="gated_delta_rule", mode="decode", inputs=inputs or default_inputs,
                         outputs=outputs or default_outputs)
        gc.write_capture(self.path, **{**arguments, **options})

    def stored_type(self, name):
        with h5py.File(self.path) as file:
            file_type = file[name].id.get_type()
            return (file_type.get_size(), file_type.get_fields(), file_type.get_ebias(),
                    file_type.get_order())

    def stored_bytes(self, name):
        """The raw bytes of a contiguous dataset, straight from the file."""
        with h5py.File(self.path) as file:
            dataset = file[name].id
            offset, size = dataset.get_offset(), dataset.get_storage_size()
        return self.path.read_bytes()[offset:offset + size]

    def test_attributes_and_arrays_come_back(self):
        inputs, outputs = decode_call()
        self.write(convention=dict(gate="bounded", scale=0.25, pad_slot=np.int64(-3),
                                   disable_state_update=True, l2_eps=np.float32(2 ** -20)),
                   source="kernel \N{GREEK SMALL LETTER ALPHA}", contract="recurrent_f32")
        read = gc.read_fixture(self.path)
        self.assertEqual((read.op, read.mode), ("gated_delta_rule", "decode"))
        self.assertEqual(read.attributes, {"source": "kernel \N{GREEK SMALL LETTER ALPHA}",
                                           "contract": "recurrent_f32"})
        expected = dict(gate="bounded", scale=0.25, pad_slot=-3, disable_state_update=1,
                        l2_eps=2 ** -20)
        self.assertEqual(read.convention, {**gc.DEFAULTS, **expected})
        for mine, theirs in ((inputs, read.inputs), (outputs, read.outputs)):
            self.assertEqual(set(mine), set(theirs))
            for name, array in mine.items():
                self.assertEqual(array.dtype, theirs[name].dtype, name)
                np.testing.assert_array_equal(array, theirs[name], name)
        self.assertEqual(read.bf16, ())

    def test_every_storage_type_is_stored_as_itself(self):
        inputs, _ = decode_call()
        inputs.update(k=inputs["k"].astype(np.float16), v=inputs["v"].astype(np.float64),
                      b=inputs["b"].astype(">f4"), state_indices=np.array([2, 0], np.int64))
        self.write(inputs, bf16=("q", "o"))
        little = h5py.h5t.ORDER_LE
        self.assertEqual(self.stored_type("inputs/q"), (2, BF16_FIELDS, 127, little))
        self.assertEqual(self.stored_type("outputs/o"), (2, BF16_FIELDS, 127, little))
        self.assertEqual(self.stored_type("inputs/k"), (2, F16_FIELDS, 15, little))
        self.assertEqual(self.stored_type("inputs/b"), (4, F32_FIELDS, 127, little))
        read = gc.read_fixture(self.path)
        self.assertEqual(read.bf16, ("inputs/q", "outputs/o"))
        self.assertEqual(read.inputs["q"].dtype, np.float32)
        self.assertEqual(read.inputs["v"].dtype, np.float64)
        self.assertEqual(read.inputs["state_indices"].dtype, np.int64)
        for name in inputs:
            np.testing.assert_array_equal(inputs[name], read.inputs[name], name)

    def test_bf16_bits_nan_payloads_included(self):
        inputs, _ = decode_call()
        bits = np.array([0x7F81, 0xFFC1, 0x7F80, 0xFF80, 0x0001, 0x8000, 0x3F80, 0x007F],
                        np.uint16).reshape(2, 1, 1, 4)
        inputs["q"] = (bits.astype(np.uint32) << 16).view(np.float32)
        self.write(inputs, bf16=("q",))
        self.assertEqual(self.stored_bytes("inputs/q"), bits.tobytes())
        read = gc.read_fixture(self.path).inputs["q"]
        np.testing.assert_array_equal(read.view(np.uint32) >> 16, bits)

    def test_large_arrays_are_chunked_and_come_back(self):
        inputs, outputs = decode_call(V=10007)
        self.write(inputs, outputs, bf16=("v", "o"))
        with h5py.File(self.path) as file:
            state = file["outputs/final_state"]
            self.assertTrue(state.shuffle and state.fletcher32)
            self.assertEqual(state.compression, "gzip")
            self.assertLessEqual(np.prod(state.chunks) * 4, 512 * 1024)
            self.assertIsNone(file["inputs/a"].chunks)
        read = gc.read_fixture(self.path)
        np.testing.assert_array_equal(outputs["final_state"], read.outputs["final_state"])
        np.testing.assert_array_equal(inputs["v"], read.inputs["v"])

    def test_strided_inputs(self):
        inputs, _ = decode_call()
        inputs["k"] = np.asfortranarray(inputs["k"])[::-1]
        inputs["state_indices"] = np.array([9, 2, 9, 0], np.int32)[1::2]
        self.write(inputs)
        read = gc.read_fixture(self.path)
        np.testing.assert_array_equal(read.inputs["k"], inputs["k"])
        np.testing.assert_array_equal(read.inputs["state_indices"], [2, 0])

    def test_errors_name_what_is_wrong(self):
        inputs, outputs = decode_call()
        cases = [
            (dict(op="mamba"), "op: expected one of "
             "gated_delta_rule, kda, gated_delta_rule_backward, kda_backward, attention, "
             "draft_acceptance, actual 'mamba'"),
            (dict(mode="train"), "mode: expected one of decode, mtp, prefill"),
            (dict(convention={"gatte": "log"}), "unknown attribute 'gatte'"),
            (dict(convention={"gate": "exp"}), "convention gate: expected one of softplus"),
            (dict(convention={"scale": "0.5"}), "convention scale: expected a finite number"),
            (dict(convention={"scale": float("nan")}), "convention scale"),
            (dict(convention={"pad_slot": 0.5}), "convention pad_slot: expected a whole number"),
            (dict(convention={"disable_state_update": 2}), "expected 0 or 1, actual 2"),
            (dict(inputs={**inputs, "Q": inputs["q"]}), "inputs: unknown name 'Q' in mode decode"),
            (dict(inputs={**inputs, "cu_seqlens": [0]}), "unknown name 'cu_seqlens'"),
            (dict(inputs={"q": inputs["q"]}), "inputs: k is missing"),
            (dict(outputs={**outputs, "intermediate_states": outputs["o"]}), "outputs: unknown"),
            (dict(inputs={**inputs, "q": inputs["q"] > 0}), "inputs q: expected float64"),
            (dict(bf16=("w",)), "bf16: no such input or output: w"),
            (dict(inputs={**inputs, "q": np.zeros(inputs["q"].shape, np.uint16)}),
             "actual uint16; are these the bits of bfloat16[?] then name it in bf16="),
            (dict(bf16=("state_indices",)), "bf16 takes float32 values or uint16 bits, actual int32"),
            (dict(source="two\nlines"), "source: expected one line"),
        ]
        for options, message in cases:
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                self.write(**options)
            self.assertEqual(list(self.directory.iterdir()), [])

    def test_values_that_are_no_bf16_are_refused_and_named(self):
        inputs, _ = decode_call()
        inputs["q"][1, 0, 0, 2] = np.float32(0.1)
        with self.assertRaisesRegex(ValueError, r"1 values are no bfloat16.*0\.1.*\(1, 0, 0, 2\)"):
            self.write(inputs, bf16=("q",))

    def test_a_failure_leaves_the_old_file(self):
        self.write()
        before = self.path.read_bytes()
        original = gc._write_dataset
        gc._write_dataset = lambda *arguments: (_ for _ in ()).throw(OSError("no space"))
        try:
            with self.assertRaisesRegex(OSError, "no space"):
                self.write()
        finally:
            gc._write_dataset = original
        self.assertEqual(self.path.read_bytes(), before)
        self.assertEqual([p.name for p in self.directory.iterdir()], ["capture.h5"])

    def test_the_same_capture_gives_the_same_bytes_a_second_later(self):
        self.write(bf16=("q",))
        first = self.path.read_bytes()
        time.sleep(1.1)  # HDF5 keeps times in seconds
        self.write(bf16=("q",))
        self.assertEqual(self.path.read_bytes(), first)

    def test_another_schema_and_a_changed_value_are_refused(self):
        self.write()
        with h5py.File(self.path, "a") as file:
            file["inputs/A_log"][0] = 7.0
        with self.assertRaisesRegex(ValueError, "/inputs/A_log: the values do not have the SHA"):
            gc.read_fixture(self.path)
        with h5py.File(self.path, "a") as file:
            file.attrs["schema"] = "goldenrule/2"
        with self.assertRaisesRegex(ValueError, "expected 'goldenrule/1', actual 'goldenrule/2'"):
            gc.read_fixture(self.path)

    def test_golden_values_budgets_and_stages_are_read(self):
        self.write()
        with h5py.File(self.path, "a") as file:
            file["golden/o"] = np.arange(12.0).reshape(2, 1, 2, 3)
            file["golden/o"].attrs["radius"] = 1e-20
            file["budget/recurrent_f32/o"] = np.ones((2, 1, 2, 3), np.float32)
            file["stages/G"] = np.zeros(3)
        read = gc.read_fixture(self.path)
        array, radius = read.golden["o"]
        self.assertEqual((array.sum(), array.dtype, radius), (66.0, np.float64, 1e-20))
        self.assertEqual(read.budget["recurrent_f32"]["o"].dtype, np.float32)
        self.assertEqual(list(read.stages), ["G"])

    def test_the_tensor_protocol_of_torch(self):
        """Without torch: an object with the four methods that are used, and a stand-in module."""
        bits = np.arange(8, dtype=np.int16).reshape(2, 1, 1, 4)

        class Tensor:
            def __init__(self, array, dtype):
                self.array, self.dtype = array, dtype

            def detach(self):
                return self

            cpu = contiguous = detach

            def view(self, dtype):
                return Tensor(self.array, dtype)

            def numpy(self):
                if self.dtype == "torch.bfloat16":
                    raise TypeError("Got unsupported ScalarType BFloat16")
                return self.array

        stand_in = types.SimpleNamespace(
            bfloat16="torch.bfloat16", int16="torch.int16", Tensor=Tensor,
            _C=types.SimpleNamespace(DisableTorchFunction=contextlib.nullcontext))
        before = sys.modules.get("torch")
        sys.modules["torch"] = stand_in
        try:
            inputs, _ = decode_call()
            inputs["q"] = Tensor(bits, "torch.bfloat16")
            inputs["k"] = Tensor(inputs["k"], "torch.float32")
            self.write(inputs)
        finally:
            if before is None:
                del sys.modules["torch"]
            else:
                sys.modules["torch"] = before
        self.assertEqual(self.stored_type("inputs/q")[1], BF16_FIELDS)
        self.assertEqual(self.stored_bytes("inputs/q"), bits.tobytes())
        self.assertEqual(self.stored_type("inputs/k")[1], F32_FIELDS)

    def test_torch_itself(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        inputs, outputs = decode_call()
        inputs["q"] = torch.tensor(inputs["q"]).to(torch.bfloat16).requires_grad_()
        outputs["o"] = torch.tensor(outputs["o"]).transpose(2, 3).contiguous().transpose(2, 3)
        self.write(inputs, outputs)
        read = gc.read_fixture(self.path)
        np.testing.assert_array_equal(read.inputs["q"], inputs["q"].detach().float().numpy())
        np.testing.assert_array_equal(read.outputs["o"], outputs["o"].numpy())

    def test_ml_dtypes(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("ml_dtypes is not installed")
        inputs, _ = decode_call()
        inputs["q"] = inputs["q"].astype(ml_dtypes.bfloat16)
        self.write(inputs)
        self.assertEqual(self.stored_type("inputs/q")[1], BF16_FIELDS)

    def test_the_cpp_reader_accepts_it(self):
        tool = os.environ.get("GOLDENRULE_TOOL")
        if not tool:
            self.skipTest("GOLDENRULE_TOOL does not name the goldenrule executable")
        inputs, outputs = decode_call(V=10007)
        self.write(inputs, outputs, bf16=("q", "k", "v", "o"),
                   convention=dict(disable_state_update=False, scale=1))
        result = subprocess.run([tool, "info", str(self.path)], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("/inputs/q", result.stdout)


if __name__ == "__main__":
    unittest.main()
