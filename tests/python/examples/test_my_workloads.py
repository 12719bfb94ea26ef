# SPDX-License-Identifier: Apache-2.0
"""Calls as workloads of FlashInfer-Trace, and a solution judged on them (`pip install .[trace]`)."""

import ml_dtypes
import my_decode
import pytest

import goldenrule

CASES = "op=gdn mode=decode B={1,3} H=2 HV=4 K=16 V=16 seed=3"


def run(q, k, v, state, A_log, a, dt_bias, b, scale):
    """A solution, as flashinfer-bench calls it; scale is K^-0.5 here."""
    o, state = my_decode.decode(*(x[:, 0] for x in (q, k, v, a, b)), A_log, dt_bias, state)
    return o[:, None].astype(ml_dtypes.bfloat16), state


def test_a_solution(tmp_path):
    pytest.importorskip("safetensors")
    for case in goldenrule.suite(CASES):
        written = goldenrule.trace.write(case.call(), tmp_path)
    name = written.definition["name"]
    workloads = goldenrule.trace.read(tmp_path / "definitions" / "gdn" / f"{name}.json",
                                      tmp_path / "workloads" / "gdn" / f"{name}.jsonl")
    assert len(workloads) == 2
    for workload in workloads:
        report = workload.judge(run(**workload.arguments()))
        assert report.passed, report
