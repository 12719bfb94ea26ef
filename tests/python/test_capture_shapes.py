# SPDX-License-Identifier: Apache-2.0
# Length: a table of shapes, one row per refusal, and the comparison with the program.
"""tools/python/goldenrule_capture.py: shapes and values that it takes, brings to its table, refuses.

Run directly, with an interpreter that has h5py and NumPy; tests that need torch are skipped without
it. GOLDENRULE_TOOL=path of the `goldenrule` executable adds the comparison with the C++ reader:
what one refuses the other refuses, in the same words.
"""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "python"))
import goldenrule_capture as gc  # noqa: E402

TOOL = os.environ.get("GOLDENRULE_TOOL")
# Extents that differ pairwise, so that no two axes can be taken for one another.
B, T, H, HV, K, V, P = 3, 4, 2, 6, 5, 7, 9
OUTPUTS = {name for names in gc.OUTPUTS.values() for name in names}


def fill(*shape):
    """Values that differ and are exact in bfloat16."""
    return ((np.arange(int(np.prod(shape))) * 37 % 101) / 64 - 0.5).reshape(shape).astype("<f4")


def tokens_of(kda, *tokens):
    gate = (HV, K) if kda else (HV,)
    return dict(q=fill(*tokens, H, K), k=fill(*tokens, H, K), v=fill(*tokens, HV, V),
                a=fill(*tokens, *gate), b=fill(*tokens, HV), A_log=fill(HV), dt_bias=fill(*gate))


class Call:
    """The arguments of write_capture; copies of it are changed in one thing."""

    def __init__(self, mode, op="gated_delta_rule"):
        tokens = {"decode": (B, 1), "mtp": (B, T), "prefill": (8,)}[mode]
        self.arguments = dict(op=op, mode=mode, convention={})
        self.inputs = tokens_of(op == "kda", *tokens)
        self.outputs = dict(o=fill(*tokens, HV, V))
        if mode == "prefill":
            self.inputs["cu_seqlens"] = np.array([0, 3, 3, 8])
            self.outputs["final_state"] = fill(3, HV, V, K)
        else:
            self.inputs["initial_state"] = fill(P, HV, V, K)
            self.outputs["final_state"] = fill(P, HV, V, K)

    def having(self, **tensors):
        """With these tensors; None removes one. Names of outputs are those of the schema."""
        for name, tensor in tensors.items():
            group = self.outputs if name in OUTPUTS else self.inputs
            if tensor is None:
                group.pop(name, None)
            else:
                group[name] = tensor
        return self

    def under(self, **convention):
        self.arguments["convention"].update(convention)
        return self

    def write(self, path, **more):
        gc.write_capture(path, inputs=self.inputs, outputs=self.outputs,
                         **{**self.arguments, **more})


def bthk(op="gated_delta_rule", rows=2, tokens=5):
    """A prefill as frameworks call it."""
    call = Call("prefill", op).having(cu_seqlens=None)
    call.inputs.update(tokens_of(op == "kda", rows, tokens))
    return call.having(o=fill(rows, tokens, HV, V), final_state=fill(rows, HV, V, K))


def head_first(call):
    for tensors in (call.inputs, call.outputs):
        for name in tensors.keys() & {"q", "k", "v", "o"}:
            tensors[name] = np.swapaxes(tensors[name], 1, 2)
    return call


class ShapesTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="goldenrule-")
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.path = self.directory / "capture.h5"
        warnings.simplefilter("error")
        self.addCleanup(warnings.resetwarnings)

    def written(self, call, **more):
        call.write(self.path, **more)
        return gc.read_fixture(self.path)

    def refusal(self, call, **more):
        """The text of the ValueError; it is one line, and no file is left."""
        with self.assertRaises(ValueError) as caught:
            call.write(self.path, **more)
        self.assertEqual(list(self.directory.iterdir()), [])
        text = str(caught.exception)
        self.assertEqual(len(text.splitlines()), 1, text)
        return text

    def assert_same(self, read, **expected):
        for name, array in expected.items():
            actual = read.inputs[name] if name in read.inputs else read.outputs[name]
            np.testing.assert_array_equal(actual, array, name)
            self.assertEqual(actual.shape, np.shape(array), name)


class TakenTest(ShapesTest):
    def test_a_state_of_the_other_layout_is_said_to_be_one(self):
        self.assertIn("actual [9,6,5,7]; is state_layout kv?",
                      self.refusal(Call("decode").having(initial_state=fill(P, HV, K, V))))
        self.assertTrue(self.refusal(Call("decode").having(initial_state=fill(P, HV, V, K + 1)))
                        .endswith("expected [9,6,7,5], actual [9,6,7,6]"))

    def test_every_mode_as_the_table_says(self):
        for op in gc.OPS:
            for mode in gc.MODES:
                with self.subTest(op=op, mode=mode):
                    call = Call(mode, op)
                    self.assert_same(self.written(call), **call.inputs, **call.outputs)

    def test_equal_lengths_are_packed(self):
        for op in gc.OPS:
            call = bthk(op)
            packed = {name: array.reshape(10, *array.shape[2:])
                      for name, array in (call.inputs | call.outputs).items() if name in "qkvabo"}
            read = self.written(call)
            self.assert_same(read, **packed, cu_seqlens=[0, 5, 10], A_log=call.inputs["A_log"],
                             final_state=call.outputs["final_state"])
            self.assertEqual(read.inputs["cu_seqlens"].dtype, np.int64)

    def test_packed_with_the_cu_seqlens_of_equal_lengths(self):
        read = self.written(bthk().having(cu_seqlens=np.array([0, 5, 10], np.int32)))
        self.assert_same(read, cu_seqlens=[0, 5, 10])

    def test_one_row_of_tokens(self):
        """flash-linear-attention's [1,T,..], with cu_seqlens and without."""
        call = bthk(rows=1, tokens=8)
        q = call.inputs["q"][0]
        self.assert_same(self.written(call), q=q, cu_seqlens=[0, 8])
        call = call.having(cu_seqlens=np.array([0, 3, 3, 8]), final_state=fill(3, HV, V, K),
                           initial_state=fill(3, HV, V, K) + 1)
        self.assert_same(self.written(call), q=q, cu_seqlens=[0, 3, 3, 8])
        # Some frameworks return o packed already.
        self.assert_same(self.written(call.having(o=call.outputs["o"][0])), o=call.outputs["o"])

    def test_bf16_is_packed_too(self):
        read = self.written(bthk(), bf16=("q", "o"))
        self.assertEqual(read.bf16, ("inputs/q", "outputs/o"))
        self.assert_same(read, q=fill(10, H, K))

    def test_direct_gates_are_packed(self):
        for op, gate in (("gated_delta_rule", (HV,)), ("kda", (HV, K))):
            call = bthk(op).under(gate="log", beta="direct")
            call = call.having(a=None, b=None, A_log=None, dt_bias=None, g=fill(2, 5, *gate),
                               beta=fill(2, 5, HV))
            self.assert_same(self.written(call), g=fill(10, *gate), beta=fill(10, HV))

    def test_parameters_as_checkpoints_store_them(self):
        for mode in gc.MODES:
            call = Call(mode, "kda")
            a_log, bias = call.inputs["A_log"], call.inputs["dt_bias"]
            for shape in ((HV * K,), (1, 1, HV, K), (HV, 1, K)):
                call.having(A_log=a_log.reshape(1, 1, HV, 1), dt_bias=bias.reshape(shape))
                self.assert_same(self.written(call), A_log=a_log, dt_bias=bias)
        # By query/key head, and of the other rule.
        call = Call("decode", "kda").under(gate_head="qk")
        call.having(A_log=fill(1, 1, H, 1), dt_bias=fill(H * K))
        self.assert_same(self.written(call), A_log=fill(H), dt_bias=fill(H, K))
        call = Call("decode").having(dt_bias=fill(1, 1, HV))
        self.assert_same(self.written(call), dt_bias=fill(HV))
        # K and H exchanged is another matter.
        call = Call("decode", "kda").having(dt_bias=fill(K, HV))
        self.assertEqual(self.refusal_after(call), "inputs dt_bias: expected [6,5], actual [5,6]")

    def refusal_after(self, call):
        self.path.unlink(missing_ok=True)
        return self.refusal(call)

    def test_no_initial_state_is_zeros(self):
        for mode in ("decode", "mtp"):
            read = self.written(Call(mode).having(initial_state=None, final_state=None))
            self.assert_same(read, initial_state=np.zeros((B, HV, V, K), np.float32))
            call = Call(mode).under(state_layout="kv")
            call.inputs["initial_state"] = None
            call.having(final_state=fill(P, HV, K, V).astype(np.float16))
            read = self.written(call)
            self.assert_same(read, initial_state=np.zeros((P, HV, K, V)))
            self.assertEqual(read.inputs["initial_state"].dtype, np.float16)
            read = self.written(Call(mode).having(initial_state=None), bf16=("final_state",))
            self.assertIn("inputs/initial_state", read.bf16)
        read = self.written(Call("decode").having(initial_state=None,
                                                  state_indices=np.array([8, 0, 3])))
        self.assertEqual(read.inputs["initial_state"].shape, (P, HV, V, K))
        self.assertNotIn("initial_state", self.written(Call("prefill")).inputs)

    def test_a_prefill_on_a_pool(self):
        call = Call("prefill").having(initial_state=fill(P, HV, V, K),
                                      final_state=fill(P, HV, V, K),
                                      state_indices=np.array([8, -1, 0]),
                                      output_state_indices=np.array([1, -1, 2], dtype=np.int32))
        self.assertEqual(self.written(call).inputs["initial_state"].shape, (P, HV, V, K))
        self.path.unlink()
        self.assertIn("expected [3], actual [2]",
                      self.refusal(call.having(state_indices=np.array([8, 0]))))
        self.assertIn("inputs state_indices: is missing",
                      self.refusal(call.having(state_indices=None)))
        self.assertIn("inputs initial_state: is missing",
                      self.refusal(call.having(state_indices=np.array([8, -1, 0]),
                                               initial_state=None)))

    def test_rows_of_unequal_length(self):
        # [1,total,..], as engines call it, and a table of slots as wide as the longest row.
        total = dict(tokens_of(False, 1, 8), cu_seqlens=np.array([0, 3, 3, 8], dtype=np.int32),
                     parent_tokens=np.array([[-1, 0, 0, -1, 0, 1, 2, 2]]))
        call = Call("mtp").having(**total, o=fill(1, 8, HV, V),
                                  intermediate_states=fill(1, 8, HV, V, K),
                                  state_indices=np.arange(3), ssm_state_indices=np.zeros((3, 5), int))
        read = self.written(call)
        self.assertEqual(read.inputs["q"].shape, (8, H, K))
        self.assertEqual(read.inputs["parent_tokens"].shape, (8,))
        self.assertEqual(read.outputs["intermediate_states"].shape, (8, HV, V, K))
        self.path.unlink()
        self.assertIn("inputs ssm_state_indices: expected rank 2",
                      self.refusal(call.having(ssm_state_indices=np.arange(8))))

    def test_a_buffer_of_intermediate_states(self):
        call = Call("mtp").having(initial_intermediate_states=fill(5, 6, HV, V, K),
                                  intermediate_state_indices=np.array([4, -1, 0]),
                                  intermediate_states=fill(5, 6, HV, V, K))
        self.assertEqual(self.written(call).outputs["intermediate_states"].shape, (5, 6, HV, V, K))
        self.path.unlink()
        self.assertIn("outputs intermediate_states: expected [5,6,6,7,5], actual [3,4,6,7,5]",
                      self.refusal(call.having(intermediate_states=fill(B, T, HV, V, K))))
        self.assertIn("inputs checkpoint_tokens: is missing",
                      self.refusal(Call("mtp").having(checkpoint_state_indices=np.arange(3))))

    def test_rings(self):
        ring = dict(ring_d=(5, HV, 8, V), ring_k=(5, H, 8, K), ring_g=(5, HV, 8))
        tensors = {"initial_" + name: fill(*shape) for name, shape in ring.items()}
        call = Call("mtp").having(**tensors, **{name: fill(*shape) for name, shape in ring.items()},
                                  ring_start=np.array([7, 0, 1]), ring_count=np.array([4, 0, 2]),
                                  ring_indices=np.array([4, 0, 3]), ring_flush=np.array([1, 0, 0]))
        self.assertEqual(self.written(call).outputs["ring_d"].shape, (5, HV, 8, V))
        self.path.unlink()
        self.assertIn("outputs ring_k: expected [5,2,8,5], actual [5,6,8,5]",
                      self.refusal(call.having(ring_k=fill(5, HV, 8, K))))
        self.assertIn("inputs ring_flush: expected int32 or int64",
                      self.refusal(call.having(ring_flush=np.ones(3, np.float32))))
        self.assertIn("inputs ring_count: is missing", self.refusal(call.having(ring_count=None)))

    def test_checkpoints(self):
        asked = gc.checkpoints_every([0, 3, 3, 8], 2, "before")
        call = Call("prefill").having(**asked, checkpoints=fill(5, HV, V, K))
        read = self.written(call)
        self.assertEqual(read.inputs["checkpoint_offsets"].tolist(), [0, 2, 0, 2, 4])
        self.assertEqual(read.inputs["cu_checkpoints"].tolist(), [0, 2, 2, 5])
        self.assertEqual(read.outputs["checkpoints"].shape, (5, HV, V, K))
        self.path.unlink()
        self.assertIn("outputs checkpoints: expected [5,6,7,5], actual [4,6,7,5]",
                      self.refusal(call.having(checkpoints=fill(4, HV, V, K))))
        self.assertIn("inputs cu_checkpoints: is missing",
                      self.refusal(call.having(cu_checkpoints=None)))
        self.assertIn("inputs checkpoint_offsets: is missing",
                      self.refusal(call.having(checkpoint_offsets=None)))
        self.assertIn("expected int32 or int64", self.refusal(
            Call("prefill").having(**{**asked, "checkpoint_offsets": fill(5)},
                                   checkpoints=fill(5, HV, V, K))))

    def test_forms_of_checkpoints(self):
        def offsets(*arguments, **more):
            made = gc.checkpoints_every(*arguments, **more)
            bounds = made["cu_checkpoints"]
            return [made["checkpoint_offsets"][a:b].tolist() for a, b in zip(bounds, bounds[1:])]

        lengths = np.cumsum([0, 130, 64, 0, 63])
        self.assertEqual(offsets(lengths, 64, "after"), [[64, 128], [64], [], []])
        self.assertEqual(offsets(lengths, 64, "before"), [[0, 64, 128], [0], [], [0]])
        self.assertEqual(offsets(lengths, 64, "after", earlier_tokens=[10, 128, 5, 1]),
                         [[54, 118], [64], [], [63]])
        self.assertEqual(offsets(lengths, 64, "before", earlier_tokens=[10, 128, 5, 1]),
                         [[54, 118], [0], [], []])
        listed = gc.checkpoints_at([[64, 128], [], [0]])
        self.assertEqual(listed["checkpoint_offsets"].tolist(), [64, 128, 0])
        self.assertEqual(listed["cu_checkpoints"].tolist(), [0, 2, 2, 3])
        for wrong in ((lengths, 0, "after"), (lengths, 64, "during"), ([[0, 1]], 64, "after")):
            with self.assertRaises(ValueError):
                gc.checkpoints_every(*wrong)
        with self.assertRaises(ValueError):
            gc.checkpoints_every(lengths, 64, "after", earlier_tokens=[1])

    def test_absent_values(self):
        read = self.written(Call("decode").under(scale=None).having(state_indices=None))
        self.assertNotIn("scale", read.convention)
        call = Call("decode")
        call.inputs["state_indices"] = call.outputs["final_state"] = None
        self.assertEqual(list(self.written(call).outputs), ["o"])
        call.write(self.path, convention=None)

    def test_paths(self):
        for path in (str(self.path), os.fsencode(self.path), self.path):
            Call("decode").write(path)
            self.assertEqual([p.name for p in self.directory.iterdir()], ["capture.h5"])
            self.path.unlink()
        with self.assertRaises(TypeError):
            Call("decode").write(7)

    def test_unused_inputs_are_named_in_a_warning(self):
        g, beta = fill(B, 1, HV), fill(B, 1, HV)
        for call, texts in (
                (Call("decode").under(gate="log").having(g=g),
                 ["inputs a, A_log, dt_bias: not used, since gate is 'log', which reads g"]),
                (Call("decode").under(gate="none").having(g=g, a=None, A_log=None, dt_bias=None),
                 ["inputs g: not used, since gate is 'none', which reads none"]),
                (Call("decode").having(beta=beta),
                 ["inputs beta: not used, since beta is 'sigmoid', which reads b"]),
                (Call("decode").having(g=fill(3), beta=beta).under(beta="direct"),
                 ["inputs g: not used, since gate is 'softplus', which reads a, A_log, dt_bias",
                  "inputs b: not used, since beta is 'direct', which reads beta"])):
            with self.subTest(texts[0]), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call.write(self.path)
                self.assertEqual([str(w.message) for w in caught], texts)
                self.assertTrue(all(w.category is UserWarning for w in caught))
                self.assertTrue(all(w.filename == __file__ for w in caught))


def grouped_queries(queries, states):
    return Call("mtp").having(q=fill(B, T, queries, K), k=fill(B, T, states, K),
                              v=fill(B, T, states, V))


def as_decode(call):
    call.arguments["mode"] = "decode"
    return call


def equal_heads(mode):
    tokens = {"decode": (B, 1), "prefill": (1, 8)}[mode]
    return Call(mode).having(q=fill(*tokens, HV, K), k=fill(*tokens, HV, K), v=fill(*tokens, HV, V),
                             o=fill(*tokens, HV, V))


TRANSPOSE = ("; this is [B,H,T,K]: transpose axes 1 and 2 of q, k, v, o and what else has tokens")
# What the program refuses in the same words: "inputs k:" here is "/inputs/k:" there.
REFUSED_BY_BOTH = (
    (Call("mtp").having(k=fill(3, 4, 2, 6)), "inputs k: expected [3,4,2,5], actual [3,4,2,6]"),
    (Call("mtp").having(q=fill(3, 4, 10)), "inputs q: expected rank 4, actual rank 3 [3,4,10]"),
    (Call("mtp").having(v=fill(3, 5, 6, 7)), "inputs v: expected [3,4,6,7], actual [3,5,6,7]"),
    (Call("mtp").having(a=fill(3, 4, 6, 5)), "inputs a: expected [3,4,6], actual [3,4,6,5]"),
    (Call("mtp", "kda").having(a=fill(3, 4, 6)), "inputs a: expected [3,4,6,5], actual [3,4,6]"),
    (Call("mtp").having(A_log=fill(2)), "inputs A_log: expected [6], actual [2]; is gate_head qk?"),
    (Call("mtp").under(gate_head="qk"), "inputs A_log: expected [2], actual [6]; is gate_head v?"),
    (Call("mtp", "kda").having(dt_bias=fill(6)), "inputs dt_bias: expected [6,5], actual [6]"),
    (Call("mtp").having(b=fill(3, 4, 2)), "inputs b: expected [3,4,6], actual [3,4,2]"),
    (Call("mtp").having(initial_state=fill(9, 2, 7, 5)),
     "inputs initial_state: expected [9,6,7,5], actual [9,2,7,5]"),
    (Call("mtp").under(state_layout="kv"),
     "inputs initial_state: expected [9,6,5,7], actual [9,6,7,5]; is state_layout vk?"),
    (Call("prefill").having(initial_state=fill(4, 6, 7, 5)),
     "inputs initial_state: expected [3,6,7,5], actual [4,6,7,5]"),
    (Call("mtp").having(state_indices=np.arange(2)),
     "inputs state_indices: expected [3], actual [2]"),
    (Call("mtp").having(accepted_tokens=np.zeros((1, 3), int)),
     "inputs accepted_tokens: expected [3], actual [1,3]"),
    (Call("mtp").having(ssm_state_indices=np.arange(3), num_accepted_tokens=np.ones(3, int)),
     "inputs ssm_state_indices: expected [3,4], actual [3]"),
    (Call("mtp").having(v=fill(3, 4, 5, 7)),
     "inputs v: expected HV a multiple of H=2, actual HV=5"),
    (grouped_queries(8, 2),
     "inputs v: expected HV a multiple of H=8, actual HV=2; 8 query heads share 2 states: repeat "
     "k, v, the gate, beta and the states to 8 heads"),
    (grouped_queries(4, 1),
     "inputs v: expected HV a multiple of H=4, actual HV=1; 4 query heads share 1 state: repeat k, "
     "v, the gate, beta and the states to 4 heads"),
    (as_decode(Call("mtp")), "inputs q: expected T=1 in decode, actual T=4; mtp is for few "
                             "tokens, prefill a prompt"),
    (Call("mtp").having(q=fill(3, 4, 2, 0)),
     "inputs q, v: expected H, HV, K, V >= 1, actual [2,6,0,7]"),
    (head_first(Call("mtp")), "inputs q: expected [B,T,H,K], actual [3,2,4,5]" + TRANSPOSE),
    (head_first(Call("decode")), "inputs q: expected [B,T,H,K], actual [3,2,1,5]" + TRANSPOSE),
    (head_first(equal_heads("decode")),
     "inputs q: expected [B,T,H,K], actual [3,6,1,5]" + TRANSPOSE),
    (Call("prefill").having(cu_seqlens=np.array([3, 0, 5]), initial_state=fill(3, 6, 7, 5)),
     "inputs cu_seqlens: expected where the sequences begin and end, [0,3,3,8], actual their "
     "lengths, [3,0,5]"),
    (Call("prefill").having(cu_seqlens=np.ones(8, np.int32)),
     "inputs cu_seqlens: expected where the sequences begin and end, [0,1,2,3,4,5,..], actual "
     "their lengths, [1,1,1,1,1,1,..]"),
    (Call("prefill").having(cu_seqlens=np.zeros((2, 2), int)),
     "inputs cu_seqlens: expected rank 1, actual rank 2 [2,2]"),
    (Call("prefill").having(cu_seqlens=np.zeros(0, int)),
     "inputs cu_seqlens: expected [N+1] with N >= 0, actual [0]"),
    (Call("mtp").having(o=fill(3, 4, 6, 5)), "outputs o: expected [3,4,6,7], actual [3,4,6,5]"),
    (Call("mtp").having(final_state=fill(3, 6, 7, 5)),
     "outputs final_state: expected [9,6,7,5], actual [3,6,7,5]"),
    (Call("mtp").having(intermediate_states=fill(3, 5, 6, 7, 5)),
     "outputs intermediate_states: expected [3,4,6,7,5], actual [3,5,6,7,5]"),
)


class RefusedTest(ShapesTest):
    def test_shapes(self):
        for call, text in REFUSED_BY_BOTH:
            with self.subTest(text):
                self.assertEqual(self.refusal(call), text)

    @unittest.skipUnless(TOOL, "GOLDENRULE_TOOL does not name the goldenrule executable")
    def test_the_program_says_the_same(self):
        fit = gc._Call.fit
        gc._Call.fit = lambda call: None
        try:
            for number, (call, _) in enumerate(REFUSED_BY_BOTH):
                call.write(self.directory / f"{number}.h5")
        finally:
            gc._Call.fit = fit
        for number, (_, text) in enumerate(REFUSED_BY_BOTH):
            path = self.directory / f"{number}.h5"
            done = subprocess.run([TOOL, "check", str(path)], capture_output=True, text=True)
            with self.subTest(text):
                self.assertEqual(done.returncode, 2, done.stdout)
                names, _, rest = text.partition(":")
                group, _, names = names.partition(" ")
                where = ", ".join(f"/{group}/{name}" for name in names.split(", "))
                self.assertIn(f" {path}: {where}:{rest}\n", done.stdout)

    def test_head_first_prefill(self):
        told = ("inputs q: expected [B,T,H,K], actual [{}]" + TRANSPOSE).format
        self.assertEqual(self.refusal(head_first(bthk())), told("2,2,5,5"))
        self.assertEqual(self.refusal(head_first(equal_heads("prefill").having(cu_seqlens=None))),
                         told("1,6,8,5"))
        # What tells is A_log alone, or the heads of q and v themselves.
        call = head_first(equal_heads("prefill").having(cu_seqlens=None, final_state=None))
        self.assertEqual(self.refusal(call), told("1,6,8,5"))
        call = bthk().under(gate="log").having(A_log=None, final_state=None, g=fill(2, 5, HV))
        self.assertEqual(self.refusal(head_first(call)), told("2,2,5,5"))
        # As many tokens as heads of either kind, in the right order: nothing is refused.
        call = bthk(tokens=HV).having(q=fill(2, HV, HV, K), k=fill(2, HV, HV, K))
        self.assert_same(self.written(call), q=fill(2 * HV, HV, K))

    def test_prefill(self):
        for call, text in (
                (bthk().having(cu_seqlens=np.array([0, 3, 10])),
                 "inputs cu_seqlens: expected [0,5,10] or none, since q is [B,T,H,K] = [2,5,2,5], "
                 "actual [0,3,10]"),
                (bthk().having(cu_seqlens=np.array([5, 5])),
                 "inputs cu_seqlens: expected where the sequences begin and end, [0,5,10], actual "
                 "their lengths, [5,5]"),
                (Call("prefill").having(cu_seqlens=None),
                 "inputs cu_seqlens: is missing; one sequence is [0,8]"),
                (Call("prefill").having(cu_seqlens=np.array([0, 5, 4, 8])),
                 "inputs cu_seqlens: expected where the sequences begin and end, 0 to 8, never "
                 "falling, actual [0,5,4,8]"),
                (Call("prefill").having(cu_seqlens=np.array([0., 8.])),
                 "inputs cu_seqlens: expected int32 or int64, actual float64"),
                (bthk().having(k=fill(2, 6, H, K)),
                 "inputs k: expected [10,2,5], actual [2,6,2,5]"),
                (bthk().having(o=fill(2, 5, HV, K)),
                 "outputs o: expected [10,6,7], actual [10,6,5]"),
        ):
            with self.subTest(text):
                self.assertEqual(self.refusal(call), text)

    def test_missing_inputs(self):
        for call, text in (
                (Call("decode").having(a=None, g=fill(B, 1, HV)),
                 "inputs a: is missing, a tensor [3,1,6] (gate 'softplus', beta 'sigmoid'); g is "
                 "here: is the gate log, log2 or linear?"),
                (Call("decode").under(gate="log"),
                 "inputs g: is missing, a tensor [3,1,6] (gate 'log', beta 'sigmoid'); a is here: "
                 "is the gate softplus or bounded?"),
                (Call("decode").having(b=None, beta=fill(B, 1, HV)),
                 "inputs b: is missing, a tensor [3,1,6] (gate 'softplus', beta 'sigmoid'); beta "
                 "is here: is beta direct?"),
                (Call("decode").under(beta="direct"),
                 "inputs beta: is missing, a tensor [3,1,6] (gate 'softplus', beta 'direct'); b is "
                 "here: is beta sigmoid or sigmoid2?"),
                (Call("decode").having(A_log=None),
                 "inputs A_log: is missing, a tensor [6] (gate 'softplus', beta 'sigmoid')"),
                (Call("decode").having(initial_state=None, final_state=None,
                                       state_indices=np.arange(3)),
                 "inputs initial_state: is missing, and state_indices names slots of it"),
                (Call("decode").having(initial_state=None, final_state=fill(B, HV, K, V)),
                 "outputs final_state: expected [3,6,7,5], actual [3,6,5,7]; is state_layout kv?"),
                (Call("mtp").having(num_accepted_tokens=np.ones(3, int)),
                 "inputs ssm_state_indices: is missing; ssm_state_indices and num_accepted_tokens "
                 "come together"),
                (Call("mtp").having(num_accepted_tokens=np.ones(3, int), state_indices=np.arange(3),
                                    ssm_state_indices=np.arange(12).reshape(3, 4) % 3),
                 "inputs num_accepted_tokens: not beside ssm_state_indices and state_indices, "
                 "which already name every slot"),
                (Call("decode").having(o=None, final_state=None),
                 "outputs: expected at least one of o, final_state, actual none"),
        ):
            with self.subTest(text):
                self.assertEqual(self.refusal(call), text)
        self.written(Call("decode").under(gate="bounded").having(A_log=None, dt_bias=None))

    def test_values(self):
        for more, text in (
                (dict(convention=dict(pad_slot=2 ** 63)),
                 "convention pad_slot: expected within +-(2^31-1), actual 9223372036854775808"),
                (dict(convention=["log"]),
                 "convention: expected {attribute: value}, actual ['log']"),
                (dict(contract="recurrent_fp32"),
                 f"contract: expected one of {', '.join(gc.CONTRACTS)}, actual 'recurrent_fp32'"),
        ):
            with self.subTest(text):
                self.assertEqual(self.refusal(Call("decode"), **more), text)
        for convention, text in (
                (dict(l2_eps=-1e-6), "convention l2_eps: expected at least 0, actual -1e-06"),
                (dict(softplus_beta=0), "convention softplus_beta: expected above 0, actual 0"),
                (dict(lower_bound=0.0), "convention lower_bound: expected below 0, actual 0.0")):
            with self.subTest(text), self.assertWarnsRegex(UserWarning, text):
                gc.check_convention(convention)
        for group in ("inputs", "outputs"):
            call = Call("decode")
            setattr(call, group, None)
            self.assertEqual(self.refusal(call),
                             f"{group}: expected {{name: tensor}}, actual NoneType")

    def test_types(self):
        class Unconvertible:
            dtype = "float4"

            def __array__(self, *_, **__):
                raise TypeError("no such type\nand more")

        masked = np.ma.masked_array(fill(B, 1, H, K), mask=False)
        for call, text in (
                (Call("decode").having(q=masked),
                 "inputs q: expected every value, actual a masked array"),
                (Call("decode").having(k=Unconvertible()),
                 f"inputs k: expected {gc._TYPES}, actual float4 (no such type)"),
                (Call("decode").having(v=fill(B, 1, HV, V).astype(int)),
                 "inputs v: expected a floating-point tensor, actual int64"),
                (Call("decode").having(state_indices=fill(B)),
                 "inputs state_indices: expected int32 or int64, actual float32"),
        ):
            with self.subTest(text):
                self.assertEqual(self.refusal(call), text)
        call = Call("decode").having(v=[[1.0], [1.0, 2.0]])
        self.assertRegex(self.refusal(call), "^inputs v: expected .*, actual list ")

    def test_an_output_in_the_memory_of_an_input(self):
        text = ("outputs {}: lies in the memory of inputs {}, which the kernel has overwritten; "
                "clone it before the call").format
        call = Call("decode")
        call.having(final_state=call.inputs["initial_state"])
        self.assertEqual(self.refusal(call), text("final_state", "initial_state"))
        pool = fill(2 * P, HV, V, K)
        call.having(initial_state=pool[:P], final_state=pool[P - 1:-1])
        self.assertEqual(self.refusal(call), text("final_state", "initial_state"))
        call.having(o=call.inputs["v"][:], initial_state=pool[:P], final_state=pool[P:])
        self.assertEqual(self.refusal(call), text("o", "v"))
        # Neighbours in one buffer, interleaved or not, share no element.
        both = np.stack([fill(P, HV, V, K), fill(P, HV, V, K)], axis=1)
        self.written(call.having(o=fill(B, 1, HV, V), initial_state=both[:, 0],
                                 final_state=both[:, 1]))


class TorchTest(ShapesTest):
    def setUp(self):
        super().setUp()
        try:
            with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                import torch
        except ImportError:
            self.skipTest("torch is not installed")
        self.torch = torch

    def test_an_unsupported_type_names_its_tensor(self):
        torch = self.torch
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.uint8,
                      torch.bool):
            call = Call("decode").having(k=torch.tensor(fill(B, 1, H, K)).to(dtype))
            self.assertRegex(self.refusal(call),
                             f"^inputs k: expected {gc._TYPES}, actual .*{str(dtype)[6:]}")
        call = Call("decode").having(k=torch.zeros(B, 1, H, K).to_sparse())
        self.assertRegex(self.refusal(call), "^inputs k: expected ")
        call = Call("decode").having(k=torch.zeros(B, 1, H, K, device="meta"))
        self.assertRegex(self.refusal(call), "^inputs k: expected ")

    def test_shared_memory(self):
        torch = self.torch
        state = torch.tensor(fill(P, HV, V, K))
        call = Call("decode").having(initial_state=state, final_state=state.detach())
        self.assertRegex(self.refusal(call), "final_state: lies in the memory of .* initial_state")
        call.having(initial_state=state.numpy())
        self.assertRegex(self.refusal(call), "final_state: lies in the memory of .* initial_state")
        both = torch.stack([state, state], dim=1)
        call.having(initial_state=both[:, 0], final_state=both[:, 0].view(P, HV, V, K))
        self.assertRegex(self.refusal(call), "final_state: lies in the memory of .* initial_state")
        self.written(call.having(final_state=both[:, 1]))
        self.written(call.having(final_state=both[:, 0].clone()))

    def test_packing_of_bf16(self):
        torch = self.torch
        call = bthk()
        q = torch.tensor(call.inputs["q"]).to(torch.bfloat16)
        call.having(q=q.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_())
        read = self.written(call)
        self.assertEqual(read.bf16, ("inputs/q",))
        self.assert_same(read, q=fill(10, H, K))


@unittest.skipUnless(TOOL, "GOLDENRULE_TOOL does not name the goldenrule executable")
class ProgramTest(ShapesTest):
    """The two tables are one: what the program generates can be written, and is judged again."""

    LINES = (
        "op=gdn mode=decode B=3 H=2 HV=4 K=16 V=8 slots=padded",
        "op=gdn mode=decode B=2 H=1 HV=2 K=16 V=8 beta=sigmoid2 state_layout=kv slots=permuted",
        "op=kda mode=decode B=2 H=2 HV=4 K=16 V=8 gate=bounded gate_head=qk",
        "op=kda mode=mtp B=2 T=3 H=1 HV=2 K=16 V=8 gate=log2",
        "op=gdn mode=mtp B=2 T=3 H=1 HV=2 K=16 V=8 slots=scatter",
        "op=gdn mode=mtp B=3 T=3 H=1 HV=2 K=16 V=8 slots=scatter_from",
        "op=gdn mode=mtp lens=3,0,5 H=1 HV=2 K=16 V=8 slots=scatter_padded tree=mixed",
        "op=kda mode=mtp lens=3,0,5 H=1 HV=2 K=16 V=8 slots=padded kept=buffer track=mixed",
        "op=gdn mode=prefill lens=5,0,7 H=1 HV=2 K=16 V=8 gate=log h0=1",
        "op=gdn mode=prefill lens=5 H=1 HV=2 K=16 V=8 gate=none beta=direct h0=0",
        "op=kda mode=prefill lens=5,9 H=1 HV=2 K=16 V=8 gate=linear h0=0",
    )

    def program(self, *arguments):
        return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True)

    def test_generated_inputs_are_taken(self):
        warnings.simplefilter("default")
        for line in self.LINES:
            folder = pathlib.Path(tempfile.mkdtemp(dir=self.directory))
            done = self.program("generate", line, "-o", folder)
            with self.subTest(line):
                self.assertEqual(done.returncode, 0, done.stderr)
                (path,) = folder.iterdir()
                fixture = gc.read_fixture(path)
                outputs = {name: values for name, (values, _) in fixture.golden.items()}
                capture = folder / "capture.h5"
                gc.write_capture(capture, op=fixture.op, mode=fixture.mode, inputs=fixture.inputs,
                                 outputs=outputs, convention=fixture.convention)
                read = gc.read_fixture(capture)
                self.assert_same(read, **fixture.inputs)
                done = self.program("check", "--contract", "ideal", capture)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_contracts(self):
        call = Call("decode")
        call.write(self.path)
        done = self.program("check", "--contract", "no_such", self.path)
        known = (done.stdout + done.stderr).partition("one of ")[2].partition(", actual")[0]
        self.assertTrue(known, done.stdout + done.stderr)
        self.assertEqual(set(known.split(", ")) - set(gc.CONTRACTS),
                         {*gc.ATTENTION_CONTRACTS, *gc.BACKWARD_CONTRACTS} - {"ideal"})


if __name__ == "__main__":
    unittest.main()
