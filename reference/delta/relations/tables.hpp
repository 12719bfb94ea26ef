// SPDX-License-Identifier: Apache-2.0
//
// The parts of the table; table.cpp joins them.
#pragma once

#include <span>

#include "reference/delta/relations/relation.hpp"

namespace goldenrule::relations {

[[nodiscard]] std::span<const Relation> piece_relations();      ///< the same tokens, other calls
[[nodiscard]] std::span<const Relation> placement_relations();  ///< other rows, heads, slots
[[nodiscard]] std::span<const Relation> count_relations();      ///< other accepted counts
[[nodiscard]] std::span<const Relation> repeat_relations();     ///< the same call again
[[nodiscard]] std::span<const Relation> poison_relations();     ///< what must not be read
[[nodiscard]] std::span<const Relation> linear_relations();     ///< scaled and summed (v, S)

}  // namespace goldenrule::relations
