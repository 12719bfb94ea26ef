// SPDX-License-Identifier: Apache-2.0
//
// How much memory a verdict on a call of attention takes, from its shapes alone. Upper bounds: what
// is counted is what evaluate.cpp, row_budget.cpp, verdict/comparison.cpp and explain/ hold at
// once.
//
//   plan          runs of keys, one per page at most or one per fresh key, and a range per query
//   expectation   per element of o and lse golden f64, radius and spread f32; per row touched
//   rule          on every thread, for a group of rows, score and weight of every key in the widest
//                 tier, and a tile of keys and values
//   budget        on every thread, for one row, what is known of each key
//   explanation   per element as for the delta rule; a copy of the keys, gathered for all heads;
//                 what the search for visible sets holds
//
// A request has at most all fresh keys and as many cached ones as a table row names pages for; of a
// CSR table, as all its entries.
#pragma once

#include "reference/verdict/memory.hpp"

namespace goldenrule::attention {

/// `threads` that work side by side.
[[nodiscard]] verdict::Need memory_needed(const verdict::Declared& call, int threads);

}  // namespace goldenrule::attention
