// SPDX-License-Identifier: Apache-2.0
//
// Dense products in fp32 for emulators that compute as their kernels do, in fp32: sums in rising
// order, every operation rounded once. Portable code, compiled for several vector widths and chosen
// at load time; the numbers do not depend on the width.
#pragma once

#include <cstdint>

namespace goldenrule::scalar {

/// Element (i, j) at data[i * row + j * column].
struct StridedFloats {
  const float* data;
  std::int64_t row, column;
};

/// c [m,n] += sign * a [m,k] b [k,n]; b and c are row-major with the given leading dimensions and
/// do not overlap.
void multiply_add(float sign, StridedFloats a, const float* b, std::int64_t b_row, float* c,
                  std::int64_t c_row, std::int64_t m, std::int64_t k, std::int64_t n);

/// A chunk's rows [first, last), all matrices row-major [.,K]; D_ij = alpha rows j+1 .. i
/// multiplied, per channel.
struct DecayedRows {
  const float* alpha;
  std::int64_t first, last, K;
};

/// s_ij = sum_x left_ix D_ijx right_jx for first <= j <= i < last, at s[i * stride + j].
void decayed_products(const DecayedRows& rows, const float* left, const float* right, float* s,
                      std::int64_t stride);

/// The adjoint of that: y_i += s_ij D_ij right_j and z_j += s_ij D_ij left_i.
void decayed_sums(const DecayedRows& rows, const float* s, std::int64_t stride, const float* left,
                  const float* right, float* y, float* z);

}  // namespace goldenrule::scalar
