// SPDX-License-Identifier: Apache-2.0
#include "reference/drafts/rule/decide.hpp"

#include <algorithm>
#include <cmath>

#include "reference/drafts/rule/fixed.hpp"

namespace goldenrule::drafts {
namespace {

constexpr double kUnit = 0x1p-24;
constexpr double kSmallest = 0x1p-126;  // normal f32
constexpr double kLargest = 0x1.fffffep127;

double gamma(double k) { return k * kUnit / (1.0 - k * kUnit); }

bool is_flushed(double x) { return x > 0.0 && x < kSmallest; }

void add_residual(const Source& source, std::int64_t x, Fixed& sum) {
  if (!source.has(x)) return;
  const auto at = static_cast<std::size_t>(x);
  sum.add(source.p[at]);
  if (!source.q.empty()) sum.subtract(source.q[at]);
}

}  // namespace

double largest_sum_error(std::int64_t Z) {
  const std::int64_t n = (Z + 1023) / 1024 + 10;
  return gamma(static_cast<double>(2 * n + 3));
}

Acceptance accept(double p, double q, double u, const call::Convention& rule) {
  if (q == 0.0) return {.accepted = rule.zero_draft == call::ZeroDraft::kAccept};
  const double product = u * q;  // 48 bits: exact in double
  const bool strict = rule.accept_rule == call::AcceptRule::kLt;
  Acceptance a{.accepted = strict ? product < p : product <= p};
  const bool exact = u == 0.0 || q == 1.0;
  const double error = 4.0 * kUnit * std::max(p, product);
  a.open = is_flushed(p) || is_flushed(q) || (u == 0.0 && p == 0.0 && !strict) ||
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

bool Choice::admits(std::int64_t token) const {
  return any ? token >= 0 && token < vocabulary : std::ranges::binary_search(tokens, token);
}

std::optional<std::int64_t> Choice::only() const {
  if (any || tokens.size() != 1) return std::nullopt;
  return tokens.front();
}

Choice draw(const Source& source, double u) {
  const std::int64_t Z = std::ssize(source.p);
  Choice choice{.vocabulary = Z, .exact = 0, .any = true, .tokens = {}};
  Fixed total;
  for (std::int64_t x = 0; x < Z; ++x) add_residual(source, x, total);
  const Fixed nothing;
  if (total == nothing) return choice;
  const Fixed threshold = total.times(u);
  const double edge = threshold.to_double();
  const double relative = largest_sum_error(Z);
  const double flushed = static_cast<double>(Z) * kSmallest;
  const auto is_near = [&](const Fixed& sum) {
    return sum.distance(threshold) <= relative * std::max(sum.to_double(), edge) + flushed;
  };
  choice.any = threshold >= total || is_near(total);
  // Token x has [C(x - 1), C(x)) of the line. Sums are asked where they grow, so what is below t
  // and near it stays near, and so does what is above.
  Fixed below;
  bool below_reaches = true;  // C(x - 1) may come out at t or below it
  for (std::int64_t x = 0; x < Z && below_reaches; ++x) {
    if (!source.has(x)) continue;
    Fixed sum = below;
    add_residual(source, x, sum);
    const bool above = sum > threshold;
    if (above && below <= threshold) choice.exact = x;
    // Only sums within twice the relative error are worth the distance.
    const bool near =
        sum.to_double() >= edge * (1.0 - 2.0 * relative) - 2.0 * flushed && is_near(sum);
    if (above || near) choice.tokens.push_back(x);
    below_reaches = !above || near;
    below = sum;
  }
  return choice;
}

Choice race(const Source& source, std::span<const double> noise) {
  const std::int64_t Z = std::ssize(source.p);
  Choice choice{.vocabulary = Z, .exact = 0, .any = false, .tokens = {}};
  double best = 0.0;   // of those whose noise is a normal number
  double first = 0.0;  // of all
  const auto score = [&](std::int64_t x) {
    return source.residual(x) / noise[static_cast<std::size_t>(x)];
  };
  const auto may_be_infinite = [&](std::int64_t x) {
    return source.has(x) && noise[static_cast<std::size_t>(x)] < kSmallest;
  };
  bool infinite = false;
  for (std::int64_t x = 0; x < Z; ++x) {
    if (!source.has(x)) continue;
    if (score(x) > first) {
      first = score(x);
      choice.exact = x;
    }
    if (may_be_infinite(x)) {
      infinite = true;
    } else {
      best = std::max(best, score(x));
    }
  }
  choice.any = !infinite && best <= kSmallest;
  if (choice.any) return choice;
  const double least = std::min(best, kLargest);
  for (std::int64_t x = 0; x < Z; ++x) {
    if (may_be_infinite(x) || (source.has(x) && score(x) * (1.0 + gamma(8.0)) >= least)) {
      choice.tokens.push_back(x);
    }
  }
  return choice;
}

}  // namespace goldenrule::drafts
