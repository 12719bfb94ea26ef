# SPDX-License-Identifier: Apache-2.0
"""What users of autograd stumble over, and what goldenrule.gradcheck makes of it. Needs the wheel and torch.

    python3 real_gradcheck_traps.py [PROGRAM FOLDER]     # neither is read: run_real.py passes them
"""

import dataclasses
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
    from torch_calls import IDEAL, checked, fla_kernel, generator, medium, rule_of, stand_in

    import goldenrule
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(77)


class Traps(unittest.TestCase):
    def test_no_final_state(self):
        inputs, do, dstate = medium()
        self.assertTrue(checked(rule_of({}), inputs, do))  # returned, and nobody uses it

        def without(**given):
            return rule_of({})(**given)[0]

        self.assertTrue(checked(without, inputs, do))
        with self.assertRaisesRegex(ValueError, "dfinal_state: expected None, since the function returned no"):
            checked(without, inputs, do, dstate)
        self.assertTrue(checked(rule_of({}), inputs, None, dstate, only=("dk", "dv", "db", "dinitial_state")))
        with self.assertRaisesRegex(ValueError, "actual None of both"):
            checked(rule_of({}), inputs, None)

    def test_a_state_that_autograd_does_not_follow(self):
        def detached(**given):
            o, state = rule_of({})(**given)
            return o, state.detach()

        found = checked(detached, *medium())
        self.assertFalse(found)
        self.assertIn("final_state: no gradient passes", str(found))

    def test_gradients_have_the_type_of_their_leaf(self):
        class Wide(torch.autograd.Function):
            """g as it is; its gradient in float32, which autograd casts to the type of the leaf."""

            @staticmethod
            def forward(ctx, g):
                return g.float()

            @staticmethod
            def backward(ctx, gradient):
                assert gradient.dtype == torch.float32
                return gradient

        inputs, do, dstate = medium()
        given = {**inputs, "g": -inputs["a"].abs().bfloat16()}
        given = {name: x for name, x in given.items() if name not in ("a", "A_log", "dt_bias")}
        convention = dict(gate="log")
        found = checked(lambda **all: rule_of(convention)(**{**all, "g": Wide.apply(all["g"])}), given, do, dstate,
                        convention=convention, only=("dq", "dk", "dv", "db", "dinitial_state"))
        self.assertTrue(found, found)
        self.assertEqual(found.backward_call.outputs["dg"].dtype, torch.bfloat16)

    def test_expanded_and_strided_gradients(self):
        inputs, do, dstate = medium()
        seen = []

        def function(**given):
            o, state = rule_of({})(**given)
            o.register_hook(lambda gradient: seen.append(gradient.stride()))
            return o, state

        self.assertTrue(checked(function, inputs, torch.ones(()).expand(do.shape), dstate))
        self.assertEqual(seen, [(0, 0, 0, 0)])  # as it was given
        strided = torch.stack((do, do), -1)[..., 0]
        self.assertTrue(checked(function, inputs, strided, dstate.transpose(0, 1).contiguous().transpose(0, 1)))

    def test_gradients_of_other_shapes_and_types(self):
        inputs, do, dstate = medium()
        with self.assertRaisesRegex(ValueError, r"do: expected that of o, float32 \[2, 5, 4, 6\] on cpu, actual f"):
            checked(rule_of({}), inputs, do[:1])
        with self.assertRaisesRegex(ValueError, "actual float64"):
            checked(rule_of({}), inputs, do, dstate.double())
        with self.assertRaisesRegex(TypeError, "do: expected a torch tensor"):
            checked(rule_of({}), inputs, do.numpy())
        with self.assertRaisesRegex(TypeError, "inputs k: expected a torch tensor"):
            checked(rule_of({}), {**inputs, "k": inputs["k"].numpy()}, do)

    def test_autocast_and_modes(self):
        inputs, do, dstate = medium()

        def function(**given):
            assert not torch.is_autocast_enabled("cpu")
            return rule_of({})(**given)

        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = checked(function, inputs, do, dstate)
        self.assertTrue(found, found)
        self.assertIn("autocast of cpu was on", str(found))
        for mode in (torch.no_grad(), torch.inference_mode()):
            with mode:
                self.assertTrue(checked(rule_of({}), inputs, do, dstate))

    def test_heads_that_the_user_repeats(self):
        inputs, do, dstate = medium()

        def repeating(**given):
            return rule_of({})(**{**given, **{name: given[name].repeat_interleave(2, 2) for name in "qk"}})

        found = checked(repeating, inputs, do, dstate, only=("dv", "da", "db", "dA_log", "ddt_bias",
                                                             "dinitial_state"))
        self.assertTrue(found, found)
        self.assertEqual(found.backward_call.outputs["dq"].shape, (2, 5, 2, 8))  # autograd sums the groups
        outside = {**inputs, **{name: inputs[name].repeat_interleave(2, 2) for name in "qk"}}
        found = checked(rule_of({}), outside, do, dstate)
        self.assertTrue(found, found)
        self.assertEqual(found.backward_call.outputs["dq"].shape, (2, 5, 4, 8))

    def test_one_token(self):
        inputs, do, dstate = medium(T=1)
        self.assertTrue(checked(rule_of({}), inputs, do, dstate))
        function = stand_in("fla.ops.kda.fused_recurrent.fused_recurrent_kda", fla_kernel)
        call = dict(q=inputs["q"].repeat_interleave(2, 2), k=inputs["k"].repeat_interleave(2, 2), v=inputs["v"],
                    g=-torch.rand(2, 1, 4, 8), beta=inputs["b"].sigmoid(), output_final_state=True,
                    use_qk_l2norm_in_kernel=True)
        self.assertTrue(goldenrule.gradcheck(function, call, do, dstate.transpose(-1, -2), **IDEAL,
                                             only=("dq", "dk", "dv", "dbeta")))  # dg is zero

    def test_no_backward_pass(self):
        class Kernel(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *tensors):
                return rule_of({})(**dict(zip(inputs, tensors)))

            @staticmethod
            def backward(ctx, *gradients):
                raise NotImplementedError("Backward pass is not implemented yet")

        inputs, do, _ = medium()
        with self.assertRaisesRegex(ValueError, "backward: expected .* Backward pass is not implemented yet"):
            checked(lambda **given: Kernel.apply(*given.values()), inputs, do)
        with self.assertRaisesRegex(ValueError, "o: expected an output that autograd follows"):
            checked(torch.no_grad()(rule_of({})), inputs, do)

    def test_a_gradient_that_is_not_there(self):
        inputs, do, dstate = medium()
        found = checked(lambda **given: rule_of({})(**{**given, "dt_bias": given["dt_bias"].detach()}), inputs, do,
                        dstate)
        self.assertEqual(found.unwritten, ("ddt_bias",))
        self.assertFalse(found)
        self.assertIn("unwritten: ddt_bias", str(found))
        found = checked(rule_of({}), inputs, do, dstate)
        self.assertFalse(dataclasses.replace(found, unwritten=("dq",)))  # whatever a budget grants to zeros
        # Without an o that reads them, gradients by q are zero, and None says so.
        found = checked(rule_of({}), inputs, None, dstate)
        self.assertEqual((found.unwritten, found.backward.verdict), ((), "MISTRUSTED"))
        call = (rule_of({}), inputs, None, dstate)
        options = dict(op="gated_delta_rule", convention={}, **IDEAL)
        goldenrule.assert_gradients(*call, allow_mistrusted=True, **options)
        with self.assertRaisesRegex(AssertionError, "every exact value that the rule computes is 0"):
            goldenrule.assert_gradients(*call, **options)

    def test_a_wrong_contract_is_refused_before_the_function_runs(self):
        def never(**given):
            raise AssertionError("the function runs")

        inputs, do, _ = medium()
        for options, words in (
                ({"contract": "adjoint_f32"}, "^contract: expected one for family 'delta'"),
                ({"backward_contract": "nope"}, "^backward_contract: expected one of ideal, .*, actual 'nope'"),
                ({"backward_contract": "chunk64_f32"}, "^backward_contract: expected one for family 'backward'")):
            with self.assertRaisesRegex(ValueError, words):
                goldenrule.gradcheck(never, inputs, do, op="gated_delta_rule", convention={}, **options)

    def test_leaves_are_fresh(self):
        inputs, do, dstate = medium(H=4)
        base = torch.randn(2, 5, 4, 16, generator=generator(4))
        inputs["q"], inputs["k"] = base[..., :8], base[..., :8]  # one memory, and rows that are not dense
        inputs["v"] = inputs["v"].requires_grad_() * 2  # no leaf
        inputs["b"] = inputs["b"].clone().requires_grad_()
        strides = []

        def function(**given):
            strides.append(given["q"].stride())
            self.assertNotEqual(given["q"].data_ptr(), given["k"].data_ptr())
            self.assertTrue(all(x.is_leaf and x.requires_grad for x in given.values()))
            return rule_of({})(**given)

        self.assertTrue(checked(function, inputs, do, dstate))
        self.assertIsNone(inputs["b"].grad)
        self.assertEqual(strides, [inputs["q"].stride()])

    def test_an_input_that_the_function_overwrites(self):
        def function(**given):
            result = rule_of({})(**given)
            given["initial_state"].data.zero_()  # as a kernel does that updates it in place
            return result

        found = checked(function, *medium())
        self.assertTrue(found, found)
        self.assertGreater(float(found.forward_call.inputs["initial_state"].abs().max()), 0)


class Package(unittest.TestCase):
    def test_import_needs_no_torch(self):
        code = ("import sys; sys.modules['torch'] = None; import goldenrule\ntry: goldenrule.gradcheck(None, {}, 0)\n"
                "except ImportError as e: print(e)")
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        self.assertRegex(said, "goldenrule.gradcheck: expected torch")

    def test_both_calls_are_observed_and_can_be_kept(self):
        from goldenrule._assertion import observers

        seen = []
        observers.append(lambda call, report: seen.append(call.op) or "")
        try:
            found = goldenrule.assert_gradients(rule_of({}), *medium(), op="gated_delta_rule", convention={}, **IDEAL)
        finally:
            observers.pop()
        self.assertEqual(seen, ["gated_delta_rule", "gated_delta_rule_backward"])
        with tempfile.TemporaryDirectory() as folder:
            for call in (found.forward_call, found.backward_call):
                call.save(f"{folder}/{call.op}.h5")
                self.assertTrue(goldenrule.read(f"{folder}/{call.op}.h5").judge(contract="ideal"))

    def test_types_and_results_of_other_kinds(self):
        for kind in (torch.bfloat16, torch.float16, torch.float64):
            inputs, do, dstate = medium(kind)
            inputs |= {name: inputs[name].to(torch.float32) for name in ("A_log", "dt_bias")}

            def function(**given):
                return dict(zip(("o", "final_state"), rule_of({})(**given)))

            found = checked(function, inputs, do, dstate)
            if kind != torch.float64:  # an fp64 function is no exact one
                self.assertTrue(found, found)
            for name, gradient in found.backward_call.outputs.items():
                self.assertEqual(gradient.dtype, inputs[name[1:]].dtype, name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
