// SPDX-License-Identifier: Apache-2.0
#include "reference/drafts/search/points.hpp"

#include <array>

#include "reference/drafts/search/read.hpp"

namespace goldenrule::drafts {
namespace {

// Visits all numbers below `extents` in turn: f(digits).
template <std::size_t N, class F>
void each(const std::array<std::size_t, N>& extents, const F& f) {
  std::array<std::size_t, N> digits{};
  for (;;) {
    f(digits);
    std::size_t i = 0;
    while (i < N && ++digits[i] == extents[i]) digits[i++] = 0;
    if (i == N) return;
  }
}

}  // namespace

bool CountPoint::is_constant() const { return test == Test::kAlways || test == Test::kNever; }

std::vector<CountPoint> count_points(const Work& work) {
  const bool greedy = work.is_greedy();
  std::vector<CountPoint> points;
  each(std::array{kTests, kFroms, kFroms, kStops}, [&](const auto& at) {
    const CountPoint p{static_cast<Test>(at[0]), static_cast<From>(at[1]), static_cast<From>(at[2]),
                       static_cast<Stop>(at[3])};
    if (p.wrong() == 0 || p.wrong() > kMostWrong) return;
    const bool numbers = p.target != From::kOwn || p.uniform != From::kOwn;
    if (p.is_constant() && (numbers || p.stop != Stop::kFirstFailure)) return;
    const bool possible = p.uniform == From::kOwn && (p.test == Test::kRight || p.is_constant());
    // The q of a one-hot draft is 1: without it the test is the right one.
    if (work.is_one_hot() && p.test == Test::kWithoutQ) return;
    if (possible || !greedy) points.push_back(p);
  });
  return points;
}

std::vector<TokenPoint> token_points(const Work& work) {
  const bool greedy = work.is_greedy();
  const bool given = work.call.inputs.contains("bonus_tokens");
  const bool race = work.call.inputs.contains("recover_noise");
  std::vector<TokenPoint> points;
  each(std::array{kWeights, kFroms, kFroms, kChosen}, [&](const auto& at) {
    const TokenPoint p{static_cast<Weights>(at[0]), static_cast<From>(at[1]),
                       static_cast<From>(at[2]), static_cast<Chosen>(at[3])};
    if (p.wrong() == 0 || p.wrong() > kMostWrong) return;
    const bool target_alone = p == TokenPoint{.target = p.target};
    // p alone and one-hot drafts read no row of q, and of one-hot drafts no weight has another
    // form.
    const bool with_q = !work.is_one_hot() && p.weights != Weights::kTarget;
    if (!with_q && p.draft != From::kOwn) return;
    if (work.is_one_hot() && p.weights > Weights::kTarget) return;
    // A race has no sum to compare with, and a draw no noise.
    if (p.chosen == (race ? Chosen::kUnnormalized : Chosen::kTimesNoise)) return;
    // The token behind all drafts is given: that of a rejected one alone is drawn.
    if (given && p.chosen == Chosen::kByRejection) return;
    const bool reads = p.chosen != Chosen::kDraft || p.wrong() == 1;
    if (reads && (target_alone || !greedy)) points.push_back(p);
  });
  return points;
}

}  // namespace goldenrule::drafts
