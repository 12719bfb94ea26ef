// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "reference/mistakes/groups.hpp"

namespace goldenrule::mistakes {

std::span<const Mistake> table() {
  static const std::vector<Mistake> all = [] {
    std::vector<Mistake> joined;
    for (const auto part : {gate_mistakes(), delta_mistakes(), norm_mistakes(), layout_mistakes(),
                            sequence_mistakes(), pool_mistakes(), tile_mistakes(), type_mistakes(),
                            miscall_mistakes()}) {
      joined.insert(joined.end(), part.begin(), part.end());
    }
    return joined;
  }();
  return all;
}

}  // namespace goldenrule::mistakes
