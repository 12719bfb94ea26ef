// SPDX-License-Identifier: Apache-2.0
//
// Mistakes that amplify roundings: an inverse by fp16 powers on near-collinear keys turns the last
// bit of a key into an error of the size of the result. No emulation short of the kernel itself
// predicts such outputs element by element (on the captures of FlashKDA with keys of cosine .99 the
// emulated mistake is as far from the capture as from the exact result). What can be predicted is
// how widely the mistaken kernel errs, and where.
//
// The call is run kScatterRuns times under the mistake, with q, k and v perturbed at random by what
// the contract rounds first (half an ulp of the type of q^ and k^). sigma^2 of an element is the
// mean of (run - exact)^2, half and half with the mean over its row and head. Roundings are
// relative and the mistaken state may be much larger than the right one, so the budget grows with
// the values of the head: growth^2 = 1 + the largest mean of sigma^2 over exact^2 of an output.
// With
//
//   ratio = max |captured - exact| / (growth budget + multiple sigma)        over all elements
//
// the mistake explains the capture when
//
//   1/4 <= rms(captured - exact) / rms sigma <= 4      over the failing elements of each output,
//   failing elements >= 1/4 of sum erfc(budget / (sqrt 2 sigma)) over the rows and heads that fail,
//   largest error >= 16 budgets,
//   some element fails in half of the sequences and heads (block_map.hpp) in which that sum is 4,
//   correlation r of log rms error and log rms sigma over the n rows and heads that fail: r >= 1/2
//     and atanh(r) sqrt(n - 3) >= 3.72,
//   (mean of run - exact)^2 / mean of (run - exact)^2 <= 1/2, the mean of rows and heads that fail,
//   ratio <= 1, or at most the largest ratio of a run against the sigma of the others.
//
// The first five are there because a mistake that could produce anything would explain everything.
//
// Width. An element fails when its error exceeds its budget b, so an error that is hardly beyond it
// is b wide whatever made it. A width of 1/4 to 4 accepts it for every sigma of b/4 to 4b: a
// contract that is a little too narrow for an honest kernel would be explained by any mistake of
// that size. The window is a factor of 16 wide; an error e >= 16 b puts all of it at sigma >= e/4
// >= 4 b, where a mistaken kernel errs beyond its budget in erfc(1 / (4 sqrt 2)) = 80 % of the
// elements. So where errors can tell that the mistake was made they are many, and the number of
// them must be of the size that it makes, with the same factor of 4.
//
// Place. Of n pairs of independent numbers, atanh(r) is about normal with standard deviation
// 1 / sqrt(n - 3) (Fisher 1921); 3.72 of them are exceeded with probability 1e-4, and some ten
// mistakes are tried. So a correlation of 1/2 must come from 50 rows and heads, one of .95 from 8;
// no fewer than 4 can show any.
//
// Both are of what fails. A mistake that is made in one sequence only errs there as widely as one
// that is made in all, so what the others should show is asked for as well: where the runs make
// four elements fail, none fails by chance with probability e^-4 if they are independent, and more
// often where a few runs carry sigma; half of the blocks are as many as may be spared.
//
// The sixth says that the runs differ as widely as they err: 1 / runs where the errors are random,
// 1 where every run errs alike, so that the elements can be predicted and must be. Rows that do not
// fail have errors of roundings alone: a mistake of the state alone is not random for their sake.
// The last is a rank test: products of many random factors have heavier tails than the sum of
// roundings that `multiple` is derived for, and if the capture is one more run, its ratio is the
// largest of all with probability 1 / (kScatterRuns + 1): one true explanation in fifty is turned
// down.
//
// Mistakes whose first kTrialRuns err quite differently from the capture get no more. Nor do those
// whose first two runs err alike, which are predicted element by element: with r the correlation of
// two runs they have (1 + r) / 2 of the squared errors in common, and kScatterRuns of them about r,
// so that the sixth asks for r <= 1/2. That n elements show .9 instead, kAlike in common, is
// (atanh .9 - atanh .5) sqrt(n - 3) standard deviations away, kSignificant of them from n = 20 on.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "reference/explain/prediction.hpp"

namespace goldenrule::explain {

inline constexpr int kScatterRuns = 49;
inline constexpr int kTrialRuns = 8;
inline constexpr int kFirstRuns = 2;
inline constexpr double kAlike = 0.95;
inline constexpr double kFar = 16.0;          ///< budgets
inline constexpr double kSignificant = 3.72;  ///< standard deviations

struct ScatterMatch {
  double ratio = 0.0;       ///< as above; infinite for NaN that no run has there
  double allowed = 1.0;     ///< what the ratio may be
  double width = 0.0;       ///< rms error over rms sigma, of the output farthest from 1
  double number = 0.0;      ///< failing elements over those that the mistake makes fail there
  double farthest = 0.0;    ///< the largest error in budgets
  double profile = 0.0;     ///< the correlation; 0 where fewer than four rows and heads fail
  std::int64_t blocks = 0;  ///< rows and heads that fail
  double reach = 0.0;       ///< of sequences and heads that it makes fail, those that do
  double common = 1.0;      ///< share of the squared errors that all runs have in common
  int runs = 0;             ///< that all this is of

  /// `slack` > 1 widens the bounds, for a first look.
  [[nodiscard]] bool errs_alike(double slack = 1.0) const {
    return farthest >= kFar && width >= 0.25 / slack && width <= 4.0 * slack &&
           number >= 0.25 / slack && reach >= 0.5 / slack && profile >= 0.5 / slack &&
           significance() >= kSignificant / slack && common <= 0.5;
  }
  /// The correlation in standard deviations of none.
  [[nodiscard]] double significance() const {
    return blocks < 4 ? 0.0 : std::atanh(profile) * std::sqrt(static_cast<double>(blocks - 3));
  }
  [[nodiscard]] bool explains() const { return errs_alike() && ratio <= allowed; }
};

/// Nothing where the mistakes cannot be made, or where the contract rounds nothing.
[[nodiscard]] std::optional<ScatterMatch> match_scatter(const Capture& capture,
                                                        const Hypothesis& hypothesis);

}  // namespace goldenrule::explain
