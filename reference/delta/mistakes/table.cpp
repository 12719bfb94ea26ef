// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/mistakes/table.hpp"

#include <vector>

#include "reference/delta/mistakes/tables.hpp"

namespace goldenrule::delta {

std::span<const calls::Mistake> mistakes() {
  static const std::vector<calls::Mistake> all = [] {
    std::vector<calls::Mistake> joined;
    for (const auto part :
         {gate_mistakes(), delta_mistakes(), norm_mistakes(), layout_mistakes(), head_mistakes(),
          // Before those of sequences, which some of them are in calls without rings.
          ring_mistakes(), sequence_mistakes(), stage_mistakes(), pool_mistakes(),
          serving_mistakes(), checkpoint_mistakes(), draft_mistakes(), tile_mistakes(),
          type_mistakes(), miscall_mistakes()}) {
      joined.insert(joined.end(), part.begin(), part.end());
    }
    for (calls::Mistake& m : joined) m.reported = public_threads(m.name);
    return joined;
  }();
  return all;
}

}  // namespace goldenrule::delta
