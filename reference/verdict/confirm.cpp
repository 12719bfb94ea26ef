// SPDX-License-Identifier: Apache-2.0
#include "reference/verdict/confirm.hpp"

#include <algorithm>
#include <cstddef>

#include "fixtures/parallel/for_each_index.hpp"

namespace goldenrule::verdict {

std::vector<std::int64_t> fewest_out(
    std::int64_t parts, std::int64_t most,
    const std::function<std::int64_t(std::int64_t part)>& count_out) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(parts));
  parallel::for_each_index(
      parts, [&](std::int64_t i) { counts[static_cast<std::size_t>(i)] = count_out(i); });
  const auto count = [&](std::int64_t i) { return counts[static_cast<std::size_t>(i)]; };
  std::vector<std::int64_t> failing;
  for (std::int64_t i = 0; i < parts; ++i) {
    if (count(i) > 0) failing.push_back(i);
  }
  std::ranges::stable_sort(failing, {}, count);
  const auto kept = std::clamp<std::int64_t>(most, 0, std::ssize(failing));
  failing.resize(static_cast<std::size_t>(kept));
  return failing;
}

}  // namespace goldenrule::verdict
