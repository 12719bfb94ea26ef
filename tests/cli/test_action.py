# SPDX-License-Identifier: Apache-2.0
"""action.yml: the step that judges, run as a runner runs it, with its inputs in the environment."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import yaml

from support import CommandLineTest, PREFILL, PROGRAM, REPOSITORY, main, put

ACTION = yaml.safe_load((REPOSITORY / "action.yml").read_text())


class Action(CommandLineTest):
    def judge(self, captures, **inputs):
        return self.step("Judge", captures=captures, **inputs)

    def step(self, name, **inputs):
        """(exit code, stdout, what the step says as its output)"""
        step = next(step for step in ACTION["runs"]["steps"] if step["name"] == name)
        folder = self.folder
        (folder / "bin").mkdir(exist_ok=True)
        if not (folder / "bin/goldenrule").exists():
            os.symlink(shutil.which(PROGRAM) or PROGRAM, folder / "bin/goldenrule")
        given = {name: row.get("default", "") for name, row in ACTION["inputs"].items()}
        given |= inputs
        environment = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "GITHUB_OUTPUT": str(folder / "output")}
        for name, value in step["env"].items():
            environment[name] = given.get(value.removeprefix("${{ inputs.").removesuffix(" }}"), value)
        done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=folder, env=environment, text=True,
                              capture_output=True, timeout=300, check=False)
        output = folder / "output"
        said = output.read_text() if output.exists() else ""
        output.unlink(missing_ok=True)
        return done.returncode, done.stdout, said

    def test_a_folder(self):
        right = self.capture(PREFILL)
        kept = self.folder / "kept here/inner"
        kept.mkdir(parents=True)
        shutil.copy(right, kept / "a.h5")
        code, out, said = self.judge("kept here\n")
        self.assertEqual((code, said), (0, "exit-code=0\n"), out)
        for name in ("report.json", "report.xml", "report.html"):
            self.assertTrue((self.folder / "goldenrule-report" / name).exists(), name)

    def test_a_wrong_one_among_them(self):
        right = self.capture(PREFILL)
        wrong = self.capture(PREFILL, lambda file: put(file, "outputs/o", file["outputs/o"][()].astype(np.float64) * 2),
                             name="wrong.h5")
        code, out, said = self.judge(f"{right}\n{wrong}\n", report="out")
        self.assertEqual((code, said), (1, "exit-code=1\n"), out)
        self.assertIn("OUT_OF_BUDGET", out)

    def test_a_contract(self):
        right = self.capture(PREFILL)
        code, _, said = self.judge(f"{right}\n", contract="no_such_contract")
        self.assertEqual((code, said), (2, "exit-code=2\n"))

    def test_nothing_to_judge(self):
        (self.folder / "empty").mkdir()
        code, out, said = self.judge("empty\n\n")
        self.assertEqual((code, said), (2, ""))
        self.assertIn("::error::captures: expected files, actual none in: empty", out)

    def test_a_pack(self):
        pack = self.folder / "a pack"
        pack.mkdir()
        for wanted in (0, 1, 2):
            (pack / "judge_pack").write_text(f"raise SystemExit({wanted})\n")
            code, _, said = self.step("Judge the pack", pack="a pack")
            self.assertEqual((code, said), (wanted, f"exit-code={wanted}\n"))


if __name__ == "__main__":
    main()
