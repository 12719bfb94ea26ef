# SPDX-License-Identifier: Apache-2.0
"""A call that needs more memory than there is: MemoryError before anything is copied, and nothing stays."""

import math
import re
import sys
from pathlib import Path

import kernels
import numpy as np
import pytest

import goldenrule


def available():
    """Bytes, of which the library takes three quarters where no control group has less."""
    return int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) << 10


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) << 12


SLOTS = "op=gdn mode=decode B=3 H=2 HV=4 K=32 V=16 slots=permuted"
STATE = (4, 16, 32)


def states(count):
    """A pool of so many bytes, which the system has lent and nobody has touched."""
    return np.zeros((count // (4 * math.prod(STATE)), *STATE), "f4")


def call_on(pool):
    call = goldenrule.fixture(SLOTS).call()
    call.outputs = {"o": np.zeros_like(call.inputs["v"])}
    call.inputs["initial_state"] = pool
    return call


@pytest.mark.parametrize("what", ["judge", "expected", "save"])
def test_a_call_that_is_too_large_is_refused_before_it_is_copied(what, tmp_path):
    pool = states(available() // 2)
    call = call_on(pool)
    use = {"judge": lambda: call.judge(only="o", explain=False), "expected": call.expected,
           "save": lambda: call.save(tmp_path / "call.h5")}[what]
    references, before = sys.getrefcount(pool), resident()
    for _ in range(8):
        with pytest.raises(MemoryError, match=r"expected a call that can be judged in \d+ bytes.*, "
                           r"actual one that needs \d+ bytes, \d+ bytes of them tensors") as caught:
            use()
        assert "\n" not in str(caught.value)
        del caught
    assert resident() - before < 64 << 20
    assert sys.getrefcount(pool) == references
    assert not list(tmp_path.iterdir())


def test_expanded_tensors_are_refused_before_they_are_in_one_piece():
    pool = np.broadcast_to(states(4 * math.prod(STATE)), (1 << 34, *STATE))
    before = resident()
    with pytest.raises(MemoryError, match=r"actual tensors of \d+ bytes"):
        call_on(pool).judge(only="o")
    assert resident() - before < 64 << 20


def test_the_next_call_is_judged():
    case = goldenrule.fixture(kernels.LINE)
    with pytest.raises(MemoryError):
        call_on(states(available() // 2)).judge(only="o")
    assert case.judge(kernels.exact(case)).verdict == "EXACT"
