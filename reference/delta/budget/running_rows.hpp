// SPDX-License-Identifier: Apache-2.0
//
// What the running budget (running.hpp) does to one row of a tile: a key channel of kTileColumns
// columns, in vector operations.
#pragma once

#include <cstddef>

#include "reference/delta/budget/alpha_errors.hpp"
#include "reference/delta/rule/recurrent.hpp"

namespace goldenrule::delta {

// The roundings of a token on its way into the state: as fresh errors, or, of a token that is
// replayed, by their amounts.
struct Roundings {
  double u2 = 0.0, key2 = 0.0;  // proxies, of arithmetic and of rounded k^
  double u = 0.0, key = 0.0;    // amounts
};

// One row of elements at one token: what its key channel, its columns and its elements have.
struct KeyTerms {
  double alpha, kernel_alpha, alpha_error, k, reach;
  Roundings roundings;
};
struct ColumnTerms {
  const double *along2, *rounded2, *along_bias, *carried_sigma, *carried_bias;
};
struct ElementRow {
  double *sigma, *bias, *state;  // s_i, b_i and z_i
};
// Sums over the rows of a column: of squares, and with weights |q_i|.
struct RowSums {
  double *sigma2, *bias2, *sigma, *bias;
};

/// Moves a row to the state behind the token, `after`.
void advance_row(const KeyTerms& key, const ColumnTerms& column, const double* after,
                 const ElementRow& row);

/// Adds what a row gives to k^T (D e): `weight` |k_i|.
void add_carried(double weight, const AlphaErrors& alpha, const ElementRow& row, double* sigma,
                 double* bias);

/// The norm of a column's error bounds each of its elements. `weight` |q_i|.
void clip_row(double weight, const double* norm_sigma, const double* norm_bias,
              const ElementRow& row, const RowSums& sums);

/// call::f32_bound of numbers that are not negative.
void round_up(const double* x, std::size_t count, float* to);

}  // namespace goldenrule::delta
