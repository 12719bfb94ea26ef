# SPDX-License-Identifier: Apache-2.0
"""goldenrule.record(.., gradients=True) around a training step of a tiny qwen3_next: its backward passes are judged,
and its gradients are those of a step that nobody records, bit by bit. Needs the wheel, torch and transformers.

    python3 real_record_gradients.py [PROGRAM FOLDER]     # neither is read: run_real.py passes them
"""

import contextlib
import pathlib
import sys
import tempfile
import unittest

try:
    import torch
    from torch.utils.checkpoint import checkpoint
    from torch_calls import fla_kernel, generator, medium, stand_in
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen

    import goldenrule
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(77)

FUNCTION = qwen.torch_chunk_gated_delta_rule
RECORD = dict(gradients=True, explain=False)
PAIR = ["gated_delta_rule", "gated_delta_rule_backward"]


def model():
    """Two layers with the rule, whose gates decay slowly: dg is then larger than its rounding."""
    torch.manual_seed(0)
    made = Qwen3NextForCausalLM(Qwen3NextConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, num_experts=2,
        linear_key_head_dim=16, linear_value_head_dim=16, num_experts_per_tok=1, moe_intermediate_size=16,
        shared_expert_intermediate_size=16, layer_types=["linear_attention", "full_attention", "linear_attention"]))
    with torch.no_grad():
        for layer in made.model.layers:
            if hasattr(layer, "linear_attn"):
                layer.linear_attn.A_log.fill_(-3.0)
    return made


def training_step(made, kind=None):
    """Gradients of the parameters, and the loss."""
    made.zero_grad()
    tokens = torch.randint(64, (2, 70), generator=generator(1))
    context = contextlib.nullcontext() if kind is None else torch.autocast("cpu", kind)
    with context:
        loss = made(input_ids=tokens, labels=tokens).loss
    loss.backward()
    return {name: p.grad.clone() for name, p in made.named_parameters() if p.grad is not None} | {"loss": loss}


def arguments(T=70, kind=torch.float32, HV=4):
    made = generator(2)

    def normal(*shape):
        return torch.randn(shape, generator=made).to(kind).requires_grad_()

    return dict(query=normal(1, T, 2, 16), key=normal(1, T, 2, 16), value=normal(1, T, HV, 16),
                g=(-0.1 * torch.rand(1, T, HV, generator=made)).requires_grad_(),
                beta=torch.rand(1, T, HV, generator=made).to(kind).requires_grad_(), use_qk_l2norm_in_kernel=True)


class Recorded(unittest.TestCase):
    def same(self, plain, recorded):
        self.assertEqual(plain.keys(), recorded.keys())
        for name, value in plain.items():
            self.assertTrue(torch.equal(value, recorded[name]), name)

    def operations(self, calls):
        return [each.call.op for each in calls]

    def twice(self, run):
        """The gradients by the arguments with and without a recorder, and what it has seen."""
        found = []
        for recorded in (False, True):
            given = arguments()
            with goldenrule.record(FUNCTION, **RECORD) if recorded else contextlib.nullcontext([]) as calls:
                run(given)
            found.append({name: x.grad for name, x in given.items() if torch.is_tensor(x) and x.grad is not None})
        self.same(*found)
        return calls

    def test_a_training_step(self):
        made = model()
        plain = training_step(made)
        with tempfile.TemporaryDirectory() as folder:
            with goldenrule.record(FUNCTION, keep=folder, **RECORD) as calls:
                recorded = training_step(made)
            files = [goldenrule.read(path).op for path in sorted(pathlib.Path(folder).iterdir())]
        self.same(plain, recorded)
        self.assertEqual(sorted(self.operations(calls)), [PAIR[0]] * 2 + [PAIR[1]] * 2)
        self.assertEqual(sorted(files), sorted(self.operations(calls)))
        self.assertTrue(calls.passed, calls.reports)
        for each in calls[2:]:
            self.assertEqual(set(each.call.outputs), {"dq", "dk", "dv", "dg", "dbeta"})
            self.assertNotIn("dfinal_state", each.call.inputs)
            self.assertGreater(float(each.call.inputs["do"].abs().max()), 0)

    def test_checkpoints(self):
        for reentrant in (False, True):
            calls = self.twice(lambda given: checkpoint(
                lambda *tensors: qwen.torch_chunk_gated_delta_rule(*tensors, use_qk_l2norm_in_kernel=True)[0],
                *(given[name] for name in ("query", "key", "value", "g", "beta")),
                use_reentrant=reentrant).square().sum().backward())
            self.assertEqual(self.operations(calls).count(PAIR[1]), 1, reentrant)
            self.assertTrue(calls.passed, calls.reports)

    def test_gradients_that_are_expanded_or_of_one_output(self):
        def of_sum(given):
            qwen.torch_chunk_gated_delta_rule(**given)[0].sum().backward()

        def of_state(given):
            qwen.torch_chunk_gated_delta_rule(**given, output_final_state=True)[1].square().sum().backward()

        def of_both(given):
            o, state = qwen.torch_chunk_gated_delta_rule(**given, output_final_state=True)
            (o.square().sum() + state.sum()).backward()

        for run, wanted in ((of_sum, False), (of_both, True)):
            calls = self.twice(run)
            self.assertEqual(self.operations(calls), PAIR)
            self.assertTrue(calls.passed, calls.reports)
            self.assertEqual("dfinal_state" in calls[1].call.inputs, wanted)
        calls = self.twice(of_state)
        self.assertEqual(float(calls[1].call.inputs["do"].abs().max()), 0.0)
        self.assertNotIn("OUT_OF_BUDGET", {t.verdict for t in calls[1].report.tensors.values()})

    def test_without_gradients_there_is_no_backward_call(self):
        with torch.no_grad(), goldenrule.record(FUNCTION, **RECORD) as calls:
            qwen.torch_chunk_gated_delta_rule(**arguments())
        self.assertEqual(self.operations(calls), PAIR[:1])
        self.assertFalse(calls.passed)
        self.assertIn("no backward pass was seen in the block", str(calls))

    def test_a_part_of_the_gradients(self):
        given = arguments()
        with goldenrule.record(FUNCTION, **RECORD) as calls:
            o, _ = qwen.torch_chunk_gated_delta_rule(**given)
            torch.autograd.grad(o.square().sum(), [given["value"]])
        self.assertIn("dv", calls[1].call.outputs)
        self.assertTrue(calls.passed, calls.reports)

    def test_autocast(self):
        made = model()
        plain = training_step(made, torch.bfloat16)
        with goldenrule.record(FUNCTION, allow_unjudged=True, **RECORD) as calls:
            recorded = training_step(made, torch.bfloat16)
        self.same(plain, recorded)
        self.assertEqual(self.operations(calls).count(PAIR[1]), 2)

    def test_two_uses_of_a_tensor_and_two_passes(self):
        def run(given):
            o, _ = qwen.torch_chunk_gated_delta_rule(**given)
            loss = o.square().sum() + given["value"].sum() + (given["value"] * o).sum()
            loss.backward(retain_graph=True)
            loss.backward()

        calls = self.twice(run)
        self.assertEqual(self.operations(calls), [PAIR[0], PAIR[1], PAIR[1]])
        self.assertTrue(calls.passed, calls.reports)

    def test_a_wrong_gradient_is_refused(self):
        def detached(**given):
            given["key"] = given["key"] * 1
            o, _ = qwen.torch_chunk_gated_delta_rule(**given)
            return o

        given = arguments()
        given["key"].register_hook(lambda d: d * 2)  # not of the call, which is right
        with goldenrule.record(FUNCTION, **RECORD) as calls:
            detached(**given).square().sum().backward()
        self.assertTrue(calls.passed, calls.reports)
        for name in ("fla.ops.gated_delta_rule.chunk.chunk_gated_delta_rule",
                     "flash_qla.ops.gated_delta_rule.chunk.chunk_gated_delta_rule"):
            for change, wrong in ((lambda x: x, set()), (lambda x: x.detach(), {"dv"})):
                found = self.kernel(name, change)
                self.assertEqual({n for n, t in found.tensors.items() if t.verdict == "OUT_OF_BUDGET"}, wrong, found)

    def kernel(self, name, change):
        """The report of the backward pass of a function in the place of a kernel, which detaches v or not."""
        function = stand_in(name, lambda given: fla_kernel({**given, "v": change(given["v"])}))
        inputs, do, _ = medium(H=4)
        flags = dict(head_first=False) if name.startswith("flash_qla") else {}
        given = dict(q=inputs["q"], k=inputs["k"], v=inputs["v"], g=-inputs["a"].abs(), beta=inputs["b"].sigmoid())
        given = {name: x.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for name, x in given.items()}
        module = sys.modules[function.__module__]
        setattr(module, function.__name__, function)
        with goldenrule.record(function, contract="ideal", backward_contract="ideal", **RECORD) as calls:
            o, _ = getattr(module, function.__name__)(**given, **flags)
            (o * do).sum().backward()
        delattr(module, function.__name__)
        return calls[1].report

    def test_others_are_named(self):
        with self.assertRaisesRegex(ValueError, "gradients: expected a function of gated_delta_rule or kda"):
            with goldenrule.record(torch.nn.functional.scaled_dot_product_attention, gradients=True):
                pass
        with goldenrule.record(FUNCTION, allow_unjudged=True, **RECORD) as calls:
            given = arguments()
            given["key"] = given["query"]
            qwen.torch_chunk_gated_delta_rule(**given)[0].sum().backward()
        self.assertIn("q and k are one tensor", calls.unjudged[0].reason)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
