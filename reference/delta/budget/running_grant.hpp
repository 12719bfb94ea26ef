// SPDX-License-Identifier: Apache-2.0
//
// The grants of a recurrent contract over the tokens of decode and MTP: the running error of
// running.hpp beside a second walk over the call, in double precision.
#pragma once

#include "fixtures/call/plan.hpp"
#include "reference/contract/contract.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::delta {

/// Of all outputs in `expected`; `plan` is that of these outputs. The golden values only say which
/// elements are finite.
void grant_running_errors(const call::Record& record, const call::Plan& plan,
                          const contract::Contract& contract, verdict::GrantDetail detail,
                          verdict::Expectations& expected);

}  // namespace goldenrule::delta
