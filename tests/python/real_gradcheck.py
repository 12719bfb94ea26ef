# SPDX-License-Identifier: Apache-2.0
"""goldenrule.gradcheck under the autograd of torch: the exact gradients are those of autograd, right functions
pass, wrong ones do not. Needs the wheel and torch.

    python3 real_gradcheck.py [PROGRAM FOLDER]     # neither is read: run_real.py passes them
"""

import importlib.util
import pathlib
import sys
import textwrap
import unittest

try:
    import torch
    import torch_rule as exact
    from torch_calls import IDEAL, checked, fla_kernel, generator, medium, rule_of, stand_in

    import goldenrule
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(77)


def kernel_of(convention):
    """rule_of with a final state in fp32, as kernels of 16-bit inputs return it."""
    def kernel(**inputs):
        o, state = rule_of(convention)(**inputs)
        return o, state.float()

    return kernel


class GoldenValues(unittest.TestCase):
    def test_exact_gradients_are_those_of_autograd(self):
        random, worst = generator(11), 0.0
        for i in range(40):
            op = ("gated_delta_rule", "kda")[i % 2]
            inputs, convention, do, dstate = exact.random_call(random, op == "kda")
            leaves = {name: x.clone().requires_grad_() for name, x in inputs.items() if name != "cu_seqlens"}
            o, state = exact.rule({**inputs, **leaves}, convention)
            loss = (o * do).sum() + (0 if dstate is None else (state * dstate).sum())
            found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
            call = {**inputs, "do": do, **({} if dstate is None else {"dfinal_state": dstate})}
            wanted = goldenrule.expected(op=f"{op}_backward", mode="prefill", inputs=call, convention=convention)
            for (name, leaf), actual in zip(leaves.items(), found):
                golden = torch.from_numpy(wanted[f"d{name}"].golden)
                actual = torch.zeros_like(leaf) if actual is None else actual
                if golden.numel():
                    far = float((golden - actual).abs().max() / golden.abs().max().clamp_min(1e-300))
                    worst = max(worst, far)
                    self.assertLess(far, 1e-9, (i, name, convention))
        print(f"exact gradients against autograd: {worst:.1e} of a tensor's largest")

    def test_a_right_function_passes(self):
        random, passed = generator(12), 0
        for i in range(40):
            op = ("gated_delta_rule", "kda")[i % 2]
            inputs, convention, do, dstate = exact.random_call(random, op == "kda")
            inputs = {name: x if name == "cu_seqlens" else x.float() for name, x in inputs.items()}
            found = checked(rule_of(convention), inputs, do.float(), None if dstate is None else dstate.float(),
                            op, convention)
            self.assertTrue(found.forward.passed, f"{i} {convention}\n{found}")
            verdicts = {tensor.verdict for tensor in found.backward.tensors.values()}
            # One token from a state of zeros has gradients that are zero: right, and they say nothing.
            self.assertLessEqual(verdicts, {"EXACT", "WITHIN_BUDGET", "MISTRUSTED"}, f"{i} {convention}\n{found}")
            passed += found.passed
        self.assertGreater(passed, 30)


class Functions(unittest.TestCase):
    def test_transformers(self):
        modeling = importlib.import_module("transformers.models.qwen3_next.modeling_qwen3_next")
        function = modeling.torch_chunk_gated_delta_rule
        if "which ran" in goldenrule.row_of(function).release:
            function = function.__wrapped__
        inputs, do, dstate = medium(T=70)
        rules = dict(query=inputs["q"].repeat_interleave(2, 2), key=inputs["k"].repeat_interleave(2, 2),
                     value=inputs["v"], g=-inputs["a"].abs(), beta=inputs["b"].sigmoid(),
                     initial_state=inputs["initial_state"].transpose(-1, -2), output_final_state=True,
                     use_qk_l2norm_in_kernel=True)
        found = goldenrule.gradcheck(function, rules, do, dstate.transpose(-1, -2), explain=False)
        self.assertTrue(found.forward.passed, found.forward)
        self.assertEqual(found.backward_call.convention["qk_l2norm"], "rsqrt_sum_eps")
        names = {"dq", "dk", "dv", "dg", "dbeta", "dinitial_state"}
        self.assertEqual(set(found.backward_call.outputs), names)
        wanted = found.backward_call.expected()
        for name in names:  # fp32, so that the contract ideal refuses it
            golden = wanted[name].golden
            actual = found.backward_call.outputs[name].numpy().reshape(golden.shape)
            self.assertLess(abs(actual - golden).max(), 1e-5 * abs(golden).max(), name)

    def test_fla(self):
        made = importlib.util.find_spec("fla")
        if made is None:
            self.skipTest("fla-core is not installed")
        path = f"{made.submodule_search_locations[0]}/ops/gated_delta_rule/naive.py"
        spec = importlib.util.spec_from_file_location("fla.ops.gated_delta_rule.naive", path)
        naive = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(naive)
        inputs, do, dstate = medium(H=4)
        rules = dict(q=inputs["q"], k=torch.nn.functional.normalize(inputs["k"], dim=-1), v=inputs["v"],
                     g=-inputs["a"].abs(), beta=inputs["b"].sigmoid(), output_final_state=True)
        found = goldenrule.gradcheck(naive.naive_recurrent_gated_delta_rule, rules, do,
                                     dstate.transpose(-1, -2), explain=False)
        self.assertTrue(found.forward.passed, found.forward)
        wanted = found.backward_call.expected()
        for name, actual in found.backward_call.outputs.items():
            golden = wanted[name].golden
            self.assertLess(abs(actual.numpy().reshape(golden.shape) - golden).max(), 1e-5 * abs(golden).max())

    def fla_call(self, kda, **flags):
        inputs, do, dstate = medium(H=4)
        g = inputs["a"][..., None].expand(*inputs["a"].shape, 8) * torch.linspace(0.5, 1.5, 8) if kda else inputs["a"]
        channels = 8 if kda else 1
        parameters = dict(A_log=inputs["A_log"],
                          dt_bias=torch.randn(4 * channels, generator=generator(1)))
        return dict(q=inputs["q"], k=inputs["k"], v=inputs["v"], beta=inputs["b"],
                    initial_state=inputs["initial_state"].transpose(-1, -2), g=g, output_final_state=True,
                    use_beta_sigmoid_in_kernel=True, use_qk_l2norm_in_kernel=True,
                    **(parameters if flags.get("use_gate_in_kernel") else {}),
                    **flags), do, dstate.transpose(-1, -2)

    def test_raw_gates_and_raw_keys(self):
        for kda, name in ((False, "fla.ops.gated_delta_rule.chunk.chunk_gated_delta_rule"),
                          (True, "fla.ops.kda.chunk.chunk_kda")):
            function = stand_in(name, fla_kernel)
            call = self.fla_call(kda, use_gate_in_kernel=True, **({"lower_bound": -2.0} if kda else {}))
            found = goldenrule.gradcheck(function, *call, **IDEAL)
            self.assertTrue(found, found)
            gradients = found.backward_call.outputs
            self.assertEqual(set(gradients), {"dq", "dk", "dv", "da", "db", "dA_log", "ddt_bias", "dinitial_state"})
            self.assertEqual(gradients["ddt_bias"].ndim, 1)
            self.assertEqual(found.backward_call.convention["gate"], "bounded" if kda else "softplus")

    def test_sequences_of_other_lengths(self):
        function = stand_in("fla.ops.kda.chunk.chunk_kda", fla_kernel)
        call, do, _ = self.fla_call(True, use_gate_in_kernel=True)
        for name in ("q", "k", "v", "g", "beta"):
            call[name] = call[name].reshape(1, -1, *call[name].shape[2:])
        call |= dict(cu_seqlens=torch.tensor([0, 0, 1, 10]), initial_state=torch.randn(3, 4, 8, 6))
        found = goldenrule.gradcheck(function, call, do.reshape(1, 10, 4, 6), torch.randn(3, 4, 8, 6), **IDEAL)
        self.assertTrue(found, found)

    def test_flash_qla(self):
        function = stand_in("flash_qla.ops.gated_delta_rule.chunk.chunk_gated_delta_rule", fla_kernel)
        (call, do, dstate) = self.fla_call(False, head_first=False)
        call["g"] = -call["g"].abs()
        call["beta"] = call["beta"].sigmoid()
        del call["use_beta_sigmoid_in_kernel"]
        found = goldenrule.gradcheck(function, call, do, dstate, **IDEAL)
        self.assertTrue(found, found)

    def test_the_page_runs(self):
        page = pathlib.Path(__file__).resolve().parents[2] / "tools" / "python" / "README.md"
        block, _, _ = page.read_text().partition("## Gradients\n")[2].strip("\n").partition("\n\n`gradcheck")
        scope = {}
        exec(textwrap.dedent(block), scope)
        self.assertTrue(scope["found"].forward.passed)

    def test_cases_of_a_suite_as_the_page_says(self):
        page = pathlib.Path(__file__).resolve().parents[2] / "tools" / "python" / "README.md"
        block, _, _ = page.read_text().partition("are arguments of both:\n")[2].strip("\n").partition("\n\n-")
        scope = {"goldenrule": goldenrule, "my_kda": kernel_of({})}
        exec(textwrap.dedent(block), scope)
        (mark,) = scope["test_gradients"].pytestmark
        cases = [each.values[0] for each in mark.args[1]]
        self.assertGreater(len(cases), 2)
        for case in cases:
            scope["test_gradients"](case)
        scope["my_kda"] = lambda **given: kernel_of({})(**{**given, "v": Scaled.apply(given["v"], 2)})
        for case in cases:
            with self.assertRaisesRegex(AssertionError, "backward OUT_OF_BUDGET"):
                scope["test_gradients"](case)

    def test_cases_of_all_conventions(self):
        for case in goldenrule.suite("backward_smoke"):
            call = case.gradients()
            found = goldenrule.gradcheck(kernel_of(call["convention"]), **call, explain=False)
            verdicts = {tensor.verdict for tensor in found.backward.tensors.values()}
            self.assertNotIn("OUT_OF_BUDGET", verdicts, f"{case}\n{found}")
        with self.assertRaisesRegex(ValueError, "gradients: expected a case of gated_delta_rule_backward or kda_b"):
            goldenrule.fixture("op=gdn mode=decode B=1 H=1 HV=1 K=16 V=16").gradients()

    def test_others_are_named(self):
        inputs, do, _ = medium()
        with self.assertRaisesRegex(ValueError, "op: expected that of delta_rule"):
            goldenrule.gradcheck(rule_of({}), inputs, do)
        with self.assertRaisesRegex(ValueError, "convention: expected that of the function"):
            goldenrule.gradcheck(rule_of({}), inputs, do, op="kda")
        with self.assertRaisesRegex(ValueError, "has no|have a backward operation"):
            goldenrule.gradcheck(torch.nn.functional.scaled_dot_product_attention, {}, do)
        with self.assertRaisesRegex(ValueError, "actual 'state_indices'"):
            checked(rule_of({}), {**inputs, "state_indices": torch.arange(2)}, do)


class Scaled(torch.autograd.Function):
    """x as it is; its gradient times a factor."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


class WrongGradients(unittest.TestCase):
    def judged(self, change, **options):
        inputs, do, dstate = medium()

        def wrong(**given):
            o, state = rule_of({})(**change(given))
            return o, Scaled.apply(state, options.get("of_state", 1))

        return checked(wrong, inputs, do, dstate)

    def wrong_tensors(self, found):
        self.assertFalse(found)
        self.assertTrue(found.forward.passed)
        return {name for name, tensor in found.backward.tensors.items() if tensor.verdict == "OUT_OF_BUDGET"}

    def test_a_right_one(self):
        self.assertTrue(self.judged(lambda given: given))

    def test_the_gradient_of_the_final_state_is_dropped(self):
        wrong = self.wrong_tensors(self.judged(lambda given: given, of_state=0))
        self.assertIn("dinitial_state", wrong)
        self.assertIn("dv", wrong)

    def test_db_is_doubled(self):
        found = self.judged(lambda given: {**given, "b": Scaled.apply(given["b"], 2)})
        self.assertEqual(self.wrong_tensors(found), {"db"})
        with self.assertRaisesRegex(AssertionError, "backward OUT_OF_BUDGET"):
            inputs, do, _ = medium()
            goldenrule.assert_gradients(
                lambda **given: rule_of({})(**{**given, "b": Scaled.apply(given["b"], 2)}), inputs, do,
                op="gated_delta_rule", convention={}, **IDEAL)

    def test_a_wrong_forward_pass(self):
        found = self.judged(lambda given: {**given, "v": given["v"] * 1.5})
        self.assertFalse(found.forward.passed)
        self.assertIn("look at the forward pass first", str(found))
        inputs, do, dstate = medium()

        def shifted(**given):
            o, state = rule_of({})(**given)
            return o + 1, state

        found = checked(shifted, inputs, do, dstate)
        self.assertEqual((found.passed, found.backward.passed), (False, True))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
