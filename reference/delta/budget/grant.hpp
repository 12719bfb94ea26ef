// SPDX-License-Identifier: Apache-2.0
//
// What a contract grants a kernel beside the exact result, for every element of every output:
// running errors where few tokens are run in fp32 (running.hpp), emulation with random roundings
// for whole sequences and chunks (spread.hpp), nothing where the contract is the exact result
// rounded once. The grant of a recurrent contract depends on the call alone; that of an emulated
// one also on the exact values that its runs are compared with, so it is worked out again where a
// wider tier gave better ones.
#pragma once

#include <cstdint>
#include <string>

#include "fixtures/call/record.hpp"
#include "reference/contract/contract.hpp"
#include "reference/verdict/expectation.hpp"
#include "reference/verdict/grants.hpp"

namespace goldenrule::delta {

/// Whether the budget of a call comes from emulation: where a contract rounds, for whole sequences.
/// Decode and MTP run few tokens; theirs is computed (running.hpp).
[[nodiscard]] bool is_emulated(const call::Record& record, const contract::Contract& contract);

/// Fills in the grants of all outputs in `expected`, the evaluation of this record. Throws Error as
/// call::make_plan does.
void grant(const call::Record& record, const contract::Contract& contract,
           verdict::GrantDetail detail, verdict::Expectations& expected);

/// Slice::confirm. Trees and contracts without runs have nothing to confirm.
void confirm(const call::Record& record, const contract::Contract& contract,
             const call::TensorMap& outputs, verdict::Expectations& expected);

}  // namespace goldenrule::delta
