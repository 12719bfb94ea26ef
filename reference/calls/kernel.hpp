// SPDX-License-Identifier: Apache-2.0
//
// What a kernel is to those who call one: outputs from a call. And what becomes of its numbers when
// it stores them.
#pragma once

#include <functional>
#include <string>

#include "fixtures/call/record.hpp"
#include "reference/contract/contract.hpp"

namespace goldenrule::calls {

/// A kernel that computes without storage rounding: f64 tensors named and shaped like the outputs
/// of the call: o, final_state, and for MTP intermediate_states. Elements that it does not write
/// are NaN. The oracle in double precision is one; an emulator of a contract is another.
using Kernel = std::function<call::TensorMap(const call::Record&)>;

/// What a kernel under `contract` stores an output in: o in the type of v (attention: of q), states
/// in the contract's storage type, or that of initial_state, or f32, lse in f32, and what is
/// integer in i64.
[[nodiscard]] call::DType stored_type(const call::Record& record,
                                      const contract::Contract& contract,
                                      const std::string& output);

/// `outputs` as a kernel under `contract` stores them: o in the type of v, states in the contract's
/// storage type, or that of initial_state, or f32; integers that are not written are -2^31.
[[nodiscard]] call::TensorMap stored(const call::Record& record, const contract::Contract& contract,
                                     const call::TensorMap& outputs);

}  // namespace goldenrule::calls
