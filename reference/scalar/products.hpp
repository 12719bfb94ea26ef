// SPDX-License-Identifier: Apache-2.0
//
// Dense products in double for the emulators, which run a chunk form dozens of times where the
// oracle runs once. Portable code that is compiled for several vector widths and chosen at load
// time; Eigen's products are fixed to the width of the build.
#pragma once

#include <cstdint>

namespace goldenrule::scalar {

/// A matrix in place: element (i, j) at data[i * row + j * column].
struct StridedMatrix {
  const double* data;
  std::int64_t row, column;
};

/// c [m,n] += sign * a [m,k] b [k,n]; b and c are row-major with the given leading dimensions and
/// do not overlap.
void multiply_add(double sign, StridedMatrix a, const double* b, std::int64_t b_row, double* c,
                  std::int64_t c_row, std::int64_t m, std::int64_t k, std::int64_t n);

/// For the rows i > j of a chunk of c tokens with one gate per key channel: with d_i the product of
/// alpha rows j+1 .. i, kk_i = sum_x left_k(i,x) d_i(x) right(j,x) and qk_i likewise with left_q,
/// for i = j .. c-1 (d_j = 1). All matrices are row-major [c,K]; kk and qk are columns with stride
/// `stride`; `decay` [K] receives d_{c-1}.
void decayed_products(const double* left_k, const double* left_q, const double* right,
                      const double* alpha, std::int64_t c, std::int64_t K, std::int64_t j,
                      double* kk, double* qk, std::int64_t stride, double* decay);

}  // namespace goldenrule::scalar
