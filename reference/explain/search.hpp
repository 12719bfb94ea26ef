// SPDX-License-Identifier: Apache-2.0
//
// The search for the mistake behind a failing capture: single mistakes of the table, then those
// that generators enumerate, then results in another order, alone and beside one mistake, then
// mistakes that amplify roundings, then pairs. A capture too large for all of them is first judged
// on parts of itself, which are calls of their own: what explains the whole explains each part.
#pragma once

#include <chrono>
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

/// How long a search may take. Other orders of the results, how widely a mistake errs and pairs are
/// tried while there is time; single mistakes as long again, or all of them where no time is given.
struct SearchLimit {
  double seconds = std::numeric_limits<double>::infinity();
};

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

/// The end of the time that a search may take.
class Deadline {
 public:
  explicit Deadline(const SearchLimit& limit) : limit_(limit) {}
  [[nodiscard]] double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  [[nodiscard]] bool passed() const { return elapsed() >= limit_.seconds; }
  /// What single mistakes have left, in seconds.
  [[nodiscard]] double left() const {
    return limit_.seconds > 0.0 ? 2.0 * limit_.seconds - elapsed()
                                : std::numeric_limits<double>::infinity();
  }

 private:
  SearchLimit limit_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// A capture, or a cut of one, that hypotheses are compared with.
struct Trial {
  explicit Trial(Capture c)
      : capture(std::make_unique<Capture>(std::move(c))), predictor(*capture), matcher(*capture) {}

  std::unique_ptr<Capture> capture;  // its place does not change: it is referred to
  Predictor predictor;
  Matcher matcher;
};

struct Found {
  std::vector<Candidate> candidates;  ///< explanations and near misses, the best first
  /// Where no single mistake explains the whole call: mistakes that explain it by blocks.
  std::vector<BlockExplanation> by_blocks;
  std::vector<Scattered> scattered;  ///< that explain by how widely they err, best profile first
  bool screened = false;             ///< hypotheses were first judged on a part of the capture
  std::int64_t singles = 0;          ///< single mistakes that were tried
  std::int64_t pairs = 0, possible_pairs = 0;  ///< that were tried, that were to be tried
  bool stopped = false;                        ///< the time was over before all was tried
};

/// `whole` is a failing capture, `failures` its failures, `mistakes` those of the table that can be
/// made in it, `generated` those that are enumerated.
[[nodiscard]] Found search(const Trial& whole, std::span<const Failures> failures,
                           const std::vector<const calls::Mistake*>& mistakes,
                           const std::vector<const calls::Mistake*>& generated,
                           const Deadline& deadline);

}  // namespace goldenrule::explain
