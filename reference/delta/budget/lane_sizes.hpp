// SPDX-License-Identifier: Apache-2.0
//
// How large the numbers of one lane are beside each other, channel by channel.
//
// Value channels are independent calls that share q, k and gates: column x of o, of the corrections
// d and of the state is linear in column x of v and of the start state, and so are its rounding
// errors. So errors of different channels may be averaged only as multiples of what each channel
// itself holds (lane_spread.cpp). That size is causal, since no later token reaches an output, and
// it forgets nothing by cancellation, since errors do not cancel with what they are errors of: all
// terms are added by their squares, as the errors are. With S the exact state, a = alpha_i (of key
// channel i), p = k^T (a S) the prediction and d = beta (v - p):
//
//   W_t^2[i]  = a^2 W_{t-1}^2[i] + k_i^2 (beta^2 (v^2 + p^2) + d^2),   W_0 = |S_0|
//   d:          beta^2 (v^2 + sum_i k_i^2 a^2 W_{t-1}^2[i]) + d^2
//   o:          sum_i q_i^2 W_t^2[i] + o^2.
//
// W is fed with the exact p and not with its own reading of it, which would grow without end for
// keys that repeat. u holds the corrections of chunks that start from 0: as d, with S and W
// starting anew with each chunk.
#pragma once

#include <cstdint>

#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {

/// Squared sizes, [tokens, V].
struct LaneSizes {
  Matrix<double> o, d;
  Matrix<double> u;  ///< of chunks
};

/// With u where `chunk`, its tokens, is not 0.
[[nodiscard]] LaneSizes lane_sizes(const Lane<double>& lane, const Matrix<double>& v,
                                   const Matrix<double>& start, std::int64_t chunk = 0);

}  // namespace goldenrule::delta
