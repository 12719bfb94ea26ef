// SPDX-License-Identifier: Apache-2.0
//
// Mistakes that round (a state to bf16 after every token, beta or a gate to bf16). A prediction
// rounds the exact number x; the kernel rounds x + d, where d is what its own arithmetic erred by.
// A number within |d| of a tie between two neighbours of the narrow type, u apart, may so become
// the other one: for numbers that lie anywhere, a share E|d| / u of them. An fp32 kernel that
// rounds to bf16 flips one number in some thousands; each is off by u, 2^16 budgets, and so is all
// that is made of it. "Every element is reproduced" is then no fair demand, though nearly all are.
//
// How many elements a flip reaches and how far depends on the call (a flip of one state element
// changes its column in all later tokens, and other roundings there). That is not derived but
// tried: the mistake is committed kTieRuns times around the exact kernel with the inputs perturbed
// by d,
//
//   |d / x| <= 2^-21 at fp32 (8 unit roundoffs): the errors that contracts of fp32 arithmetic
//   declare for their functions, which are the largest of its relative errors,
//
// and what a run returns is compared with the prediction just as the capture is. A capture that was
// made by the mistake is one more run. With the three numbers of a comparison
//
//   n = elements not reproduced,  r = the largest distance in budgets,  e = 1 - accounted,
//
// the mistake explains the capture when n <= 2 max n, r <= 2 max r and e <= 4 max e, maxima over
// the runs; and some error must be accounted for, as always. Being one more run it would exceed a
// maximum itself with probability 1 / (kTieRuns + 1); the factor 2 (e is a square) leaves room for
// kernels whose arithmetic errs by up to twice as much. Where no run flips anything the capture may
// not either.
//
// Share. The maxima say what a run may leave, not that anything was found: of few rows, one whose
// norm flips is a large part, and twice a maximum may be all. A number flips with probability
// E|d| / u <= 2^-22 / 2^-8 = 2^-14 at fp32 and bf16, so the elements that a flip reaches are few
// wherever a name can be told; where they are half, an honest run is reproduced no better than a
// kernel that does something else. What the rounding leaves must be less than what it takes, as of
// any explanation (kAccounted):
//
//   n <= N / 2,  N = elements not reproduced without the mistakes of the hypothesis that round
//
// (the failing elements, where it is a single). A pair so needs its rounding: where the other
// mistake alone reproduces as much, the pair is not said.
//
// q and k are perturbed where they are normalised: the kernel's norm errs, but what it reads as it
// is, it reads exactly.
#pragma once

#include "reference/explain/match.hpp"

namespace goldenrule::explain {

inline constexpr int kTieRuns = 12;

/// Whether what `prediction` of `hypothesis` leaves of the capture, `match`, is what rounding near
/// ties leaves. False for hypotheses that do not round and contracts that compute in less than
/// fp32, whose budgets are wider than such flips.
[[nodiscard]] bool only_ties_left(const Capture& capture, const Predictor& predictor,
                                  const Matcher& matcher, const Hypothesis& hypothesis,
                                  const Prediction& prediction, const Match& match);

}  // namespace goldenrule::explain
