// SPDX-License-Identifier: Apache-2.0
//
// Which parts of a large call are asked again with more runs (Slice::confirm). An honest kernel is
// out of budget by chance in few elements of few parts, a wrong one in many of many, and work is
// bounded: those with the fewest failing elements come first.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace goldenrule::verdict {

/// Runs of both kinds together: a few more for all that fail, many for what still does.
inline constexpr std::array kConfirmingRuns{12, 96};

/// The parts of 0 .. parts - 1 in which count_out(part) is not 0, the fewest first; at most `most`.
[[nodiscard]] std::vector<std::int64_t> fewest_out(
    std::int64_t parts, std::int64_t most,
    const std::function<std::int64_t(std::int64_t part)>& count_out);

}  // namespace goldenrule::verdict
