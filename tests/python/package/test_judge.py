# SPDX-License-Identifier: Apache-2.0
"""goldenrule.judge and what stands beside it, on the installed wheel."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import kernels
import ml_dtypes
import numpy as np
import pytest

import goldenrule


@pytest.fixture(scope="module")
def case():
    return goldenrule.fixture(kernels.LINE)


@pytest.fixture(scope="module")
def right(case):
    return kernels.exact(case)


def described(case, outputs):
    call = case.call()
    return dict(op=call.op, mode=call.mode, convention=call.convention, inputs=call.inputs,
                outputs=outputs)


def test_a_right_call_is_exact_and_a_wrong_one_says_where(case, right):
    report = case.judge(right)
    assert report and report.passed and report.verdict == "EXACT"
    report = case.judge(kernels.wrong_head(case), explain_seconds=0)
    assert not report and report.verdict == "OUT_OF_BUDGET"
    assert report.tensors["o"].out_of_budget == 32 and report.tensors["final_state"].verdict == "EXACT"
    assert report.worst.coordinates["sequence"] == 1 and report.worst.coordinates["head"] in (0, 3)
    assert "only sequence 1" in report.pattern and report.pattern in str(report)
    assert "worst: sequence 1, token 0" in str(report)


def test_the_answers_are_those_of_the_program(case, tmp_path, program):
    call = case.call()
    call.outputs = kernels.wrong_head(case)
    call.save(tmp_path / "call.h5")
    done = subprocess.run([program, "check", tmp_path / "call.h5", "--json", tmp_path / "r.json",
                           "--no-explain"], capture_output=True, text=True)
    report = call.judge(name=str(tmp_path / "call.h5"), explain=False)
    assert done.returncode == 1 and str(report) == done.stdout.rstrip("\n")
    written = json.loads((tmp_path / "r.json").read_text())
    assert written["cases"][0].pop("replay").startswith("goldenrule check ")
    said = json.loads(report.to_json())
    assert said["cases"][0].pop("replay") == ""  # no command line judges what is in memory
    assert said == written and any("maps" in tensor for tensor in said["cases"][0]["tensors"])
    assert goldenrule.read(tmp_path / "call.h5").judge(explain=False).verdict == "OUT_OF_BUDGET"


def test_the_page_is_that_of_the_program(case, tmp_path, program):
    report = case.judge(kernels.wrong_head(case), explain=False)
    (tmp_path / "r.json").write_text(report.to_json())
    subprocess.run([program, "merge", tmp_path / "r.json", "--html", tmp_path / "r.html"],
                   capture_output=True, check=False)
    page = report.to_html()
    assert page.startswith("<!doctype html>") and "OUT_OF_BUDGET" in page
    assert page == (tmp_path / "r.html").read_text()
    assert report._repr_html_().count("<") == 2  # a frame, and nothing of the page outside it


def test_expected_is_what_the_verdict_compares_with(case):
    for name, output in case.expected(contract="recurrent_f32").outputs.items():
        limit = output.radius + output.budget
        beyond, within = (output.golden + factor * limit for factor in (1.01, 0.99))
        others = {n: e.golden for n, e in case.expected().outputs.items() if n != name}
        for values, verdict in ((beyond, "OUT_OF_BUDGET"), (within, "WITHIN_BUDGET")):
            report = case.judge({**others, name: values.astype(np.float64)}, only=name,
                                contract="recurrent_f32", explain=False)
            # float64 outputs have a budget of their own: no rounding to their storage type
            assert report.verdict == verdict or name == "o"


@pytest.mark.parametrize("form", ["bits", "float32", "strided", "reversed", "fortran", "list"])
def test_arrays_of_any_form_are_the_same_call(case, right, form):
    call = described(case, dict(right))
    q = call["inputs"]["q"]
    bf16 = {"bits": ("q",), "float32": ("q",)}.get(form, ())
    call["inputs"]["q"] = {
        "bits": lambda: q.view(np.uint16), "float32": lambda: q.astype(np.float32),
        "strided": lambda: np.repeat(q, 2, axis=-1)[..., ::2],
        "reversed": lambda: q[..., ::-1].copy()[..., ::-1],
        "fortran": lambda: np.asfortranarray(q), "list": lambda: q}[form]()
    if form == "list":
        call["inputs"]["A_log"] = call["inputs"]["A_log"].astype(np.float64)
        call["outputs"]["final_state"] = right["final_state"].astype(">f4")
    assert goldenrule.judge(**call, bf16=bf16).verdict == "EXACT"


def test_prefill_of_four_axes_is_packed():
    case = goldenrule.fixture("op=kda mode=prefill lens=2x5 H=1 HV=2 K=16 V=8 io=f32")
    call, right = case.call(), {n: e.golden.astype("f4") for n, e in case.expected().outputs.items()}
    inputs = {name: x.reshape(2, 5, *x.shape[1:]) if x.shape[:1] == (10,) else x
              for name, x in call.inputs.items() if name != "cu_seqlens"}
    report = goldenrule.judge(op=call.op, mode=call.mode, convention=call.convention, inputs=inputs,
                              outputs={**right, "o": right["o"].reshape(2, 5, 2, 8)})
    assert report.passed


def nested(depth):
    inner = {}
    for _ in range(depth):
        inner = {"name": inner}
    return inner


BAD = {
    "shape": (lambda c: c["outputs"].update(o=c["outputs"]["o"][:2]), ValueError, "outputs o: expected"),
    "complex": (lambda c: c["inputs"].update(q=c["inputs"]["q"].astype("c8")), ValueError, "inputs q"),
    "integer q": (lambda c: c["inputs"].update(q=np.zeros((3, 1, 2, 32), "i4")), ValueError, "inputs q"),
    "missing": (lambda c: c["inputs"].pop("b"), ValueError, "inputs b: is missing"),
    "unknown": (lambda c: c["inputs"].update(qq=1.0), ValueError, "unknown name 'qq'"),
    "nothing": (lambda c: c.update(outputs={}), ValueError, "expected at least one"),
    "op": (lambda c: c.update(op="linear"), ValueError, "op: expected one of"),
    "layout": (lambda c: c["convention"].update(state_layout="kk"), ValueError, "state_layout"),
    "eps": (lambda c: c["convention"].update(l2_eps=float("nan")), ValueError, "l2_eps"),
    "contract": (lambda c: c.update(contract="mine"), ValueError, "contract"),
    "contract nan": (lambda c: c.update(contract={"chunk": np.nan}), ValueError, "not JSON compliant"),
    "contract depth": (lambda c: c.update(contract=nested(100_000)), ValueError, "nested too deep"),
    "contract text": (lambda c: c.update(contract={"name": "\ud800"}), ValueError, "surrogates"),
    "contract type": (lambda c: c.update(contract={"name": object()}), TypeError, "Object of type object"),
    "contract json": (lambda c: c.update(contract={"base": 3}), (ValueError, TypeError), "contract"),
    "precision": (lambda c: c.update(precision="half"), ValueError, "precision"),
    "only": (lambda c: c.update(only=["p"]), ValueError, "only"),
    "terms": (lambda c: c.update(terms=["o["]), ValueError, "terms"),
    "option": (lambda c: c.update(explian=False), TypeError, "explian"),
    "slot": (lambda c: c["inputs"].update(state_indices=np.array([0, 1, 9])), ValueError,
             "/inputs/state_indices[2]"),
    "in place": (lambda c: c["outputs"].update(final_state=c["inputs"]["initial_state"]), ValueError,
                 "clone it before the call"),
    "object": (lambda c: c["inputs"].update(q=object()), ValueError, "inputs q"),
    "text": (lambda c: c.update(name="\udcff"), ValueError, "surrogates"),
    "bytes": (lambda c: c.update(case=b"op=gdn"), TypeError, "case: expected a text"),
    "seconds": (lambda c: c.update(explain_seconds=float("nan")), ValueError, "explain_seconds"),
    "no mapping": (lambda c: c.update(outputs=[1]), (ValueError, TypeError), ""),
}


@pytest.mark.parametrize("what", BAD)
def test_what_makes_no_sense_is_one_line(case, right, what):
    change, kind, text = BAD[what]
    call = described(case, dict(right))
    change(call)
    with pytest.raises(kind) as caught:
        goldenrule.judge(**call)
    assert text in str(caught.value) and "\n" not in str(caught.value)


def test_files_that_cannot_be_had_are_errors(case, right, tmp_path):
    call = case.call()
    call.outputs = right
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, tmp_path / "none" / "call.h5"):
        with pytest.raises(OSError, match="expected"):
            call.save(path)
    call.save(os.fsencode(tmp_path) + b"/\xff.h5")
    assert goldenrule.read(os.fsencode(tmp_path) + b"/\xff.h5").judge().verdict == "EXACT"
    (tmp_path / "text.h5").write_text("no HDF5")
    for name, kind in (("none.h5", OSError), ("text.h5", OSError)):
        with pytest.raises(kind, match=name):
            goldenrule.read(tmp_path / name)


def test_what_stands_behind_a_null_byte_is_not_passed_over(case, right, tmp_path):
    """Of "call.h5\\0x" the system would read call.h5."""
    call = case.call()
    call.outputs = right
    path = f"{tmp_path}/call.h5"
    call.save(path)
    with pytest.raises(ValueError, match="null byte"):
        goldenrule.read(path + "\0x")
    with pytest.raises(ValueError, match="null byte"):
        call.save(path + "\0x")
    with pytest.raises(ValueError, match="null byte"):
        goldenrule.capture(f"{tmp_path}/other.h5\0x", op=call.op, mode=call.mode, inputs=call.inputs,
                           outputs=right, convention=call.convention)
    with pytest.raises(ValueError, match="contract: expected a text without null"):
        call.judge(contract=f"{tmp_path}/mine.json\0.json")
    assert [found.name for found in tmp_path.iterdir()] == ["call.h5"]


LONG = "op=gdn mode=prefill lens=400x4 H=4 HV=4 K=128 V=128 io=f32"


def test_an_interrupt_ends_a_long_judgement():
    case = goldenrule.fixture(LONG)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            case.expected(precision="multi")
        assert time.monotonic() - begin < 15  # the whole takes a minute of an idle machine
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    small = goldenrule.fixture(kernels.LINE)
    assert small.judge(kernels.exact(small)).verdict == "EXACT"  # nothing is broken


def test_other_threads_run_and_answers_do_not_mix(case, right):
    lines = [kernels.LINE.replace("seed=5", f"seed={seed}") for seed in range(8)]
    cases = [goldenrule.fixture(line) for line in lines]
    alone = [c.judge(kernels.wrong_head(c), explain=False).to_json() for c in cases]
    ticks = []
    running = threading.Event()

    def tick():
        while not running.wait(0.001):
            ticks.append(1)

    ticker = threading.Thread(target=tick)
    ticker.start()
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(
            lambda c: c.judge(kernels.wrong_head(c), explain=False).to_json(), cases))
    running.set()
    ticker.join()
    assert together == alone and ticks


def test_a_forked_process_can_judge(case, right):
    done = subprocess.run([sys.executable, "-c", """
import os, sys
sys.path.insert(0, sys.argv[1])
import goldenrule, kernels
case = goldenrule.fixture(kernels.LINE)
outputs = kernels.exact(case)
assert case.judge(outputs)
child = os.fork()
if child == 0:
    os._exit(0 if case.judge(outputs) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""", kernels.__file__.rpartition("/")[0]], timeout=60)
    assert done.returncode == 0


def test_threads_that_nobody_waits_for_are_stopped_at_the_end():
    done = subprocess.run([sys.executable, "-c", """
import threading, time, goldenrule
case = goldenrule.fixture("op=gdn mode=prefill lens=400x4 H=4 HV=4 K=128 V=128 io=f32")
threading.Thread(target=case.expected, kwargs={"precision": "multi"}, daemon=True).start()
time.sleep(0.5)
"""], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_tables_are_those_of_the_program(program):
    for call, command in ((goldenrule.schema, ["schema"]), (goldenrule.suites, ["list", "suites"]),
                          (goldenrule.patterns, ["list", "patterns"]),
                          (goldenrule.contracts, ["list", "contracts"])):
        printed = subprocess.run([program, *command, "--json"], capture_output=True, check=True)
        assert call() == json.loads(printed.stdout)
    assert goldenrule.contract("recurrent_f32")["kind"] == "recurrent"
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.split()[1] == goldenrule.__version__


def test_suites_give_cases():
    cases = list(goldenrule.suite("boundary", op="gated_delta_rule", mode="decode", max_bytes=1 << 18))
    assert len(cases) > 10 and len({c.stem for c in cases}) == len(cases)
    assert all(c.mode == "decode" and c.golden_bytes <= 1 << 18 for c in cases)
    assert len(list(goldenrule.suite("op=gdn mode=decode B={1,3} H=1 HV=1 K=8 V={8,9}"))) == 4
    for wrong in ("nothing", "op=gdn mode=decode B={1,3"):
        with pytest.raises(ValueError):
            goldenrule.suite(wrong)
    with pytest.raises(ValueError, match="mode: expected one of"):
        goldenrule.suite("boundary", mode="decod")
    with pytest.raises(ValueError, match="one case line"):
        goldenrule.fixture("op=gdn mode=decode B={1,3} H=1 HV=1 K=8 V=8")


def test_import_needs_nothing_else():
    done = subprocess.run([sys.executable, "-c", "import sys, goldenrule; print(*sys.modules)"],
                          capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert not {"numpy", "torch", "h5py", "ml_dtypes", "pytest", "goldenrule._core"} & set(loaded)


def test_a_fixture_is_made_anew_for_every_use(case):
    case.inputs["q"][:] = ml_dtypes.bfloat16(0)
    assert np.any(case.inputs["q"].astype("f4") != 0)
