// SPDX-License-Identifier: Apache-2.0
//
// Every element of a tensor against what is expected of it: what is counted and summed on the way,
// from which the verdict follows (verdict.cpp). Large tensors are compared in parts of whole rows
// of their leading axis; the parts do not depend on the number of threads, and are joined in their
// order, so neither does any bit of a report.
#pragma once

#include <span>
#include <vector>

#include "fixtures/call/tensor.hpp"
#include "reference/verdict/budget.hpp"
#include "reference/verdict/expectation.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::verdict {

/// Sums over the elements of a tensor.
struct Sums {
  double error2 = 0.0, golden2 = 0.0, signed_error = 0.0, absolute_error = 0.0;
  bool all_exact = true, all_zero = true, golden_zero = true;
  double signal2 = 0.0, budget2 = 0.0;  ///< over the blocks that the rule computes
  bool computed = false;                ///< some block is computed by the rule
  bool computed_zero = true;            ///< all exact values there are 0
  bool has_rule = false;                ///< some element is the rule's, defined or not
  bool rule_judged = false;             ///< and some such element has a right value
};

/// What a comparison leaves beside a report.
struct Comparison {
  Sums sums;
  std::vector<float> ratios;  ///< of the elements that have one, in no order
};

/// Compares `output` with `expected`, which have one shape, and fills in all of `report` but its
/// name, type and shape, and what finish() does.
[[nodiscard]] Comparison compare(const call::Tensor& output, const Expected& expected,
                                 const Budget& budget, TensorReport& report);

void join(Sums& to, const Sums& from);
/// Both say of their elements where in the whole tensor they are.
void join(TensorReport& to, const TensorReport& from);

/// The ratio in the middle, which reorders them; 0 of none.
[[nodiscard]] double median_of(std::span<float> ratios);

/// What follows from a comparison of all elements: means, verdict and reason. Where the contract
/// has no budget for this tensor (`given`), what was measured against it is taken out.
void finish(const Sums& sums, double median_ratio, bool given, const contract::Contract& contract,
            TensorReport& report);

}  // namespace goldenrule::verdict
