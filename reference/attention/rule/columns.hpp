// SPDX-License-Identifier: Apache-2.0
//
// The loops of attention over the columns of a value and over the channels of a few keys, where
// nearly all of its time goes. They are functions of their own so that they are compiled for
// several generations of processors; every element sees exactly the operations that are written
// here, in the order of the keys, and the bits do not depend on which of them runs.
//
// No two arrays of a call overlap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reference/scalar/pack.hpp"

namespace goldenrule::attention {

/// Keys whose products with one query are taken together.
inline constexpr std::int64_t kKeysTogether = scalar::kPackWidth;

/// Of each of kKeysTogether rows of `keys`, [kKeysTogether][K], the sums of q_d k_d and |q_d k_d|
/// in the order of the channels.
void add_products(const double* q, const double* keys, std::size_t K, double* dot, double* size);

/// Per column sums of w E |v - o|, w |v| and the largest |v|.
struct SpreadSums {
  double *e_spread, *v_sum, *v_max;
};
void add_spread(double w, double w_error, const double* v, const double* o, std::size_t columns,
                const SpreadSums& to);

/// What one key counts for in the systematic part of a budget (budget/row_budget.cpp).
struct KeyShare {
  double w, linear, lost;
};
/// Per column: linear |v - o|, lost |v - mean|, w |v|, the largest |v - o| and |v|, and sum w v.
struct BudgetSums {
  double *linear, *lost, *size, *top, *largest, *partial;
};
void add_share(const KeyShare& key, const double* v, const double* o, const double* mean,
               std::size_t columns, const BudgetSums& to);
/// Adds |partial| and |o - partial|.
void add_partial(const double* partial, const double* o, std::size_t columns, double* forward,
                 double* backward);

/// Adds x = factor (v - rho o) and its square.
void add_term(double factor, double rho, const double* v, const double* o, std::size_t columns,
              double* sum, double* square);
/// Adds max(sum^2, square) to the total and sets both to 0.
void close_terms(std::size_t columns, double* sum, double* square, double* total);

}  // namespace goldenrule::attention
