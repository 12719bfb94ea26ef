// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/work.hpp"

#include <algorithm>

#include "reference/attention/rule/evaluate.hpp"

namespace goldenrule::attention {
namespace {

// Nanoseconds of one core: the time of calls of f16 with K = V of 16 and of 128 and their grant,
// measured on a shared machine and rounded up.
struct Cost {
  double pair;     // of what each pair takes beside its channels
  double channel;  // of each of its K + V
};
constexpr double kVisit = 3.0;

Cost cost_of(scalar::Precision precision) {
  switch (precision) {
    case scalar::Precision::kDouble:
      return {.pair = 400.0, .channel = 12.0};
    case scalar::Precision::kQuad:
      return {.pair = 1000.0, .channel = 30.0};
    case scalar::Precision::kMulti:
      break;
  }
  return {.pair = 1000.0, .channel = 130.0};
}

// Whether the keys of a request stand at rising positions, so that a range of positions cannot hold
// more keys than it has places.
bool rise(const std::vector<Run>& runs) {
  const auto out_of_order = [](const Run& a, const Run& b) { return b.t < a.t + a.count; };
  return std::ranges::adjacent_find(runs, out_of_order) == runs.end();
}

double most_visible(const Request& request, std::int64_t keys, bool rising, const Range& range) {
  if (keys == 0) return 0.0;
  if (!rising) return static_cast<double>(range.first < range.last ? keys : 0);
  const Run& last = request.runs.back();
  const std::int64_t first_seen = std::max(range.first, request.runs.front().t);
  const std::int64_t end_seen = std::min(range.last, last.t + last.count);
  return static_cast<double>(std::clamp(end_seen - first_seen, std::int64_t{0}, keys));
}

}  // namespace

Extent extent_of(const Plan& plan) {
  Extent extent;
  const auto heads = static_cast<double>(plan.dims.HV);
  for (const Request& request : plan.requests) {
    const std::int64_t keys = request.key_count();
    const bool rising = rise(request.runs);
    for (const Range& range : request.visible) {
      extent.pairs += heads * most_visible(request, keys, rising, range);
    }
    const double rows = heads * static_cast<double>(request.valid);
    extent.visits += rows * static_cast<double>(request.runs.size());
  }
  return extent;
}

double core_seconds(const Extent& extent, const Dims& dims, scalar::Precision precision) {
  const Cost cost = cost_of(precision);
  const auto channels = static_cast<double>(dims.K + dims.V);
  return 1e-9 * (extent.pairs * (cost.pair + channels * cost.channel) + extent.visits * kVisit);
}

}  // namespace goldenrule::attention
