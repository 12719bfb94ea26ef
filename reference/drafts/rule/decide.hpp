// SPDX-License-Identifier: Apache-2.0
//
// The decisions of a draft acceptance, exact, and whether a kernel in fp32 must take them alike.
// Inputs are f32 numbers, so everything below is decided on exact sums and products; u = 2^-24, and
// gamma_k = k u / (1 - k u).
//
// Accepting. u_i q <= p is decided by fl(u_i q) <= p, one rounding, or by p / q >= u_i, where the
// fast division of a GPU errs by 2 ulp = 4 u. So the decision is open where
//
//   | u_i q - p | <= 4 u max(p, u_i q),
//
// but for u_i = 0 and for one-hot drafts (q = 1): products and quotients are exact there, and both
// forms agree. At u_i = 1 they do not: a quotient below 1 by an ulp may come out as 1, and that of
// equal numbers below it. It is open as well where p or q is below 2^-126 and not 0, or u_i q is
// beside p = 0: kernels flush these. And where u_i = 0 and p = 0 under `le`: 0 <= 0, but engines
// that never take a token without probability reject it, and both are shipped.
//
// Drawing. x is the first with C(x) = sum_{y <= x} r(y) > t, t = u R, R = sum r. A kernel adds
// blocks of 1024 in a tree, 10 levels, and the blocks one by one, so n = ceil(Z / 1024) + 10
// additions at most go into any sum. r has one rounding, which keeps its sign and its zeros, and
// the product with u one more:
//
//   |C^ - C| <= gamma_{n+1} C,   |t^ - t| <= gamma_{n+2} t,   open: |C - t| <= gamma_{2n+3} max(C,
//   t).
//
// (Numbers below 2^-126 are flushed: Z 2^-126 more.) Larger blocks have longer trees and fewer
// blocks. C(x-1) = 0 exactly is no edge: a kernel has 0 there as well. C grows, so the step that
// ends below t and the one that ends above are the only ones to ask.
//
// Racing. Scores r / noise: r, the reciprocal of noise and the product are one rounding each, 3 u,
// and the reciprocal of a GPU may err by an ulp, u more: two scores keep their order unless they
// are within gamma_8 of each other. It is open as well where a score leaves f32 or its noise is
// below 2^-126, so that the reciprocal may be infinite: two infinite scores are a tie.
//
// With r = 0 everywhere no token is right. Then, where no sum may come out above t and where no
// score is left in f32, a kernel falls through its search, and what it returns is not known: 0, Z -
// 1 and the last token with r > 0 are all to be found. It is still one of the Z tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fixtures/call/convention.hpp"

namespace goldenrule::drafts {

/// How near a sum of some of Z weights may be to a threshold and be above it in some kernels only,
/// relative to the larger one.
[[nodiscard]] double largest_sum_error(std::int64_t Z);

/// A decision, and whether a kernel in fp32 may take the other one.
struct Acceptance {
  bool accepted = false;
  bool open = false;
};

/// Of a draft with these probabilities and its uniform; q = 1 of a one-hot draft.
[[nodiscard]] Acceptance accept(double p, double q, double u, const call::Convention& rule);

/// What a token is drawn from: p, without what q has of it, or without token `but`.
struct Source {
  std::span<const double> p;
  std::span<const double> q = {};  ///< empty: nothing
  std::int64_t but = -1;           ///< -1: none

  [[nodiscard]] bool has(std::int64_t x) const;
  [[nodiscard]] double residual(std::int64_t x) const;
};

/// The tokens that a kernel in fp32 may choose.
struct Choice {
  std::int64_t vocabulary = 0;       ///< Z
  std::int64_t exact = 0;            ///< what exact arithmetic chooses; 0 where it chooses none
  bool any = false;                  ///< every one of the vocabulary
  std::vector<std::int64_t> tokens;  ///< else these, ascending

  [[nodiscard]] static Choice of(std::int64_t token, std::int64_t vocabulary) {
    return {.vocabulary = vocabulary, .exact = token, .any = false, .tokens = {token}};
  }
  [[nodiscard]] bool admits(std::int64_t token) const;
  /// The one that they are; nothing where that is open.
  [[nodiscard]] std::optional<std::int64_t> only() const;
};

/// What u chooses.
[[nodiscard]] Choice draw(const Source& source, double u);
/// What leads with this noise.
[[nodiscard]] Choice race(const Source& source, std::span<const double> noise);

}  // namespace goldenrule::drafts
