// SPDX-License-Identifier: Apache-2.0
//
// Where lines stand and where they come from, in words.
#pragma once

#include <string>
#include <vector>

#include "reference/explain/affine_map.hpp"
#include "reference/explain/line_view.hpp"

namespace goldenrule::explain {

/// A line, and the line of a source that stands in it.
struct MovedLine {
  std::int64_t to = 0, from = 0;
};

/// "sequence 0, token 3, head 1"
[[nodiscard]] std::string place_words(const LineView& view, std::int64_t line);

/// "sequence, token and head": what a line of the view is one of.
[[nodiscard]] std::string axes_words(const LineView& view);

/// " in slots p < 2", " in head 1" of lines of so many numbers each; empty: no part of the axes
/// more than by chance.
[[nodiscard]] std::string part_words(const LineView& view, const std::vector<std::int64_t>& lines,
                                     std::int64_t numbers);

/// "in its own place", "of sequence 2", "of head 3 - j", "at flat place 4 t + 1 of (token, head)".
[[nodiscard]] std::string relation_words(const LineView& to, const LineView& from,
                                         const std::vector<MovedLine>& moved, const AffineMap& map);

}  // namespace goldenrule::explain
