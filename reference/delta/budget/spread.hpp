// SPDX-License-Identifier: Apache-2.0
//
// The budget of a whole sequence by emulation. Each lane is run R times with random roundings, at
// the points of a chunked contract (bounds/chunk_emulator.hpp) or throughout an fp32 recurrence
// (bounds/perturbed_recurrence.hpp), and sigma of an element is the root mean square of
// (run - exact), averaged half and half with the mean over its row (the V values of an output
// token, of a key of a state), which has V times the samples.
//
// Number of sigmas. To first order the error of an element is a linear form in independent uniform
// roundings; it is sub-Gaussian with proxy sigma^2, so lambda = sqrt(2 ln(2n / (p/2))) covers n
// elements with probability 1 - p/2. sigma itself is estimated: with r = the quantile p/(2n) of
// chi^2 with R degrees of freedom, over R, an estimate below sqrt(r) sigma occurs anywhere
// with probability below p/2; averaged with a row of the same variance it is at least
// sqrt((1 + r)/2) sigma. Hence
//
//   multiple = lambda / sqrt((1 + r) / 2).
//
// Premises: zero-mean roundings (round to nearest), elements of a row of like variance, errors
// small enough for linearity.
//
// Functions that are wrong by the full amount in one direction at every token are no random errors,
// nor is the truncation of operands to tf32. One run for each (alpha too large and too small, where
// they are large enough for the two to differ; beta; the norm of k; truncation) says exactly what
// it does to each element: bias is the sum of the absolute differences, and the norm of q, which
// only scales an output, adds itself. So any combination of systematic errors is covered, and in
// full. Where operands are rounded to 16 bits, errors of functions (2^-21) are below 2^-12 of those
// roundings except where these have no effect: a state that is only decayed, a key of almost 0.
// There alpha counts, and it is wrong by the full amount in every random run instead.
#pragma once

#include <cstdint>

#include "fixtures/call/plan.hpp"
#include "reference/contract/contract.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::delta {

/// Random runs per lane: kMostRuns, fewer for large calls, never below kFewestRuns. With few runs
/// nearly all of the information comes from the row (V samples a run) and `multiple` says so: it is
/// lambda times 1.35 with 24 runs and 1.41 with 2.
inline constexpr int kMostRuns = 24;
inline constexpr int kFewestRuns = 2;
/// State elements visited by all random runs together that a check may cost: some seconds.
inline constexpr std::int64_t kSpreadSteps = std::int64_t{8} << 30;

/// The seed of the random roundings; fixed, so that a verdict can be repeated.
inline constexpr std::uint64_t kSpreadSeed = 0x676f6c64656e7275U;

/// Fills in the grants of o, final_state and checkpoints, as far as they are in `expected`;
/// intermediate_states have none.
void grant_by_emulation(const call::Record& record, const call::Plan& plan,
                        const contract::Contract& contract, verdict::GrantDetail detail,
                        verdict::Expectations& expected);

}  // namespace goldenrule::delta
