# SPDX-License-Identifier: Apache-2.0
"""Cases for a kernel of one's own: the snippets of the READMEs as printed, which of a suite's cases a kernel
serves, and what is said of one that does not take a case."""

import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

import goldenrule

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "tests" / "python" / "examples"
DECODE = dict(mode="decode", op="gated_delta_rule", max_bytes=1 << 24)
LINE = "op=gdn mode=decode B=2 H=1 HV=2 K=8 V=8"
KERNEL = """
import goldenrule, ml_dtypes, my_decode as mine

def my_decode(q, k, v, a, b, A_log, dt_bias, initial_state):
    per_token = (x[:, 0] for x in (q, k, v, a, b))
    o, state = mine.decode(*per_token, A_log, dt_bias, initial_state)
    return {"o": o[:, None].astype(ml_dtypes.bfloat16), "final_state": state}

"""


def snippet(page):
    """The test that the page prints, without its indentation."""
    found = re.search(r"(    @goldenrule\.cases\(.*\n(?:    .*\n)+)", (ROOT / page).read_text())
    return "".join(line.removeprefix("    ") for line in found[1].splitlines(keepends=True))


@pytest.mark.parametrize("page, count", [("README.md", 12), ("tools/python/README.md", 45)])
def test_the_snippet_of_a_page_passes_a_right_kernel_and_fails_a_wrong_one(pytester, page, count):
    shutil.copy(EXAMPLES / "my_decode.py", pytester.path)
    pytester.makepyfile(test_right=KERNEL + snippet(page),
                        test_wrong=KERNEL.replace("k, v, a, b))", "q, v, a, b))") + snippet(page)
                        .replace("=case.call(my_decode)", "=case.call(my_decode), explain=False"))
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "test_right.py").assert_outcomes(passed=count)
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "test_wrong.py").assert_outcomes(failed=count)


def test_a_convention_of_the_kernel_itself():
    line = "op=gdn mode=decode B=1 H=1 HV=1 K=8 V=4 state_layout=kv"

    def kernel(q, k, v, a, b, A_log, dt_bias, initial_state):
        return initial_state.shape

    (case,) = goldenrule.cases(line, supports=dict(state_layout="kv"))
    assert case.call(kernel) == (1, 1, 8, 4)
    for supports in (None, dict(state_layout=("vk", "kv"))):
        (case,) = goldenrule.cases(line, supports=supports)
        with pytest.raises(TypeError, match=r"parameters for state_layout='kv' of .*supports=dict\(state_layout='kv'\)"):
            case.call(kernel)


def test_supports_leaves_what_a_kernel_serves():
    every = goldenrule.suite("boundary", **DECODE)
    ordinary = goldenrule.cases("boundary", **DECODE)
    both = goldenrule.cases("boundary", supports=dict(state_layout=("vk", "kv")), **DECODE)
    slots = goldenrule.cases("boundary", supports=dict(inputs="state_indices"), **DECODE)
    other = goldenrule.cases("boundary", supports=dict(state_layout="kv"), **DECODE)
    assert 0 < len(ordinary) < len(both) < len(every) and len(ordinary) < len(slots)
    assert {case.convention["state_layout"] for case in ordinary} == {"vk"}
    assert {case.convention["state_layout"] for case in other} == {"kv"}
    assert any("state_indices" in case.inputs for case in slots)
    assert not any("state_indices" in case.inputs for case in both)
    assert len(goldenrule.cases("boundary", supports=lambda case: True, **DECODE)) == len(every)
    assert len(goldenrule.cases(f"{LINE} state_layout=kv slots=permuted")) == 1  # of a line: all
    with pytest.raises(ValueError, match="supports: expected inputs or one of .*, actual 'layout'"):
        goldenrule.cases("boundary", supports=dict(layout="kv"), **DECODE)
    with pytest.raises(ValueError, match="smoke: no case is left by"):
        goldenrule.cases("smoke")


def test_a_kernel_is_told_what_it_does_not_take():
    case = goldenrule.fixture(f"{LINE} state_layout=kv slots=permuted")

    def short(q, k, v, a, b, A_log, dt_bias, initial_state):
        raise AssertionError("it is not called")

    with pytest.raises(TypeError, match="short: expected parameters for state_indices, state_layout='kv' of "
                                        f"{re.escape(case.line)}, actual"):
        case.call(short)
    given = case.call(lambda state_layout, gate, **inputs: (state_layout, gate, sorted(inputs)))
    assert given == ("kv", "softplus", sorted(case.inputs))
    assert case.call(lambda convention, **inputs: convention) == case.convention
    assert isinstance(case.call(), goldenrule.Call)
    # A compiled function may not say its parameters: it is called by their names.
    plain = goldenrule.fixture(LINE)
    assert plain.call(dict).keys() == plain.inputs.keys()
    with pytest.raises(TypeError, match="expected parameters for state_layout='kv'"):
        case.call(dict)
    with pytest.raises(TypeError, match="kernel: expected what can be called, actual 5"):
        case.call(5)
    # `beta` is an attribute of the convention and, where it is direct, an input: the kernel takes the tensor.
    direct = goldenrule.fixture(f"{LINE} beta=direct")
    assert direct.call(lambda beta, **inputs: beta).shape == direct.inputs["beta"].shape
    for taking in (goldenrule.assert_delta_rule, goldenrule.Case.judge):
        with pytest.raises(TypeError, match="outputs: expected {name: value}, actual tuple"):
            taking(case, outputs=(1, 2))
    for wrong in (case.inputs, case.line):
        with pytest.raises(TypeError, match=f"expected a case .* or a goldenrule.Call, actual {type(wrong).__name__}"):
            goldenrule.assert_delta_rule(wrong, outputs={})
    with pytest.raises(TypeError, match="inputs: expected {name: value}, actual list"):
        goldenrule.assert_delta_rule(op="gdn", mode="decode", inputs=[1], outputs={})
    with pytest.raises(TypeError, match="options: expected some of contract, .*, actual alow_mistrusted"):
        goldenrule.assert_delta_rule(case, outputs={}, alow_mistrusted=True)


def test_what_is_printed_of_calls_and_expectations_is_short():
    case = goldenrule.fixture(LINE)
    call, expected = case.call(), case.expected()
    for shown in (repr(call), repr(expected), repr(expected["o"])):
        assert len(shown.splitlines()) < 20 and max(map(len, shown.splitlines())) < 500
    assert "q=bfloat16[2, 1, 1, 8]" in repr(call) and "golden=float64[2, 1, 2, 8]" in repr(expected["o"])


def test_an_operation_is_named_as_in_a_line_or_in_full():
    short, long = (goldenrule.suite("smoke", op=op, mode="decode") for op in ("gdn", "gated_delta_rule"))
    assert len(short) > 0 and [case.line for case in short] == [case.line for case in long]


@pytest.mark.parametrize("name", ["gdn_prefill_h200.h5", "kda_mtp_h200.h5", "kda_prefill_h200.h5"])
def test_a_recorded_call_is_read_and_judged_as_by_the_program(name, program):
    path = str(ROOT / "fixtures" / "captures" / name)
    report = goldenrule.read(path).judge(name=path)
    done = subprocess.run([program, "check", path], capture_output=True, text=True)
    assert report.passed and done.stdout.startswith(str(report).splitlines()[0] + "\n")


def test_a_call_that_is_not_judged_says_why():
    case = goldenrule.fixture(LINE)
    right = {name: output.golden for name, output in case.expected().outputs.items()}
    report = case.judge({"o": right["o"]})
    why = "not among the outputs: final_state (if nothing more is wanted, name what is: --only, in Python only=)"
    assert report.verdict == "SKIPPED" and report.reason == why
    assert report.answer == f"SKIPPED: {why}" and repr(report) == f"<goldenrule.Report SKIPPED: {why}>"
    assert why in str(report)
    assert repr(case.judge(right)) == "<goldenrule.Report EXACT>"


def test_the_op_of_a_case_line_is_one_of_a_call():
    case = goldenrule.fixture(LINE)
    outputs = {name: output.golden for name, output in case.expected().outputs.items()}
    assert goldenrule.judge(op="gdn", mode="decode", inputs=case.inputs, outputs=outputs,
                            convention=case.convention).passed


def test_without_a_gpu_a_test_is_skipped_in_a_sentence_and_a_program_raises(monkeypatch):
    torch = types.ModuleType("torch")  # one that sees no GPU
    torch.cuda = types.SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    case, words = goldenrule.fixture(LINE), "device: expected one that torch sees, actual 'cuda' on a machine"
    for ask in (case.tensors, lambda device: case.call(dict, device)):
        with pytest.raises(pytest.skip.Exception, match=f"^goldenrule: {words}"):
            ask("cuda")
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    with pytest.raises(RuntimeError, match=f"^{words}"):
        case.tensors("cuda")


def test_functions_of_other_libraries_come_with_the_operators():
    pytest.importorskip("torch")
    from goldenrule import ops

    assert callable(ops.fla.chunk_kda) and callable(ops.flashinfer.gated_delta_rule_mtp)
    with pytest.raises(AttributeError, match="has no attribute 'vllm'"):
        _ = ops.vllm
