// SPDX-License-Identifier: Apache-2.0
//
// How a prediction and the right call fit a capture block by block (block_map.hpp), element by
// element as for the whole call (match.hpp). What is predicted as unwritten is reproduced by a
// number only where one number stands in all such elements of a row and head of the block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/explain/block_map.hpp"
#include "reference/explain/match.hpp"
#include "reference/explain/shares.hpp"

namespace goldenrule::explain {

struct BlockFit {
  bool fails = false;        ///< some element is not that of the right call
  bool reproduced = true;    ///< every element is that of the prediction
  bool told = false;         ///< prediction and exact result are farther apart than both budgets
  ErrorShare share;          ///< of the failing elements
  double log_chance = 0.0;   ///< that an unrelated error is reproduced (by_blocks.hpp)
  bool has_numbers = false;  ///< reproduced elements that fail, finite and not 0
  bool integers = false;     ///< of integers, which are one number together
  double ratio = 0.0;        ///< max |captured - predicted| / budget
  double square = 0.0;  ///< of |captured - predicted| over the budget of the right call, summed
  std::int64_t compared = 0;
  bool assumes = false;  ///< reproduced elements were guessed or excused

  void add(const BlockFit& other);
  [[nodiscard]] bool is_right() const { return !fails && !reproduced; }
  [[nodiscard]] bool is_open() const { return !fails && reproduced; }
  /// It fails as predicted, and what is left of the error is less than what is gone.
  [[nodiscard]] bool is_made() const;
};

/// A row and head of an output that several blocks add to.
struct SumFit {
  std::vector<std::size_t> blocks;
  BlockFit fit;
};

struct BlockFits {
  std::vector<BlockFit> blocks;
  std::vector<SumFit> sums;
};

[[nodiscard]] BlockFits fit_blocks(const BlockMap& map, const Matcher& matcher,
                                   const Prediction& prediction);

/// Whether two predictions are one in the blocks `here`: to kSame of a budget.
[[nodiscard]] bool same_in_blocks(const BlockMap& map, const Matcher& matcher, const Prediction& a,
                                  const Prediction& b, const std::vector<Place>& places);

}  // namespace goldenrule::explain
