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
//   correlation of log rms error and log rms sigma >= 1/2      over the rows and heads that fail,
//   (mean of run - exact)^2 / mean of (run - exact)^2 <= 1/2      mean over the rows and heads,
//   ratio <= 1, or at most the largest ratio of a run against the sigma of the others.
//
// The first two are there because a mistake that could produce anything would explain everything.
// The third says that the runs differ as widely as they err: 1 / runs where the errors are random,
// 1 where every run errs alike, so that the elements can be predicted and must be. The last is a
// rank test: products of many random factors have heavier tails than the sum of
// roundings that `multiple` is derived for, and if the capture is one more run, its ratio is the
// largest of all with probability 1 / (kScatterRuns + 1): one true explanation in fifty is turned
// down. Mistakes whose first kTrialRuns err quite differently from the capture get no more.
#pragma once

#include <optional>

#include "reference/explain/prediction.hpp"

namespace goldenrule::explain {

inline constexpr int kScatterRuns = 49;
inline constexpr int kTrialRuns = 8;

struct ScatterMatch {
  double ratio = 0.0;    ///< as above; infinite for NaN that no run has there
  double allowed = 1.0;  ///< what the ratio may be
  double width = 0.0;    ///< rms error over rms sigma, of the output farthest from 1
  double profile = 0.0;  ///< the correlation; 1 where fewer than three rows and heads fail
  double common = 0.0;   ///< share of the squared errors that all runs have in common

  /// `slack` > 1 widens the bounds, for a first look.
  [[nodiscard]] bool errs_alike(double slack = 1.0) const {
    return width >= 0.25 / slack && width <= 4.0 * slack && profile >= 0.5 / slack && common <= 0.5;
  }
  [[nodiscard]] bool explains() const { return errs_alike() && ratio <= allowed; }
};

/// Nothing where the mistakes cannot be made, or where the contract rounds nothing.
[[nodiscard]] std::optional<ScatterMatch> match_scatter(const Capture& capture,
                                                        const Hypothesis& hypothesis);

}  // namespace goldenrule::explain
