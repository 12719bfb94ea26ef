# SPDX-License-Identifier: Apache-2.0
"""goldenrule as the judge of problems in the form of KernelBench (0.2.0.dev0).

    report = evaluate(Path("kernelbench_problem.py").read_text(), candidate_source)

A problem has Model, get_inputs and get_init_inputs, a candidate ModelNew. What Model computes stands in the problem, as
in kernelbench_problem.py: GOLDENRULE = {op, mode, inputs: the names of what get_inputs returns, parameters: those of
attributes of the model that are inputs, outputs, convention}. Needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import goldenrule
from verdicts import copied, package

_KEYS = ("op", "mode", "inputs", "parameters", "outputs", "convention")


def executed(source: str, *names: str) -> dict[str, Any]:
    """What a source defines; ValueError where a name is missing."""
    space: dict[str, Any] = {"__name__": "problem"}
    exec(compile(source, "<problem>", "exec"), space)
    missing = [name for name in names if name not in space]
    if missing:
        raise ValueError(f"{missing[0]}: expected a definition in the source, actual none")
    return space


def _told(problem: Mapping[str, Any]) -> dict[str, Any]:
    told = problem["GOLDENRULE"]
    if not isinstance(told, Mapping) or set(told) != set(_KEYS):
        raise ValueError(f"GOLDENRULE: expected the keys {', '.join(_KEYS)}, actual "
                         f"{', '.join(map(str, told)) if isinstance(told, Mapping) else type(told).__name__}")
    return dict(told)


def evaluate(problem_source: str, candidate_source: str, *, seed: int = 42, precision: str = "float32",
             device: str = "cpu", **options: Any) -> goldenrule.Report:
    """Judges one trial of a candidate. As there: everything is of one precision, and the seed is set before the
    inputs are drawn and before each model is made, so that both have the same weights."""
    torch = package("torch", "pip install torch")
    problem = executed(problem_source, "Model", "get_inputs", "get_init_inputs", "GOLDENRULE")
    told = _told(problem)
    kind = getattr(torch, precision)

    def made(model: Any) -> Any:
        torch.manual_seed(seed)
        return model(*problem["get_init_inputs"]()).to(device=device, dtype=kind)

    torch.manual_seed(seed)
    given = [x.to(device=device, dtype=kind) if isinstance(x, torch.Tensor) else x for x in problem["get_inputs"]()]
    if len(given) != len(told["inputs"]):
        raise ValueError(f"get_inputs: expected {', '.join(told['inputs'])}, actual {len(given)} inputs")
    before = dict(zip(told["inputs"], copied(given)))
    model = made(problem["Model"])
    before |= {name: getattr(model, name).detach().float() for name in told["parameters"]}
    with torch.no_grad():
        found = made(executed(candidate_source, "ModelNew")["ModelNew"])(*given)
    outputs = found if isinstance(found, (tuple, list)) else (found,)
    if len(outputs) != len(told["outputs"]):
        raise ValueError(f"ModelNew: expected {', '.join(told['outputs'])}, actual {len(outputs)} outputs")
    return goldenrule.judge(op=told["op"], mode=told["mode"], convention=told["convention"], inputs=before,
                            outputs=dict(zip(told["outputs"], outputs)), only=tuple(told["outputs"]), **options)
