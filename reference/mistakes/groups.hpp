// SPDX-License-Identifier: Apache-2.0
//
// The parts of the table, one per heading of the documentation; table.cpp joins them.
#pragma once

#include <span>

#include "reference/mistakes/mistake.hpp"

namespace goldenrule::mistakes {

[[nodiscard]] std::span<const Mistake> gate_mistakes();
[[nodiscard]] std::span<const Mistake> delta_mistakes();
[[nodiscard]] std::span<const Mistake> norm_mistakes();
[[nodiscard]] std::span<const Mistake> miscall_mistakes();
[[nodiscard]] std::span<const Mistake> layout_mistakes();
[[nodiscard]] std::span<const Mistake> sequence_mistakes();
[[nodiscard]] std::span<const Mistake> pool_mistakes();
[[nodiscard]] std::span<const Mistake> tile_mistakes();
[[nodiscard]] std::span<const Mistake> type_mistakes();

}  // namespace goldenrule::mistakes
