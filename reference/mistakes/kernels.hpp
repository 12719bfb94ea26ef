// SPDX-License-Identifier: Apache-2.0
//
// Kernels for mistakes to happen around, and what their results become in memory.
#pragma once

#include <cstdint>

#include "reference/bounds/contract.hpp"
#include "reference/mistakes/mistake.hpp"

namespace goldenrule::mistakes {

/// The oracle in double precision. Rows that no kernel writes are NaN.
[[nodiscard]] call::TensorMap exact_kernel(const call::Record& record);

/// The emulated kernel of `contract` (oracle::emulate_unstored), which must outlive the result.
[[nodiscard]] Kernel emulated_kernel(const bounds::Contract& contract, std::uint64_t seed);

/// `outputs` as a kernel under `contract` stores them: o in the type of v, states in the contract's
/// storage type, or that of initial_state, or f32.
[[nodiscard]] call::TensorMap stored(const call::Record& record, const bounds::Contract& contract,
                                     const call::TensorMap& outputs);

}  // namespace goldenrule::mistakes
