// SPDX-License-Identifier: Apache-2.0
//
// Why a capture fails: where, and which known mistake reproduces it.
//
// Every mistake that can be made in the call predicts outputs; those that reproduce all elements of
// all outputs within the budget of the mistaken call explain the capture. Several can: they are
// ranked by what is left between prediction and capture, in budgets of the right call, which is one
// yardstick for all. When no single mistake explains, pairs are tried, but only of mistakes of
// which at least one brings the prediction nearer to the capture. Where nothing explains, mistakes
// that account for at least half of the error are named as near misses; what accounts for less says
// nothing of the kernel, and readers believe it.
//
// Where no single mistake explains the whole call, mistakes are named that are made in some blocks
// of it (by_blocks.hpp), behind whatever explains the whole call and before near misses.
//
// Ways of one mistake (rows of one name) are one answer: the best of them is named.
//
// Cost. Pairs come last, and a limit cuts them short, and single mistakes at twice that; it is one
// of work, estimated from the shapes, so that what is said depends on no clock. All hypotheses run
// on the whole capture where that takes at most kScreeningSteps visits of state elements. A larger
// capture is screened on two cuts (capture.hpp): some value channels of all tokens, and all
// channels of the first tokens; what looks right on either is confirmed on the whole.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reference/calls/mistake.hpp"
#include "reference/explain/search.hpp"

namespace goldenrule::explain {

struct Explanation {
  std::vector<std::string> mistakes;  ///< one name, or the two of a pair
  std::vector<std::string> meanings;  ///< one sentence for each
  /// "vLLM #53877": where each was made in public. Only beside the one name that the capture
  /// proves: no other explains it, and nothing is left to a convention or to roundings.
  std::vector<std::string> reported;
  /// Of each mistake the blocks in which it is made, in words (by_blocks.hpp); empty: the whole
  /// call. What is said below of elements is said of those there, and the others are right.
  std::vector<std::string> where{};
  std::vector<std::string> same;   ///< other explanations that predict the same outputs
  std::vector<std::string> meant;  ///< "head_map=tiled": conventions that would make it right
  double residual_ratio = 0.0;     ///< max |captured - predicted| / budget
  double accounted = 0.0;          ///< share of the error that it accounts for (match.hpp)
  std::int64_t failing = 0;        ///< elements that it does not reproduce
  bool explains = false;           ///< it reproduces every element
  std::int64_t flipped = 0;        ///< but these, which roundings near a tie explain (ties.hpp)
  std::int64_t unbounded = 0;      ///< failing elements that it does not bound: no evidence
  /// What comes nearest to an explanation of the whole call, of the other mistakes that were
  /// compared with it and "a right kernel", and how many elements that does not reproduce.
  std::string rival{};
  std::int64_t told_by = 0;
  /// For a mistake that amplifies roundings (scatter.hpp): rms error over that of the emulated
  /// mistake. It explains by where and how widely it errs, not element by element.
  std::optional<double> width{};

  /// "scale_missing + head_tiled"
  [[nodiscard]] std::string name() const;
  /// The same with the blocks: "scale_missing in head 1 + head_tiled in sequence 2"
  [[nodiscard]] std::string name_and_place() const;
};

struct Diagnosis {
  std::string pattern;  ///< empty: nothing fails
  /// Mistakes of the capture. Where one accounts for the failures no other is looked for.
  std::vector<calls::CaptureMistake> of_capture;
  std::vector<std::string> found;         ///< what the kernel does by search (verdict::Slice::find)
  std::vector<Explanation> explanations;  ///< best first; those that do not explain come last
  std::int64_t known = 0;                 ///< mistakes in the table
  std::int64_t possible = 0;              ///< of them, those that this call can show
  std::int64_t tried = 0;                 ///< of these, those within the limit
  std::int64_t pairs = 0;                 ///< pairs that were tried
  std::int64_t possible_pairs = 0;        ///< pairs that were to be tried
  bool screened = false;                  ///< hypotheses were first judged on a part of the capture
  std::optional<double>
      stopped_after{};  ///< core-seconds, as estimated; something was left untried
};

/// Of a judged record with at least one output, among the mistakes in `table` (of the operation:
/// judgement.slice->mistakes()). Deterministic.
[[nodiscard]] Diagnosis diagnose(const verdict::Judgement& judgement,
                                 std::span<const calls::Mistake> table,
                                 const SearchLimit& limit = {});

}  // namespace goldenrule::explain
