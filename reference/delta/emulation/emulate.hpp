// SPDX-License-Identifier: Apache-2.0
//
// The emulated kernel of a contract: outputs of a whole call as an honest kernel under that
// contract would store them. Every freedom that the contract leaves is drawn from the seed.
#pragma once

#include <cstdint>

#include "fixtures/call/record.hpp"
#include "reference/contract/contract.hpp"

namespace goldenrule::delta {

/// The outputs in f64, before they are rounded to what they are stored in.
[[nodiscard]] call::TensorMap emulate_unstored(const call::Record& record,
                                               const contract::Contract& contract,
                                               std::uint64_t seed);

/// o in the type of v, states in the contract's storage type (or that of initial_state, f32 without
/// one). MTP with a recurrent contract has intermediate_states; the chunk form has none. A prefill
/// call has the checkpoints that it asks for. Rows that no kernel writes are NaN; untouched slots
/// keep their content.
/// `ideal` is the oracle in double, rounded once. Throws Error as call::make_plan does.
[[nodiscard]] call::TensorMap emulate(const call::Record& record,
                                      const contract::Contract& contract, std::uint64_t seed);

/// The stages that the same kernel has on the way, in f64, each in the first form of its row
/// (oracle/stages.hpp) and before its rounding as an operand; what is not defined is 0. Without w
/// and u where the kernel has none. The contract must be chunked, and the kernel ends no chunk at a
/// checkpoint. Throws Error as evaluate_stages does.
[[nodiscard]] call::TensorMap emulate_stages(const call::Record& record,
                                             const contract::Contract& contract,
                                             std::uint64_t seed);

}  // namespace goldenrule::delta
