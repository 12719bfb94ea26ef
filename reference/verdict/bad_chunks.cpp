// SPDX-License-Identifier: Apache-2.0
#include "reference/verdict/bad_chunks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/verdict/budget.hpp"

namespace goldenrule::verdict {
namespace {

// What an element is bad by; 0: it is not.
double badness(double y, const Expected& e, const Budget& budget, std::size_t i) {
  if (!e.exact.is_defined(i)) return 0.0;
  const double golden = e.exact.golden[i];
  const double granted = std::isfinite(golden) ? budget(i) : 0.0;
  if (!is_bounded(e, i, granted) || verdict::passes(y, e, i, granted)) return 0.0;
  if (!std::isfinite(y) || !std::isfinite(golden)) return std::numeric_limits<double>::infinity();
  return std::max(ratio_of(std::fabs(y - golden) - static_cast<double>(e.exact.radius[i]), granted),
                  1.0);
}

Worst bad_element(const call::Tensor& part, const Expected& e, const Budget& budget, std::size_t i,
                  call::Shape index) {
  const double y = part[static_cast<std::int64_t>(i)];
  const double golden = e.exact.golden[i];
  const double error = std::fabs(y - golden);
  return {.index = std::move(index),
          .value = y,
          .golden = golden,
          .error = error,
          .budget = std::isfinite(golden) ? budget(i) : 0.0,
          .ulps = error / call::ulp(part.dtype(), golden)};
}

}  // namespace

void BadChunks::add(const StageRow& row, const call::Tensor& part,
                    std::span<const std::int64_t> heads, const ExpectedStage& stage,
                    const contract::Contract& contract, const StagePlaces& places) {
  const Expected& e = stage.expected;
  const Budget budget(std::string(row.name), part.dtype(), e, contract);
  const std::size_t slice = e.exact.golden.size() / static_cast<std::size_t>(e.exact.shape[0]);
  for (std::size_t i = 0; i < e.exact.golden.size(); ++i) {
    const double bad = badness(part[static_cast<std::int64_t>(i)], e, budget, i);
    if (bad == 0.0) continue;
    const auto place = places.of(stage.axes.front(), static_cast<std::int64_t>(i / slice));
    Chunk& chunk = chunks_[{place.sequence, place.chunk}];
    chunk.step = row.walk == StageWalk::kReverse ? place.behind : place.chunk;
    ++chunk.elements;
    if (bad < chunk.worst_by) continue;
    call::Shape index = call::unravel(e.exact.shape, static_cast<std::int64_t>(i));
    if (!heads.empty()) index[1] = heads[static_cast<std::size_t>(index[1])];
    if (bad == chunk.worst_by && chunk.worst.index < index) continue;
    chunk.worst_by = bad;
    chunk.worst = bad_element(part, e, budget, i, std::move(index));
    chunk.worst.coordinates = places.named(stage.axes, chunk.worst.index);
  }
}

BadStage BadChunks::first(const StageRow& row) const {
  // Of two that are computed at one step the worse one, of two as bad the one that lies before.
  const auto first = std::ranges::min_element(chunks_, [](const auto& a, const auto& b) {
    if (a.second.step != b.second.step) return a.second.step < b.second.step;
    if (a.second.worst_by != b.second.worst_by) return a.second.worst_by > b.second.worst_by;
    return a.second.worst.index < b.second.worst.index;
  });
  return {.name = std::string(row.name),
          .sequence = first->first.first,
          .chunk = first->first.second,
          .step = first->second.step,
          .worst = first->second.worst,
          .elements = first->second.elements};
}

}  // namespace goldenrule::verdict
