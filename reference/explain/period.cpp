// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/period.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

#include "reference/explain/index_set.hpp"

namespace goldenrule::explain {
namespace {

// The smallest p with members[j] = members[j + p] throughout: what the longest proper prefix that
// is a suffix as well leaves.
std::int64_t smallest_period(std::span<const std::uint8_t> members) {
  const std::size_t n = members.size();
  std::vector<std::size_t> border(n, 0);  // of the first i + 1
  for (std::size_t i = 1; i < n; ++i) {
    std::size_t b = border[i - 1];
    while (b > 0 && (members[i] != 0) != (members[b] != 0)) b = border[b - 1];
    border[i] = b + ((members[i] != 0) == (members[b] != 0) ? 1 : 0);
  }
  return static_cast<std::int64_t>(n - border[n - 1]);
}

// Whether so few of the sets of `count` indices on an axis of `size` are periodic.
bool is_no_chance(std::int64_t size, std::int64_t count) {
  const double half = 0.5 * static_cast<double>(size);
  const double periodic = 0.5 * half * (half + 1.0);
  return std::log(periodic) - log_choices(size, count) < std::log(kChance);
}

}  // namespace

std::optional<Period> period_of(std::span<const std::uint8_t> members) {
  const std::int64_t size = std::ssize(members);
  if (size < 4) return std::nullopt;
  const std::int64_t m = smallest_period(members);
  if (m < 2 || 2 * m > size) return std::nullopt;
  Period period{.modulus = m, .width = 0};
  std::int64_t starts = 0;
  std::int64_t count = 0;
  for (std::int64_t j = 0; j < size; ++j)
    count += members[static_cast<std::size_t>(j)] != 0 ? 1 : 0;
  for (std::int64_t j = 0; j < m; ++j) {
    if (members[static_cast<std::size_t>(j)] == 0) continue;
    ++period.width;
    if (members[static_cast<std::size_t>((j + m - 1) % m)] != 0) continue;
    ++starts;
    period.first = j;
  }
  if (starts != 1 || !is_no_chance(size, count)) return std::nullopt;
  return period;
}

std::string condition(const Period& p, const std::string& letter) {
  const auto text = [](std::int64_t x) { return std::to_string(x); };
  const std::string residue = letter + " % " + text(p.modulus);
  const std::int64_t end = p.first + p.width;
  if (p.width == 1) return residue + " = " + text(p.first);
  if (p.first == 0) return residue + " < " + text(end);
  if (end == p.modulus) return residue + " >= " + text(p.first);
  if (end < p.modulus) return text(p.first) + " <= " + residue + " < " + text(end);
  return residue + " < " + text(end - p.modulus) + " or " + residue + " >= " + text(p.first);
}

}  // namespace goldenrule::explain
