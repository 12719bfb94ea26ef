// SPDX-License-Identifier: Apache-2.0
//
// What a call must give: a plain double-precision loop over the rule, written from the
// specification and sharing nothing with the kernels, and a bound on the error of an fp32 kernel.
//
// The bound is a running one, per value row, in the 2-norm over the key channels (u = 2^-24; rel_x
// is the relative error of a quantity that is common to a row):
//     e'    = max(alpha) e + (rel_alpha max(alpha) + u) ||S||
//     e_d   = beta (||k|| e' + (rel_k + c u) sum |S' k| + u |v|) + (rel_beta + 2 u) |d|
//     e     = e' + ||k|| e_d + (rel_k + u) ||k|| |d| + u ||S||
//     |o|   : ||q|| e + (rel_q + c u) sum |S q| + half an ulp of the output type
// with c = K/8 + 3 additions in the longest chain of a sum over K. rel_alpha = u (4 + |log alpha|
// (12 + |x|)), because alpha = exp(-rate softplus(x)) turns the relative error of its exponent into
// an absolute one; rel_beta = u (6 + |b|); rel_k, rel_q = u (8 + c).
#pragma once

#include <cstdint>
#include <vector>

#include "tests/gpu/scenario.hpp"

namespace goldenrule::test {

struct ExpectedTensor {
  std::vector<double> value, tolerance;
  std::vector<char> written;  ///< 0: the element keeps its bytes

  explicit ExpectedTensor(std::int64_t count = 0)
      : value(static_cast<std::size_t>(count)),
        tolerance(static_cast<std::size_t>(count)),
        written(static_cast<std::size_t>(count)) {}
};

struct Expected {
  ExpectedTensor o, final_state, intermediates;
};

[[nodiscard]] Expected expect(const Scenario& s);

}  // namespace goldenrule::test
