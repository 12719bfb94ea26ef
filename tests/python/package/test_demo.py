# SPDX-License-Identifier: Apache-2.0
"""`python -m goldenrule`: its demo finds and names the mistake, anything else is the program of the wheel."""

import subprocess
import sys

import goldenrule._demo


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "goldenrule", *arguments], capture_output=True, text=True,
                          timeout=300)


def test_the_demo():
    done = run("demo")
    assert (done.returncode, done.stderr) == (0, "")
    right, wrong = done.stdout.split("2. The same kernel")
    assert ": WITHIN_BUDGET\n" in right and "explained by" not in right
    assert ": OUT_OF_BUDGET\n" in wrong and "explained by scale_missing: every element is reproduced" in wrong


def test_a_demo_whose_kernel_is_wrong_fails(monkeypatch, capsys):
    kernel = goldenrule._demo._kernel
    monkeypatch.setattr(goldenrule._demo, "_kernel", lambda x, scale: kernel(x, 1.0))
    assert goldenrule._demo.demo() == 1
    assert capsys.readouterr().out.count("OUT_OF_BUDGET") >= 2


def test_the_program():
    done = run("--version")
    assert done.returncode == 0 and done.stdout.startswith("goldenrule "), done.stderr


def test_arguments_of_the_demo():
    done = run("demo", "fast")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "goldenrule demo: expected no arguments, actual fast\n"
