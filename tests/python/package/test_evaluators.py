# SPDX-License-Identifier: Apache-2.0
"""The adapters of tools/examples: right and wrong solutions, judged by the rules of public benchmarks and by goldenrule.

flashinfer-bench and torch run where they are installed (`tools/test real`). A machine without a GPU has nothing to
wait for, so that torch.cuda.synchronize does nothing there."""

import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from goldenrule import trace

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "tools" / "examples"
sys.path.insert(0, str(EXAMPLES))

import field_rules  # noqa: E402
import flashinfer_bench_evaluator  # noqa: E402
import let_through  # noqa: E402
import sol_execbench_evaluator  # noqa: E402
import solutions  # noqa: E402
import verdicts  # noqa: E402
from problems import problems  # noqa: E402

GDN = ("decode", "mtp", "prefill")


def known(name, folder):
    """The problem as a workload of FlashInfer-Trace."""
    return trace.write(problems()[name].call, folder)


def returned(problem, mistake):
    return tuple(solutions.run(problem.call.inputs, scale=problem.call.convention["scale"], commits=problem.commits,
                               mistake=mistake).values())


def test_the_page_says_what_the_command_finds():
    done = subprocess.run([sys.executable, EXAMPLES / "let_through.py", "--check", ROOT / "tests" / "README.md"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_another_table_on_a_page_is_found(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    monkeypatch.setattr(let_through, "judged", list)
    monkeypatch.setattr(let_through, "lines", lambda rows: iter(["| the table |"]))
    for text, code in (("| the table |", 0), ("| another |", 1)):
        page.write_text(f"before\n{let_through.BEGIN}{text}\n{let_through.END}after\n")
        monkeypatch.setattr(sys, "argv", ["let_through.py", "--check", str(page)])
        assert let_through.main() == code
    page.write_text("without marks\n")
    assert let_through.main() == 2
    assert "expected the marks" in capsys.readouterr().err


@pytest.mark.parametrize("name", GDN)
def test_a_call_in_memory_is_that_of_its_workload(name, tmp_path):
    workload, problem = known(name, tmp_path), problems()[name]
    arguments = list(workload.arguments().values())
    for mistake in ("", "no_delta_term"):
        report = verdicts.judged(workload.definition, arguments, returned(problem, mistake))
        assert report.passed == (mistake == "")
        assert report.verdict == workload.judge(returned(problem, mistake), explain=False).verdict
    with pytest.raises(ValueError, match="expected the arguments q, k, v"):
        trace.call_of(workload.definition, arguments[:-1])
    with pytest.raises(ValueError, match="expected a definition of FlashInfer-Trace"):
        trace.call_of({"name": workload.definition["name"]}, arguments)


def test_rules_refuse_what_cannot_be_compared():
    ones = np.ones(4, np.float32)
    for rule in field_rules.RULES.values():
        assert rule([ones], [ones]).passed
        assert not rule([ones * np.nan], [ones]).passed
        with pytest.raises(ValueError, match="expected float32"):
            rule([ones.astype(np.float64)], [ones])
        with pytest.raises(ValueError, match="expected 1 outputs"):
            rule([], [ones])


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "flashinfer_bench.bench.evaluators", None)
    monkeypatch.setitem(sys.modules, "flashinfer_bench.bench.evaluators.registry", None)
    with pytest.raises(ImportError, match="pip install flashinfer-bench"):
        flashinfer_bench_evaluator.register()
    monkeypatch.setitem(sys.modules, "sol_execbench.core.bench.correctness", None)
    with pytest.raises(ImportError, match="github.com/NVIDIA/SOL-ExecBench"):
        sol_execbench_evaluator.check({}, [], [], [], None)


class FakeRecord(SimpleNamespace):
    """What compute_error_stats of SOL-ExecBench returns first."""


@pytest.mark.parametrize("mistake", ["", "lost_state"])
def test_sol_execbench(mistake, tmp_path, monkeypatch):
    """Its package needs a GPU's libraries: in its place, records of the same fields."""
    workload, problem = known("prefill", tmp_path), problems()["prefill"]
    outputs, exact = returned(problem, mistake), returned(problem, "")

    def compute(output, reference, tolerance):
        error = float(np.abs(output.astype(np.float32) - reference.astype(np.float32)).max())
        return FakeRecord(max_absolute_error=error, has_nan=False, has_inf=False, extra=None), error > tolerance
    monkeypatch.setitem(sys.modules, "sol_execbench.core.bench.correctness", SimpleNamespace(compute_error_stats=compute))
    record, wrong = sol_execbench_evaluator.check(workload.definition, list(workload.arguments().values()), outputs,
                                                  exact, tolerance=1e9)
    assert wrong == bool(mistake)
    assert (record.max_absolute_error > 0) == bool(mistake)
    assert record.extra["goldenrule"]["mistake"] == ("state_carry_dropped" if mistake else "")


# The arguments of a definition by the names of the schema, as the solutions take them.
SOLUTION = """
import numpy as np, torch

def run({parameters}):
    given = dict({given})
    x = {{name: value.float().cpu().numpy() if value.is_floating_point() else value.cpu().numpy()
         for name, value in given.items() if isinstance(value, torch.Tensor)}}
    found = solved(x, scale=scale, commits={commits}, mistake={mistake!r})
    return torch.from_numpy(found["o"]).bfloat16(), torch.from_numpy(found["final_state"])
"""


@pytest.fixture
def bench(monkeypatch):
    pytest.importorskip("flashinfer_bench")
    import torch
    from flashinfer_bench.bench.evaluators import registry

    if not torch.cuda.is_available():
        monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(registry, "_EVALUATORS", list(registry._EVALUATORS))
    return registry


def built(definition, mistake, commits):
    """A solution in Python, built by the package."""
    from flashinfer_bench.compile import BuilderRegistry
    from flashinfer_bench.data import Solution

    parameters = list(definition.inputs)
    names = {"state": "initial_state", "initial_state_indices": "state_indices"}
    code = inspect.getsource(solutions).replace("def run(", "def solved(") + SOLUTION.format(
        parameters=", ".join(parameters), commits=commits, mistake=mistake,
        given=", ".join(f"{names.get(name, name)}={name}" for name in parameters if name != "scale"))
    return BuilderRegistry.get_instance().build(definition, Solution.model_validate({
        "name": f"solution_{mistake or 'right'}", "definition": definition.name, "author": "tests",
        "spec": {"language": "python", "target_hardware": ["cpu"], "entry_point": "main.py::run",
                 "destination_passing_style": False},
        "sources": [{"path": "main.py", "content": code}]}))


@pytest.mark.parametrize("name", GDN)
def test_flashinfer_bench(name, bench, tmp_path):
    """Its own evaluator says what the page says of its rule, and ours what goldenrule says."""
    import torch
    from flashinfer_bench.bench import BenchmarkConfig
    from flashinfer_bench.bench.evaluators import DefaultEvaluator
    from flashinfer_bench.bench.utils import gen_inputs, load_safetensors
    from flashinfer_bench.data import Definition, Workload

    ours = flashinfer_bench_evaluator.register()
    assert flashinfer_bench_evaluator.register() is ours
    problem, written = problems()[name], known(name, tmp_path)
    definition = Definition.model_validate(written.definition)
    assert bench.resolve_evaluator(definition) is ours
    (lines,) = tmp_path.glob("workloads/*/*.jsonl")
    workload = Workload.model_validate(json.loads(lines.read_text())["workload"])
    inputs = gen_inputs(definition, workload, "cpu", load_safetensors(definition, workload, tmp_path))
    exact = let_through.reference(problem, let_through.solved(problem))
    references = [torch.from_numpy(value.astype(np.float32)).to(kind) for value, kind in
                  zip(exact.values(), definition.torch_output_dtypes)]
    rule = field_rules.RULES["FlashInfer-Bench 0.1.2"]
    for mistake in solutions.MISTAKES:
        solution = built(definition, mistake, problem.commits)
        said = [each.check_correctness(definition, solution, [inputs], [references], BenchmarkConfig(), "", "cpu")
                for each in (DefaultEvaluator, ours)]
        expected = rule(list(let_through.solved(problem, mistake).values()), list(exact.values()))
        assert (said[0][1] is None) == expected.passed, mistake
        assert (said[1][1] is None) == (mistake == ""), mistake
        if mistake:
            assert said[1][1].status.value == "INCORRECT_NUMERICAL"
            assert "OUT_OF_BUDGET" in said[1][1].log


CANDIDATE = "ModelNew = type('ModelNew', (Model,), {})\n"
WRONG = {"the delta term": ('(v[:, t] - torch.einsum("bhvk,bhk->bhv", state, k[:, t]))', "v[:, t]"),
         "the gate": ("state = state * alpha[:, t, :, None, None]", "state = state * alpha[:, t - (t > 0), :, None, None]"),
         "the heads": ("x.repeat_interleave(v.shape[2] // x.shape[2], dim=2)", "x.repeat(1, 1, v.shape[2] // x.shape[2], 1)")}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_kernelbench(precision):
    pytest.importorskip("torch")
    import kernelbench_evaluator

    source = (EXAMPLES / "kernelbench_problem.py").read_text()
    assert kernelbench_evaluator.evaluate(source, source + CANDIDATE, precision=precision).passed
    for old, new in WRONG.values():
        assert old in source
        report = kernelbench_evaluator.evaluate(source, source.replace(old, new) + CANDIDATE, precision=precision,
                                                explain=False)
        assert report.verdict == "OUT_OF_BUDGET"
    with pytest.raises(ValueError, match="ModelNew: expected a definition"):
        kernelbench_evaluator.evaluate(source, source)
    with pytest.raises(ValueError, match="GOLDENRULE: expected the keys"):
        kernelbench_evaluator.evaluate(source + "GOLDENRULE = {}\n", source + CANDIDATE)


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_the_rule_of_kernelbench_is_allclose(name):
    torch = pytest.importorskip("torch")
    problem = problems()[name]
    kind, tolerance = {"fp32": (torch.float32, 1e-4), "bf16": (torch.bfloat16, 1e-2)}[name]
    exact = let_through.reference(problem, let_through.solved(problem))["o"]
    rule = field_rules.RULES[f"KernelBench 0.2.0.dev0, {name}"]
    for mistake in solutions.MISTAKES:
        output = let_through.solved(problem, mistake)["o"]
        tensors = [torch.from_numpy(value.astype(np.float32)).to(kind) for value in (exact, output)]
        close = torch.isclose(*tensors, atol=tolerance, rtol=tolerance)
        said = rule([output], [exact])
        assert said.passed == bool(close.all())
        assert said.beyond == int((~close).sum()) / close.numel()
