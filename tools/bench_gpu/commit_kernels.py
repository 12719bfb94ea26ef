# SPDX-License-Identifier: Apache-2.0
"""What is left of a commit of accepted tokens beside the verification's own kernels, for serving_step.py: numbers of
slots, cursors of rings, or one copy of the accepted state. One program for each request; `accepted`: 1 to T."""
import triton
import triton.language as tl


@triton.jit
def exchange(current, table, accepted, T: tl.constexpr):
    row = tl.program_id(0)
    place = table + row * T + tl.load(accepted + row) - 1
    old = tl.load(current + row)
    tl.store(current + row, tl.load(place))
    tl.store(place, old)


@triton.jit
def advance(start, count, flush, accepted, T: tl.constexpr, W: tl.constexpr):
    row = tl.program_id(0)
    pending, flushed = tl.load(count + row), tl.load(flush + row)
    kept = tl.where(flushed != 0, 0, pending) + tl.load(accepted + row)
    tl.store(start + row, (tl.load(start + row) + tl.where(flushed != 0, pending, 0)) % W)
    tl.store(count + row, kept)
    tl.store(flush + row, (kept + 2 * T > W).to(tl.int32))


@triton.jit
def copy(pool, states, slots, accepted, size, T: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    step = tl.load(accepted + row).to(tl.int64) - 1
    values = tl.load(states + (row.to(tl.int64) * T + step) * size + at)
    tl.store(pool + tl.load(slots + row).to(tl.int64) * size + at, values)
