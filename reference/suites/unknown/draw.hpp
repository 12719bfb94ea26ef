// SPDX-License-Identifier: Apache-2.0
//
// Mistakes that no table has, drawn from generators: a kernel that makes one of them in a drawn
// call, and what an explanation must say of it. How often it does is what `goldenrule mutate
// --unknown` prints.
//
// A seed and a number are a draw: they give its kind, its call and its mistake on every machine.
// The n-th draw of a kind does not depend on which other kinds there are.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/suites/unknown/blocks.hpp"
#include "reference/suites/unknown/draws.hpp"
#include "reference/verdict/slice.hpp"

namespace goldenrule::suites {

/// A call and a kernel that errs in it.
struct Draw {
  std::string line;     ///< of the call
  std::string planted;  ///< what the kernel does, in words
  const verdict::Slice* slice = nullptr;
  const contract::Contract* contract = nullptr;
  call::Record call{};      ///< without outputs
  call::TensorMap made{};   ///< as the kernel stores them
  call::TensorMap exact{};  ///< the same mistake without any rounding
  /// Of two mistakes: each alone, without any rounding. A draw in which one of them does not show
  /// is not counted.
  std::vector<call::TensorMap> parts{};
  /// Of mistakes in some blocks: the blocks, as they are said and as they are.
  std::vector<std::string> where{};
  std::vector<BlockSet> sets{};
  /// Findings that have all of these words, as whole words, are right; so is a pattern that has
  /// those of `pattern`.
  std::vector<std::string> words{}, pattern{};
  /// A finding that has one of these is right of a part of the mistake.
  std::vector<std::string> partly{};
};

/// What a kernel returns that makes the mistake around a right one.
using Plant = std::function<call::TensorMap(const calls::Kernel& right)>;

/// The call of a line, and the contract that it implies.
[[nodiscard]] Draw drawn_call(const verdict::Slice& slice, std::string line);
/// Fills in what the kernel returns.
void plant(Draw& draw, const Plant& mistake);

struct UnknownKind {
  std::string_view name;     ///< "tails"
  std::string_view meaning;  ///< what is drawn
  Draw (*draw)(Draws& draws);
  /// No search enumerates it: an explanation can but be silent.
  bool is_beyond = false;
};
[[nodiscard]] std::span<const UnknownKind> unknown_kinds();

/// Numbers take turns over the kinds.
[[nodiscard]] const UnknownKind& kind_of(std::int64_t number);
[[nodiscard]] Draw draw_unknown(std::uint64_t seed, std::int64_t number);

/// The kinds.
[[nodiscard]] Draw draw_order(Draws& draws);
[[nodiscard]] Draw draw_chunk_order(Draws& draws);
[[nodiscard]] Draw draw_tail(Draws& draws);
[[nodiscard]] Draw draw_places(Draws& draws);
[[nodiscard]] Draw draw_blocks(Draws& draws);
[[nodiscard]] Draw draw_visible_set(Draws& draws);
[[nodiscard]] Draw draw_merge(Draws& draws);
[[nodiscard]] Draw draw_pair(Draws& draws);
[[nodiscard]] Draw draw_pair_in_blocks(Draws& draws);
[[nodiscard]] Draw draw_decision(Draws& draws);
[[nodiscard]] Draw draw_other_chunk(Draws& draws);
[[nodiscard]] Draw draw_other_tail(Draws& draws);

}  // namespace goldenrule::suites
