// SPDX-License-Identifier: Apache-2.0
//
// The two kernels that every operation has: the oracle in double precision, and an honest kernel
// under a contract, emulated.
#pragma once

#include <cstdint>

#include "reference/verdict/slice.hpp"

namespace goldenrule::verdict {

/// All outputs of a call, in f64. What no kernel writes is NaN.
[[nodiscard]] call::TensorMap exact_outputs(const Slice& slice, const call::Record& record);

/// The same as a kernel; `slice` must outlive it.
[[nodiscard]] calls::Kernel exact_kernel(const Slice& slice);

/// The emulated kernel of `contract`; both must outlive it.
[[nodiscard]] calls::Kernel emulated_kernel(const Slice& slice, const contract::Contract& contract,
                                            std::uint64_t seed);

}  // namespace goldenrule::verdict
