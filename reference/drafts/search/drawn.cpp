// SPDX-License-Identifier: Apache-2.0
#include "reference/drafts/search/drawn.hpp"

#include <algorithm>
#include <cmath>

#include "reference/drafts/rule/decide.hpp"

namespace goldenrule::drafts {

std::optional<Drawn> drawn(std::span<const double> w, double u, Threshold of) {
  if (!std::isfinite(u)) return std::nullopt;
  double total = 0.0;
  for (const double x : w) total += std::max(x, 0.0);
  const double threshold = of == Threshold::kOfSum ? u * total : u;
  const double open = largest_sum_error(std::ssize(w)) * std::max(total, threshold);
  std::optional<std::int64_t> first;
  double sum = 0.0;
  for (std::size_t x = 0; x < w.size(); ++x) {
    sum += w[x];
    // A sum of 0 is 0 in a kernel as well, and not above 0.
    const bool may_be_above = sum > threshold || (sum != 0.0 && threshold - sum <= open);
    if (may_be_above && !first) first = static_cast<std::int64_t>(x);
    if (sum - threshold > open) return Drawn{*first, static_cast<std::int64_t>(x)};
  }
  return std::nullopt;
}

}  // namespace goldenrule::drafts
