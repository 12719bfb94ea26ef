// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/drafts/search/drawn.hpp"
#include "reference/drafts/search/read.hpp"

namespace goldenrule::drafts {
namespace {

// Of a test that several roundings go into: a kernel in fp32 may decide otherwise within so much.
constexpr double kOpen = 64.0 * 0x1p-24;

using Passes = std::optional<bool>;

Passes at_most(double left, double right) {
  if (std::fabs(left - right) <= kOpen * std::max(left, right)) return std::nullopt;
  return left < right;
}

// What the test of a draft reads.
struct Read {
  At target{};
  std::int64_t draft = 0, likeliest = -1;
  double p = 0.0, q = 1.0, u = 0.0;
};

std::optional<Read> read(const Reading& reading, At own, const CountPoint& point) {
  const Work& work = reading.work;
  const call::Dims& d = work.plan.dims;
  const auto target = place(work, point.target, own, Positions::kTarget);
  const auto uniform = place(work, point.uniform, own, Positions::kDrafts);
  if (!target || !uniform) return std::nullopt;
  Read r{.target = *target};
  r.draft = work.decisions.draft(own.n, own.i);
  if (r.draft < 0 || r.draft >= d.vocabulary) return std::nullopt;
  const std::int64_t row = target->n * d.target_rows + target->i;
  r.p = work.call.inputs.at("target_probs")[row * d.vocabulary + r.draft];
  r.likeliest = reading.likeliest[static_cast<std::size_t>(row)];
  r.u = work.call.inputs.at("uniforms")[uniform->n * d.drafts + uniform->i];
  if (!work.is_one_hot()) {
    const std::int64_t from = (own.n * d.drafts + own.i) * d.vocabulary + r.draft;
    r.q = work.call.inputs.at("draft_probs")[from];
  }
  const bool written = std::isfinite(r.p) && std::isfinite(r.q) && std::isfinite(r.u);
  return written ? std::optional(r) : std::nullopt;
}

Passes right(const Work& work, const Read& r) {
  const Acceptance a = accept(r.p, r.q, r.u, work.call.convention);
  return a.open ? Passes() : Passes(a.accepted);
}

Passes likeliest(const Read& r) {
  return r.likeliest >= 0 ? Passes(r.likeliest == r.draft) : Passes();
}

Passes sampled(const Work& work, const Read& r) {
  const auto p = target_row(work, r.target);
  const auto tokens = p ? drawn(*p, r.u) : std::nullopt;
  if (!tokens) return std::nullopt;
  if (!tokens->admits(r.draft)) return false;
  return tokens->only() ? Passes(true) : Passes();
}

// The product of p / q to here is the state of a walk along the drafts of a row.
Passes passes(const Work& work, Test test, const Read& r, double& product) {
  switch (test) {
    case Test::kRight:
      return right(work, r);
    case Test::kWithoutQ:
      return at_most(r.u, r.p);
    case Test::kInverted:
      return at_most(r.u * r.p, r.q);
    case Test::kComplement:
      return at_most((1.0 - r.u) * r.q, r.p);
    case Test::kWithoutU:
      return at_most(r.q, r.p);
    case Test::kProduct:
      product *= r.q > 0.0 ? r.p / r.q : 0.0;
      return at_most(r.u, product);
    case Test::kLikeliest:
      return likeliest(r);
    case Test::kAlsoLikeliest: {
      const Passes one = right(work, r), other = likeliest(r);
      if (one == true || other == true) return true;
      return one && other ? Passes(false) : Passes();
    }
    case Test::kSampled:
      return sampled(work, r);
    case Test::kAlways:
      return true;
    case Test::kNever:
      return false;
  }
  return std::nullopt;
}

Passes greedy_passes(const Work& work, At own, const CountPoint& point) {
  if (point.test == Test::kAlways || point.test == Test::kNever) return point.test == Test::kAlways;
  const bool there = point.test == Test::kRight && point.uniform == From::kOwn;
  const auto target = place(work, point.target, own, Positions::kTarget);
  if (!there || !target) return std::nullopt;
  return work.decisions.target_token(target->n, target->i) == work.decisions.draft(own.n, own.i);
}

// The count of tests of which the first `known` are known; nothing where it hangs on another.
std::optional<std::int64_t> stopped(Stop stop, const std::vector<Passes>& all) {
  const auto known = std::ranges::find(all, Passes());
  const bool complete = known == all.end();
  const auto first_failure = std::find(all.begin(), known, Passes(false));
  const auto first = std::distance(all.begin(), first_failure);
  const auto size = std::ssize(all);
  const bool ended = complete || first_failure != known;
  switch (stop) {
    case Stop::kFirstFailure:
      return ended ? std::optional(first) : std::nullopt;
    case Stop::kOneMore:
      return ended ? std::optional(std::min(first + 1, size)) : std::nullopt;
    case Stop::kOneLess:
      return ended ? std::optional(std::max<std::int64_t>(first - 1, 0)) : std::nullopt;
    case Stop::kAllOrNone:
      return ended ? std::optional(first == size ? size : std::int64_t{0}) : std::nullopt;
    case Stop::kSum:
      return complete ? std::optional<std::int64_t>(std::ranges::count(all, Passes(true)))
                      : std::nullopt;
    case Stop::kLastSuccess: {
      if (!complete) return std::nullopt;
      const auto last = std::find(all.rbegin(), all.rend(), Passes(true));
      return std::distance(last, all.rend());
    }
    case Stop::kFirstFree: {
      std::vector<Passes> free = all;
      if (!free.empty()) free.front() = true;
      return stopped(Stop::kFirstFailure, free);
    }
  }
  return std::nullopt;
}

}  // namespace

int CountPoint::wrong() const {
  return (test != Test::kRight) + (target != From::kOwn) + (uniform != From::kOwn) +
         (stop != Stop::kFirstFailure);
}

std::optional<std::int64_t> count_of(const Reading& reading, std::int64_t n,
                                     const CountPoint& point) {
  const Work& work = reading.work;
  std::vector<Passes> all;
  double product = 1.0;
  for (std::int64_t i = 0; i < work.row(n).drafts; ++i) {
    if (work.is_greedy()) {
      all.push_back(greedy_passes(work, {n, i}, point));
      continue;
    }
    const auto r = read(reading, {n, i}, point);
    all.push_back(r ? passes(work, point.test, *r, product) : Passes());
  }
  return stopped(point.stop, all);
}

}  // namespace goldenrule::drafts
