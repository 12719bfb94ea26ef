// SPDX-License-Identifier: Apache-2.0
//
// The quantities of a lane as an emulated fp32 kernel computes them: functions wrong by up to what
// the contract grants, always the same way, activations rounded to nearest where it says so, and
// everything stored in fp32.
#pragma once

#include <vector>

#include "reference/bounds/contract.hpp"
#include "reference/bounds/kernel_habits.hpp"
#include "reference/rule/forms.hpp"

namespace goldenrule::bounds {

struct KernelLane {
  rule::Matrix<float> q, k;              ///< [tokens, K]
  rule::Matrix<float> alpha, log_alpha;  ///< [tokens, gates]
  std::vector<float> beta;               ///< [tokens]
};

[[nodiscard]] KernelLane kernel_lane(const rule::Lane<double>& lane, const Contract& contract,
                                     const KernelHabits& habits);

/// `lane` with these numbers in the place of the exact ones.
[[nodiscard]] rule::Lane<double> with_numbers_of(const rule::Lane<double>& lane,
                                                 const KernelLane& kernel);

}  // namespace goldenrule::bounds
