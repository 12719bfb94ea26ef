// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/mistakes/generated.hpp"

namespace goldenrule::delta {

std::span<const calls::Mistake> generated_mistakes() {
  static const std::vector<calls::Mistake> all = order_mistakes();
  return all;
}

}  // namespace goldenrule::delta
