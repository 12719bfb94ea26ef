// SPDX-License-Identifier: Apache-2.0
//
// The search for the mistake behind a failing capture: single mistakes of the table, then those
// that generators enumerate, then results in another order, alone and beside one mistake, then
// mistakes that amplify roundings, then pairs. A capture too large for all of them is first judged
// on parts of itself, which are calls of their own: what explains the whole explains each part.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "reference/explain/by_blocks.hpp"
#include "reference/explain/capture.hpp"
#include "reference/explain/failures.hpp"
#include "reference/explain/match.hpp"
#include "reference/explain/prediction.hpp"
#include "reference/explain/scatter.hpp"

namespace goldenrule::explain {

/// How much a search may compute, in core-seconds as they are estimated from the shapes of the
/// call: a name does not depend on a clock. Other orders of the results, how widely a mistake errs
/// and pairs are tried within it; single mistakes within twice as much, or all of them where it is
/// 0.
struct SearchLimit {
  /// Absent: ten times the verdict, at least kLeastSearch and all single mistakes, and no more than
  /// `most_seconds`.
  std::optional<double> seconds = std::numeric_limits<double>::infinity();
  double most_seconds = std::numeric_limits<double>::infinity();
};
inline constexpr double kTimesVerdict = 10.0, kLeastSearch = 5.0;

/// `single_seconds`: of all single mistakes, which may take twice the limit.
[[nodiscard]] inline double limit_of(const SearchLimit& limit, double verdict_seconds,
                                     double single_seconds = 0.0) {
  const double wanted =
      std::max({kTimesVerdict * verdict_seconds, kLeastSearch, 0.5 * single_seconds});
  return limit.seconds.value_or(std::min(wanted, limit.most_seconds));
}

/// An explanation says where the error comes from: what it leaves must be less than what it takes,
/// or a wide budget alone would explain.
inline constexpr double kAccounted = 0.5;

struct Candidate {
  Hypothesis hypothesis;
  Match match;
  bool called_kernel = false;
  bool only_ties_left = false;  // ties.hpp
  /// Outputs that hold what is predicted in another order (permutation.hpp), in words.
  std::vector<std::string> rearranged{};
  /// What it shares with others of its kind that explain as well; empty: there are none.
  std::vector<calls::Aspect> shared{};
  std::optional<Prediction> prediction;  // of those that explain

  [[nodiscard]] bool explains() const {
    return (match.failing == 0 || only_ties_left) && match.accounted >= kAccounted;
  }
  // What an explanation takes for granted.
  [[nodiscard]] int assumptions() const {
    return (match.guessed > 0 ? 1 : 0) + (match.excused > 0 ? 1 : 0) + (only_ties_left ? 2 : 0);
  }
};

struct Scattered {
  const calls::Mistake* mistake;
  ScatterMatch match;
};

/// What a search has spent of its limit.
class Effort {
 public:
  Effort(const SearchLimit& limit, double verdict_seconds, double single_seconds)
      : seconds_(limit_of(limit, verdict_seconds, single_seconds)) {}
  void spend(double core_seconds) { spent_ += core_seconds; }
  [[nodiscard]] double spent() const { return spent_; }
  [[nodiscard]] bool is_over() const { return spent_ >= seconds_; }
  /// What single mistakes have left.
  [[nodiscard]] double left() const {
    return seconds_ > 0.0 ? 2.0 * seconds_ - spent_ : std::numeric_limits<double>::infinity();
  }

 private:
  double seconds_;
  double spent_ = 0.0;
};

/// A capture, or a cut of one, that hypotheses are compared with.
struct Trial {
  explicit Trial(Capture c);

  std::unique_ptr<Capture> capture;  // its place does not change: it is referred to
  Predictor predictor;
  Matcher matcher;
  /// Core-seconds of one prediction and its comparison, and of its spread, which runs the call many
  /// times.
  double prediction_seconds = 0.0, spread_seconds = 0.0;
};

/// What was compared with the whole capture, and the elements that it does not reproduce.
struct Rival {
  Hypothesis hypothesis;
  std::int64_t failing = 0;
};

struct Found {
  std::vector<Candidate> candidates;  ///< explanations and near misses, the best first
  /// Where no single mistake explains the whole call: mistakes that explain it by blocks.
  std::vector<BlockExplanation> by_blocks;
  std::vector<Scattered> scattered;  ///< that explain by how widely they err, best profile first
  std::vector<Rival> rivals;         ///< the best fit of a mistake may come more than once
  bool screened = false;             ///< hypotheses were first judged on a part of the capture
  std::int64_t singles = 0;          ///< single mistakes that were tried
  std::int64_t pairs = 0, possible_pairs = 0;  ///< that were tried, that were to be tried
  bool stopped = false;                        ///< the limit was reached before all was tried
};

/// `whole` is a failing capture, `failures` its failures, `mistakes` those of the table that can be
/// made in it, `generated` those that are enumerated. `described`: it is known what the kernel does
/// in the whole call, so that only a mistake of the whole call is sought beside it.
[[nodiscard]] Found search(const Trial& whole, std::span<const Failures> failures,
                           const std::vector<const calls::Mistake*>& mistakes,
                           const std::vector<const calls::Mistake*>& generated, bool described,
                           Effort& effort);

}  // namespace goldenrule::explain
