// SPDX-License-Identifier: Apache-2.0
//
// The keys that one row sees, as a list: for what works row by row and in orders of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/attention/rule/rule.hpp"

namespace goldenrule::attention {

struct KeyPlace {
  Source source;
  std::int64_t row;
};

/// In the order of the runs.
[[nodiscard]] inline std::vector<KeyPlace> visible_keys(const Request& request,
                                                        std::int64_t query) {
  const Range visible = request.visible[static_cast<std::size_t>(query)];
  std::vector<KeyPlace> keys;
  for (const Run& run : request.runs) {
    const std::int64_t begin = std::clamp(visible.first - run.t, std::int64_t{0}, run.count);
    const std::int64_t end = std::clamp(visible.last - run.t, begin, run.count);
    for (std::int64_t i = begin; i < end; ++i) keys.push_back({run.source, run.row + i});
  }
  return keys;
}

/// q of one row.
[[nodiscard]] inline std::vector<double> query_of(const Tensors& tensors, const Plan& plan,
                                                  const Request& request, const RowPlace& row) {
  const std::int64_t K = plan.dims.K;
  std::vector<double> q(static_cast<std::size_t>(K));
  tensors.q->read(((request.first_query + row.query) * plan.dims.HV + row.head) * K, K, q.data());
  return q;
}

[[nodiscard]] inline std::int64_t key_head_of(const Plan& plan, const RowPlace& row) {
  return plan.key_head[static_cast<std::size_t>(row.head)];
}

}  // namespace goldenrule::attention
