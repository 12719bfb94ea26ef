# SPDX-License-Identifier: Apache-2.0
"""Calls of the backward pass as goldenrule.gradcheck makes them: what is packed, what is refused, and what the
program then says. No torch: real_gradcheck.py has the rest. Needs GOLDENRULE_TOOL for the program."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "python"))
import goldenrule_capture as gc  # noqa: E402

TOOL = os.environ.get("GOLDENRULE_TOOL")
# Extents that differ pairwise, so that no two axes can be taken for one another.
B, T, H, HV, K, V = 3, 4, 2, 6, 5, 7
TOKENS = ("q", "k", "v", "a", "g", "b", "beta", "do")


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype("<f4")


def inputs_of(op, log_gate=False, beta=False):
    """A rectangular call, of raw gates and beta, or of those that are given."""
    gate = (HV, K) if op.startswith("kda") else (HV,)
    made = dict(q=normal(B, T, H, K), k=normal(B, T, H, K, seed=1), v=normal(B, T, HV, V),
                initial_state=normal(B, HV, V, K), do=normal(B, T, HV, V, seed=1),
                dfinal_state=normal(B, HV, V, K, seed=1))
    made |= dict(g=-abs(normal(B, T, *gate))) if log_gate else dict(a=normal(B, T, *gate), A_log=normal(HV),
                                                                   dt_bias=normal(*gate, seed=1))
    return made | (dict(beta=abs(normal(B, T, HV))) if beta else dict(b=normal(B, T, HV)))


def zeros_of(inputs):
    """A gradient of zeros by each input, in its shape."""
    return {f"d{name}": np.zeros_like(x) for name, x in inputs.items()
            if name not in ("do", "dfinal_state", "cu_seqlens")}


def rows(inputs):
    """The same call with its tokens packed."""
    flat = {name: x.reshape(B * T, *x.shape[2:]) if name in TOKENS else x for name, x in inputs.items()}
    return {**flat, "cu_seqlens": np.arange(B + 1) * T}


def prepared(inputs, outputs, op="gated_delta_rule_backward", **convention):
    return gc.prepared(op, "prefill", inputs, outputs, convention)[2]


class PackingTest(unittest.TestCase):
    def same(self, left, right):
        self.assertEqual({name: x.shape for name, (x, _) in left.items()},
                         {name: x.shape for name, (x, _) in right.items()})
        for name, (x, _) in left.items():
            np.testing.assert_array_equal(x, right[name][0], err_msg=name)

    def test_rows_are_packed_with_all_that_has_tokens(self):
        for op in gc.BACKWARD_OPS:
            for given, convention in ((False, {}), (True, dict(gate="log", beta="direct"))):
                inputs = inputs_of(op, given, given)
                outputs = {name: normal(*x.shape, seed=2) for name, x in zeros_of(inputs).items()}
                found = prepared(inputs, outputs, op, **convention)
                flat = {name: x.reshape(B * T, *x.shape[2:]) if name[1:] in TOKENS else x
                        for name, x in outputs.items()}
                wanted = prepared(rows(inputs), flat, op, **convention)
                self.same(found["inputs"], wanted["inputs"])
                self.same(found["outputs"], wanted["outputs"])

    def test_one_row_keeps_its_sequences(self):
        inputs = {name: x.reshape(1, *x.shape) if name in TOKENS else x
                  for name, x in rows(inputs_of("kda_backward")).items()}
        inputs["cu_seqlens"] = np.array([0, 0, 5, 12])
        found = prepared(inputs, zeros_of(inputs), "kda_backward")
        np.testing.assert_array_equal(found["inputs"]["cu_seqlens"][0], [0, 0, 5, 12])
        self.assertEqual(found["outputs"]["dq"][0].shape, (B * T, H, K))

    def test_parameters_as_checkpoints_store_them(self):
        inputs = inputs_of("kda_backward")
        outputs = zeros_of(inputs)
        for tensors, d in ((inputs, ""), (outputs, "d")):
            tensors[d + "dt_bias"] = tensors[d + "dt_bias"].ravel()
            tensors[d + "A_log"] = tensors[d + "A_log"].reshape(1, 1, HV, 1)
        found = prepared(inputs, outputs, "kda_backward")
        for group, d in (("inputs", ""), ("outputs", "d")):
            self.assertEqual(found[group][d + "dt_bias"][0].shape, (HV, K))
            self.assertEqual(found[group][d + "A_log"][0].shape, (HV,))


class RefusalTest(unittest.TestCase):
    def refuse(self, text, inputs=None, outputs=None, op="gated_delta_rule_backward", **convention):
        full = inputs_of(op)
        with self.assertRaisesRegex(ValueError, text):
            prepared({**full, **(inputs or {})}, {**zeros_of(full), **(outputs or {})}, op, **convention)

    def test_what_is_missing(self):
        for name in ("q", "k", "v", "do"):
            self.refuse(f"inputs: {name} is missing", {name: None})
        self.refuse("inputs a: is missing", {"a": None})
        with self.assertRaisesRegex(ValueError, "outputs: expected at least one of dq, dk"):
            prepared(inputs_of("kda_backward"), {}, "kda_backward")

    def test_shapes(self):
        full = inputs_of("gated_delta_rule_backward")
        self.refuse(r"inputs do: expected \[12,6,7\], actual \[12,7,6\]", {"do": full["do"].swapaxes(2, 3)})
        self.refuse(r"inputs dfinal_state: expected \[3,6,7,5\], actual \[3,6,5,7\]",
                    {"dfinal_state": full["dfinal_state"].swapaxes(2, 3)})
        self.refuse(r"outputs dq: expected \[12,2,5\], actual \[12,6,5\]", outputs={"dq": normal(B, T, HV, K)})
        self.refuse(r"outputs da: expected \[12,6\], actual \[12,6,5\]", outputs={"da": normal(B * T, HV, K)})
        self.refuse(r"outputs dA_log: expected \[6\], actual \[2\]", outputs={"dA_log": normal(H)})
        self.refuse(r"inputs A_log: expected \[2\], actual \[6\]", gate_head="qk")
        self.refuse("outputs db: expected a floating-point tensor", outputs={"db": np.zeros((B, T, HV), "i8")})

    def test_what_has_no_gradient(self):
        for name in ("state_indices", "has_initial_state", "checkpoint_offsets"):
            self.refuse(f"inputs: unknown name '{name}'", {name: np.arange(B)})
        self.refuse("outputs: unknown name 'dscale'", outputs={"dscale": np.zeros(1, "f4")})
        self.refuse("outputs: unknown name 'o'", outputs={"o": normal(B, T, HV, V)})
        self.refuse("convention: unknown attribute 'pad_slot'", pad_slot=0)
        with self.assertRaisesRegex(ValueError, "mode: expected one of prefill"):
            gc.prepared("kda_backward", "decode", {}, {})

    def test_a_gradient_in_the_memory_of_an_input(self):
        full = inputs_of("gated_delta_rule_backward")
        self.refuse("outputs dv: lies in the memory of inputs do", {"do": full["do"]}, {"dv": full["do"]})


@unittest.skipUnless(TOOL, "GOLDENRULE_TOOL does not name the goldenrule executable")
class ProgramTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="goldenrule-")
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name) / "backward.h5"

    def check(self, inputs, outputs, **convention):
        gc.write_capture(self.path, op="gated_delta_rule_backward", mode="prefill", convention=convention,
                         inputs=inputs, outputs=outputs)
        done = subprocess.run([TOOL, "check", str(self.path), "--no-explain"], capture_output=True, text=True,
                              check=False)
        return done.returncode, done.stdout + done.stderr

    def test_gradients_of_zeros_are_wrong(self):
        inputs = inputs_of("gated_delta_rule_backward")
        code, text = self.check(inputs, zeros_of(inputs))
        self.assertEqual(code, 1, text)
        for name in zeros_of(inputs):
            self.assertRegex(text, rf"\n  {name} +OUT_OF_BUDGET")

    def test_gradients_of_one_token(self):
        """o = scale beta v k.q: what autograd would give, by hand."""
        q, k, v, do = (np.array(x, "<f8").reshape(1, 1, 1, -1) for x in ([2, 1], [0.5, 1], [3, -1], [1, 2]))
        beta = np.array(0.5).reshape(1, 1, 1)
        inputs = dict(q=q, k=k, v=v, beta=beta, do=do)
        vdo, kq = float((v * do).sum()), float((k * q).sum())  # 1 and 2
        outputs = dict(dq=0.5 * vdo * k, dk=0.5 * vdo * q, dv=0.5 * kq * do, dbeta=vdo * kq * np.ones((1, 1, 1)))
        code, text = self.check(inputs, outputs, gate="none", beta="direct", qk_l2norm="none", scale=1.0)
        self.assertEqual(code, 0, text)
        self.assertIn("EXACT", text)


if __name__ == "__main__":
    unittest.main()
