// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace goldenrule::bench {

struct Options {
  bool prefill = false;              ///< the prefill kernels,
  bool attention = false;            ///< or attention,
  bool neighbours = false;           ///< or calls behind other kernels, else decode and MTP
  std::vector<std::string> filters;  ///< a row whose name contains one is measured; none: all
  int replays = 30;
  bool profile = false;  ///< one plain launch a row, for a profiler, nothing timed

  [[nodiscard]] bool selects(const std::string& row) const {
    return filters.empty() || std::ranges::any_of(filters, [&](const auto& filter) {
             return row.find(filter) != std::string::npos;
           });
  }
};

}  // namespace goldenrule::bench
