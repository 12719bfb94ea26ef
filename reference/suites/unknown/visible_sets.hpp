// SPDX-License-Identifier: Apache-2.0
//
// Kernels of attention whose rows see other keys than they should: drawn calls over masks, windows,
// tables, caps and types, drawn mistakes with drawn numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reference/attention/plan/plan.hpp"
#include "reference/suites/unknown/draws.hpp"

namespace goldenrule::suites {

/// A call of 2 or 3 requests under `mask`, with a cache in pages or without one.
[[nodiscard]] std::string drawn_attention(Draws& draws, const std::string& mask, bool cached,
                                          std::int64_t page);

/// Changes the range of a query: change(range, query, request).
using ChangeOfRange =
    std::function<void(attention::Range&, std::int64_t, const attention::Request&)>;

struct DrawnRanges {
  std::string line;
  ChangeOfRange change;
  std::string words;  ///< that say it
};
[[nodiscard]] const std::vector<std::string>& kinds_of_ranges();
[[nodiscard]] DrawnRanges drawn_ranges(const std::string& kind, Draws& draws);

/// The plan in which every valid query sees the changed range.
[[nodiscard]] attention::Plan changed_plan(const call::Record& call, const ChangeOfRange& change);

/// Outputs of a kernel (`made`), and of one whose heads from `first_head` on are those of `other`.
void replace_heads(const attention::Plan& plan, std::int64_t first_head,
                   const call::TensorMap& other, call::TensorMap& made);

}  // namespace goldenrule::suites
