# SPDX-License-Identifier: Apache-2.0
"""goldenrule.gradcheck on the torch functions of transformers: honest calls are not refused under the contract of
their rows, sabotaged ones are. Needs the wheel, torch and transformers.

    python3 real_gradcheck_transformers.py [PROGRAM FOLDER] [--calls N]     # run_real.py passes the first two
"""

import argparse
import statistics
import sys
import time
import unittest

try:
    import torch
    from torch_calls import generator
    from transformers.models.kimi_linear import modeling_kimi_linear as kimi
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen

    import goldenrule
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(77)

CALLS = 40
FUNCTIONS = tuple(
    function.__wrapped__ if "which ran" in goldenrule.row_of(function).release else function
    for function in (qwen.torch_chunk_gated_delta_rule, qwen.torch_recurrent_gated_delta_rule,
                     kimi.chunk_kimi_delta_attention, kimi.recurrent_kimi_delta_attention))
LONGEST = (200, 60, 130, 60)


def random_call(number):
    """(function, its arguments, do, dfinal_state): no decay to one that leaves nothing of a state."""
    made = generator(1000 + number)

    def one_of(*values):
        return values[int(torch.randint(len(values), (1,), generator=made))]

    def normal(*shape):
        return torch.randn(shape, generator=made)

    which = number % len(FUNCTIONS)
    kda, kind, other = which > 1, one_of(torch.float32, torch.bfloat16), one_of(torch.float32, torch.bfloat16)
    T = one_of(1, 2, 63, 64, 65, *range(1, LONGEST[which] + 1))
    T = min(T, LONGEST[which])
    B, H, K, V = one_of(1, 2), one_of(1, 2), one_of(8, 16, 32), one_of(4, 8, 16, 24)
    HV = H * (1 if kda else one_of(1, 2, 3, 4))
    g = -(torch.rand(B, T, HV, *([K] if kda else []), generator=made) + 0.5) * one_of(0, 1e-3, 0.1, 1, 5, 20)
    normed, state, asked = one_of(False, True), one_of(False, True), one_of(False, True)
    q, k = normal(B, T, H, K), normal(B, T, H, K)
    if not normed:
        q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    arguments = dict(query=q.to(kind), key=k.to(kind), value=normal(B, T, HV, V).to(kind), g=g.to(other),
                     beta=torch.rand(B, T, HV, generator=made).to(kind), output_final_state=asked,
                     use_qk_l2norm_in_kernel=normed, initial_state=normal(B, HV, K, V) if state else None)
    dstate = normal(B, HV, K, V) if asked and one_of(False, True) else None
    return FUNCTIONS[which], arguments, normal(B, T, HV, V).to(kind), dstate


class Honest(unittest.TestCase):
    def test_none_is_refused(self):
        began, ratios, uncertain = time.monotonic(), {}, 0
        for number in range(CALLS):
            function, *call = random_call(number)
            found = goldenrule.gradcheck(function, *call, explain=False)
            verdicts = {name: tensor.verdict for name, tensor in found.backward.tensors.items()}
            self.assertTrue(found.forward.passed or found.forward.verdict == "MISTRUSTED", f"{number}\n{found}")
            self.assertNotIn("OUT_OF_BUDGET", verdicts.values(), f"{number}\n{found}")
            self.assertEqual(found.unwritten, (), number)
            # Where a state is forgotten at once the gradient of a gate is as small as its rounding. Without
            # a token before it a gradient is zero, which says nothing.
            short = call[0]["query"].shape[1] == 1 or min(call[0]["query"].shape[-1], call[0]["value"].shape[-1]) == 1
            for name, verdict in verdicts.items():
                self.assertTrue(verdict != "MISTRUSTED" or name == "dg" or short, f"{number} {name}\n{found}")
            uncertain += verdicts["dg"] == "MISTRUSTED"
            for name, tensor in found.backward.tensors.items():
                if tensor.verdict == "WITHIN_BUDGET":
                    ratios.setdefault(name, []).append(tensor.max_ratio)
        print(f"{CALLS} honest calls in {time.monotonic() - began:.0f} s, dg MISTRUSTED in {uncertain}; largest "
              "error as a share of its budget, median and maximum over calls:")
        for name, of in sorted(ratios.items()):
            print(f"  {name:14} {statistics.median(of):.2f} {max(of):.2f}")


class Through(torch.autograd.Function):
    """x as it is; its gradient as `change` makes it."""

    @staticmethod
    def forward(ctx, x, change):
        ctx.change = change
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.change(gradient), None


def _without(index):
    def change(gradient):
        gradient = gradient.clone()
        gradient[index] = 0
        return gradient

    return change


def _exclusive(gradient):
    """The reverse sum of the gates without the token itself: later by one."""
    return torch.cat((gradient[:, 1:], torch.zeros_like(gradient[:, :1])), 1)


def _unprojected(arguments):
    """The norm of q outside, its length taken for a constant."""
    q = arguments["query"].float()
    return {**arguments, "query": q / q.detach().square().sum(-1, keepdim=True).add(1e-6).sqrt(),
            "key": torch.nn.functional.normalize(arguments["key"].float(), dim=-1), "use_qk_l2norm_in_kernel": False}


def _by(name, change):
    return lambda arguments: {**arguments, name: Through.apply(arguments[name], change)}


# What is done to the arguments of a right function, and the gradients that are wrong by it.
SABOTAGES = {
    "gate gradient misses the token itself": (_by("g", _exclusive), {"dg"}),
    "gate gradient of a neighbouring head": (_by("g", lambda d: d.roll(1, 2)), {"dg"}),
    "gate gradient with a factor ln 2 too many": (_by("g", lambda d: d * 0.6931), {"dg"}),
    "dbeta of a neighbouring head": (_by("beta", lambda d: d.roll(1, 2)), {"dbeta"}),
    "initial state detached": (lambda a: {**a, "initial_state": a["initial_state"].detach()}, {"dinitial_state"}),
    "initial state's gradient transposed": (_by("initial_state", lambda d: d.transpose(2, 3).contiguous()),
                                            {"dinitial_state"}),
    "dv of the last token dropped": (_by("value", _without((slice(None), -1))), {"dv"}),
    "dk of the last token dropped": (_by("key", _without((slice(None), -1))), {"dk"}),
    "scale missing in dq": (_by("query", lambda d: d * 4), {"dq"}),
    "norm of q taken for a constant": (_unprojected, {"dq"}),
    "dk in two terms of which one is doubled": (
        lambda a: {**a, "key": Through.apply(a["key"], lambda d: d + d.roll(1, 2))}, {"dk"}),
    "dv rounded to bf16": (_by("value", lambda d: d.bfloat16().float()), {"dv"}),
    "gate detached": (lambda a: {**a, "g": a["g"].detach()}, {"dg"}),
}


class Sabotaged(unittest.TestCase):
    def arguments(self):
        made = generator(5)

        def normal(*shape):
            return torch.randn(shape, generator=made)

        B, T, H, HV, K = 1, 70, 2, 4, 16
        return (dict(query=normal(B, T, H, K), key=normal(B, T, H, K), value=normal(B, T, HV, K),
                     g=-torch.rand(B, T, HV, generator=made) * 0.1, beta=torch.rand(B, T, HV, generator=made),
                     initial_state=normal(B, HV, K, K), output_final_state=True, use_qk_l2norm_in_kernel=True),
                normal(B, T, HV, K), normal(B, HV, K, K))

    def judged(self, change, **options):
        """The chunk function of qwen3_next with changed arguments, under its name."""
        row = goldenrule.row_of(qwen.torch_chunk_gated_delta_rule).replace(
            contract="chunk64_f32", backward_contract="adjoint_f32_repeated_heads")

        def torch_chunk_gated_delta_rule(query, key, value, g, beta, chunk_size=64, initial_state=None,
                                         output_final_state=False, use_qk_l2norm_in_kernel=False, **kwargs):
            given = dict(query=query, key=key, value=value, g=g, beta=beta, initial_state=initial_state,
                         output_final_state=output_final_state, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel)
            return FUNCTIONS[0](**change(given))

        return goldenrule.gradcheck(torch_chunk_gated_delta_rule, *self.arguments(), row=row, **options)

    def test_a_right_one(self):
        found = self.judged(dict)
        self.assertTrue(found, found)

    def test_each_is_refused(self):
        for name, (change, wrong) in SABOTAGES.items():
            found = self.judged(change)
            out = {tensor for tensor, report in found.backward.tensors.items() if report.verdict == "OUT_OF_BUDGET"}
            self.assertFalse(found, name)
            self.assertTrue(found.forward.passed, f"{name}\n{found}")
            self.assertEqual(out, wrong, f"{name}\n{found}")
            print(f"  {name}: {', '.join(sorted(out))}; named: {found.backward.explanation or 'nothing'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("ignored", nargs="*")
    parser.add_argument("--calls", type=int, default=CALLS)
    CALLS = parser.parse_args().calls
    unittest.main(argv=sys.argv[:1])
