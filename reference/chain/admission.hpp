// SPDX-License-Identifier: Apache-2.0
//
// Whether a call of the delta rule belongs to the layer that the chain is of: the same operation,
// heads, dimensions and pool.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "reference/chain/memory.hpp"

namespace goldenrule::chain {

/// That a call contradicts the chain, or does not say what is needed.
[[nodiscard]] Finding input_finding(std::int64_t index, std::string text);

/// An extent of the layer, and of a call.
struct LayerExtent {
  const char* name;
  std::int64_t expected, actual;
};
/// The first in which the call differs: "HV: expected 4, actual 6"; empty: none.
[[nodiscard]] std::string differing_extent(std::initializer_list<LayerExtent> extents);

/// What forbids it is a finding, and so are two requests in one slot. Throws Error where its
/// ledgers take too much memory.
[[nodiscard]] bool admit(const Call& call, const call::Record& record, const call::Dims& dims,
                         Memory& memory, std::vector<Finding>& findings);

}  // namespace goldenrule::chain
