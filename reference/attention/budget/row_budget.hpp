// SPDX-License-Identifier: Apache-2.0
//
// The formula of grant.hpp for one row.
#pragma once

#include <vector>

#include "reference/attention/budget/rounding.hpp"
#include "reference/attention/rule/visible_keys.hpp"

namespace goldenrule::attention {

struct RowBudget {
  std::vector<double> sigma, bias;  ///< per column of o
  double lse_sigma = 0.0, lse_bias = 0.0;
  double flushed = 0.0;    ///< what flushing products below 2^-126 to zero may cost any column
  bool anything = false;   ///< the errors of scores allow any mean of the visible values
  bool overflows = false;  ///< scores or their exponentials may leave fp32
  std::vector<char> column_overflows;  ///< per column: the sum of values may, or the former
};

/// `o` and `lse` are the exact results of the row, which has keys; `multiple` sigmas are granted.
[[nodiscard]] RowBudget row_budget(const Tensors& tensors, const Plan& plan, const Request& request,
                                   const RowPlace& row, const Softmax& rounding, double multiple,
                                   const double* o, double lse);

}  // namespace goldenrule::attention
