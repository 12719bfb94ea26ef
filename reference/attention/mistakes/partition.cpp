// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/mistakes/partition.hpp"

#include <algorithm>

#include "reference/attention/mistakes/mistake.hpp"

namespace goldenrule::attention {
namespace {

std::int64_t rounded_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The runs of the keys first <= i < last.
std::vector<Run> runs_between(const Request& request, std::int64_t first, std::int64_t last) {
  std::vector<Run> runs;
  std::int64_t before = 0;
  for (const Run& run : request.runs) {
    const std::int64_t begin = std::clamp(first - before, std::int64_t{0}, run.count);
    const std::int64_t end = std::clamp(last - before, begin, run.count);
    if (begin < end) runs.push_back({run.source, run.row + begin, run.t + begin, end - begin});
    before += run.count;
  }
  return runs;
}

}  // namespace

PartEnds ends_of(const Request& request, const Partition& partition) {
  const std::int64_t keys = request.key_count();
  PartEnds ends;
  std::int64_t step = partition.number;
  switch (partition.by) {
    case Partition::By::kSource: {
      std::int64_t cached = 0;
      for (const Run& run : request.runs) cached += run.source == Source::kCache ? run.count : 0;
      return {cached, keys};
    }
    case Partition::By::kSize:
      for (std::int64_t end = step; end < keys; end += step) ends.push_back(end);
      ends.push_back(keys);
      return ends;
    case Partition::By::kCount:
      step = rounded_up(keys, partition.number);
      break;
    case Partition::By::kTiles:
      step = rounded_up(rounded_up(keys, kKeyTile), partition.number) * kKeyTile;
      break;
  }
  for (std::int64_t i = 1; i <= partition.number; ++i) ends.push_back(std::min(i * step, keys));
  return ends;
}

std::int64_t count_of(const Plan& plan, const Partition& partition) {
  std::size_t count = 0;
  for (const Request& request : plan.requests) {
    count = std::max(count, ends_of(request, partition).size());
  }
  return static_cast<std::int64_t>(count);
}

Request part_of(const Request& request, const PartEnds& ends, std::int64_t p) {
  Request part = request;
  const auto at = static_cast<std::size_t>(p);
  part.runs.clear();
  if (at < ends.size()) part.runs = runs_between(request, at == 0 ? 0 : ends[at - 1], ends[at]);
  return part;
}

std::vector<SeenParts> seen_parts(const Request& request, const PartEnds& ends) {
  std::vector<std::int64_t> before{0};  // keys before each run
  for (const Run& run : request.runs) before.push_back(before.back() + run.count);
  // Keys at positions before `t`.
  const auto keys_before = [&](std::int64_t t) {
    const auto run = std::ranges::upper_bound(request.runs, t, {}, &Run::t);
    if (run == request.runs.begin()) return std::int64_t{0};
    const auto last = std::prev(run);
    return before[static_cast<std::size_t>(last - request.runs.begin())] +
           std::min(t - last->t, last->count);
  };
  const auto part_with = [&](std::int64_t key) {
    return std::ranges::upper_bound(ends, key) - ends.begin();
  };
  std::vector<SeenParts> seen;
  for (const Range& visible : request.visible) {
    const std::int64_t first = keys_before(visible.first), last = keys_before(visible.last);
    seen.push_back(first < last ? SeenParts{part_with(first), part_with(last - 1)} : SeenParts{});
  }
  return seen;
}

}  // namespace goldenrule::attention
