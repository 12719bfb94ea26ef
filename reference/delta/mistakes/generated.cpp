// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/mistakes/generated.hpp"

namespace goldenrule::delta {

std::span<const calls::Mistake> generated_mistakes() {
  static const std::vector<calls::Mistake> all = [] {
    std::vector<calls::Mistake> joined = tail_mistakes();
    const std::vector<calls::Mistake> orders = order_mistakes();
    joined.insert(joined.end(), orders.begin(), orders.end());
    return joined;
  }();
  return all;
}

}  // namespace goldenrule::delta
