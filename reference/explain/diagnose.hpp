// SPDX-License-Identifier: Apache-2.0
//
// Why a capture fails: where, and which known mistake reproduces it.
//
// Every mistake that can be made in the call predicts outputs; those that reproduce all elements of
// all outputs within the budget of the mistaken call explain the capture. Several can: they are
// ranked by what is left between prediction and capture, in budgets of the right call, which is one
// yardstick for all. When no single mistake explains, pairs are tried, but only of mistakes of
// which at least one brings the prediction nearer to the capture.
//
// Cost. All hypotheses run on the whole capture where that takes at most kScreeningSteps visits of
// state elements. A larger capture is screened on two cuts (capture.hpp): some value channels of
// all tokens, and all channels of the first tokens; what looks right on either is verified on the
// whole.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reference/explain/capture.hpp"
#include "reference/mistakes/mistake.hpp"

namespace goldenrule::explain {

struct Explanation {
  std::vector<std::string> mistakes;  ///< one name, or the two of a pair
  std::vector<std::string> meanings;  ///< one sentence for each
  std::vector<std::string> same;      ///< other explanations that predict the same outputs
  double residual_ratio = 0.0;        ///< max |captured - predicted| / budget
  double accounted = 0.0;             ///< share of the error that it accounts for (match.hpp)
  std::int64_t failing = 0;           ///< elements that it does not reproduce
  bool explains = false;              ///< it reproduces every element
  /// For a mistake that amplifies roundings (scatter.hpp): rms error over that of the emulated
  /// mistake. It explains by where and how widely it errs, not element by element.
  std::optional<double> width{};

  /// "scale_missing + head_tiled"
  [[nodiscard]] std::string name() const;
};

struct Diagnosis {
  std::string pattern;                    ///< empty: nothing fails
  std::vector<Explanation> explanations;  ///< best first; those that do not explain come last
  std::int64_t known = 0;                 ///< mistakes in the table
  std::int64_t tried = 0;                 ///< of them, those that this call can show
  std::int64_t pairs = 0;                 ///< pairs that were tried
  bool screened = false;                  ///< hypotheses were first judged on a part of the capture
};

/// Of a judged record with at least one output; `evaluation` is that of this record and contract
/// (verdict::Judgement). Deterministic.
[[nodiscard]] Diagnosis diagnose(const call::Record& record, const bounds::Contract& contract,
                                 const oracle::Evaluation& evaluation,
                                 std::span<const mistakes::Mistake> table);

}  // namespace goldenrule::explain
