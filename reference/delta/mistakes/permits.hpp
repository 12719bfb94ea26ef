// SPDX-License-Identifier: Apache-2.0
//
// What the reasons for which a contract permits a mistake (calls::Mistake::permitted_by) are made
// of: how many bits a chunked kernel keeps at the points that the mistake touches.
#pragma once

#include "reference/contract/contract.hpp"

namespace goldenrule::delta {

/// Whether `contract` has a chunked kernel round every one of `points` (contract::Point or
/// Activation) to this many significand bits or fewer. bf16 has 8.
template <class... P>
[[nodiscard]] bool keeps_at_most(int bits, const contract::Contract& contract, P... points) {
  const contract::Chunked* chunked = contract.chunked();
  const auto within = [bits](const contract::Rounding& rounding) {
    return rounding && contract::info(*rounding).significand_bits <= bits;
  };
  return chunked != nullptr && (within(chunked->at(points)) && ...);
}

}  // namespace goldenrule::delta
