# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of whoever calls: a thread may round upwards, or take denormal numbers as zeros (what
torch.set_flush_denormal and libraries of -ffast-math do). What is exact does not depend on it."""

import contextlib
import ctypes

import kernels
import numpy as np
import pytest

import goldenrule

UPWARD = 2 << 13  # of the register that x86-64 keeps both in
ZEROS = 0x8040
TINY = "op=gdn mode=decode B=2 H=1 HV=1 K=16 V=16 io=f32"


@contextlib.contextmanager
def arithmetic(bits):
    """These bits on the calling thread, in the block."""
    c = ctypes.CDLL(None) if hasattr(ctypes.CDLL(None), "fegetenv") else ctypes.CDLL("libm.so.6")
    kept, changed = (ctypes.c_uint32 * 8)(), (ctypes.c_uint32 * 8)()
    assert c.fegetenv(kept) == 0 and c.fegetenv(changed) == 0
    changed[7] |= bits
    assert c.fesetenv(changed) == 0
    try:
        yield
    finally:
        assert c.fesetenv(kept) == 0


def test_the_arithmetic_of_the_test_is_another():
    one, tiny = np.ones(1), np.full(1, 1e-41, np.float32)
    with arithmetic(UPWARD):
        assert (one + 2.0**-60)[0] > 1
    with arithmetic(ZEROS):
        flushed = (tiny * np.float32(1.0)).view(np.uint32)
    assert flushed[0] == 0 and (one + 2.0**-60)[0] == 1


@pytest.mark.parametrize("bits", [UPWARD, ZEROS])
def test_expectations_and_verdicts_do_not_depend_on_it(bits):
    case = goldenrule.fixture(TINY)
    call = case.call()
    for name in ("v", "initial_state"):
        call.inputs[name] = call.inputs[name] * np.float32(1e-41)
    alone, usual = call.expected(), kernels.exact(goldenrule.fixture(kernels.LINE))
    with arithmetic(bits):
        again, inputs = call.expected(), case.inputs
        report = goldenrule.fixture(kernels.LINE).judge(usual, explain=False)
    for name in ("o", "final_state"):
        assert np.any(alone[name].golden) and np.array_equal(alone[name].golden, again[name].golden)
        assert np.array_equal(alone[name].budget, again[name].budget)
    assert all(np.array_equal(inputs[name], value) for name, value in case.inputs.items())
    assert report.verdict == "EXACT"
