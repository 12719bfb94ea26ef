// SPDX-License-Identifier: Apache-2.0
//
// The quantities of a lane (alpha, beta, k^, q^) as a kernel may compute them: moved by the errors
// that a contract grants its functions, and by the rounding of its activations.
//
// Errors of functions. An error is a function of its argument, of unknown sign, at most as large as
// the contract says. Two kinds cover what such a function can do to a sequence:
//   - a systematic error: alpha, beta or the norm of k wrong by the full amount with one sign
//   throughout;
//   - scatter: at every token (for alpha also at every key channel) a fresh error, uniform up to
//     the full amount, and with one gate per channel a fixed one of each channel on top, since a
//     channel may see the same argument at every token.
// Rounding an activation (beta, log alpha) is a function of its argument too: the same beta at
// every token is always rounded the same way. Rounded elements of q^ and k^ err independently of
// each other.
#pragma once

#include <cstdint>

#include "reference/contract/contract.hpp"
#include "reference/delta/rule/lane.hpp"

namespace goldenrule::delta {

/// What is put into one run.
struct Perturbation {
  // Systematic errors, as multiples of the contract's errors: -1, 0 or 1.
  double alpha = 0.0, beta = 0.0, key = 0.0;
  bool random = false;  ///< scatter, and the roundings of the run: a function of (seed, stream)
  std::uint64_t seed = 0, stream = 0;
};

/// |d log alpha| by the error of softplus, given log alpha = slope softplus. The error is absolute:
/// slope times what the contract grants. Below 2^-24 a kernel's 1 + exp(x) is 1 and its softplus 0,
/// or it is accurate: the error is at most softplus itself.
[[nodiscard]] inline double softplus_error(const contract::FunctionErrors& f, double slope,
                                           double log_alpha) {
  if (f.softplus == 0.0) return 0.0;
  return log_alpha < slope * 0x1p-24 ? log_alpha : slope * f.softplus;
}

/// The relative error of what a gate takes the softplus or the sigmoid of.
[[nodiscard]] inline double logit_error(const contract::Contract& c, const TokenBounds& b) {
  return c.functions.logit + (b.scaled_logit ? c.functions.exp + c.unit_roundoff() : 0.0);
}

/// Rounded q^ and k^ are left to the emulation of a chunked kernel.
[[nodiscard]] Lane<double> perturbed_lane(const Lane<double>& lane,
                                          const contract::Contract& contract,
                                          const Perturbation& perturbation);

}  // namespace goldenrule::delta
