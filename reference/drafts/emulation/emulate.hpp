// SPDX-License-Identifier: Apache-2.0
//
// An honest kernel of draft acceptance in fp32, written as one on a GPU is and not as the rule: all
// drafts are decided at once, the first that is not accepted is found in the mask, sums run over
// tiles in trees, a tile is found by the sums of tiles and a token by a scan of it, and stops are
// looked for in all emitted tokens at once. It shares nothing with the rule but the description of
// its inputs.
//
// The seed chooses what kernels choose: products or quotients (rounded once, or by a reciprocal)
// to accept, the size of a tile, and quotients or reciprocals of noise.
#pragma once

#include <cstdint>

#include "fixtures/call/record.hpp"

namespace goldenrule::drafts {

/// All outputs, in f64.
[[nodiscard]] call::TensorMap emulate(const call::Record& record, std::uint64_t seed);

}  // namespace goldenrule::drafts
