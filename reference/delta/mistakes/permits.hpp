// SPDX-License-Identifier: Apache-2.0
//
// What the reasons for which a contract permits a mistake (calls::Mistake::permitted_by) are made
// of: how many bits a kernel keeps at the points that the mistake touches.
#pragma once

#include "reference/contract/contract.hpp"

namespace goldenrule::delta {

/// What `contract` rounds there; nothing at a point of the chunk form where the kernel has no
/// chunks. Activations are those of kernels of every kind.
[[nodiscard]] inline contract::Rounding rounding_at(const contract::Contract& contract,
                                                    contract::Activation activation) {
  return contract.at(activation);
}
[[nodiscard]] inline contract::Rounding rounding_at(const contract::Contract& contract,
                                                    contract::Point point) {
  const contract::Chunked* chunked = contract.chunked();
  return chunked == nullptr ? contract::Rounding() : chunked->at(point);
}

/// Whether `contract` rounds at every one of `points` (contract::Point or Activation) to this many
/// significand bits or fewer. bf16 has 8.
template <class... P>
[[nodiscard]] bool keeps_at_most(int bits, const contract::Contract& contract, P... points) {
  const auto within = [bits](const contract::Rounding& rounding) {
    return rounding && contract::info(*rounding).significand_bits <= bits;
  };
  return (within(rounding_at(contract, points)) && ...);
}

}  // namespace goldenrule::delta
