// SPDX-License-Identifier: Apache-2.0
//
// Right numbers in the wrong place, found by search: of each failing line of an output (the row of
// a token and head, the state of a slot and head, a row of a state, a number) which line of what is
// right, of a state elsewhere in the call, or of an input stands there, as it lies or with the axes
// of a state exchanged. Many lines may hold one. An affine map of places (affine_map.hpp) is fitted
// to lines of which one source alone is possible, and tried on all failing lines; what it
// does not reach is searched again for another. Where no map fits, it is said in how many
// lines others were found. Lines that hold 0, or what stood there before the call, are none of
// these: nobody wrote them. Where all numbers of an output that do so are a part of it of their
// own, that part is said.
//
// What is said is more than chance (line_match.hpp), of which it leaves 2^-kChanceBits. Lines that
// are equal to others in what is right have no place, and integers, which have few values, are not
// searched. The work is bounded by numbers of lines and comparisons.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "reference/explain/failures.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::explain {

/// One sentence for each finding; none for outputs that pass. `failures` of the judgement.
[[nodiscard]] std::vector<std::string> find_places(const verdict::Judgement& judgement,
                                                   std::span<const Failures> failures);

}  // namespace goldenrule::explain
