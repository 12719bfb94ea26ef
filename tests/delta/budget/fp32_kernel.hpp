// SPDX-License-Identifier: Apache-2.0
//
// A kernel as people write them, in fp32 from the raw inputs on: no line of it comes from the
// reference, and it never sees the quantities that the budgets are made of. A seed chooses, within
// what the contract recurrent_f32 declares, what kernels differ in:
//
//   - the order of the K terms of each sum and the number of partial sums, added up in a tree;
//   - products and sums fused or separate;
//   - one gate per head: the decay applied to the state, or to the finished prediction;
//   - q^ and k^ rounded, or the reciprocal norm applied to the finished sums;
//   - each function wrong by up to what contract::FunctionErrors grants, the same argument always
//   the same
//     way: scattered over the arguments, or all upwards, or all downwards.
#pragma once

#include <cstdint>

#include "fixtures/call/record.hpp"
#include "reference/contract/contract.hpp"

namespace goldenrule::delta::test {

/// Outputs of the call: o in f32, whatever the type of v; states in `state` (f32 or bf16, rounded
/// once from fp32), intermediate_states in MTP. What no kernel writes is as it was, or NaN.
[[nodiscard]] call::TensorMap run_fp32_kernel(const call::Record& record,
                                              const contract::FunctionErrors& errors,
                                              call::DType state, std::uint64_t seed);

}  // namespace goldenrule::delta::test
