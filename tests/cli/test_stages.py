# SPDX-License-Identifier: Apache-2.0
"""`goldenrule check` on captures with the stages of their kernel: which one is the first bad one, that
no stage changes a verdict, and what is refused."""

import json
import os
import random

import h5py
import numpy as np

from support import CommandLineTest, bfloat16_type, main, make_capture, put, rounded

LINE = "op=gdn mode=prefill lens=70,5 H=1 HV=2 K=16 V=8 io=f32 gate=softplus h0=1 pattern=E"
SEED = int(os.environ.get("GOLDENRULE_FUZZ_SEED", "7"))


class StagesTest(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.assert_run(0, "generate", LINE, "-o", self.folder, "--stages", "64")
        (self.fixture_path,) = self.folder.glob("*.h5")

    def with_stages(self, change=None, name="capture.hdf5"):
        """A capture of a perfect kernel with its stages in f32; change(file) spoils it."""
        def add(file):
            with h5py.File(self.fixture_path) as source:
                for stage, exact in source["stages"].items():
                    put(file, f"stages/{stage}", exact[()].astype("f4"), h5py.h5t.IEEE_F32LE)
            if change:
                change(file)
        return make_capture(self.fixture_path, self.folder / name, add)

    def report(self, code, *arguments):
        path = self.folder / "report.json"
        result = self.assert_run(code, "check", "--no-explain", *arguments, "--json", path)
        (case,) = json.loads(path.read_text())["cases"]
        return case, result.out

    def test_right_stages_in_the_types_of_kernels(self):
        case, text = self.report(0, self.with_stages())
        self.assertEqual(case["verdict"], "EXACT")
        self.assertEqual([s["name"] for s in case["stages"]["judged"]],
                         ["G", "beta", "q", "k", "A", "T", "w", "u", "h", "v_new"])
        self.assertEqual({s["verdict"] for s in case["stages"]["judged"]}, {"EXACT"})
        self.assertIsNone(case["stages"]["first_bad"])
        self.assertIn("no stage that was judged is out of budget", text)

        def in_bf16(file):
            for stage in ("T", "w", "u", "h", "v_new"):
                values = rounded(file[f"stages/{stage}"][()].astype("f8"), bfloat16_type())
                put(file, f"stages/{stage}", values, bfloat16_type())
        case, _ = self.report(0, self.with_stages(in_bf16), "--contract", "chunk64_bf16")
        self.assertIsNone(case["stages"]["first_bad"])
        self.assertEqual([s["dtype"] for s in case["stages"]["judged"]][5:], ["bf16"] * 5)

    def test_a_bad_stage_is_named_and_changes_no_verdict(self):
        def spoil(file):
            file["stages/u"][66, 1, 3] += 0.01
            del file["stages/G"]
        capture = self.with_stages(spoil)
        page = self.folder / "page.html"
        case, text = self.report(0, capture, "--html", page)
        self.assertEqual(case["verdict"], "EXACT")
        first = case["stages"]["first_bad"]
        self.assertEqual((first["name"], first["elements"], first["not_given_before"]), ("u", 1, ["G"]))
        self.assertEqual(first["worst"]["coordinates"],
                         {"sequence": 0, "chunk": 1, "token": 66, "head": 1, "value": 3})
        self.assertAlmostEqual(first["worst"]["error"], 0.01, 5)
        self.assertIn("first bad stage: u at sequence 0, chunk 1, token 66, head 1, value 3", text)
        self.assertIn("u = T (beta v), without decay", text)
        self.assertIn("the outputs are right all the same", text)
        html = page.read_text()
        self.assertIn("First bad stage: <b>u</b> at <b>sequence 0, chunk 1, token 66", html)
        self.assertIn("no part of the verdict", html)

    def test_wrong_outputs_and_right_stages(self):
        def spoil(file):
            file["outputs/o"][3] *= 2
        case, text = self.report(1, self.with_stages(spoil))
        self.assertIsNone(case["stages"]["first_bad"])
        self.assertIn("what is wrong begins behind them", text)

    def test_forms(self):
        def in_log2(file):
            file["stages/G"][...] = file["stages/G"][()] / np.log(2)
        case, text = self.report(0, self.with_stages(in_log2))
        self.assertEqual(case["stages"]["judged"][0]["verdict"], "SKIPPED")
        self.assertIn("right in the form 'log2'", text)
        self.assertIsNone(case["stages"]["first_bad"])

        def declared(file):
            in_log2(file)
            file["stages/G"].attrs["form"] = "log2"
        case, _ = self.report(0, self.with_stages(declared))
        self.assertEqual(case["stages"]["judged"][0]["verdict"], "WITHIN_BUDGET")

    def test_stages_of_a_fixture_are_not_judged(self):
        with h5py.File(self.fixture_path, "r+") as file:
            for name, golden in file["golden"].items():
                put(file, f"outputs/{name}", golden[()].astype("f4"), h5py.h5t.IEEE_F32LE)
        case, text = self.report(0, self.fixture_path)
        self.assertNotIn("stages", case)
        self.assertNotIn("stage", text)

    def test_what_is_refused(self):
        def name(file):
            file["stages/foo"] = np.zeros((75, 2), "f4")

        def shape(file):
            put(file, "stages/u", file["stages/u"][:, :, :5])

        def empty(file):
            put(file, "stages/T", file["stages/T"][:0])

        def kind(file):
            put(file, "stages/u", file["stages/u"][()].astype("i4"), h5py.h5t.STD_I32LE)

        def attribute(value):
            def change(file):
                file["stages"].attrs["chunk"] = value
            return change

        def form(file):
            file["stages/k"].attrs["form"] = "log2"

        def huge(file):
            del file["stages/A"], file["stages/T"]
            file["stages"].attrs["chunk"] = 2**40
        for change, parts in ((name, ("/stages", "one of G, beta, q", "'foo'")),
                              (shape, ("/stages/u", "[75,2,8] = tokens,HV,V in chunks of 64", "[75,2,5]")),
                              (empty, ("/stages/T", "[75,2,64]", "[0,2,64]")),
                              (kind, ("/stages/u", "a floating-point type", "i32")),
                              (attribute(0), ("/stages@chunk", "a number of tokens >= 1", "0")),
                              (attribute("64"), ("/stages@chunk", "'64'")),
                              (attribute(32), ("/stages/A", "in chunks of 32", "[75,2,64]")),
                              (form, ("/stages/k@form", "there is only one", "log2")),
                              (huge, ("--memory", "one that needs"))):
            with self.subTest(parts[0], expected=parts[-1]):
                case, _ = self.report(2, self.with_stages(change))
                self.assertEqual(case["verdict"], "ERROR")
                self.assert_one_line(case["reason"], *parts)

    def test_memory_is_refused_before_anything_is_read(self):
        def widen(file):  # a few kilobytes that say 20 GB
            del file["stages/w"]
            file.create_dataset("stages/w", (75, 2, 1 << 24), "f8", chunks=(1, 1, 1 << 20),
                                compression="gzip", fletcher32=True)
        case, _ = self.report(2, self.with_stages(widen))
        self.assertEqual(case["verdict"], "ERROR")

    def test_fuzz(self):
        """Whatever stands under /stages: an exit code of the program's own, and a report."""
        numbers = random.Random(SEED)
        values = (np.nan, np.inf, -np.inf, 1e38, -1e-45, 0.0)

        def spoil(file):
            for _ in range(numbers.randint(1, 4)):
                name = numbers.choice(sorted(file["stages"]))
                stage = file[f"stages/{name}"][()]
                what = numbers.randrange(6)
                if what == 0:
                    stage[tuple(numbers.randrange(n) for n in stage.shape)] = numbers.choice(values)
                elif what == 1:
                    stage[...] = numbers.choice(values)
                elif what == 2:
                    stage = stage.reshape(stage.shape[::-1])
                elif what == 3:
                    stage = stage.reshape(-1)
                elif what == 4:
                    stage = np.float32(numbers.choice(values))
                else:
                    file["stages"].attrs["chunk"] = numbers.choice((1, 16, 64, 1024, 2**62, 0.5))
                    continue
                put(file, f"stages/{name}", stage)
        for trial in range(12):
            with self.subTest(seed=SEED, trial=trial):
                result = self.assert_runs(self.with_stages(spoil))
                self.assertIn(result.code, (0, 2))
                self.assertEqual(result.err, "")

    def assert_runs(self, capture):
        from support import run
        result = run("check", "--no-explain", capture)
        self.assertTrue(result.out)
        return result


if __name__ == "__main__":
    main()
