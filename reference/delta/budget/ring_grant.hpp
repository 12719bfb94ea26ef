// SPDX-License-Identifier: Apache-2.0
//
// What a contract grants the keys and gates that a kernel adds to its rings (corrections are those
// of the recursion or of the emulation, which have the errors of the state). Both are functions of
// one token, so each error is counted in full, as a bias:
//
//   ring_k   (E_norm + u_k + u) |k^|, of the norm, of its rounding as an activation and of the
//            product with it; without a norm u_k |k|.
//   ring_g   (E_log_alpha + u_g + u) |log alpha| + E_softplus exp(A_log) + E_logit |d log alpha|,
//            as alpha takes them in running.hpp; of a given alpha
//            E_log + u_g + (E_log_alpha + u) |log alpha|.
//
// A kernel forms log alpha before alpha, so all of that holds where alpha underflows too: there
// alpha has no error left, and log alpha has those of its softplus times exp(A_log).
//
// E_.. are the function errors of the contract, u_k and u_g the unit roundoffs of its activations,
// u that of its arithmetic.
#pragma once

#include "fixtures/call/plan.hpp"
#include "reference/contract/contract.hpp"
#include "reference/delta/rule/lane.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::delta {

/// E_norm + u; 0 without a norm.
[[nodiscard]] double norm_error(const contract::Contract& contract, bool is_normalised);
/// |d log alpha|, its rounding as an activation included.
[[nodiscard]] double gate_error(const contract::Contract& contract,
                                const call::Convention& convention, const TokenBounds& bounds,
                                double log_alpha, double logit_slope);

void grant_ring_rows(const call::Record& record, const call::Plan& plan,
                     const contract::Contract& contract, verdict::GrantDetail detail,
                     verdict::Expectations& expected);

}  // namespace goldenrule::delta
