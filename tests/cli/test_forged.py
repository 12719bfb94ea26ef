# SPDX-License-Identifier: Apache-2.0
# Length: one test per lie, over the same forged files.
"""Files that lie: fixtures whose digests all fit, and candidates and contracts that help themselves.

`recompute` says that a fixture is not what its case line says, `diff` that its golden values are not
those of its inputs, `generate` writes it again. No verdict follows from what a file says of itself.
"""

import json

import h5py
import numpy as np

from edits import attribute
from support import (DECODE, MTP_PADDED, PREFILL, CommandLineTest, forge, main, make_capture,
                     meaning, meaning_digest, put)

REAL = np.float64


def remove(name, attribute_of=None):
    def edit(file):
        if attribute_of:
            del file[attribute_of].attrs[name]
        else:
            del file[name]
    return edit


def fill(value):
    """Golden values that are all the same."""
    def edit(file):
        for golden in file["golden"].values():
            golden[...] = value
    return edit


def move(name, index, factor):
    def edit(file):
        file[name][index] *= factor
    return edit


def every(*edits):
    def edit(file):
        for each in edits:
            each(file)
    return edit


# What is forged, how, and where `recompute` finds it when every digest has been made to fit.
FORGERIES = (
    ("head map", attribute("head_map", "tiled", "convention"), "/convention@head_map"),
    ("scale", attribute("scale", 3.0, "convention"), "/convention@scale"),
    ("eps", attribute("l2_eps", 1.0, "convention"), "/convention@l2_eps"),
    ("pad slot", attribute("pad_slot", -2, "convention"), "/convention@pad_slot"),
    ("gate head", attribute("gate_head", "qk", "convention"), "/convention@gate_head"),
    ("contract", attribute("contract", "chunk16_bf16_state"), "/@contract"),
    ("source", attribute("source", "a kernel"), "/@source"),
    ("pattern", attribute("pattern", "B"), "/@pattern"),
    ("seed", attribute("seed", 7), "/@seed"),
    ("no seed", remove("seed", "/"), "/@seed"),
    ("generator", attribute("generator", "goldenrule 9.9.9"), "/@generator"),
    ("tier", attribute("precision_bits", 53), "/@precision_bits|/golden/o"),
    ("radius", attribute("radius", 1e30, "golden/o"), "/golden/o@radius"),
    ("radius 0", attribute("radius", 0.0, "golden/o"), "/golden/o@radius"),
    ("golden", move("golden/o", (0, 1, 2), 1 + 2.0 ** -52), "/golden/o"),
    ("no golden", remove("golden/o"), "/golden/o"),
    ("input", move("inputs/initial_state", (0, 1, 2, 3), 2), "/inputs/initial_state"),
)


class ForgedFixtureTest(CommandLineTest):
    def test_the_digest_is_that_of_the_documented_list(self):
        for line in (DECODE, MTP_PADDED, PREFILL, PREFILL + " scale=0.3 state_layout=kv"):
            with h5py.File(self.fixture(line), "r") as file:
                self.assertEqual(file.attrs["meaning_sha256"], meaning_digest(file))
        folder = self.folder / "extras"
        self.assert_run(0, "generate", PREFILL, "-o", folder, "--stages", "4", "--contract",
                        "recurrent_f32,ideal")
        (path,) = folder.iterdir()
        with h5py.File(path, "r") as file:
            self.assertIn("/budget/ideal/o", meaning(file))
            self.assertEqual(file.attrs["meaning_sha256"], meaning_digest(file))

    def test_recompute(self):
        for name, edit, where in FORGERIES:
            with self.subTest(name):
                path = self.copy_of_fixture(PREFILL)
                with h5py.File(path, "r+") as file:
                    edit(file)
                result = self.assert_run(2, "recompute", path)
                self.assertRegex(result.out, r"ERROR .*(/@meaning_sha256|SHA-256)")
                result = self.assert_run(1, "recompute", forge(path, lambda file: None))
                self.assertRegex(result.out, f"DIFFERS from its case line in .*({where})")
                self.assertIn("0 right, 1 differ", result.out)

    def test_a_default_that_is_written_out_is_the_same_call(self):
        scale = attribute("scale", 0.25, "convention")  # 16^-0.5
        path = forge(self.copy_of_fixture(PREFILL), scale)
        self.assertIn(": right", self.assert_run(0, "recompute", path).out)
        self.assert_run(0, "diff", self.fixture(PREFILL), self.capture(PREFILL, scale),
                        "--contract", "ideal")

    def test_the_tier_that_is_named_is_the_one_that_counts(self):
        for tier, bits in (("double", 53), ("quad", 106)):
            folder = self.folder / tier
            self.assert_run(0, "generate", PREFILL, "-o", folder, "--precision", tier)
            (path,) = folder.iterdir()
            self.assert_run(0, "recompute", path)
            self.assert_run(0, "diff", path, self.capture(PREFILL), "--contract", "ideal")
            with h5py.File(path, "r") as file:
                honest = meaning(file)
            # Golden values of the widest tier under another name: right only where that tier gives
            # the same numbers.
            other = forge(self.copy_of_fixture(PREFILL), attribute("precision_bits", bits))
            with h5py.File(other, "r") as file:
                code = int(meaning(file) != honest)
            self.assert_run(code, "recompute", other)
        self.assert_run(2, "recompute", forge(self.copy_of_fixture(PREFILL),
                                           attribute("precision_bits", 64)))

    def test_what_cannot_be_recomputed_is_not_right(self):
        path = forge(self.copy_of_fixture(PREFILL), remove("case", "/"))
        result = self.assert_run(2, "recompute", path)
        self.assertIn("NOT RECOMPUTED: no case line", result.out)
        self.assertIn("0 right, 0 differ, 1 not recomputed, 0 errors", result.out)
        path = self.copy_of_fixture(PREFILL)
        with h5py.File(path, "r+") as file:
            del file.attrs["meaning_sha256"]
        self.assertIn("/@meaning_sha256: expected", self.assert_run(2, "recompute", path).out)
        path = forge(self.copy_of_fixture(PREFILL), attribute("case", "op=gdn mode=prefill"))
        self.assertIn("/@case: expected a case line", self.assert_run(2, "recompute", path).out)
        # A kernel may write its outputs into a fixture: no digest speaks of them, nobody can
        # recompute them.
        path = self.copy_of_fixture(PREFILL)
        with h5py.File(path, "r+") as file:
            put(file, "outputs/o", np.zeros((12, 2, 8)), h5py.h5t.IEEE_F32LE)
        self.assertIn("NOT RECOMPUTED: /outputs/o;", self.assert_run(2, "recompute", path).out)

    def test_generate_keeps_none_of_them(self):
        right = self.fixture(PREFILL).read_bytes()
        for name, edit, _ in FORGERIES:
            with self.subTest(name):
                path = forge(self.copy_of_fixture(PREFILL), edit)
                result = self.assert_run(0, "generate", PREFILL, "-o", self.folder)
                self.assertIn("1 written", result.out)
                self.assertEqual(path.read_bytes(), right)
        path = self.copy_of_fixture(PREFILL)
        with h5py.File(path, "r+") as file:
            del file.attrs["meaning_sha256"]
        self.assertIn("1 written", self.assert_run(0, "generate", PREFILL, "-o", self.folder).out)
        # Outputs are the work of a kernel and stay.
        with h5py.File(path, "r+") as file:
            put(file, "outputs/o", np.zeros((12, 2, 8)), h5py.h5t.IEEE_F32LE)
        self.assertIn("0 written", self.assert_run(0, "generate", PREFILL, "-o", self.folder).out)


class ForgedGoldenTest(CommandLineTest):
    """`diff` against golden files that are made to let a kernel pass."""

    def refused(self, golden, candidate, *parts):
        result = self.assert_run(2, "diff", golden, candidate, "--no-explain")
        self.assert_one_line(result.err, golden, *parts)

    def test_a_radius_that_forgives(self):
        def garbage(file):
            for output in file["outputs"].values():
                output[...] = 100
        candidate = self.capture(PREFILL, garbage)
        self.assert_run(1, "diff", self.fixture(PREFILL), candidate, "--no-explain")
        for radius in (1e30, 1e-6, np.inf, np.nan, -1.0):
            golden = forge(self.copy_of_fixture(PREFILL), every(
                remove("case", "/"), *(attribute("radius", radius, f"golden/{name}")
                                       for name in ("o", "final_state"))))
            self.refused(golden, candidate, "/golden/final_state@radius", "expected", "actual")

    def test_a_radius_is_at_most_that_of_its_tier(self):
        with h5py.File(self.fixture(PREFILL), "r") as file:
            radius = file["golden/o"].attrs["radius"]
        golden = forge(self.copy_of_fixture(PREFILL), attribute("radius", 2 * radius, "golden/o"))
        self.refused(golden, self.capture(PREFILL), "/golden/o@radius", "recomputed with 168 bits")

    def test_golden_values_that_are_not_those_of_the_inputs(self):
        def nothing(file):
            for output in file["outputs"].values():
                output[...] = np.nan
        candidate = self.capture(PREFILL, nothing)
        self.assert_run(1, "diff", self.fixture(PREFILL), candidate, "--no-explain")
        for value in (np.nan, np.inf, 0.0):
            golden = forge(self.copy_of_fixture(PREFILL), fill(value))
            self.refused(golden, candidate, "/golden/final_state[0,0,0,0]", "168 bits")
        golden = forge(self.copy_of_fixture(PREFILL), move("golden/o", (3, 1, 2), 1 + 1e-12))
        self.refused(golden, self.capture(PREFILL), "/golden/o[3,1,2]", "+-", "168 bits")

    def test_what_no_kernel_writes_is_nan(self):
        def written(file):
            for row in range(3):
                values = file["golden/intermediate_states"][row]
                if np.isnan(values).all():
                    file["golden/intermediate_states"][row] = 1.0
                    return
            raise AssertionError("no padded row")
        golden = forge(self.copy_of_fixture(MTP_PADDED), written)
        self.refused(golden, self.capture(MTP_PADDED), "/golden/intermediate_states[", "NaN",
                     "actual 1")

    def test_a_digest_that_does_not_fit(self):
        golden = self.copy_of_fixture(PREFILL)
        with h5py.File(golden, "r+") as file:
            file["convention"].attrs["head_map"] = "tiled"
        self.refused(golden, self.capture(PREFILL), "/@meaning_sha256", "SHA-256")

    def test_a_call_of_which_double_says_nothing(self):
        # Keys of norm 40 and a state that is orthogonal to them: exact is 1, and what double
        # precision can promise grows by 1600 with each token.
        line = "op=gdn mode=prefill lens=12 H=1 HV=2 K=16 V=8 gate=log beta=direct h0=1 io=f32"

        def expand(file):
            values = dict(q=0, k=0, v=0, g=0, beta=1, initial_state=0)
            for name, value in values.items():
                file[f"inputs/{name}"][...] = value
            file["inputs/q"][..., -1] = 1
            file["inputs/k"][..., 0] = 40
            file["inputs/initial_state"][..., -1] = 1
            file["convention"].attrs.update(qk_l2norm="none", scale=1.0)
            file["golden/o"][...] = 1
            file["golden/final_state"][...] = file["inputs/initial_state"][()]
            for golden in file["golden"].values():
                golden.attrs["radius"] = 2.0 ** -53
        golden = forge(self.copy_of_fixture(line), expand)
        candidate = make_capture(golden, self.folder / "candidate.h5")
        self.assertIn("EXACT", self.assert_run(0, "diff", golden, candidate,
                                               "--contract", "ideal").out)
        forge(golden, move("golden/o", (3, 1, 2), 1 + 1e-12))
        self.refused(golden, candidate, "/golden/o[3,1,2]", "168 bits")

    def test_golden_values_within_both_radii_change_no_verdict(self):
        # An ulp of f64 is within the two radii of the double tier, and a correct rounding to f32
        # can lie on either side of it: the verdict is that of the recomputation.
        golden = self.folder / "golden"
        self.assert_run(0, "generate", DECODE, "-o", golden, "--precision", "double")
        (path,) = golden.iterdir()
        candidate = self.capture(DECODE)
        forge(path, move("golden/o", slice(None), 1 + 2.0 ** -52))
        self.assertIn("EXACT", self.assert_run(0, "diff", path, candidate, "--contract", "ideal").out)


class ContractTest(CommandLineTest):
    """Neither the candidate nor a borrowed name chooses the judge."""

    def report(self, code, *arguments):
        report = self.folder / "report.json"
        self.assert_run(code, *arguments, "--no-explain", "--json", report)
        (case,) = json.loads(report.read_text())["cases"]
        return case

    def test_the_candidate_does_not_choose(self):
        def noisy(file):
            for output in file["outputs"].values():
                output[...] = output[...] * REAL(1 + 1e-3)
        line = DECODE + " io=f32"
        candidate = self.capture(line, noisy, contract="chunk16_bf16_state")
        case = self.report(1, "diff", self.fixture(line), candidate)
        self.assertEqual((case["contract"], case["contract_origin"]),
                         ("recurrent_f32", "by mode and types"))
        # The golden file does, and the command line before it.
        golden = forge(self.copy_of_fixture(line), attribute("contract", "ideal"))
        honest = self.capture(line, contract="recurrent_f32", name="honest.h5")
        case = self.report(0, "diff", golden, honest)
        self.assertEqual((case["contract"], case["contract_origin"]),
                         ("ideal", "claimed by the file"))
        case = self.report(1, "diff", golden, candidate, "--contract", "recurrent_f32")
        self.assertEqual((case["contract"], case["contract_origin"]), ("recurrent_f32", "given"))

    def test_widened_storage_is_undone_as_in_check(self):
        def widen(file):
            for name in list(file["outputs"]):
                put(file, f"outputs/{name}", file[f"outputs/{name}"][()].astype("f4"),
                    h5py.h5t.IEEE_F32LE)

        def widen_all(file):
            widen(file)
            for name in ("q", "k", "v", "initial_state"):
                put(file, f"inputs/{name}", file[f"inputs/{name}"][()].astype("f4"),
                    h5py.h5t.IEEE_F32LE)
        for line in (DECODE, DECODE + " state=bf16"):
            for change in (widen, widen_all):
                capture = self.capture(line, change)
                for contract in ((), ("--contract", "recurrent_f32")):
                    # A state that is stored in bf16 is a rounding too many for that contract.
                    code = int(bool(contract) and "bf16" in line)
                    cases = [self.report(code, *command, *contract) for command in
                             (("check", capture), ("diff", self.fixture(line), capture))]
                    for case in cases:  # where it comes from, which differs
                        for name in ("replay", "source", "case"):
                            del case[name]
                    self.assertEqual(cases[0], cases[1])
                    if code == 0:
                        self.assertEqual({t["verdict"] for t in cases[0]["tensors"]}, {"EXACT"})

    def test_a_borrowed_name(self):
        contract = self.folder / "mine.json"
        golden, capture = self.fixture(DECODE), self.capture(DECODE)
        for name, parts in (("ideal", ("no built-in contract has", "'ideal'")),
                            ("chunk64_bf16", ("no built-in contract has", "'chunk64_bf16'")),
                            ("mine\nideal", ("letters, digits",)), ("ideal\0", ("letters, digits",)),
                            ("\u202elaedi", ("letters, digits",)), ("ideal ", ("letters, digits",)),
                            ("a/b", ("letters, digits",)), ("", ("letters, digits",))):
            contract.write_text(json.dumps(dict(name=name, unit_roundoff=0.001)))
            for command in (("check", capture), ("diff", golden, capture),
                            ("generate", DECODE, "-o", self.folder / "none")):
                with self.subTest((name, command[0])):
                    result = self.assert_run(2, *command, "--contract", contract)
                    self.assert_one_line(result.err, "mine.json: name", *parts)
                    self.assertNotIn("ideal (given)", result.out)
        contract.write_text(json.dumps(dict(name="mine-2.0", kind="recurrent", unit_roundoff=6e-8)))
        self.assertEqual(self.report(0, "check", capture, "--contract", contract)["contract"],
                         "mine-2.0")


if __name__ == "__main__":
    main()
