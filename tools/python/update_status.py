# SPDX-License-Identifier: Apache-2.0
"""update_status.py PROGRAM [--check]: tests/STATUS.md, what proves which operation, mode and contract.

Counts are those of the program's own tables and of its verdicts over the captures of the repository. Rewrites the
page; with --check exit 1 where it differs.
"""

import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "tests/STATUS.md"
CAPTURED = ROOT / "fixtures/captures"
# Kernels whose contract does not follow from their calls: --contract says it.
ASKED = {"flashinfer_paged.h5": "flash_bf16_rounded_sum"}
HEAD = """# What proves what

`tools/python/update_status.py` writes this page from the tables of the program and its verdicts over
[the captures](../fixtures/captures/README.md), which that page lists. A test compares them.

"""
CALLS = """## Operations and modes

Cases are lines of the [suites](../fixtures/README.md#cases-and-suites) without `production`. "Mistakes" are the known
ones that a call of this mode can make. The kill matrix makes each of them in the cases (`goldenrule mutate`, label
`kill_matrix`). One that no case shows has the reason in its row (`permitted_by`).

"""
CONTRACTS = """## Contracts

A kernel that is emulated under a contract passes by it, and does not with one element wrong
([delta rule](delta/emulation/test_verdict_matrix.cpp), [attention](attention/test_budget.cpp),
[gradients](backward/test_slice.cpp)). Captures of real kernels are judged by these contracts; no capture is judged by
another one of `goldenrule list contracts`. Of the refused, `bug_*` and `sab_*` are planted, the others are kernels as
released.

| contract | passed | refused |
|---|---|---|
"""


def answer(program, *arguments, codes=(0,)):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode not in codes:
        sys.exit(f"goldenrule {' '.join(arguments)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def words_of(line):
    return dict(word.split("=", 1) for word in line.split())


def counted_cases(program, short_names):
    """{(operation, mode): {suite: cases}}"""
    cases = defaultdict(Counter)
    for suite in json.loads(answer(program, "list", "suites", "--json")):
        if suite["name"] == "production":
            continue
        for line in answer(program, "list", suite["name"]).splitlines():
            key = words_of(line)
            cases[short_names[key["op"]], key["mode"]][suite["name"]] += 1
    return cases


def judged_captures(program):
    judged = []
    for contract, names in (("", sorted(path for path in CAPTURED.rglob("*.h5") if path.name not in ASKED)),
                            *((contract, [CAPTURED / "attention" / name]) for name, contract in ASKED.items())):
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            asked = ["--contract", contract] if contract else []
            answer(program, "check", "--explain-seconds", "0", "--json", str(report), *asked,
                   *(str(path.relative_to(ROOT)) for path in names), codes=(0, 1))
            judged += json.loads(report.read_text())["cases"]
    return judged


def page(program):
    schema = json.loads(answer(program, "schema", "--json"))
    mistakes = json.loads(answer(program, "list", "mistakes", "--json"))
    names = [operation["name"] for operation in schema["operations"]]
    short_names = {name.replace("gated_delta_rule", "gdn"): name for name in names}
    cases, captures = counted_cases(program, short_names), judged_captures(program)
    text = HEAD + CALLS + "| operation | mode | cases | mistakes | contracts | captures |\n|---|---|---|---|---|---|\n"
    for operation in schema["operations"]:
        for mode in operation["modes"]:
            name = operation["name"]
            of_suites = cases[name, mode]
            listed = ", ".join(f"{suite} {n}" for suite, n in of_suites.items())
            possible = sum(mode in mistake["where"].get(name, ()) for mistake in mistakes)
            files = sum((c["op"], c["mode"]) == (name, mode) for c in captures)
            text += (f"| `{name}` | `{mode}` | {sum(of_suites.values())}: {listed} | {possible} "
                     f"| {len(schema['contracts_of'][operation['family']])} | {files} |\n")
    text += "\n" + CONTRACTS
    for contract in schema["contracts"]:
        judged = [c for c in captures if c["contract"] == contract]
        refused = [Path(c["file"]).stem for c in judged if c["verdict"] not in ("EXACT", "WITHIN_BUDGET")]
        if judged:
            text += f"| `{contract}` | {len(judged) - len(refused)} | {', '.join(refused)} |\n"
    return text


def main():
    program, *options = sys.argv[1:]
    text = page(program)
    if options == ["--check"]:
        if PAGE.read_text() != text:
            sys.exit(f"{PAGE}: differs from the program; run tools/python/update_status.py PROGRAM")
    elif options:
        sys.exit(__doc__)
    else:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
