# SPDX-License-Identifier: Apache-2.0
"""What is said beside a verdict: a contract that fits better, what a capture cannot see, contracts
as JSON."""

import json
import unittest

import h5py
import numpy as np

from support import DECODE, MTP, CommandLineTest, main, put, run

F32_DECODE = "op=gdn mode=decode B=3 H=2 HV=4 K=32 V=16 io=f32"
F32_PREFILL = "op=gdn mode=prefill lens=70,5 H=1 HV=2 K=32 V=16 io=f32 gate=log h0=1"


def bf16(x):
    bits = np.atleast_1d(np.asarray(x, np.float32)).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)


class AnswersTest(CommandLineTest):
    def report(self, code, *arguments):
        path = self.folder / "report.json"
        result = self.assert_run(code, "check", *arguments, "--json", path)
        return json.loads(path.read_text())["cases"][0], result.out

    def with_rounded_beta(self):
        """A decode whose kernel rounds beta to bf16: the exact call with that beta."""
        fixture = self.copy_of_fixture(F32_DECODE + " beta=direct")
        with h5py.File(fixture, "r") as file:
            beta = file["inputs/beta"][()]
        path = self.capture(F32_DECODE + " beta=direct")
        with h5py.File(path, "r+") as file:
            i = {n: x[()].astype(np.float64) for n, x in file["inputs"].items()}
            for n in "qk":
                i[n] /= np.sqrt((i[n] ** 2).sum(-1, keepdims=True) + 1e-6)
            z = i["a"] + i["dt_bias"]
            alpha = np.exp(-np.exp(i["A_log"]) * np.logaddexp(0, z))
            S = i["initial_state"][:3]
            o = np.zeros(i["v"].shape)
            for b, j in np.ndindex(3, 4):
                k, q = i["k"][b, 0, j // 2], i["q"][b, 0, j // 2]
                S[b, j] *= alpha[b, 0, j]
                d = float(bf16(beta[b, 0, j])[0]) * (i["v"][b, 0, j] - S[b, j] @ k)
                S[b, j] += np.outer(d, k)
                o[b, 0, j] = S[b, j] @ q * 32 ** -0.5
            put(file, "outputs/o", o.astype(np.float32))
            final = file["outputs/final_state"][()]
            final[:3] = S
            put(file, "outputs/final_state", final)
        return path

    def test_the_contract_that_would_permit_it(self):
        case, text = self.report(1, self.with_rounded_beta())
        self.assertEqual((case["permit"]["contract"], case["permit"]["difference"]),
                         ("recurrent_f32_bf16_activations", "beta in bf16"))
        self.assertIn("a right kernel of another contract, recurrent_f32_bf16_activations, could return", text)
        self.assertIn("the difference: beta in bf16", text)

    def test_nothing_permits_a_wrong_kernel(self):
        def wrong(file):
            put(file, "outputs/o", file["outputs/o"][()][:, :, ::-1])
        case, text = self.report(1, self.capture(F32_DECODE, wrong), "--explain-seconds", 1)
        self.assertNotIn("permit", case)
        self.assertNotIn("could return this", text)

    def test_a_contract_that_is_far_too_wide(self):
        def noise(file):
            for name in ("o", "final_state"):
                x = file[f"outputs/{name}"][()]
                put(file, f"outputs/{name}", x * np.float32(1 + 2 ** -22))
        path = self.capture(F32_PREFILL, noise)
        case, text = self.report(0, path, "--contract", "chunk64_bf16")
        self.assertIn(case["permit"]["contract"], ("recurrent_f32", "chunk64_f32"))
        self.assertIn("contract chunk64_bf16 grants more than 100 times the error wherever there is one", text)
        case, _ = self.report(0, path)
        self.assertEqual(case["contract"], "chunk64_f32")
        self.assertNotIn("permit", case)

    def test_what_a_capture_cannot_see(self):
        line = "op=gdn mode=decode B=2 H=2 HV=2 K=16 V=8 io=f32"
        case, text = self.report(0, self.capture(line), "--blind")
        blind = case["blind"]
        # H = HV: both maps are the same. No logit is near a threshold; the keys are long.
        self.assertEqual(blind["conventions"]["head_map"], ["tiled"])
        self.assertEqual(blind["conventions"]["gate_head"], ["qk"])
        self.assertIn("0", blind["conventions"]["l2_eps"])
        self.assertNotIn("state_layout", blind["conventions"])
        self.assertNotIn("qk_l2norm = none", text)
        self.assertIn("head_map = tiled", text)
        self.assertNotIn("gate_log2", blind["mistakes"])
        self.assertNotIn("scale_missing", blind["mistakes"])
        self.assertLess(len(blind["mistakes"]), blind["mistakes_tried"] / 2)
        # Two value heads for each q/k head tell the maps apart, and 0.5 as eps would show.
        case, _ = self.report(0, self.capture(F32_DECODE), "--blind")
        self.assertNotIn("head_map", case["blind"]["conventions"])

    def test_only_conventions_that_the_call_reads_are_tried(self):
        line = "op=gdn mode=decode B=2 H=2 HV=2 K=16 V=8 io=f32"
        blind = {gate: self.report(0, self.capture(f"{line} gate={gate}"), "--blind")[0]["blind"]
                 for gate in ("softplus", "bounded", "log")}
        self.assertIn("softplus_threshold", blind["softplus"]["conventions"])
        self.assertNotIn("lower_bound", blind["softplus"]["conventions"])
        self.assertFalse({"softplus_beta", "softplus_threshold"} & blind["bounded"]["conventions"].keys())
        self.assertFalse({"softplus_beta", "softplus_threshold", "lower_bound", "gate_head"}
                         & blind["log"]["conventions"].keys())
        # softplus_beta 2 and the thresholds 1 and 5 in the one, lower_bound -1 and -10 in the other
        self.assertEqual(blind["softplus"]["values_tried"], blind["bounded"]["values_tried"] + 1)
        case, _ = self.report(0, self.capture(f"{line} qk_l2norm=none"), "--blind")
        self.assertNotIn("l2_eps", case["blind"]["conventions"])

    def test_what_only_the_absent_output_would_show(self):
        case, _ = self.report(0, self.capture(F32_DECODE), "--blind", "--only", "final_state")
        self.assertIn("scale_missing", case["blind"]["mistakes"])
        self.assertIn("output_zero", case["blind"]["mistakes"])

    def test_contracts_as_json(self):
        listed = self.assert_run(0, "contract").out.split("\n")
        names = [line.split()[0] for line in listed if line]
        self.assertIn("chunk64_f32", names)
        printed = {}
        for name in names:
            contract = printed[name] = json.loads(self.assert_run(0, "contract", name).out)
            self.assertEqual(contract["name"], name)
            self.assertEqual("unit_roundoff" in contract, name != "ideal")
        # A printed one with a name of its own judges as the built-in one does.
        mine = self.folder / "mine.json"
        mine.write_text(json.dumps(printed["chunk16_bf16_state"] | {"name": "mine"}))
        path = self.capture(F32_PREFILL)
        theirs, _ = self.report(0, path, "--contract", "chunk16_bf16_state")
        own, _ = self.report(0, path, "--contract", mine)
        self.assertEqual(own["tensors"], theirs["tensors"])
        # A contract of attention is read, and says nothing of a call of the delta rule.
        for text in (printed["flash_bf16"] | {"name": "mine"},
                     {"name": "mine", "base": "flash_bf16"}):
            mine.write_text(json.dumps(text))
            refused = self.assert_run(2, "check", path, "--contract", mine).out
            self.assertIn("contract: expected one for family 'delta': ideal, ", refused)
            self.assertIn("actual 'mine'", refused)
        mine.write_text(json.dumps({"name": "mine", "kind": "hard"}))
        self.assert_one_line(self.assert_run(2, "check", path, "--contract", mine).err, "kind",
                             "ideal, recurrent, chunked, softmax or chunked_adjoint", "'hard'")
        self.assert_one_line(self.assert_run(2, "contract", "chunk").err, "contract:", "one of")

    def test_a_call_judged_alike_by_check_and_diff(self):
        for line in (DECODE, MTP, F32_PREFILL):
            path = self.capture(line)
            reports = []
            for arguments in (("check", path), ("diff", self.fixture(line), path)):
                report = self.folder / "both.json"
                self.assert_run(0, *arguments, "--json", report)
                case = json.loads(report.read_text())["cases"][0]
                reports.append((case["verdict"], case["contract"], case["precision_bits"],
                                case["tensors"]))
            self.assertEqual(*reports)


if __name__ == "__main__":
    main()
