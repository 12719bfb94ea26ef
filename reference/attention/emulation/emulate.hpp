// SPDX-License-Identifier: Apache-2.0
//
// Honest kernels under a contract, in real fp32 arithmetic: streaming tiles of 16 to 128 keys in
// either order, split keys merged from (o, lse) in fp32, sums rounded key by key or truncated in
// steps of 16 as tensor cores do, functions that err within their bounds. They test the budgets.
//
// A step of a tensor core: the exact products and the accumulator are aligned to the largest of
// them and cut below 2^-26 of it, and their sum is cut to fp32, both toward zero. Two bits beyond
// fp32 are what Ampere and later devices keep (Fasi, Higham, Mikaitis and Pranesh, "Numerical
// behavior of NVIDIA tensor cores", PeerJ Computer Science 7, 2021, find extra bits from Ampere
// on), and what fits the drift that was measured on Hopper. Unrounded weights are no operands of
// one: their sum is an ordinary fp32 sum.
#pragma once

#include <cstdint>
#include <string>

#include "reference/attention/budget/rounding.hpp"
#include "reference/attention/rule/evaluate.hpp"

namespace goldenrule::attention {

/// What an honest kernel may choose.
struct KernelChoices {
  std::int64_t tile = 64;
  std::int64_t splits = 1;
  bool backward = false;      ///< tiles from the last key to the first
  bool tensor_cores = false;  ///< sums are truncated in steps of 16
  int exp2_sign = 0;          ///< exp2 errs by its whole error: -1, +1; 0: by the argument
  int tanh_sign = 0;

  explicit KernelChoices(std::uint64_t seed);
  [[nodiscard]] std::string words() const;  ///< "tile 32, 3 splits, backward, tensor cores"
};

/// The outputs, in f64, of the kernel that `seed` chooses.
[[nodiscard]] call::TensorMap emulate(const call::Record& record, const Plan& plan,
                                      const Softmax& rounding, std::uint64_t seed);

/// The same under a contract of attention, ideal ones included, with the plan of the call.
[[nodiscard]] inline call::TensorMap emulate(const call::Record& record,
                                             const contract::Contract& contract,
                                             std::uint64_t seed) {
  const Plan plan = make_plan(record);
  if (contract.softmax() == nullptr) return outputs_of(record, plan);
  return emulate(record, plan, *contract.softmax(), seed);
}

}  // namespace goldenrule::attention
