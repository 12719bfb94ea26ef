// SPDX-License-Identifier: Apache-2.0
//
// R_t of grant.hpp: how often a key's weight is multiplied by another exponential because the
// running maximum rises.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "reference/scalar/infinity.hpp"

namespace goldenrule::attention {

/// Keys that a tensor core takes in one step.
inline constexpr std::size_t kTensorCoreStep = 16;

/// Per tile of kTensorCoreStep scores, how many tiles behind it raise the running maximum, from the
/// end where there are more of them.
[[nodiscard]] inline std::vector<double> rescales(const std::vector<double>& scores) {
  const std::size_t tiles = (scores.size() + kTensorCoreStep - 1) / kTensorCoreStep;
  std::vector<double> top(tiles, -kInfinity);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    top[i / kTensorCoreStep] = std::max(top[i / kTensorCoreStep], scores[i]);
  }
  const auto records = [&](bool forward) {
    std::vector<double> counts(tiles);
    double running = -kInfinity;
    double seen = 0.0;
    for (std::size_t j = 0; j < tiles; ++j) {
      const std::size_t at = forward ? j : tiles - 1 - j;
      if (top[at] > running) seen += 1.0;
      running = std::max(running, top[at]);
      counts[at] = seen;
    }
    for (double& c : counts) c = seen - c;
    return counts;
  };
  std::vector<double> worse = records(true);
  const std::vector<double> backward = records(false);
  for (std::size_t j = 0; j < tiles; ++j) worse[j] = std::max(worse[j], backward[j]);
  return worse;
}

}  // namespace goldenrule::attention
