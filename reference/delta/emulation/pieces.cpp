// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/emulation/pieces.hpp"

#include <algorithm>

namespace goldenrule::delta {
namespace {

template <class T>
std::vector<T> rows(const std::vector<T>& from, std::int64_t begin, std::int64_t end,
                    std::int64_t width) {
  return {from.begin() + begin * width, from.begin() + end * width};
}

}  // namespace

Lane<double> slice(const Lane<double>& lane, std::int64_t begin, std::int64_t end) {
  const auto within = [&](std::int64_t token) {
    return std::clamp<std::int64_t>(token - begin, 0, end - begin);
  };
  return {
      .tokens = end - begin,
      .K = lane.K,
      .given = within(lane.given),
      .gates = lane.gates,
      .q = rows(lane.q, begin, end, lane.K),
      .k = rows(lane.k, begin, end, lane.K),
      .alpha = rows(lane.alpha, begin, end, lane.gates),
      .log_alpha = rows(lane.log_alpha, begin, end, lane.gates),
      .logit_slope = rows(lane.logit_slope, begin, end, lane.gates),
      .beta = rows(lane.beta, begin, end, 1),
      .bounds = rows(lane.bounds, begin, end, 1),
      .k_error = lane.k_error,
      .q_error = lane.q_error,
      .first_nonfinite = {within(lane.first_nonfinite.q), within(lane.first_nonfinite.k),
                          within(lane.first_nonfinite.beta), within(lane.first_nonfinite.gates)}};
}

bool splits_chunks(std::span<const std::int64_t> positions, std::int64_t tokens,
                   std::int64_t chunk) {
  return std::ranges::any_of(
      positions, [&](std::int64_t position) { return position < tokens && position % chunk != 0; });
}

}  // namespace goldenrule::delta
