# SPDX-License-Identifier: Apache-2.0
"""Gradients from the command line: real kernels, mistakes that are named, records that make no sense."""

import json
from collections import namedtuple

import h5py
import numpy as np

from edits import attribute, element, remove
from support import CAPTURES, CommandLineTest, main, put, run

GDN = "op=gdn_backward mode=prefill lens=70,0,64 H=1 HV=2 K=32 V=24 h0=1 dstate=1 pattern=A"
KDA = "op=kda_backward mode=prefill lens=70,64 H=2 HV=4 K=32 V=24 io=f32 h0=1 dstate=1 pattern=A"
REAL = CAPTURES / "backward"


def dataset(name, values):
    def edit(file):
        if name in file:
            del file[name]
        file[name] = values
    return edit


def scaled(name, factor):
    def edit(file):
        put(file, name, file[name][()] * np.float32(factor))
    return edit


Bad = namedtuple("Bad", "what change texts")
BAD = [
    Bad("no gradient to begin with", remove("inputs/do"), ["/inputs/do", "none"]),
    Bad("do of other heads", dataset("inputs/do", np.zeros((134, 2, 24), np.float32)),
        ["/inputs/do", "[134,4,24]", "[134,2,24]"]),
    Bad("a state of the other layout", dataset("inputs/dfinal_state", np.zeros((2, 4, 32, 24), np.float32)),
        ["/inputs/dfinal_state", "[2,4,24,32]", "[2,4,32,24]"]),
    Bad("tokens that are not packed", dataset("inputs/q", np.zeros((2, 67, 2, 32), np.float32)),
        ["/inputs/q", "rank 3", "packed"]),
    Bad("bounds that do not reach the end", element("inputs/cu_seqlens", 2, 100),
        ["/inputs/cu_seqlens", "134", "100"]),
    Bad("dA_log by channel", dataset("outputs/dA_log", np.zeros((4, 32), np.float32)),
        ["/outputs/dA_log", "[4]", "[4,32]"]),
    Bad("an output of the forward call", dataset("outputs/o", np.zeros((134, 4, 24), np.float32)),
        ["/outputs/o", "dq"]),
    Bad("the gradient of a gate that is not read", dataset("outputs/dg", np.zeros((134, 4, 32), np.float32)),
        ["/outputs/dg"]),
    Bad("a mode without gradients", attribute("mode", "decode"), ["/@mode", "prefill", "'decode'"]),
    Bad("an attribute of pools", attribute("pad_slot", 0, "/convention"), ["/convention", "'pad_slot'"]),
    Bad("a contract of the forward call", attribute("contract", "chunk64_bf16"),
        ["contract", "adjoint64_fp32_pairs", "'chunk64_bf16'"]),
]


class BackwardTest(CommandLineTest):
    def verdicts(self, file, *options):
        report = self.folder / "report.json"
        run("check", file, "--json", report, *options)
        [case] = json.loads(report.read_text())["cases"]
        return {t["name"]: t["verdict"] for t in case["tensors"]}

    def test_the_exact_result_passes_and_is_recomputed(self):
        for case in (GDN, KDA):
            with self.subTest(case):
                self.assert_run(0, "check", self.capture(case))
                self.assert_run(0, "recompute", self.fixture(case))

    # flash-linear-attention 0.6.0 on an H100. safe_gate rounds the two sides of a pair by themselves.
    def test_real_kernels(self):
        for name in ("fla_gdn_slow", "fla_gdn_strong", "fla_kda_slow"):
            with self.subTest(name):
                self.assertEqual(set(self.verdicts(REAL / f"{name}.h5").values()), {"WITHIN_BUDGET"})
        found = self.verdicts(REAL / "fla_kda_strong.h5")
        self.assertEqual(found.pop("da"), "OUT_OF_BUDGET")
        self.assertEqual(set(found.values()), {"WITHIN_BUDGET"})
        self.assert_run(0, "check", REAL / "fla_kda_strong.h5", "--contract", "adjoint64_two_factors")

    # On an H200. k beta of two bf16 tiles has 16 bits in the sums over later tokens, and not in those
    # over earlier ones: with that product in fp32 the error of dg in the last chunk is 4 times less.
    def test_beta_in_16_bits_rounds_one_side_of_a_pair(self):
        capture = REAL / "fla_kda_final_state.h5"
        self.assert_run(0, "check", capture, "--contract", "adjoint64_two_factors")
        contract = json.loads(run("contract", "adjoint64_two_factors").out)
        contract["name"] = "k_beta_in_fp32"
        contract["adjoint"]["erase_key"] = None
        path = self.folder / "contract.json"
        path.write_text(json.dumps(contract))
        found = self.verdicts(capture, "--contract", path)
        self.assertEqual(found.pop("da"), "OUT_OF_BUDGET")
        self.assertEqual(set(found.values()), {"WITHIN_BUDGET"})

    # FlashQLA 0.1.3 on an H200: T is inverted without decays.
    def test_a_kernel_of_the_direct_form(self):
        capture = REAL / "flash_qla_gdn.h5"
        direct = ("--contract", "adjoint64_direct")
        for options in ((), direct):
            self.assertEqual(set(self.verdicts(capture, *options).values()), {"WITHIN_BUDGET"})
        for name, factor in (("dbeta", 1.05), ("dg", 1.02), ("dinitial_state", 1.02)):
            with self.subTest(name):
                path = self.folder / "spoiled.h5"
                path.write_bytes(capture.read_bytes())
                with h5py.File(path, "r+") as file:
                    scaled(f"outputs/{name}", factor)(file)
                found = self.verdicts(path, *direct)
                self.assertEqual(found.pop(name), "OUT_OF_BUDGET")
                self.assertEqual(set(found.values()), {"WITHIN_BUDGET"})
        self.assertIn("OUT_OF_BUDGET", self.verdicts(capture, "--contract", "adjoint_f32").values())

    def test_a_spoiled_real_kernel_is_refused(self):
        for name in ("dq", "dk", "dv", "dbeta", "dg", "dinitial_state"):
            with self.subTest(name):
                path = self.folder / "spoiled.h5"
                path.write_bytes((REAL / "fla_gdn_slow.h5").read_bytes())
                with h5py.File(path, "r+") as file:
                    values = file[f"outputs/{name}"]
                    kind = values.id.get_type()
                    if kind.get_size() == 2:  # bfloat16: zeros have the same bits in every type
                        put(file, f"outputs/{name}", np.zeros(values.shape, np.uint16), kind)
                    else:
                        scaled(f"outputs/{name}", 1.3)(file)
                self.assertEqual(self.verdicts(path)[name], "OUT_OF_BUDGET")

    def test_mistakes_are_named(self):
        def no_state_gradient(file):  # what a kernel gives that does not read dfinal_state
            other = self.fixture(KDA.replace(" dstate=1", ""))
            with h5py.File(other) as without:
                for name, golden in without["golden"].items():
                    put(file, f"outputs/{name}", golden[()].astype("f4"))

        for change, name in ((scaled("outputs/dq", 32 ** 0.5), "dq_scale_missing"),
                             (no_state_gradient, "state_gradient_ignored")):
            with self.subTest(name):
                result = run("check", self.capture(KDA, change))
                self.assertEqual(result.code, 1, result.out)
                self.assertIn(name, result.out)

    def test_what_cannot_be_judged_is_refused_in_one_line(self):
        for bad in BAD:
            with self.subTest(bad.what):
                result = run("check", self.capture(KDA, bad.change))
                self.assertEqual(result.code, 2, result.out + result.err)
                line = next(x for x in result.out.splitlines() if all(t in x for t in bad.texts[:1]))
                for text in bad.texts:
                    self.assertIn(text, line)

    def test_only_a_part_is_judged_where_that_is_asked(self):
        capture = self.capture(GDN, remove("outputs/dk"))
        self.assertNotEqual(run("check", capture).code, 0)
        self.assert_run(0, "check", capture, "--only", "dq,dv")


if __name__ == "__main__":
    main()
