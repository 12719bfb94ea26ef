# SPDX-License-Identifier: Apache-2.0
"""Workloads of FlashInfer-Trace, in both directions. The trace set beside this file was written once by
goldenrule.trace.write: what is written today must be read by releases to come."""

import copy
import json
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import goldenrule
from goldenrule import trace

HERE = Path(__file__).resolve().parent / "trace_set"
NAME = "gdn_decode_qk1_v2_d4_k_last"
DEFINITION = HERE / "definitions" / "gdn" / f"{NAME}.json"
WORKLOADS = HERE / "workloads" / "gdn" / f"{NAME}.jsonl"
RAW = "qk_l2norm=none"
LINES = [
    f"op=gdn mode=decode B=3 H=1 HV=2 K=4 V=4 {RAW}",
    "op=kda mode=decode B=2 H=2 HV=4 K=8 V=8 state_layout=kv io=f32",
    f"op=gdn mode=mtp B=2 T=3 H=1 HV=2 K=8 V=8 disable_state_update=1 {RAW}",
    "op=kda mode=mtp B=2 T=2 H=1 HV=1 K=4 V=4 scale=0.3",
    f"op=gdn mode=prefill lens=3,0,2 H=1 HV=2 K=4 V=4 {RAW}",
    "op=kda mode=prefill lens=3,1 H=1 HV=2 K=4 V=4 state_layout=kv state=bf16"]


def read(workload, root):
    kind, name = workload.definition["op_type"], workload.definition["name"]
    return trace.read(root / "definitions" / kind / f"{name}.json",
                      root / "workloads" / kind / f"{name}.jsonl")


def results_of(workload):
    """What a right kernel returns, in the definition's order."""
    types = [ml_dtypes.bfloat16 if row["dtype"] == "bfloat16" else row["dtype"]
             for row in workload.definition["outputs"].values()]
    golden = workload.expected().outputs
    return tuple(golden[name].golden.astype(dtype) for name, dtype in zip(("o", "final_state"), types))


def reference_of(workload):
    """What the reference of the definition returns, where torch is installed."""
    torch = pytest.importorskip("torch")
    space = {}
    exec(workload.definition["reference"], space)
    return [value if isinstance(value, torch.Tensor) else value
            for value in space["run"](*workload.tensors().values())]


@pytest.mark.parametrize("line", LINES)
def test_a_call_is_written_and_read(line, tmp_path):
    call = goldenrule.fixture(line).call()
    written = trace.write(call, tmp_path)
    trace.write(call, tmp_path)  # once
    (workload,) = read(written, tmp_path)
    for name, expected in call.expected().outputs.items():
        if name in ("o", "final_state"):
            np.testing.assert_array_equal(workload.expected()[name].golden, expected.golden)
    assert workload.judge(results_of(workload), explain=False).passed
    wrong = list(results_of(workload))
    wrong[0] = -wrong[0]
    assert workload.judge(wrong, explain=False).verdict == "OUT_OF_BUDGET"
    assert list(workload.arguments()) == list(workload.definition["inputs"])


@pytest.mark.parametrize("line", LINES)
def test_the_reference_that_is_written_is_right(line, tmp_path):
    workload = trace.write(goldenrule.fixture(line).call(), tmp_path)
    assert workload.judge(reference_of(workload), explain=False).passed


def test_a_trace_set_of_an_earlier_release():
    workloads = trace.read(DEFINITION, WORKLOADS)
    assert [workload.axes["batch_size"] for workload in workloads] == [3, 2]
    stored, random = workloads
    line = LINES[0]
    for name, expected in goldenrule.fixture(line).expected().outputs.items():
        np.testing.assert_array_equal(stored.expected()[name].golden, expected.golden)
    # Inputs that are left to chance are those of a seed.
    assert random.judge(results_of(random), explain=False).passed
    again, other = (trace.read(DEFINITION, WORKLOADS, seed=seed)[1] for seed in (0, 1))
    np.testing.assert_array_equal(random.arguments()["q"], again.arguments()["q"])
    assert not np.array_equal(random.arguments()["q"], other.arguments()["q"])
    goldenrule.assert_delta_rule(random, outputs=random.outputs(results_of(random)))


def test_rows_on_a_pool_are_written_with_their_states(tmp_path):
    case = goldenrule.fixture("op=gdn mode=decode B=3 H=1 HV=2 K=4 V=4 slots=permuted P=5")
    call = case.call()
    workload = trace.write(call, tmp_path)
    np.testing.assert_array_equal(workload.arguments()["state"],
                                  call.inputs["initial_state"][call.inputs["state_indices"]])
    np.testing.assert_array_equal(workload.expected()["o"].golden, call.expected()["o"].golden)


def definition(**changes):
    return {**json.loads(DEFINITION.read_text()), **changes}


def test_definitions_that_are_not_known_are_refused():
    reference = definition()["reference"]
    say_the_same = ("# a comment\n" + reference.replace("    scale = scale", '    """Doc."""\n'
                    "    assert heads == 4\n    scale = scale"))
    assert len(trace.read(definition(reference=say_the_same), WORKLOADS, root=HERE)) == 2
    swapped = definition()
    swapped["inputs"]["a"]["shape"] = ["batch_size", "num_v_heads", "seq_len"]
    less = definition()
    del less["inputs"]["b"]
    for changed, words in (
            (definition(name="gemm_n4096_k4096"), "gemm_n4096_k4096"),
            (definition(name=NAME.replace("decode", "prefill")), "inputs: expected"),
            (definition(name=NAME.replace("gdn", "kda")), "its reference"),
            (definition(reference=reference.replace("-torch.exp(A_log", "-torch.exp2(A_log")),
             "its reference"),
            (definition(reference=reference.replace("    scale = scale", "    assert q.mul_(2)\n"
                                                    "    scale = scale")), "its reference"),
            (definition(reference=reference.replace("    scale = scale", "    assert 1; q = k\n"
                                                    "    scale = scale")), "its reference"),
            (definition(reference=None), "its reference"),
            (definition(reference="def run(:"), "its reference"), (swapped, "a: expected the axes"),
            (less, "inputs: expected q, k, v, state"), ({}, "expected a definition"), ({"name": 1}, "'1'")):
        with pytest.raises(ValueError) as refused:
            trace.read(changed, WORKLOADS, root=HERE)
        assert words in str(refused.value) and "\n" not in str(refused.value)


def rows():
    return [json.loads(line) for line in WORKLOADS.read_text().splitlines()]


def test_workloads_that_do_not_fit_are_refused(tmp_path):
    def call(change):
        row = copy.deepcopy(rows()[0])
        change(row["workload"]["inputs"], row["workload"]["axes"], row)
        return trace.read(definition(), [row], root=HERE)[0].call()

    for change, words in (
            (lambda i, a, r: a.update(batch_size=4), "expected bfloat16 [4, 1, 1, 4]"),
            (lambda i, a, r: a.update(batch_size=-1), "axes: batch_size"),
            (lambda i, a, r: a.pop("batch_size"), "axes: batch_size"),
            (lambda i, a, r: i.pop("q"), "q: expected an input"),
            (lambda i, a, r: i.update(q={"type": "scalar", "value": 1}), "q: expected the type"),
            (lambda i, a, r: i.update(scale={"type": "scalar", "value": "x"}), "expected a scalar"),
            (lambda i, a, r: i["q"].update(tensor_key="none"), "none: expected a tensor"),
            (lambda i, a, r: i.update(q=i["state"]), "expected bfloat16"),
            (lambda i, a, r: r.update(definition="other"), "expected workloads of"),
            (lambda i, a, r: r.pop("workload"), "KeyError")):
        with pytest.raises(ValueError, match=words.replace("[", r"\[")):
            call(change)
    blob = rows()[0]["workload"]["inputs"]["q"]["path"]
    for content, words in ((b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
                           (b"\xff" * 64, "expected safetensors"), (b"", "expected safetensors")):
        path = tmp_path / blob
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        with pytest.raises(ValueError, match=words):
            trace.read(definition(), rows()[:1], root=tmp_path)[0].call()
    with pytest.raises(FileNotFoundError):
        trace.read(definition(), rows()[:1], root=tmp_path / "none")[0].call()
    with pytest.raises(ValueError, match="line 1: expected JSON"):
        (tmp_path / "x.jsonl").write_text("{")
        trace.read(definition(), tmp_path / "x.jsonl")


def test_results_that_do_not_fit_are_refused():
    workload = trace.read(DEFINITION, WORKLOADS)[0]
    o, state = results_of(workload)
    for results in ((o,), o, {"output": o, "state": state}):
        with pytest.raises(ValueError, match="expected the outputs output, new_state"):
            workload.judge(results)
    with pytest.raises(ValueError, match="o: expected"):
        workload.judge((o[:1], state))


def test_what_the_reference_answers_otherwise_is_refused():
    """Its indexing takes slot -1 for the last one; an empty sequence loses its state there."""
    call = goldenrule.fixture(LINES[2]).call()
    call.inputs["state_indices"] = np.array([0, -1], np.int32)
    with pytest.raises(ValueError, match="padding"):
        trace.write(call, "unused")


def test_calls_that_have_no_definition_are_refused(tmp_path):
    base = "op=gdn mode=decode B=2 H=1 HV=2 K=4 V=4"
    for line, words in (
            (f"{base} gate=log", "gate: expected softplus"), (f"{base} beta=direct", "beta: expected"),
            (f"{base} head_map=tiled", "head_map"), (f"{base} l2_eps=0.001", "l2_eps"),
            (f"{base} softplus_threshold=5", "softplus_threshold"),
            (f"{base} qk_l2norm=max_norm_eps", "qk_l2norm"), (f"{base} slots=padded".replace("B=2", "B=3"), "padding"),
            (base.replace("V=4", "V=8"), "K and V are one axis"),
            ("op=gdn mode=prefill lens=3,2 H=1 HV=1 K=4 V=4 checkpoints=after every=2",
             "cu_checkpoints|checkpoint_offsets"),
            ("op=gdn mode=mtp lens=3,2 H=1 HV=1 K=4 V=4", "cu_seqlens|axes")):
        with pytest.raises(ValueError, match=words):
            trace.write(goldenrule.fixture(line).call(), tmp_path)
    assert not any(tmp_path.iterdir())
    # A definition that is there already must mean the same.
    shutil.copytree(HERE, tmp_path, dirs_exist_ok=True)
    with pytest.raises(ValueError, match="q: expected"):
        trace.write(goldenrule.fixture(f"{base} {RAW} io=f32").call(), tmp_path)
    before = (tmp_path / WORKLOADS.relative_to(HERE)).read_text()
    trace.write(goldenrule.fixture(LINES[0]).call(), tmp_path)
    assert (tmp_path / WORKLOADS.relative_to(HERE)).read_text() == before
