// SPDX-License-Identifier: Apache-2.0
//
// The budget of a whole sequence by emulation. Each lane is run R times as the contract declares
// its kernel, and sigma of an element is the root mean square of (run - exact), averaged half and
// half with what the V channels of its row say (an output token, a key of a state), which have V
// times the samples. Channels are calls of their own, so each is asked in units of its own size:
// with e_x^2 the mean squared error of channel x and s_x its size,
//
//   sigma_x^2 = e_x^2 / 2 + s_x^2 mean_y (e_y^2 / s_y^2) / 2.
//
// A channel that is 2^n times larger has 2^n times the budget, and the others keep theirs. (With
// the mean of e_y^2 a channel 10^4 times larger granted the others three times their values.) The
// size of o and of corrections is that of lane_sizes.hpp; that of a state's channel the error that
// the runs leave in it, which has K samples a run.
//
// Errors that repeat. A rounding error is a function of the number that is rounded. Where numbers
// hardly repeat, errors are as good as fresh ones and add up by their squares. Where they do, they
// add up by their amounts: the same token over and over, a state that moves by less than its last
// bit, residuals X = v - S^T k of one large S that the tokens of a chunk erase. With alpha = .999
// that is a factor of sqrt((1 + alpha) / (1 - alpha)) = 45. So there are two kinds of runs, of each
// element the larger sigma counts, and what an honest kernel computes is at home in one of them:
//
//   random   Each rounding error is drawn, uniform over half an ulp to either side, as a function
//            of what the token (the chunk) brings to the state, k, v, alpha and beta, and of the
//            place. Tokens that are alike err alike, and only those. At the points of a chunked
//            contract (emulation/chunk_emulator.hpp) or throughout an fp32 recurrence
//            (perturbed_recurrence.hpp).
//   nearest  Every rounding goes to the nearest number, as in a kernel (nearest_recurrence.hpp for
//            a recurrence). The rule is linear in (v, S), column by column, and o in q: each run
//            multiplies every column, and q, by a number on (1/2, 1), so that other bits are lost
//            in each, and divides the results by it. So whatever correlation comes from rounded
//            numbers that are alike is there, whichever kernel order made them.
//
// Neither contains the other. Nearest runs alone would grant nothing where two equal numbers cancel
// and err alike nearly always, but not at a tie; nor would a few of them find the rare column in
// which a kernel comes to rest next to the value that it tries to store and then drifts, by the
// same last bit at every token.
//
// Number of sigmas. To first order the error of an element is a linear form in independent uniform
// roundings; it is sub-Gaussian with proxy sigma^2, so lambda = sqrt(2 ln(2n / (p/2))) covers n
// elements with probability 1 - p/2. sigma itself is estimated from the R runs of a kind: with r =
// the quantile p/(2n) of chi^2 with R degrees of freedom, over R, an estimate below sqrt(r) sigma
// occurs anywhere with probability below p/2; averaged with a row of the same variance it is at
// least sqrt((1 + r)/2) sigma. Hence
//
//   multiple = lambda / sqrt((1 + r) / 2).
//
// Premises: zero-mean roundings (round to nearest), elements of a row of like relative variance,
// errors small enough for linearity.
//
// Rows with one error. A row has V samples a run only where its elements err by themselves. Where
// o is little but its own token's (decays of e^-4 a token), o = scale beta (q^ k^) v, and the one
// error of <q^, k^> is that of all V elements: a run is one sample, the row says no more than an
// element. With the 3 runs of a large call such a sigma is too small by a factor of 10 in a row out
// of some hundred thousand (a real kernel of 32 heads and 8,192 tokens was out of budget in 722 of
// 33 million elements, by up to 2.4 times; with 48 runs its worst was .4). So what a few runs call
// out of budget is asked again, lane by lane, with more (verdict/confirm.hpp) before it is said:
// with 48 of a kind a sigma below a third of the right one has a probability of 1e-19.
//
// Functions that are wrong by the full amount in one direction at every token are no random
// errors, nor is the truncation of operands to tf32. Runs for each (alpha too large and too small,
// by the whole error and by half of it; beta; the norm of k; truncation) say what it does to each
// element: bias is the sum over the functions of the largest absolute difference, and the norm of
// q, which only scales an output, adds itself. Half of it: 1 + exp(-17) is 1 or 1 + 2^-23 in fp32,
// and a decay that errs by as much as it decays moves an element along a curve that may meet the
// exact value again at the whole error (so did one of 2.2 million elements). So any combination of
// systematic errors is covered, and in full. Where operands are rounded to 16 bits, errors of
// functions (2^-21) are below 2^-12 of those roundings except where these have no effect: a state
// that is only decayed, a key of almost 0. There alpha counts, and it is wrong by the full amount
// in every random run instead.
#pragma once

#include <cstdint>

#include "fixtures/call/plan.hpp"
#include "reference/contract/contract.hpp"
#include "reference/delta/budget/lane_spread.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::delta {

/// Runs per lane, of both kinds in equal parts: kUsualRuns, and more where a row of few values is
/// no sample, up to kSamples numbers of a row, as long as all runs take kSampleSteps (a quarter of
/// them in any case). Fewer for large calls, but no fewer than give kFewestSamples numbers of a
/// row, and one random run and two nearest ones. With few runs nearly all of the information comes
/// from the row (V samples a run), and `multiple` says so: it is lambda times 1.40 to 1.41. A row
/// of one value is the element itself: there multiple = lambda / sqrt(r).
inline constexpr int kUsualRuns = 24;
inline constexpr int kFewestRuns = 3;
inline constexpr double kSamples = 512.0;
inline constexpr double kFewestSamples = 64.0;
/// Steps (oracle/work.hpp) of all runs together that a check may cost: some seconds.
inline constexpr double kSpreadSteps = 0x1p33;
inline constexpr double kSampleSteps = 0x1p30;
/// As many of them take as long as to begin with a lane.
inline constexpr double kLaneSteps = 8192.0;

/// The seed of the random roundings; fixed, so that a verdict can be repeated.
inline constexpr std::uint64_t kSpreadSeed = 0x676f6c64656e7275U;

/// The runs that a call is given, the steps of one of them, and the multiple of sigma for n
/// elements that follows from `runs` random ones with rows of V values.
[[nodiscard]] Runs runs_for(const call::Record& record, const call::Plan& plan,
                            const contract::Contract& contract);
[[nodiscard]] double steps_of_runs(const call::Record& record, const call::Plan& plan,
                                   const contract::Contract& contract);
[[nodiscard]] double multiple_for(std::int64_t n, int runs, std::int64_t V);

/// Slice::confirm, however many runs there were. It takes kSpreadSteps and as long as the fewest
/// runs of the whole call.
void confirm_by_emulation(const call::Record& record, const call::Plan& plan,
                          const contract::Contract& contract, const call::TensorMap& outputs,
                          verdict::Expectations& expected);

/// Fills in the grants of o, final_state and checkpoints, as far as they are in `expected`;
/// intermediate_states have none.
void grant_by_emulation(const call::Record& record, const call::Plan& plan,
                        const contract::Contract& contract, verdict::GrantDetail detail,
                        verdict::Expectations& expected);

}  // namespace goldenrule::delta
