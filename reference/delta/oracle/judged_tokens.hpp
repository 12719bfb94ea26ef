// SPDX-License-Identifier: Apache-2.0
//
// Which stages of a lane are judged where an input is not finite: those that it does not reach,
//
//   q       q^
//   k       k^, A, T, w, u, v_new, h
//   beta    beta, A, T, w, u, v_new, h
//   gate    G, A, T, w, u, v_new, h
//   v       u, v_new, h of its own value channel
//   start   v_new, h of its own value channel
//
// and all rows of its chunk, since products of masked numbers may leave NaN in any of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/rule/lane.hpp"

namespace goldenrule::delta {

/// Tokens of a lane in front of the chunk of the first number that is not finite.
struct JudgedTokens {
  std::int64_t q, k, beta, gates;
  std::int64_t keys;                 ///< of all that T is made from: k, beta and gates
  std::vector<std::int64_t> values;  ///< of u, by value channel
  std::vector<char> starts;          ///< whether the start state of a channel is finite

  /// v_new of token `t`, in channel x.
  [[nodiscard]] bool corrects(std::int64_t t, std::int64_t x) const {
    const auto at = static_cast<std::size_t>(x);
    return starts[at] != 0 && t < values[at];
  }
  /// The state after `t` tokens, in channel x.
  [[nodiscard]] bool holds(std::int64_t t, std::int64_t x) const {
    const auto at = static_cast<std::size_t>(x);
    return starts[at] != 0 && t <= values[at];
  }
};

inline JudgedTokens judged_tokens(const FirstNonfinite& first, const Matrix<double>& v,
                                  const Matrix<double>& start, std::int64_t C) {
  const std::int64_t tokens = v.rows();
  const auto whole = [&](std::int64_t t) { return t >= tokens ? tokens : t / C * C; };
  JudgedTokens judged{.q = whole(first.q),
                      .k = whole(first.k),
                      .beta = whole(first.beta),
                      .gates = whole(first.gates),
                      .keys = whole(std::min({first.k, first.beta, first.gates})),
                      .values = {},
                      .starts = {}};
  for (Eigen::Index x = 0; x < v.cols(); ++x) {
    std::int64_t t = 0;
    while (t < tokens && std::isfinite(v(t, x))) ++t;
    judged.values.push_back(std::min(whole(t), judged.keys));
    judged.starts.push_back(start.col(x).allFinite() ? 1 : 0);
  }
  return judged;
}

}  // namespace goldenrule::delta
