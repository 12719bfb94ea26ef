// SPDX-License-Identifier: Apache-2.0
//
// Which contract a delta-rule call implies.
#pragma once

#include "fixtures/call/record.hpp"
#include "reference/contract/contract.hpp"

namespace goldenrule::delta {

/// The contract that the call itself implies, by its mode and the types of its tensors: decode and
/// MTP are recurrent; prefill is chunked, with 16-bit operands unless q, k, v and o are all wider
/// than 16 bits (of either kind where one of them is fp16); a state of 16 bits is one where
/// initial_state is. A chunked kernel with 16-bit operands rounds the state for every product, and
/// one that carries it in bf16 (FlashKDA) takes and gives fp32: there alone a final state of bf16
/// numbers only says so too. What the file claims (record.contract) is used where it is no wider
/// than that. Throws Error(kArgument) for a claim that is no built-in contract.
[[nodiscard]] const contract::Contract& default_contract(const call::Record& record);

}  // namespace goldenrule::delta
