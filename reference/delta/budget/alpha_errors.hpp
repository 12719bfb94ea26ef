// SPDX-License-Identifier: Apache-2.0
//
// How far the alpha of a kernel may be off, to first order in the errors of its functions:
//
//   E_alpha = alpha ( E_exp + |log alpha| (E_log_alpha + u_g) + s E_logit + e^x - 1 ),
//   s = |d log alpha / d ln logit|,    x = exp(A_log) E_softplus,
//
// u_g of its rounding as an activation (of alpha itself, where that is given). Each gate answers
// for itself: one channel of a key that is sensitive moves no other.
#pragma once

#include <cstdint>

#include "reference/contract/contract.hpp"
#include "reference/delta/rule/lane.hpp"

namespace goldenrule::delta {

struct AlphaErrors {
  double error = 0.0;    ///< absolute
  double largest = 0.0;  ///< that a kernel may have: errors of earlier tokens travel with it
};

/// Of gate `g` at token `t`.
[[nodiscard]] AlphaErrors alpha_errors(const contract::Contract& contract, const Lane<double>& lane,
                                       std::int64_t t, std::int64_t g);
/// The largest of all gates of a token.
[[nodiscard]] AlphaErrors alpha_errors(const contract::Contract& contract,
                                       const TokenBounds& bounds);

}  // namespace goldenrule::delta
