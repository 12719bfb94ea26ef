// SPDX-License-Identifier: Apache-2.0
//
// The rows of a capture, one query and head each, that fail and that pass.
#pragma once

#include <vector>

#include "reference/attention/visible/readings.hpp"

namespace goldenrule::attention {

struct JudgedRow {
  Place place;
  std::int64_t failing = 0;  ///< elements of o, and lse
};

struct JudgedRows {
  std::vector<JudgedRow> failing, passing;
};

/// None without an output o.
[[nodiscard]] JudgedRows judged_rows(const verdict::Judgement& judgement, const Plan& plan);

/// `most` of them at most, spread over all.
[[nodiscard]] std::vector<JudgedRow> thinned(const std::vector<JudgedRow>& rows, std::int64_t most);

}  // namespace goldenrule::attention
