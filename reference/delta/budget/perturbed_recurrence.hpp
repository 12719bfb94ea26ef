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
// Errors of functions and of activations are those of perturbed_lane.hpp.
#pragma once

#include "reference/delta/emulation/perturbed_lane.hpp"
#include "reference/delta/emulation/pieces.hpp"
#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {

/// Runs one lane. `v` is [tokens,V], `initial` [K,V]; `positions` ascend and lie in (0, tokens];
/// `content` is that of each token (noise_table.hpp).
[[nodiscard]] KeptForm<double> perturbed_recurrence(
    const Lane<double>& lane, const Matrix<double>& v, const Matrix<double>& initial,
    std::span<const std::int64_t> positions, const contract::Contract& contract,
    const Perturbation& perturbation, std::span<const std::uint64_t> content);

}  // namespace goldenrule::delta
