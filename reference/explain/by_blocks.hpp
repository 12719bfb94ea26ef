// SPDX-License-Identifier: Apache-2.0
//
// Mistakes that a kernel makes in some blocks of a call (block_map.hpp) and not in others: behind a
// flag, in sequences of one length, in one group of heads. The predictions that the search makes of
// whole calls are compared with the capture block by block. Nothing is computed anew: a block does
// not depend on what the kernel does in another one. Where it does (a slot that a sequence leaves
// to another, a sum over heads) the blocks do not come out, or the sum is asked as below.
//
// Of a block and a mistake there are four cases:
//
//   right      nothing fails, and some element is not what is predicted,
//   made       some element fails, each one is what is predicted, and of the error less is left
//              than is gone (kAccounted),
//   open       nothing fails and each element is what is predicted: it says nothing,
//   neither    all other blocks.
//
// A block that is right or made is told where some element has its prediction and its exact result
// farther apart than both budgets together, so that no number is both. A mistake explains the call
// by blocks when
//
//   no block is neither,
//   a told block is right, and a told block is made,
//   n c <= kChance, n the number of mistakes that can be made in the call and c as follows.
//
// Chance. Blocks are not chosen: which are to be reproduced follows from what fails. A false name
// is said when an unrelated error is what the mistake predicts in each failing block. Let the
// prediction be d away from the exact result, with a budget b. Of the numbers that are at most d
// from the exact result, a share b / (2 d) lies within b of the prediction on that side, and an
// error of that size is unrelated to it otherwise; b / d is used. Elements of one value channel of
// a row and head share their inputs, so that only the best of them counts. Value channels have
// values of their own, and rows their q: two weightings of the same keys differ in all of them, by
// independent numbers. So
//
//   c = product over told blocks that are made, rows, heads and value channels of min b / d,
//
// minima over the failing elements that are told and are finite, not 0 and predicted as finite. A
// NaN, a 0 or a buffer's content is what any fault leaves: they are no evidence, and the pattern
// says where they stand. Integers have few values (a count, one of the tokens that were offered):
// those of a row are one number with c = 1/2, so that many rows must fail.
// The other kind, a told block that is right, needs no such product: a budget bounds what the
// mistaken kernel can return, and the capture is outside of it.
//
// A mistake that a generator enumerates, made in the whole call, is held to n c <= kChance too, n
// with all that are enumerated, unless nothing but such elements fails: a tail that holds 0 is what
// the pattern says as well. Where a handful of numbers fails, some one of thousands of weightings
// reproduces them.
//
// Sums. A row and head that several blocks add to must be what is predicted where the mistake is
// made in all of them, and right where it is made in none. Where it is made in some, no prediction
// says what it is, and nothing is asked. Where only the sum tells (its blocks are open) it decides
// for its blocks.
//
// Two mistakes. Where no mistake explains alone, two do when each failing block is made by one of
// them, each of them alone has a told block that the other does not have, and n c <= kChance for
// the blocks that it has alone. A mistake that accounts for less than half of the error has its
// spread scaled, not run (prediction.hpp), so that one of two may be missed. Only mistakes that
// make at least one failing block are asked, at most kCovering of them, those that make most blocks
// first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/calls/mistake.hpp"
#include "reference/explain/block_fit.hpp"

namespace goldenrule::explain {

inline constexpr std::size_t kCovering = 32;

struct BlockExplanation {
  std::vector<const calls::Mistake*> mistakes;  ///< one, or two in blocks of their own
  std::vector<std::string> where;               ///< of each: "sequences 0 and 3"
  std::vector<std::string> same;      ///< other mistakes with the same outputs in these blocks
  std::vector<calls::Aspect> shared;  ///< of one mistake, with those that are of its kind
  double ratio = 0.0;                 ///< max |captured - predicted| / budget there
  double residual = 0.0;              ///< rms of it over the budget of the right call
  double accounted = 0.0;             ///< share of the error of a failing block, the mean
  bool assumes = false;               ///< something is guessed or excused there

  /// What one of the mistakes predicts, and where it is made. Empty once it is found.
  struct Part {
    const Prediction* prediction;
    std::vector<Place> places;
  };
  std::vector<Part> parts;

  [[nodiscard]] std::string name() const;
};

class BlockSearch {
 public:
  /// `possible` mistakes can be made in the call.
  BlockSearch(const call::Record& call, const Matcher& matcher, std::int64_t possible);

  /// What `mistake` predicts for the whole call. What is said later of a mistake stands.
  void consider(const calls::Mistake* mistake, const Prediction& prediction);

  /// Whether numbers that fail in the whole call, and are what is predicted, could be so by chance.
  [[nodiscard]] bool may_be_chance(const Prediction& prediction) const;

  /// The best first; those of two mistakes only where none explains alone.
  [[nodiscard]] std::vector<BlockExplanation> found() const;

 private:
  struct Considered {
    const calls::Mistake* mistake;
    BlockFits fits;
    std::vector<Place> places;  // where it explains alone; else empty
    Prediction prediction;
  };
  [[nodiscard]] std::vector<Place> alone(const BlockFits& fits) const;
  [[nodiscard]] std::vector<BlockExplanation> found_alone() const;
  [[nodiscard]] std::vector<BlockExplanation> found_together() const;
  // Beside the others, or as one of the same outputs.
  void add_or_join(BlockExplanation e, std::vector<BlockExplanation>& all) const;
  [[nodiscard]] std::optional<BlockExplanation> together(const Considered& a,
                                                         const Considered& b) const;
  [[nodiscard]] bool is_chance(double log_chance) const;

  const Matcher& matcher_;
  const BlockMap map_;
  const double possible_;
  std::vector<Considered> considered_;
};

}  // namespace goldenrule::explain
