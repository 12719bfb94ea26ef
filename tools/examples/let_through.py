# SPDX-License-Identifier: Apache-2.0
"""What the rules of public benchmarks let through: `python3 tools/examples/let_through.py` prints it as Markdown.

Each solution of solutions.py runs on the inputs of problems.py. The rules of field_rules.py compare it with the right
solution, as the benchmarks compare with a reference in fp32; goldenrule judges it by the contract of the call. Needs
the package `goldenrule`. A page has the last of its tables alone. Exit code 0: printed; 1: with --check PAGE, the page
says something else.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class Judged:
    """What a judge says of the solutions of a problem, the right one first."""

    problem: str
    judge: str
    says: tuple[str, ...]
    passed: tuple[bool, ...]


def judged() -> list[Judged]:
    rows = []
    for name, problem in problems().items():
        found = [solved(problem, mistake) for mistake in MISTAKES]
        exact = reference(problem, found[0])
        for rule in _JUDGED_BY[name]:
            said = [RULES[rule](list(each.values()), list(exact.values())) for each in found]
            rows.append(Judged(name, rule, tuple(map(str, said)), tuple(each.passed for each in said)))
        says = tuple(ours(problem, *each) for each in zip(found, MISTAKES))
        rows.append(Judged(name, "goldenrule", says, tuple(each == "passes" for each in says)))
    return rows


def every_answer(rows: list[Judged]) -> Iterator[str]:
    yield "| judge | " + " | ".join(f"`{mistake}`" if mistake else "right" for mistake in MISTAKES) + " |"
    yield "|---" * (1 + len(MISTAKES)) + "|"
    for row in rows:
        yield f"| {row.problem}: {row.judge} | " + " | ".join(row.says) + " |"
    yield ""
    yield from (f"- {name}: {problem.says}." for name, problem in problems().items())
    yield ""
    yield from (f"- {name}: {rule.says}." for name, rule in RULES.items())
    yield ""


def lines(rows: list[Judged]) -> Iterator[str]:
    """The table for a page: what each judge lets through."""
    yield "| judge | right ones refused | wrong ones let through | which |"
    yield "|---|---|---|---|"
    for judge in (*RULES, "goldenrule"):
        own = [row for row in rows if row.judge == judge]
        passed = [(mistake, row.problem) for row in own for mistake, passes in zip(MISTAKES, row.passed)
                  if mistake and passes]
        wrong = sum(len(row.passed) - 1 for row in own)
        refused = sum(not row.passed[0] for row in own)
        which = "; ".join(f"{problem}: " + ", ".join(f"`{m}`" for m, p in passed if p == problem)
                          for problem in dict.fromkeys(p for _, p in passed))
        yield f"| {judge} | {refused} of {len(own)} | {len(passed)} of {wrong} | {which} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", metavar="PAGE", type=Path, help="compares the table on a page with what is found")
    parser.add_argument("--update", metavar="PAGE", type=Path, help="writes the table into a page")
    asked = parser.parse_args()
    rows = judged()
    text = "\n".join(lines(rows)) + "\n"
    page = asked.check or asked.update
    if page is None:
        print(*every_answer(rows), text, sep="\n", end="")
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
