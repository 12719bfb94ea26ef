// SPDX-License-Identifier: Apache-2.0
//
// The recurrence of rule/recurrent.hpp in double with the errors of an fp32 kernel put in by hand,
// to be run several times: what the results differ by is what these errors can do, with every
// cancellation and every correlation that the algorithm brings with it. The recursion of
// running.hpp bounds the same errors without running anything, by norms; over a few tokens that is
// nearly as good, over hundreds it is not, since the norm of a column's error says nothing of its
// direction (a factor sqrt(K)) and absolute values never cancel (a factor sqrt(tokens)).
//
// Rounding errors. As in running.hpp: every rounding of x is a fresh error uniform on [-u|x|,
// u|x|], those of one sum over K together one of the variance P(p, x) + 2 sum x_i^2. A kernel may
// form its output from the state before the update as well, alpha S^T q + (k q) d, so the output
// takes the errors of (k q) d too: (n/3 (kq)^2 + n/6 sum (k_i q_i)^2 + 2 (kq)^2) d^2.
//
// Errors of functions. An error is a function of its argument, of unknown sign, at most as large as
// the contract says. Two kinds cover what such a function can do to a sequence:
//   - a habit: alpha, beta or the norm of k wrong by the full amount with one sign throughout;
//   - scatter: at every token (for alpha also at every key channel) a fresh error, uniform up to
//     the full amount, and with one gate per channel a fixed one of each channel on top, since a
//     channel may see the same argument at every token.
#pragma once

#include <cstdint>

#include "reference/bounds/contract.hpp"
#include "reference/rule/forms.hpp"

namespace goldenrule::bounds {

/// What is put into one run.
struct Perturbation {
  // Habits, as multiples of the contract's errors: -1, 0 or 1.
  double alpha = 0.0, beta = 0.0, key = 0.0;
  bool random = false;  ///< roundings and scatter, a function of (seed, stream)
  std::uint64_t seed = 0, stream = 0;
};

/// Runs one lane. `v` is [tokens,V], `initial` [K,V].
[[nodiscard]] rule::FormResult<double> perturbed_recurrence(const rule::Lane<double>& lane,
                                                            const rule::Matrix<double>& v,
                                                            const rule::Matrix<double>& initial,
                                                            const Contract& contract,
                                                            const Perturbation& perturbation);

}  // namespace goldenrule::bounds
