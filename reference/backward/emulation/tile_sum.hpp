// SPDX-License-Identifier: Apache-2.0
//
// sum_v h dh', the gradient by the decay of a whole chunk. A kernel that rounds there multiplies
// and adds in that type, as `tl.sum` of the product of two bf16 tiles does: a thread adds up the 8
// values that it loaded, then threads in pairs. Each of the 7 + log2(V / 8) additions behind an
// element errs by half an ulp of its result. The sum is in dg of every token of its chunk, so all
// of them err by the same number.
#pragma once

#include "reference/backward/emulation/rounder.hpp"

namespace goldenrule::backward {

/// `products` [K,V]; the result is [1,K].
[[nodiscard]] Floats tile_sum(const Floats& products, Rounder& rounder);

}  // namespace goldenrule::backward
