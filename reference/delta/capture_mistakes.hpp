// SPDX-License-Identifier: Apache-2.0
//
// Mistakes of the capture, not of the kernel: what was written down is not what the kernel was
// given. They are looked for before any mistake of a kernel, which would otherwise be blamed.
//
//   initial_state_after_call   A kernel that updates its pool in place was captured with the pool
//   as
//     it was afterwards. With S_0 the captured initial state, o_t = S_0^T q^_t then holds for the
//     last token t that went into a slot, where the rule needs the state before it; and final_state
//     is S_0 bit for bit.
//   state_indices_forgotten    Row b uses slot b where no indices are given. Every row is right
//   with
//     another slot, and the call with those slots is right in all outputs.
//   convention_forgotten       An input is given that the declared gate or beta does not read, and
//     with the gate or beta that reads it all outputs are right.
//   inputs_not_read            The same without that evidence: a note.
//   larger_pool                More slots than rows, no indices, and no evidence: a note.
#pragma once

#include <vector>

#include "reference/verdict/verdict.hpp"

namespace goldenrule::delta {

/// Those of a failing record, what accounts for its failures first. Costs a few verdicts at most.
[[nodiscard]] std::vector<calls::CaptureMistake> capture_mistakes(
    const verdict::Judgement& judgement);

}  // namespace goldenrule::delta
