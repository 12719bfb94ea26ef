// SPDX-License-Identifier: Apache-2.0
//
// Whether an explanation of a drawn mistake is right, by meaning.
//
// The first name is right when the named mistakes, made around the exact kernel, return what the
// planted one does to a thousandth of the budget (Matcher::kSame), in the planted blocks where
// there are any. Any other name that is said to explain the capture is wrong. Where no name
// explains it, findings are right that say what was planted, and a pattern that says where nothing
// was written. Of two mistakes, findings that one of them alone would cause leave the draw
// undecided, as does silence. Any others are wrong.
//
// Draws that their budgets hide are not counted: outputs that pass, and exact ones that are within
// one budget of those of a right kernel, or of a kernel that makes but one of two mistakes.
#pragma once

#include <cstdint>
#include <string>

#include "reference/explain/diagnose.hpp"
#include "reference/suites/unknown/draw.hpp"

namespace goldenrule::suites {

enum class Answer : std::uint8_t { kHidden, kRight, kWrong, kUndecided };

struct AnsweredDraw {
  Answer answer = Answer::kHidden;
  std::string said;  ///< the first name, or the findings
  explain::Diagnosis diagnosis;
};

/// Of the draw as a capture, explained within `limit`.
[[nodiscard]] AnsweredDraw answered(const Draw& draw, const explain::SearchLimit& limit = {});

/// Whether `diagnosis` is right of a draw that shows.
[[nodiscard]] Answer answer(const Draw& draw, const verdict::Judgement& judged,
                            const explain::Diagnosis& diagnosis);

}  // namespace goldenrule::suites
