// SPDX-License-Identifier: Apache-2.0
//
// Every element of a tensor against what is expected of it: what is counted and summed on the way,
// from which the verdict follows (verdict.cpp). Large tensors are compared in parts of whole rows
// of their leading axis; the parts do not depend on the number of threads, and are joined in their
// order, so neither does any bit of a report.
#pragma once

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

/// Compares `output` with `expected`, which have one shape, and fills in all of `report` but its
/// name, type, shape, verdict and reason.
Sums compare(const call::Tensor& output, const Expected& expected, const Budget& budget,
             TensorReport& report);

}  // namespace goldenrule::verdict
