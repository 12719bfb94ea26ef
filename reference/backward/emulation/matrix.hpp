// SPDX-License-Identifier: Apache-2.0
//
// Matrices of an emulated fp32 kernel, and their products.
#pragma once

#include <Eigen/Core>

#include "reference/scalar/products_f32.hpp"

namespace goldenrule::backward {

using Floats = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Sums = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// c += a b
inline void add_product(const Floats& a, const Floats& b, Floats& c, float sign = 1.0F) {
  scalar::multiply_add(sign, {a.data(), a.cols(), 1}, b.data(), b.cols(), c.data(), c.cols(),
                       a.rows(), a.cols(), b.cols());
}
/// c += a^T b
inline void add_transposed(const Floats& a, const Floats& b, Floats& c, float sign = 1.0F) {
  scalar::multiply_add(sign, {a.data(), 1, a.cols()}, b.data(), b.cols(), c.data(), c.cols(),
                       a.cols(), a.rows(), b.cols());
}
[[nodiscard]] inline Floats product(const Floats& a, const Floats& b) {
  Floats c = Floats::Zero(a.rows(), b.cols());
  add_product(a, b, c);
  return c;
}
/// a^T b
[[nodiscard]] inline Floats transposed_product(const Floats& a, const Floats& b) {
  Floats c = Floats::Zero(a.cols(), b.cols());
  add_transposed(a, b, c);
  return c;
}
/// a b^T
[[nodiscard]] inline Floats product_transposed(const Floats& a, const Floats& b) {
  return product(a, Floats(b.transpose()));
}

}  // namespace goldenrule::backward
