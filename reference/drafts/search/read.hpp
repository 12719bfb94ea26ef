// SPDX-License-Identifier: Apache-2.0
//
// The inputs of a call by request and position, for kernels that read them in the wrong place.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reference/drafts/search/points.hpp"

namespace goldenrule::drafts {

/// A request and a position in it.
struct At {
  std::int64_t n, i;
};

/// The positions of a request in an input: one for each draft, or of the target also the one
/// behind.
enum class Positions : std::uint8_t { kDrafts, kTarget };

/// Where `from` reads for position i of row n; nothing where there is none.
[[nodiscard]] std::optional<At> place(const Work& work, From from, At own, Positions of);

/// Numbers that a kernel reads there; nothing where there is no row, or one of them is no number.
[[nodiscard]] std::optional<std::vector<double>> target_row(const Work& work, At at);
[[nodiscard]] std::optional<std::vector<double>> draft_row(const Work& work, At at);
/// The index of the largest; nothing where the two largest are equal.
[[nodiscard]] std::optional<std::int64_t> largest(std::span<const double> row);

}  // namespace goldenrule::drafts
