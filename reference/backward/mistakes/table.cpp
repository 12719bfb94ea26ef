// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "reference/backward/mistakes/mistake.hpp"

namespace goldenrule::backward {

std::span<const calls::Mistake> mistakes() {
  static const std::vector<calls::Mistake> all = [] {
    std::vector<calls::Mistake> joined;
    for (const auto part : {state_mistakes(), output_mistakes(), adjoint_mistakes(),
                            gate_sum_mistakes(), gate_chain_mistakes(), row_chain_mistakes()}) {
      joined.insert(joined.end(), part.begin(), part.end());
    }
    return joined;
  }();
  return all;
}

}  // namespace goldenrule::backward
