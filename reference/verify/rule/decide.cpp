// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/rule/decide.hpp"

#include <algorithm>
#include <cmath>

#include "reference/verify/rule/fixed.hpp"

namespace goldenrule::verify {
namespace {

constexpr double kUnit = 0x1p-24;
constexpr double kSmallest = 0x1p-126;  // normal f32

double gamma(double k) { return k * kUnit / (1.0 - k * kUnit); }

bool is_flushed(double x) { return x > 0.0 && x < kSmallest; }

double largest_sum_error(std::int64_t Z) {
  const std::int64_t n = (Z + 1023) / 1024 + 10;
  return gamma(static_cast<double>(2 * n + 3));
}

void add_residual(const Source& source, std::int64_t x, Fixed& sum) {
  if (!source.has(x)) return;
  const auto at = static_cast<std::size_t>(x);
  sum.add(source.p[at]);
  if (!source.q.empty()) sum.subtract(source.q[at]);
}

}  // namespace

Acceptance accept(double p, double q, double u, const call::Convention& rule) {
  if (q == 0.0) return {.accepted = rule.zero_draft == call::ZeroDraft::kAccept};
  const double product = u * q;  // 48 bits: exact in double
  const bool strict = rule.accept_rule == call::AcceptRule::kLt;
  Acceptance a{.accepted = strict ? product < p : product <= p};
  const bool exact = u == 0.0 || u == 1.0 || q == 1.0;
  const double error = 4.0 * kUnit * std::max(p, product);
  a.open = is_flushed(p) || is_flushed(q) ||
           (!exact && (std::fabs(product - p) <= error || (p == 0.0 && product < kSmallest)));
  return a;
}

bool Source::has(std::int64_t x) const {
  const auto at = static_cast<std::size_t>(x);
  return x != but && p[at] > (q.empty() ? 0.0 : q[at]);
}

double Source::residual(std::int64_t x) const {
  const auto at = static_cast<std::size_t>(x);
  return has(x) ? p[at] - (q.empty() ? 0.0 : q[at]) : 0.0;
}

std::optional<std::int64_t> draw(const Source& source, double u) {
  const std::int64_t Z = std::ssize(source.p);
  Fixed total;
  for (std::int64_t x = 0; x < Z; ++x) add_residual(source, x, total);
  const Fixed nothing;
  if (total == nothing) return std::nullopt;
  const Fixed threshold = total.times(u);
  const auto is_near = [&](const Fixed& sum) {
    const double larger = std::max(sum.to_double(), threshold.to_double());
    const double flushed = static_cast<double>(Z) * kSmallest;
    return sum.distance(threshold) <= largest_sum_error(Z) * larger + flushed;
  };
  Fixed below;
  for (std::int64_t x = 0; x < Z; ++x) {
    Fixed sum = below;
    add_residual(source, x, sum);
    if (sum > threshold) {
      const bool open = (below != nothing && is_near(below)) || is_near(sum);
      return open ? std::nullopt : std::optional(x);
    }
    below = sum;
  }
  return std::nullopt;  // u = 1: no sum is above all of them
}

std::optional<std::int64_t> race(const Source& source, std::span<const double> noise) {
  std::optional<std::int64_t> leader;
  double best = 0.0;
  double second = 0.0;
  for (std::int64_t x = 0; x < std::ssize(source.p); ++x) {
    const double score = source.residual(x) / noise[static_cast<std::size_t>(x)];
    if (score > best) {
      second = best;
      best = score;
      leader = x;
    } else {
      second = std::max(second, score);
    }
  }
  if (best <= kSmallest || second * (1.0 + gamma(8.0)) >= best) return std::nullopt;
  return leader;
}

}  // namespace goldenrule::verify
