// SPDX-License-Identifier: Apache-2.0
//
// The stages of the chunk form for a whole call, so that the author of a chunked kernel can find
// the first one that differs. Computed in the 106-bit tier and stored as f64; there is no radius.
//
//   name     shape            row t of a token belongs to its position in its chunk
//   G        tokens,HV(,K)    sum of log alpha from the start of the chunk, natural log
//   beta     tokens,HV
//   q, k     tokens,H,K       normalised, q scaled
//   A, T     tokens,HV,C      row of A and of (I + A)^-1; columns beyond the chunk's tokens are 0
//   w        tokens,HV,K
//   u, v_new tokens,HV,V
//   h        chunks,HV,state  state at the start of each chunk, in the state layout of the call;
//                             chunks count up through the sequences, ceil(T / C) each
//
// `tokens` is the flattened token axis. Padded rows are left zero and have chunks like the others.
#pragma once

#include <cstdint>

#include "fixtures/call/record.hpp"

namespace goldenrule::delta {

/// Throws Error as call::make_plan does, and Error(kArgument) for C < 1.
[[nodiscard]] call::TensorMap chunk_stages(const call::Record& record, std::int64_t C);

}  // namespace goldenrule::delta
