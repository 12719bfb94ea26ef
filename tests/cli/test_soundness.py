# SPDX-License-Identifier: Apache-2.0
# Length: the recurrence in NumPy and the files that are made with it belong together.
"""A pass means that the kernel is right: files that try to be passed without being right.

Every file here is written by the test, its honest outputs by a plain recurrence in NumPy. Each case
comes with its honest twin where there is one, so that a program that refuses everything fails too.
"""

import json
import unittest

import h5py
import numpy as np

from support import CommandLineTest, main, run

DIRECT = {"gate": "log", "beta": "direct"}
LOGIT = {"beta": "direct"}  # gate softplus


def f32(x):
    return np.asarray(x, np.float32)


class Call:
    """A decode or MTP call with one q/k head, states [V,K], and what an exact kernel returns."""

    def __init__(self, seed=0, B=2, T=1, HV=2, K=8, V=4, **convention):
        self.random = np.random.default_rng(seed)
        self.mode = "decode" if T == 1 else "mtp"
        self.convention = {**DIRECT, **convention}
        self.attributes = {}
        self.inputs = {
            "q": self.normal(B, T, 1, K), "k": self.normal(B, T, 1, K),
            "v": self.normal(B, T, HV, V), "g": f32(-self.random.random((B, T, HV))),
            "beta": f32(self.random.random((B, T, HV))),
            "initial_state": self.normal(B, HV, V, K)}
        self.outputs = {}

    def normal(self, *shape, size=1.0):
        return f32(self.random.standard_normal(shape) * size)

    def logits(self, a, A_log, dt_bias=None, **convention):
        """The gate from a, A_log and dt_bias instead of g."""
        HV = self.inputs["v"].shape[2]
        self.convention = {**LOGIT, **convention}
        self.inputs["a"] = np.broadcast_to(f32(a), self.inputs.pop("g").shape).copy()
        self.inputs["A_log"] = np.broadcast_to(f32(A_log), (HV,)).copy()
        if dt_bias is not None:
            self.inputs["dt_bias"] = np.broadcast_to(f32(dt_bias), (HV,)).copy()
        return self

    def honest(self, alpha=None):
        """Outputs of the rule with these alphas, by default exp(g)."""
        i = {name: x.astype(np.float64) for name, x in self.inputs.items()}
        alpha = np.exp(i["g"]) if alpha is None else np.broadcast_to(alpha, i["beta"].shape)
        if self.convention.get("qk_l2norm") != "none":
            for name in "qk":
                i[name] /= np.sqrt((i[name] ** 2).sum(-1, keepdims=True) + 1e-6)
        S, o = i["initial_state"].copy(), np.zeros(i["v"].shape)
        scale = self.convention.get("scale", i["q"].shape[-1] ** -0.5)
        for b, t, j in np.ndindex(i["beta"].shape):
            S[b, j] *= alpha[b, t, j]
            d = i["beta"][b, t, j] * (i["v"][b, t, j] - S[b, j] @ i["k"][b, t, 0])
            S[b, j] += np.outer(d, i["k"][b, t, 0])
            o[b, t, j] = S[b, j] @ (i["q"][b, t, 0] * scale)
        self.outputs = {"o": f32(o), "final_state": f32(S)}
        return self

    def noise(self, size):
        self.honest(alpha=1.0) if not self.outputs else None
        self.outputs = {n: self.normal(*x.shape, size=size) for n, x in self.outputs.items()}
        return self

    def write(self, path):
        with h5py.File(path, "w") as file:
            file.attrs.update(schema="goldenrule/1", op="gated_delta_rule", mode=self.mode,
                              **self.attributes)
            file.create_group("convention").attrs.update(self.convention)
            for group in ("inputs", "outputs"):
                for name, x in getattr(self, group).items():
                    file[f"{group}/{name}"] = x
        return path


class SoundnessTest(CommandLineTest):
    def judge(self, call, *options):
        """(exit code, the JSON of the case) of `check --no-explain`."""
        path = call.write(self.folder / "capture.h5")
        report = self.folder / "report.json"
        result = run("check", "--no-explain", path, "--json", report, *options)
        self.assertIn(result.code, (0, 1, 2), result.err)
        case = json.loads(report.read_text())["cases"][0]
        case["code"] = result.code
        case["text"] = result.out
        return case

    def tensor(self, case, name):
        return next(t for t in case["tensors"] if t["name"] == name)

    def expect(self, call, verdict, *options):
        case = self.judge(call, *options)
        self.assertEqual(case["verdict"], verdict, case["text"])
        return case

    def passes(self, call, *options):
        case = self.judge(call, *options)
        self.assertEqual(case["code"], 0, case["text"])
        return case

    # Gates at the ends of their range.

    MASKS = {  # name -> (logits, alpha)
        "a = -inf": (dict(a=-np.inf, A_log=0), 1),
        "a = inf": (dict(a=np.inf, A_log=0), 0),
        "dt_bias = -inf": (dict(a=1, A_log=0, dt_bias=-np.inf), 1),
        "A_log = -inf": (dict(a=1, A_log=-np.inf), 1),
        "A_log = 1000, a = -2000": (dict(a=-2000, A_log=1000), 1),
        "A_log = 300": (dict(a=1, A_log=300), 0),
        "bounded, a = -inf": (dict(a=-np.inf, A_log=0, gate="bounded"), 1),
        "bounded, a = inf": (dict(a=np.inf, A_log=0, gate="bounded"), np.exp(-5)),
        "bounded, A_log = 300, a = -1": (dict(a=-1, A_log=300, gate="bounded"), 1),
        "bounded, A_log = 1000, a = 1": (dict(a=1, A_log=1000, gate="bounded"), np.exp(-5)),
        "bounded, A_log = 1000, a = 0": (dict(a=0, A_log=1000, gate="bounded"), np.exp(-2.5)),
    }

    def test_masked_gates(self):
        for name, (logits, alpha) in self.MASKS.items():
            for precision in ("auto", "double", "quad", "multi"):
                with self.subTest(name, precision=precision):
                    call = Call().logits(**logits).honest(alpha)
                    self.passes(call, "--precision", precision)
            with self.subTest(name + ", noise"):
                self.expect(Call().logits(**logits).noise(1e4), "OUT_OF_BUDGET")
            with self.subTest(name + ", NaN"):
                call = Call().logits(**logits).honest(alpha)
                call.outputs["o"][...] = np.nan
                self.expect(call, "OUT_OF_BUDGET")

    def test_masked_prefill(self):
        T = 16
        call = Call()
        normal = call.normal
        call.mode, call.convention = "prefill", {}
        call.inputs = {"q": normal(T, 1, 16), "k": normal(T, 1, 16), "v": normal(T, 2, 8),
                       "a": normal(T, 2), "A_log": f32(np.zeros(2)), "b": normal(T, 2),
                       "cu_seqlens": np.array([0, T])}
        call.inputs["a"][0] = -np.inf
        call.outputs = {"o": normal(T, 2, 8, size=1e4), "final_state": normal(1, 2, 8, 16, size=1e4)}
        self.expect(call, "OUT_OF_BUDGET")

    def test_huge_rows_are_normalised(self):
        for size in (1e200, 1e-200):
            with self.subTest(size):
                call = Call(l2_eps=0.0).honest()
                for name in "qk":  # powers of two times the same rows: the same call
                    call.inputs[name] = call.inputs[name].astype(np.float64) * 2.0 ** np.round(
                        np.log2(size))
                exact = Call(l2_eps=0.0)
                exact.inputs["q"], exact.inputs["k"] = (
                    f32(x / 2.0 ** np.round(np.log2(size)))
                    for x in (call.inputs["q"], call.inputs["k"]))
                call.outputs = exact.honest().outputs
                self.passes(call)

    # What the oracle cannot decide.

    def test_radius_never_decides(self):
        # Keys of length 40: errors grow by beta |k|^2 = 1600 a token, the exact state stays 1.
        call = Call(B=1, T=120, qk_l2norm="none", scale=1.0)
        for name in ("q", "k", "v", "g", "initial_state"):
            call.inputs[name][...] = 0
        call.inputs["q"][..., -1] = 1
        call.inputs["k"][..., 0] = 40
        call.inputs["beta"][...] = 1
        call.inputs["initial_state"][..., -1] = 1
        call.honest()
        call.outputs["o"][:, 20:] = call.normal(1, 100, 2, 4, size=1e6)
        for contract in ("ideal", "recurrent_f32"):
            case = self.judge(call, "--contract", contract)
            self.assertEqual(case["code"], 2, case["text"])
            self.assertIn(case["verdict"], ("MISTRUSTED", "ERROR"))
            self.assertIsNotNone(self.tensor(case, "o")["first_unjudged"])

    def test_overflow_of_finite_inputs_is_neither_pass_nor_failure(self):
        # The state is 1e400 on the way, beyond the bounds of every tier, and 1e200 at the end.
        call = Call(B=1, T=2, HV=1, K=1, V=1, gate="linear", qk_l2norm="none", scale=1.0)
        call.inputs = {"q": np.ones((1, 2, 1, 1)), "k": np.zeros((1, 2, 1, 1)),
                       "v": np.zeros((1, 2, 1, 1)), "g": np.array([1e200, 1e-200]).reshape(1, 2, 1),
                       "beta": np.zeros((1, 2, 1)), "initial_state": np.full((1, 1, 1, 1), 1e200)}
        call.outputs = {"final_state": np.full((1, 1, 1, 1), 1e200)}
        for value in (1e200, np.nan, 1.0):
            call.outputs["final_state"][...] = value
            case = self.expect(call, "ERROR", "--only", "final_state")
            self.assertEqual(case["precision_bits"], 168)
            self.assertIn("the oracle cannot bound them", case["text"])
            self.assertEqual(self.tensor(case, "final_state")["first_unjudged"]["slot"], 0)

    def test_nothing_finite_to_compare(self):
        call = Call()
        call.inputs["g"][...] = np.nan
        call.outputs = {"o": f32(np.full((2, 1, 2, 4), np.nan)),
                        "final_state": f32(np.full((2, 2, 4, 8), np.inf))}
        case = self.expect(call, "SKIPPED")
        self.assertIn("no expectation is finite", case["text"])
        call.outputs["o"][0, 0, 0, 0] = 1.0  # finite where nothing finite can be
        self.expect(call, "OUT_OF_BUDGET")

    # Where the budget is as large as the signal.

    def test_a_head_without_budget_does_not_hide_beside_a_large_one(self):
        def call():
            c = Call(K=16, V=8).logits([0, -28], [0, 30])
            c.inputs["v"][:, :, 0] *= 1e6
            c.inputs["initial_state"][:, 0] *= 1e6
            a, A_log = (c.inputs[n].astype(np.float64) for n in ("a", "A_log"))
            return c.honest(np.exp(-np.exp(A_log) * np.log1p(np.exp(a))))
        garbage = call()
        garbage.outputs["o"][:, :, 1] = garbage.normal(2, 1, 8, size=.05)
        garbage.outputs["final_state"][:, 1] = garbage.normal(2, 8, 16, size=.05)
        case = self.judge(garbage)
        self.assertEqual(case["code"], 2, case["text"])
        first = self.tensor(case, "final_state")["first_unjudged"]
        self.assertEqual(first["head"], 1)

    def test_a_written_slot_does_not_hide_among_untouched_ones(self):
        call = Call(B=1, HV=1, K=16, V=8).logits(-28, 30)
        pool = call.normal(64, 1, 8, 16)
        pool[5] = call.inputs["initial_state"][0]
        call.inputs["initial_state"], call.inputs["state_indices"] = pool, np.array([5])
        final = pool.copy()
        final[5] = call.normal(1, 8, 16, size=.05)
        call.outputs = {"final_state": final}
        case = self.judge(call, "--only", "final_state")
        self.assertEqual(case["code"], 2, case["text"])
        self.assertEqual(self.tensor(case, "final_state")["first_unjudged"]["slot"], 5)

    def test_untouched_slots_keep_their_bits_under_any_contract(self):
        call = Call(B=1, HV=1)
        pool = call.normal(3, 1, 4, 8)
        start = call.inputs["initial_state"][0]
        call.honest()
        pool[1] = start
        final = pool.copy()
        final[1] = call.outputs["final_state"][0]
        call.inputs["initial_state"], call.inputs["state_indices"] = pool, np.array([1])
        call.outputs["final_state"] = final
        for contract in ("recurrent_f32", "recurrent_bf16_state"):
            self.passes(call, "--contract", contract)
        call.outputs["final_state"] = final.copy()
        call.outputs["final_state"][2, 0, 0, 0] *= 1 + 2.0 ** -12  # less than half an ulp of bf16
        self.expect(call, "OUT_OF_BUDGET", "--contract", "recurrent_bf16_state")

    # What is not there, or says nothing.

    def test_absent_outputs_are_named(self):
        call = Call().honest()
        del call.outputs["o"]
        case = self.expect(call, "SKIPPED")
        self.assertEqual(case["absent"], ["o"])
        self.assertIn("not among the outputs: o", case["text"])
        self.passes(call, "--only", "final_state")

    def test_final_state_is_not_wanted_where_the_update_is_disabled(self):
        call = Call(T=2, disable_state_update=1).honest()
        del call.outputs["final_state"]
        self.passes(call)

    def test_a_skipped_tensor_is_not_covered(self):
        call = Call(T=4).honest()
        call.outputs["intermediate_states"] = call.normal(2, 4, 2, 4, 8, size=100)
        self.expect(call, "SKIPPED", "--contract", "chunk64_bf16")
        self.expect(call, "OUT_OF_BUDGET")

    def test_the_rule_is_applied_to_no_token(self):
        call = Call()
        call.inputs["state_indices"] = np.full(2, -1)
        call.outputs = {"o": f32(np.zeros((2, 1, 2, 4))),
                        "final_state": call.inputs["initial_state"]}
        case = self.expect(call, "SKIPPED")
        self.assertIn("the call applies the rule to no token", case["text"])
        call.outputs["o"][0, 0, 0, 0] = 1  # a padded row is 0
        self.expect(call, "OUT_OF_BUDGET")

    def test_zeros_say_nothing(self):
        call = Call()
        call.inputs = {name: np.zeros_like(x) for name, x in call.inputs.items()}
        call.outputs = {"o": f32(np.zeros((2, 1, 2, 4))), "final_state": f32(np.zeros((2, 2, 4, 8)))}
        self.expect(call, "MISTRUSTED")

    # Who chooses the judge.

    def noisy(self, call, size=1e-3):
        for name, x in call.outputs.items():
            x += call.normal(*x.shape, size=size * np.abs(x).mean())
        return call

    def test_the_file_does_not_loosen_its_judge(self):
        call = self.noisy(Call(B=4, K=32, V=16).honest())
        call.attributes["contract"] = "chunk16_bf16_state"
        case = self.expect(call, "OUT_OF_BUDGET")
        self.assertEqual(case["contract"], "recurrent_f32")
        self.assertIn("claims chunk16_bf16_state", case["text"])

    def test_the_file_may_tighten_it(self):
        call = Call(B=4, K=32, V=16).honest()
        call.attributes["contract"] = "ideal"
        self.assertEqual(self.passes(call)["contract"], "ideal")
        call.outputs["o"].view(np.uint32)[0, 0, 0, 0] += 1
        self.expect(call, "OUT_OF_BUDGET")

    def test_a_rounded_state_is_no_bf16_state(self):
        def rounded(x):
            return (x.view(np.uint32) + 0x8000 & 0xFFFF0000).view(np.float32)
        call = Call(B=4, K=32, V=16).honest()
        call.outputs["final_state"] = rounded(call.outputs["final_state"])
        self.expect(call, "OUT_OF_BUDGET")
        for start in (rounded, np.zeros_like):
            call = Call(B=4, K=32, V=16)
            call.inputs["initial_state"] = start(call.inputs["initial_state"])
            call.honest()
            call.outputs["final_state"] = rounded(call.outputs["final_state"])
            with self.subTest(start.__name__):
                # Zeros are numbers of every type and show nothing.
                self.expect(call, "EXACT" if start is rounded else "OUT_OF_BUDGET",
                            "--only", "final_state")


if __name__ == "__main__":
    main()
