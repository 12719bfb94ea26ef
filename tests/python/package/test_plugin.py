# SPDX-License-Identifier: Apache-2.0
"""The pytest plug-in, in sessions of their own."""

import json
import shutil
from pathlib import Path

import kernels
import pytest

import goldenrule

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

SUITE = """
import goldenrule, kernels, pytest

@goldenrule.cases("op=gdn mode=decode B=3 H=2 HV=4 K=16 V={8,9}")
def test_right(case):
    goldenrule.assert_delta_rule(case, outputs=kernels.exact(case))

@pytest.mark.parametrize("k", [16, 32])
def test_wrong(k):
    case = goldenrule.fixture(f"op=gdn mode=decode B=3 H=2 HV=4 K={k} V=8")
    goldenrule.assert_delta_rule(case, outputs=kernels.wrong_head(case), explain=False)

def test_half():
    case = goldenrule.fixture("op=gdn mode=decode B=3 H=2 HV=4 K=16 V=8")
    goldenrule.assert_delta_rule(case, outputs={"o": kernels.exact(case)["o"]})

@pytest.mark.parametrize("allowed", [False, True])
def test_nothing_is_shown(allowed):
    call = goldenrule.fixture("op=gdn mode=decode B=2 H=1 HV=1 K=8 V=8").call()
    call.inputs["v"][:] = 0
    call.inputs["initial_state"][:] = 0
    outputs = {n: e.golden for n, e in call.expected().outputs.items()}
    goldenrule.assert_delta_rule(call, outputs=outputs, allow_mistrusted=allowed)
"""


@pytest.fixture
def session(pytester):
    pytester.makeini("[pytest]")  # the root of its tests
    pytester.makepyfile(test_suite=SUITE)
    shutil.copy(kernels.__file__, pytester.path)
    return pytester


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_failures_are_told_kept_and_written_down(session, workers, program):
    done = session.runpytest_subprocess("-p", "no:cacheprovider", "--goldenrule-capture=kept",
                                        "--goldenrule-report=report.json", "-rs", *workers)
    done.assert_outcomes(passed=3, failed=4)
    done.stdout.fnmatch_lines_random([
        "*AssertionError: op=gdn mode=decode B=3 H=2 HV=4 K=32 V=8: OUT_OF_BUDGET",
        "*worst: sequence 1, token 0, head *",
        "*replay: goldenrule.fixture('op=gdn mode=decode B=3 H=2 HV=4 K=32 V=8')",
        "*kept: goldenrule check kept/test_suite.py_test_wrong_32*",
        "*: MISTRUSTED",
        "*expected the outputs final_state as well, or only=('o',)"])
    cases = json.loads((session.path / "report.json").read_text())["cases"]
    merged = session.run(program, "merge", "report.json", "--html", "report.html")
    assert merged.ret == 1
    merged.stdout.fnmatch_lines(["7 files: * OUT_OF_BUDGET, *"])
    assert "test_wrong[32]" in (session.path / "report.html").read_text()
    verdicts = {(case["test"].split("::")[1], case["verdict"]) for case in cases}
    assert len(cases) == 7 and verdicts == {
        ("test_right[gdn_decode_B3_H2_HV4_K16_V8_A_" + stem(8) + "]", "EXACT"),
        ("test_right[gdn_decode_B3_H2_HV4_K16_V9_A_" + stem(9) + "]", "EXACT"),
        ("test_wrong[16]", "OUT_OF_BUDGET"), ("test_wrong[32]", "OUT_OF_BUDGET"),
        ("test_half", "SKIPPED"), ("test_nothing_is_shown[False]", "MISTRUSTED"),
        ("test_nothing_is_shown[True]", "MISTRUSTED")}
    kept = [case for case in cases if "capture" in case]
    assert len(kept) == len(list((session.path / "kept").iterdir())) == 4
    for case in kept:
        call = goldenrule.read(session.path / case["capture"])
        assert call.judge(explain=False).verdict == case["verdict"] and call.case == case["case"]


def stem(v):
    return goldenrule.fixture(f"op=gdn mode=decode B=3 H=2 HV=4 K=16 V={v}").stem.rpartition("_")[2]


def test_a_place_that_cannot_be_written_hides_no_failure(session, tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = session.runpytest_subprocess("-k", "test_wrong and 16", "--goldenrule-capture", tmp_path / "file")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*OUT_OF_BUDGET*", "*  not kept: *file*"])
    result = session.runpytest_subprocess("--goldenrule-report", tmp_path / "none" / "report.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--goldenrule-report: expected a file in a folder that exists, actual *none*"])


def test_nothing_is_written_unasked(session):
    session.runpytest_subprocess("-p", "no:cacheprovider", "-k", "wrong").assert_outcomes(
        failed=2, deselected=5)
    assert not [*session.path.rglob("*.h5"), *session.path.rglob("*.json")]


def test_the_examples(pytester):
    for file in EXAMPLES.glob("*.py"):
        shutil.copy(file, pytester.path)
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n", "2")
    done.assert_outcomes(passed=40, failed=1)
    done.stdout.fnmatch_lines(["*explained by gate_ignored:*"])


def test_outside_of_a_test_it_is_an_assertion():
    case = goldenrule.fixture(kernels.LINE)
    with pytest.raises(AssertionError, match="OUT_OF_BUDGET"):
        goldenrule.assert_delta_rule(case, outputs=kernels.wrong_head(case), explain=False)
    with pytest.raises(TypeError, match="actual both"):
        goldenrule.assert_delta_rule(case, op="kda", outputs={})
