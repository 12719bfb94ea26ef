// SPDX-License-Identifier: Apache-2.0
//
// The parts of the table, one per heading of the documentation; table.cpp joins them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "reference/calls/mistake.hpp"

namespace goldenrule::delta {

[[nodiscard]] std::span<const calls::Mistake> gate_mistakes();
[[nodiscard]] std::span<const calls::Mistake> delta_mistakes();
[[nodiscard]] std::span<const calls::Mistake> norm_mistakes();
[[nodiscard]] std::span<const calls::Mistake> miscall_mistakes();
[[nodiscard]] std::span<const calls::Mistake> stage_mistakes();
[[nodiscard]] std::span<const calls::Mistake> head_mistakes();
[[nodiscard]] std::span<const calls::Mistake> serving_mistakes();
[[nodiscard]] std::span<const calls::Mistake> layout_mistakes();
[[nodiscard]] std::span<const calls::Mistake> sequence_mistakes();
[[nodiscard]] std::span<const calls::Mistake> pool_mistakes();
[[nodiscard]] std::span<const calls::Mistake> checkpoint_mistakes();
[[nodiscard]] std::span<const calls::Mistake> draft_mistakes();
[[nodiscard]] std::span<const calls::Mistake> ring_mistakes();
[[nodiscard]] std::span<const calls::Mistake> tile_mistakes();
[[nodiscard]] std::span<const calls::Mistake> type_mistakes();

/// Public threads in which this mistake was found; empty: none is known.
[[nodiscard]] std::string_view public_threads(std::string_view mistake);
[[nodiscard]] std::vector<std::string_view> mistakes_with_threads();

}  // namespace goldenrule::delta
