# SPDX-License-Identifier: Apache-2.0
"""Stages of a kernel from Python: the first bad one, the forms, files, and what is refused."""

import ml_dtypes
import numpy as np
import pytest

import goldenrule

LINE = "op=kda mode=prefill lens=70,5 H=1 HV=2 K=16 V=8 io=f32 gate=bounded h0=1 pattern=E"


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """A case, its exact outputs and its exact stages, in f32."""
    import subprocess
    import sys
    from pathlib import Path

    folder = tmp_path_factory.mktemp("stages")
    subprocess.run([Path(sys.executable).parent / "goldenrule", "generate", LINE, "-o", folder,
                    "--stages", "64"], check=True, capture_output=True)
    call = goldenrule.read(next(folder.glob("*.h5")))
    assert list(call.stages) == sorted(row["name"] for row in goldenrule.stages())
    outputs = {name: golden.astype("f4") for name, (golden, _) in call.golden.items()}
    return goldenrule.fixture(LINE), outputs, {n: x.astype("f4") for n, x in call.stages.items()}, call


def test_the_first_bad_stage(right):
    case, outputs, stages, _ = right
    report = case.judge(outputs, stages=stages)
    assert report.passed and report.first_bad_stage is None
    assert list(report.stages) == [row["name"] for row in goldenrule.stages()]
    wrong = dict(stages, w=stages["w"].copy(), v_new=stages["v_new"] * 2)
    wrong["w"][66, 1, 3] = np.nan
    report = case.judge(outputs, stages=wrong, chunk=64)
    assert report.passed  # the outputs are right
    assert str(report.first_bad_stage) == "w at sequence 0, chunk 1, token 66, head 1, key 3"
    assert report.stages["v_new"].verdict == "OUT_OF_BUDGET"
    assert "First bad stage: <b>w</b>" in report.to_html()


def test_shapes_types_and_forms(right):
    case, outputs, stages, _ = right
    batched = {name: x[None] for name, x in stages.items()}  # [1,T,..], [1,NT,..]
    assert case.judge(outputs, stages=batched).first_bad_stage is None
    bf16 = {name: stages[name].astype(ml_dtypes.bfloat16) for name in ("T", "w", "u", "h", "v_new")}
    assert case.judge(outputs, stages=bf16, contract="chunk64_bf16").first_bad_stage is None
    in_log2 = dict(stages, G=stages["G"] / np.float32(np.log(2)))
    assert case.judge(outputs, stages=in_log2).stages["G"].verdict == "SKIPPED"
    report = case.judge(outputs, stages=in_log2, stage_forms={"G": "log2"})
    assert report.stages["G"].verdict == "WITHIN_BUDGET"


def test_files(right, tmp_path):
    case, outputs, stages, fixture = right
    path = tmp_path / "capture.h5"
    goldenrule.capture(path, op=case.op, mode=case.mode, inputs=case.inputs, outputs=outputs,
                       convention=case.convention, stages=stages, chunk=64, stage_forms={"G": "log"})
    call = goldenrule.read(path)
    assert call.chunk == 64 and call.stage_forms == {"G": "log"}
    np.testing.assert_array_equal(call.stages["u"], stages["u"])
    assert list(call.judge().stages) == [row["name"] for row in goldenrule.stages()]
    # Those of a fixture are the oracle's own.
    fixture.outputs = outputs
    assert not fixture.judge().stages
    fixture.save(path)
    assert not goldenrule.read(path).stages


@pytest.mark.parametrize("options, text", [
    (dict(stages={"foo": 1.0}), "one of G, beta, q"),
    (dict(stages={"u": np.zeros((75, 2, 5), "f4")}), r"/stages/u: expected \[75,2,8\]"),
    (dict(stages={"u": np.zeros((75, 2, 8), "i8")}), "floating-point"),
    (dict(stages={"u": None}, chunk=64, stage_forms={"u": "x"}), "a stage that is there"),
    (dict(stages={"u": np.zeros((75, 2, 8), "f4")}, stage_forms={"u": "x"}), "no form"),
    (dict(stages={"u": np.zeros((75, 2, 8), "f4")}, chunk=-1), "chunk"),
    (dict(stages={"u": np.zeros((75, 2, 8), "f4")}, chunk=1 << 20), "from 1 to 256 tokens"),
    (dict(chunk=64), "stages: expected some"),
    (dict(stages=[1]), "expected {name: value}"),
])
def test_what_is_refused(right, options, text):
    case, outputs, _, _ = right
    with pytest.raises((ValueError, TypeError, MemoryError), match=text):
        case.judge(outputs, **options)
