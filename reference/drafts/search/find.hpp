// SPDX-License-Identifier: Apache-2.0
//
// Which decisions a draft acceptance kernel takes in place of the right ones, found from what it
// returned: of all points with one or two wrong parts (points.hpp) those that give the rows what
// the kernel gave them.
//
// A point is refuted by a row of which it predicts something else. It must predict at least half of
// the failing rows; in the others what such a kernel reads is open (a position that the call does
// not have, sums within roundings of each other).
//
// A point is said where the chance that any of the points tried agrees by chance with all rows that
// it predicts (given.hpp) is below 2^-10; of several, those with the fewest wrong parts, and all of
// them. Where all drafts are accepted in every row, or none, that is said and not why.
//
// The rest of a row follows from its count and its token (rule/rule.hpp). Where every row is what
// follows, and what is found predicts every failing one, the whole call is said.
#pragma once

#include "reference/verdict/slice.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::drafts {

/// What the kernel of a failing record decides, one text for the counts and one for the tokens;
/// none where nothing is found, and where a single row of the table of mistakes says it all.
[[nodiscard]] verdict::Searched find_decisions(const verdict::Judgement& judgement);

}  // namespace goldenrule::drafts
