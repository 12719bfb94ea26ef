# SPDX-License-Identifier: Apache-2.0
"""What the rules of public benchmarks let through: `python3 tools/examples/let_through.py` prints it as Markdown.

Each solution of solutions.py runs on the inputs of problems.py. The rules of field_rules.py compare it with the right
solution, as the benchmarks compare with a reference in fp32; goldenrule judges it by the contract of the call. Needs
the package `goldenrule`. Exit code 0: printed; 1: with --check PAGE, the page says something else.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from field_rules import RULES
from problems import Problem, problems
from solutions import MISTAKES, run

BEGIN, END = "<!-- tools/examples/let_through.py -->\n", "<!-- end of let_through.py -->\n"
# Which rules judge which problem.
_JUDGED_BY = {**dict.fromkeys(("decode", "mtp", "prefill"), ("FlashInfer-Bench 0.1.2", "SOL-ExecBench 1.0.2")),
              "fp32": ("KernelBench 0.2.0.dev0, fp32", "KernelBench 0.1, fp32"),
              "bf16": ("KernelBench 0.2.0.dev0, bf16",)}


_UNNAMED = ("all_zeros",)  # two mistakes in one: its pairs would be searched for a minute
Outputs = dict[str, np.ndarray]


def solved(problem: Problem, mistake: str = "") -> Outputs:
    """What a solution returns, of the outputs that the benchmark looks at."""
    found = run(problem.call.inputs, scale=problem.call.convention["scale"], commits=problem.commits,
                mistake=mistake)
    return {name: found[name] for name in problem.outputs}


def reference(problem: Problem, like: Outputs) -> Outputs:
    """The exact result, rounded once: what the fp32 references of the benchmarks return up to fp32 roundings."""
    exact = problem.call.expected()
    return {name: exact[name].golden.astype(output.dtype) for name, output in like.items()}


def ours(problem: Problem, outputs: Outputs, mistake: str) -> str:
    """What goldenrule says; a mistake is named where one explains every wrong element."""
    report = replace(problem.call, outputs=outputs).judge(only=problem.outputs, explain=mistake not in _UNNAMED,
                                                          explain_seconds=600)
    if report.passed:
        return "passes"
    return f"caught: `{report.explanation}`" if report.explanation else "caught"


def lines() -> Iterator[str]:
    yield "| judge | " + " | ".join(f"`{mistake}`" if mistake else "right" for mistake in MISTAKES) + " |"
    yield "|---" * (1 + len(MISTAKES)) + "|"
    missed: dict[str, list[int]] = {}
    says: list[str] = []
    for name, problem in problems().items():
        found = [solved(problem, mistake) for mistake in MISTAKES]
        exact = reference(problem, found[0])
        judges: dict[str, list[str]] = {}
        for rule in _JUDGED_BY[name]:
            said = [RULES[rule](list(each.values()), list(exact.values())) for each in found]
            judges[rule] = [str(each) for each in said]
            _count(missed, rule, [each.passed for each in said])
        judges["goldenrule"] = [ours(problem, *each) for each in zip(found, MISTAKES)]
        _count(missed, "goldenrule", [each == "passes" for each in judges["goldenrule"]])
        for judge, cells in judges.items():
            yield f"| {name}: {judge} | " + " | ".join(cells) + " |"
        says.append(f"- {name}: {problem.says}.")
    yield ""
    yield from says
    yield ""
    yield from (f"- {name}: {rule.says}." for name, rule in RULES.items())
    yield ""
    yield "| judge | wrong solutions let through | right ones refused |"
    yield "|---|---|---|"
    missed["goldenrule"] = missed.pop("goldenrule")
    for judge, (passed, wrong, refused, right) in missed.items():
        yield f"| {judge} | {passed} of {wrong} | {refused} of {right} |"


def _count(missed: dict[str, list[int]], judge: str, passed: list[bool]) -> None:
    """Adds the solutions of a problem, the right one first."""
    sums = missed.setdefault(judge, [0, 0, 0, 0])
    for at, more in enumerate((sum(passed[1:]), len(passed) - 1, int(not passed[0]), 1)):
        sums[at] += more


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", metavar="PAGE", type=Path, help="compares the table on a page with what is found")
    parser.add_argument("--update", metavar="PAGE", type=Path, help="writes the table into a page")
    asked = parser.parse_args()
    text = "\n".join(lines()) + "\n"
    page = asked.check or asked.update
    if page is None:
        print(text, end="")
        return 0
    before = page.read_text(encoding="utf-8")
    if before.count(BEGIN) != 1 or before.count(END) != 1:
        print(f"{page}: expected the marks {BEGIN.strip()} and {END.strip()}, actual others", file=sys.stderr)
        return 2
    head, rest = before.split(BEGIN)
    after = head + BEGIN + text + END + rest.split(END)[1]
    if asked.update:
        page.write_text(after, encoding="utf-8")
    elif after != before:
        print(f"{page}: the table is another: python3 tools/examples/let_through.py --update {page}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
