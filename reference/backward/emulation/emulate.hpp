// SPDX-License-Identifier: Apache-2.0
//
// The emulated kernel of a contract: the gradients of a whole call as an honest kernel under that
// contract would store them.
#pragma once

#include <cstdint>

#include "fixtures/call/record.hpp"
#include "reference/contract/contract.hpp"

namespace goldenrule::backward {

/// In f64, before they are rounded to what they are stored in. An ideal contract: the oracle in
/// double.
[[nodiscard]] call::TensorMap emulate(const call::Record& record,
                                      const contract::Contract& contract, std::uint64_t seed);

/// The stages of the same kernel in chunks of its contract, in their first forms, in f64 before
/// they are rounded to what they are stored in. `contract` is one of the backward pass.
[[nodiscard]] call::TensorMap emulate_stages(const call::Record& record,
                                             const contract::Contract& contract,
                                             std::uint64_t seed);

}  // namespace goldenrule::backward
