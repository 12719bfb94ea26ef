// SPDX-License-Identifier: Apache-2.0
//
// An honest recurrent kernel: fp32 arithmetic, token by token, with the freedoms that a contract
// leaves to a kernel drawn from a seed:
//
//   - the order of the sums over K: a random permutation, the same at every token, added up
//   sequentially or in a tree;
//   - products and sums fused or separate;
//   - with one gate per head, the decay applied to the state or to the finished prediction;
//   - the output from the updated state, or as alpha S^T q + (k q) d from the state before;
//   - functions (exp, norm, sigmoid) wrong by up to the contract's errors, the same way throughout.
//
// Budgets that such kernels leave are wrong; budgets that they hardly touch are loose.
#pragma once

#include <cstdint>
#include <functional>

#include "reference/contract/contract.hpp"
#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {

/// Called with the state [K,V] after each token (1-based count).
using StateSink = std::function<void(std::int64_t tokens, const Matrix<float>& state)>;

/// Runs one lane and returns o, the last state and d before storage. `stream` names the lane; the
/// kernel's choices depend on `seed` alone, so that all lanes of a call are run by the same kernel.
[[nodiscard]] FormResult<float> emulate_recurrent(const Lane<double>& lane, const Matrix<double>& v,
                                                  const Matrix<double>& initial,
                                                  const contract::Contract& contract,
                                                  std::uint64_t seed, std::uint64_t stream,
                                                  const StateSink& sink);

}  // namespace goldenrule::delta
