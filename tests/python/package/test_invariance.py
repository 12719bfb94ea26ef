# SPDX-License-Identifier: Apache-2.0
"""Relations between two calls of a kernel: one that is right keeps them all, and each way not to is found."""

import threading

import ml_dtypes
import numpy as np
import pytest

import goldenrule

DECODE = "op=gdn mode=decode B=3 H=2 HV=4 K=32 V=16 seed=5"
SLOTS = "op=gdn mode=decode B=3 H=2 HV=4 K=32 V=16 slots=padded seed=5"
PREFILL = "op=kda mode=prefill lens=70,3,40 H=2 HV=2 K=16 V=16 seed=5"
MTP = "op=gdn mode=mtp B=2 T=3 H=2 HV=4 K=32 V=16 seed=5"
BITS = ("batch", "order", "repeat", "neighbours")


class Kernel:
    """What the oracle expects, rounded once, and before or after that a mistake."""

    def __init__(self, line, before=None, after=None):
        self.call = goldenrule.fixture(line).call()
        self.before, self.after, self.calls, self.threads = before, after, 0, set()

    def __call__(self, convention, **inputs):
        self.calls += 1
        self.threads.add(threading.get_ident())
        if self.before:
            self.before(self, inputs)
        expected = goldenrule.expected(op=self.call.op, mode=self.call.mode, inputs=inputs, convention=convention)
        outputs = {name: np.nan_to_num(output.golden).astype(ml_dtypes.bfloat16 if name == "o" else np.float32)
                   for name, output in expected.outputs.items()}
        if self.after:
            self.after(self, inputs, outputs)
        return outputs


def rows(inputs):
    return len(inputs["cu_seqlens"]) - 1 if "cu_seqlens" in inputs else inputs["q"].shape[0]


def summed_by_size_of_batch(kernel, inputs, outputs):
    if rows(inputs) > 1:
        outputs["final_state"][...] *= np.float32(1 + 2**-22)


def by_place(kernel, inputs, outputs):
    outputs["o"][0] *= ml_dtypes.bfloat16(1.0 + 2**-7)


def reads_a_neighbour(kernel, inputs):
    inputs["v"][...] += 1e-6 * np.roll(inputs["v"].astype(np.float32), 1, axis=0).astype(inputs["v"].dtype)


def by_call(kernel, inputs, outputs):
    outputs["final_state"][..., 0] += np.float32(1e-6 * kernel.calls)


def by_slot(kernel, inputs, outputs):
    outputs["o"][...] *= ml_dtypes.bfloat16(1.0 + 2**-7 * (int(inputs["state_indices"][0]) % 2))


@pytest.mark.parametrize("line", [DECODE, SLOTS, PREFILL, MTP], ids=["decode", "slots", "prefill", "mtp"])
def test_a_right_kernel_keeps_every_relation_on_the_thread_of_its_caller(line):
    kernel = Kernel(line)
    report = goldenrule.invariant(kernel, goldenrule.fixture(line))
    assert report and report.passed, report
    assert kernel.threads == {threading.get_ident()}
    verdicts = {(outcome.over, outcome.relation): outcome.verdict for outcome in report.outcomes}
    assert verdicts["batch", "rows_alone"] == verdicts["order", "rows_reversed"] == "HOLDS"
    assert verdicts["repeat", "repeated"] == verdicts["neighbours", "neighbour_nan"] == "HOLDS"
    assert (verdicts["split", "split"] == "HOLDS") == (line == PREFILL)
    assert (("order", "slots_permuted") in verdicts) == (line == SLOTS)


@pytest.mark.parametrize("line, over, before, after", [
    (DECODE, "batch", None, summed_by_size_of_batch),
    (PREFILL, "batch", None, summed_by_size_of_batch),
    (DECODE, "order", None, by_place),
    (SLOTS, "order", None, by_slot),
    (DECODE, "neighbours", reads_a_neighbour, None),
    (MTP, "repeat", None, by_call),
], ids=["size of batch", "size of packed batch", "place", "slot", "neighbour", "call"])
def test_each_way_to_differ_is_found_where_it_is_asked_for(line, over, before, after):
    report = goldenrule.invariant(Kernel(line, before, after), goldenrule.fixture(line), over)
    assert not report
    assert "BROKEN" in [outcome.verdict for outcome in report.outcomes]
    first = next(departure for outcome in report.outcomes for departure in outcome.departures)
    assert first.violations > 0 and first.first and str(first) in str(report)
    if after is summed_by_size_of_batch:  # what is not asked for is not said
        assert goldenrule.invariant(Kernel(line, before, after), goldenrule.fixture(line), ("repeat", "order"))


def test_the_first_element_that_differs_has_its_coordinates():
    report = goldenrule.invariant(Kernel(DECODE, after=by_place), goldenrule.fixture(DECODE), "order")
    first = report.outcomes[0].departures[0]
    assert (first.tensor, first.first["sequence"], first.bound) == ("o", 0, 0.0)
    assert "the first at sequence 0" in str(report)


def test_a_kernel_that_promises_no_bits_is_held_to_the_budgets_of_both_calls():
    case = goldenrule.fixture(DECODE)
    kernel = Kernel(DECODE, after=summed_by_size_of_batch)
    assert not goldenrule.invariant(kernel, case, "batch")
    report = goldenrule.invariant(kernel, case, "batch", same_bits=False, contract="recurrent_f32")
    assert report and not report.outcomes[0].bits
    far = Kernel(DECODE, after=lambda kernel, inputs, outputs: by_batch(inputs, outputs, 1.01))
    report = goldenrule.invariant(far, case, "batch", same_bits=False, contract="recurrent_f32")
    assert not report and report.outcomes[0].departures[0].bound > 0
    assert not goldenrule.invariant(Kernel(DECODE, after=by_call), case, "repeat", same_bits=False)


def by_batch(inputs, outputs, factor):
    if rows(inputs) > 1:
        outputs["final_state"][...] *= np.float32(factor)


def test_a_prefill_that_loses_a_state_where_it_is_cut_is_found():
    def forgets(kernel, inputs):
        if kernel.calls == 3:  # the second half
            inputs["initial_state"][...] = 0

    report = goldenrule.invariant(Kernel(PREFILL, forgets), goldenrule.fixture(PREFILL), "split")
    assert not report and report.outcomes[0].relation == "split"


def test_bits_of_a_type_finer_than_that_of_v_count():
    def outputs_in_float32(kernel, inputs, outputs):
        outputs["o"] = outputs["o"].astype(np.float32) * np.float32(1 + 2**-20 * (rows(inputs) > 1))

    report = goldenrule.invariant(Kernel(DECODE, after=outputs_in_float32), goldenrule.fixture(DECODE), "batch")
    assert not report


def test_one_row_says_nothing_of_a_batch_and_that_is_no_pass():
    line = "op=gdn mode=decode B=1 H=2 HV=4 K=32 V=16"
    report = goldenrule.invariant(Kernel(line), goldenrule.fixture(line), "batch")
    assert not report and report.outcomes[0].verdict == "SAYS NOTHING"
    assert "nothing of which it speaks" in str(report)


def test_what_a_kernel_raises_is_raised_and_its_inputs_are_its_own():
    class Ended(Exception):
        pass

    def ends(kernel, inputs):
        if kernel.calls == 2:
            raise Ended("second")

    with pytest.raises(Ended, match="second"):
        goldenrule.invariant(Kernel(DECODE, ends), goldenrule.fixture(DECODE), "batch")

    def spoils(kernel, inputs, outputs):
        for name in ("q", "v", "initial_state"):
            inputs[name][...] = 0

    assert goldenrule.invariant(Kernel(DECODE, after=spoils), goldenrule.fixture(DECODE), BITS)


@pytest.mark.parametrize("options, error, words", [
    ({"over": "rows"}, ValueError, "over: expected some of batch"),
    ({"over": "cuda_graph", "device": "cpu"}, ValueError, 'expected device="cuda"'),
    ({"over": ()}, ValueError, "over: expected some of batch.*, actual 'none'"),
    ({"repeats": 0}, ValueError, "repeats: expected a whole number"),
    ({"contract": "attention_f32"}, ValueError, "attention_f32"),
])
def test_what_makes_no_sense_is_refused_by_name(options, error, words):
    with pytest.raises(error, match=words):
        goldenrule.invariant(Kernel(DECODE), goldenrule.fixture(DECODE), **options)


def test_other_operations_and_missing_outputs_are_refused_by_name():
    line = "op=attention mode=decode lens=3x4 H=2 HV=4 K=64 V=32 ctx=0,33,70"
    with pytest.raises(ValueError, match="op: expected gated_delta_rule or kda"):
        goldenrule.invariant(lambda **inputs: {}, goldenrule.fixture(line), "batch")
    with pytest.raises(ValueError, match="/outputs/final_state"):
        goldenrule.invariant(Kernel(DECODE, after=lambda kernel, inputs, outputs: outputs.pop("final_state")),
                             goldenrule.fixture(DECODE), "batch")
    for returned in (None, (1, 2)):
        with pytest.raises(TypeError, match=f"outputs: expected .*, actual {type(returned).__name__}"):
            goldenrule.invariant(lambda **inputs: returned, goldenrule.fixture(DECODE), "batch")
    with pytest.raises(TypeError, match="expected a case .*, actual dict"):
        goldenrule.invariant(Kernel(DECODE), goldenrule.fixture(DECODE).inputs, "batch")
    with pytest.raises(TypeError, match="expected parameters for"):
        goldenrule.invariant(lambda q, k: {}, goldenrule.fixture(DECODE), "batch")


def test_as_marks_of_a_test():
    mark = goldenrule.over("batch", "repeat")
    assert mark.args == ("over", ["batch", "repeat"])
    assert goldenrule.over().args[1] == ["batch", "order", "split", "repeat", "neighbours"]
    with pytest.raises(ValueError, match="over: expected some of"):
        goldenrule.over("rows")


def no_numbers(kernel, inputs, outputs):
    for output in outputs.values():
        output[...] = np.nan


def test_outputs_that_are_no_numbers_say_nothing():
    report = goldenrule.invariant(Kernel(DECODE, after=no_numbers), goldenrule.fixture(DECODE), BITS)
    assert not report and {outcome.verdict for outcome in report.outcomes} == {"SAYS NOTHING"}, report
