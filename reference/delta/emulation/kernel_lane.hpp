// SPDX-License-Identifier: Apache-2.0
//
// The quantities of a lane as an emulated fp32 kernel computes them: functions wrong by up to what
// the contract grants, always the same way, activations rounded to nearest where it says so, and
// everything stored in fp32.
#pragma once

#include <vector>

#include "reference/contract/contract.hpp"
#include "reference/delta/emulation/kernel_choices.hpp"
#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {

struct KernelLane {
  std::int64_t given = 0;          ///< Lane::given: v is what beta (v - ..) is of others
  Matrix<float> q, k;              ///< [tokens, K]
  Matrix<float> alpha, log_alpha;  ///< [tokens, gates]
  std::vector<float> beta;         ///< [tokens]
};

[[nodiscard]] KernelLane kernel_lane(const Lane<double>& lane, const contract::Contract& contract,
                                     const KernelChoices& choices);

/// `lane` with these numbers in the place of the exact ones.
[[nodiscard]] Lane<double> with_numbers_of(const Lane<double>& lane, const KernelLane& kernel);

}  // namespace goldenrule::delta
