# SPDX-License-Identifier: Apache-2.0
"""The captures of tools/demo, and its last table.

    demo_captures.py make RIGHT MISTAKE DIR   writes DIR/right.h5 and DIR/wrong.h5
    demo_captures.py explain REPORT           exit code 0: right.h5 passed and wrong.h5 failed

RIGHT and MISTAKE are folders with one fixture each, of the same inputs. right.h5 is what a perfect
kernel returns: the exact result, rounded once to the storage type. wrong.h5 is what a kernel
returns that is perfect but for one mistake: the exact result of the other fixture, on the inputs
and under the conventions of the first.
"""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "python"))
from goldenrule_capture import read_fixture, write_capture  # noqa: E402

# Significand bits, the hidden one included, and exponent of the smallest normal number.
FORMATS = {"bf16": (8, -126), "f32": (24, -126)}


def rounded(values, name):
    """f64 values rounded once, to nearest even, and stored as f32, which holds both formats."""
    bits, smallest = FORMATS[name]
    step = np.maximum(np.frexp(values)[1] - 1, smallest) - (bits - 1)
    return np.ldexp(np.rint(np.ldexp(values, -step)), step).astype(np.float32)


def the_fixture(folder):
    (path,) = Path(folder).glob("*.h5")
    return read_fixture(path)


def write(path, fixture, golden, source):
    """This case reads and writes q, k, v, a, b and o as bf16 and everything else as it is."""
    outputs = {name: rounded(values, "bf16" if name == "o" else "f32")
               for name, (values, _) in golden.items()}
    bf16 = [name.removeprefix("inputs/") for name in fixture.bf16]
    write_capture(path, op=fixture.op, mode=fixture.mode, source=source, bf16=(*bf16, "o"),
                  convention=fixture.convention, inputs=fixture.inputs, outputs=outputs)
    print(f"{path}: {source}")


def make(right_folder, mistake_folder, folder):
    right, mistake = the_fixture(right_folder), the_fixture(mistake_folder)
    for name, values in right.inputs.items():
        np.testing.assert_array_equal(values, mistake.inputs[name], name)
    write(Path(folder) / "right.h5", right, right.golden, "a perfect kernel")
    write(Path(folder) / "wrong.h5", right, mistake.golden, "the same, but heads are mixed up")


def explain(report):
    cases = json.loads(Path(report).read_text())["cases"]
    row = "{:<10} {:<12} {:<14} {:>14} {:>15}  {}"
    print(row.format("capture", "tensor", "verdict", "wrong elements", "largest error",
                     "the worst element"))
    for case in cases:
        for t in case["tensors"]:
            where = ", ".join(f"{name} {i}" for name, i in t["worst"]["coordinates"].items())
            ratio = f"{t['max_ratio']:.3g} times what rounding can explain"
            if t["out_of_budget"]:
                ratio += f", at {where}"
            print(row.format(Path(case["file"]).name, t["name"], t["verdict"],
                             f"{t['out_of_budget']} of {t['compared']}", f"{t['max_abs']:.3g}",
                             ratio))
    print("""
right.h5 passes: every element is as close to the exact result as the arithmetic that its contract
allows (fp32 throughout, o stored in bf16) can bring it.
wrong.h5 fails: its kernel computes every number correctly, but value head j reads query/key head
j % H where the call says j // (HV / H). With H=2 and HV=4 heads 0 and 3 are right by chance, and
heads 1 and 2 are wrong in every row that is not padding.""")
    right, wrong = cases
    passed = right["verdict"] in ("EXACT", "WITHIN_BUDGET")
    return 0 if passed and wrong["verdict"] == "OUT_OF_BUDGET" else 1


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    sys.exit({"make": make, "explain": explain}[command](*arguments))
