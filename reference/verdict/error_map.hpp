// SPDX-License-Identifier: Apache-2.0
//
// Error maps: where an output is out of budget, as pictures of a bounded number of cells, for
// reports that show them. A cell holds the largest error over budget of the elements in it, so that
// one wrong element among millions is seen. There are two maps of an output:
//
//   1. rows (tokens, slots, ..) by value heads: all elements;
//   2. the worst place from nearby: of the worst element's head, key by value channels of its
//   state,
//      or of o the tokens around it by value channels.
//
// An axis has at most kMapCells cells; index i of n lies in cell floor(i c / n). Maps are made from
// a judgement that is there already, in one pass over the outputs that are out of budget: captures
// that pass pay nothing, and the memory beside the judgement is that of the cells.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reference/verdict/verdict.hpp"

namespace goldenrule::verdict {

inline constexpr std::int64_t kMapCells = 128;

/// One axis of a map: indices [first, first + extent) of what `word` counts, in `cells` cells.
struct MapAxis {
  std::string word;  ///< "token", "head", "key", ..
  std::int64_t first = 0, extent = 0, cells = 0;
  /// Indices, counted from `first`, at which a sequence or a chunk of the contract begins; none
  /// where they would lie closer than three cells.
  std::vector<std::int64_t> sequences{}, chunks{};
  std::int64_t worst = 0;  ///< the index of the worst element, counted from `first`
};

/// Levels of error over budget, from far within to far beyond: '0' at most 4^-4, .. '4' at most 1,
/// which is within budget; '5' at most 4, .. '9' at most 4^5, 'a' beyond; 'b': NaN or Inf where the
/// exact result is finite, or the reverse. '.' no element that could be compared.
inline constexpr std::string_view kMapLevels = "0123456789ab";

struct ErrorMap {
  std::string where;                ///< what is held fixed, as "sequence 1, head 0"; empty: nothing
  MapAxis down, across;             ///< of the cells
  std::vector<std::string> levels;  ///< down.cells lines of across.cells digits
};

/// The maps of an output that is out of budget.
[[nodiscard]] std::vector<ErrorMap> error_maps(const Judgement& judgement,
                                               const TensorReport& report);

}  // namespace goldenrule::verdict
