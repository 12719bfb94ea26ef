// SPDX-License-Identifier: Apache-2.0
#include "reference/scalar/products.hpp"

#include <cstring>

#include "reference/scalar/pack.hpp"

namespace goldenrule::scalar {
namespace {

constexpr int kRows = 4;
constexpr int kPacks = 3;
constexpr std::int64_t kColumns = kPacks * kPackWidth;

GOLDENRULE_INLINE Pack load(const double* p) {
  Pack x;
  std::memcpy(&x.v, p, sizeof x.v);
  return x;
}

GOLDENRULE_INLINE void store(const Pack& x, double* p) { std::memcpy(p, &x.v, sizeof x.v); }

// A block of up to kRows rows and exactly kColumns columns: accumulators stay in registers.
GOLDENRULE_INLINE void block(double sign, const StridedMatrix& a, const double* b,
                             std::int64_t b_row, double* c, std::int64_t c_row, std::int64_t k) {
  Pack sum[kRows][kPacks];
  for (std::int64_t x = 0; x < k; ++x) {
    Pack right[kPacks];
    for (int p = 0; p < kPacks; ++p) right[p] = load(b + x * b_row + p * kPackWidth);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const Pack left = broadcast(a.data[i * a.row + x * a.column]);
#pragma GCC unroll 3
      for (int p = 0; p < kPacks; ++p) sum[i][p] += left * right[p];
    }
  }
  const Pack factor = broadcast(sign);
  for (int i = 0; i < kRows; ++i) {
    for (int p = 0; p < kPacks; ++p) {
      double* to = c + i * c_row + p * kPackWidth;
      store(load(to) + factor * sum[i][p], to);
    }
  }
}

GOLDENRULE_INLINE void element(double sign, const StridedMatrix& a, const double* b,
                               std::int64_t b_row, double* c, std::int64_t k, std::int64_t i,
                               std::int64_t j, std::int64_t c_row) {
  double sum = 0.0;
  for (std::int64_t x = 0; x < k; ++x) sum += a.data[i * a.row + x * a.column] * b[x * b_row + j];
  c[i * c_row + j] += sign * sum;
}

}  // namespace

GOLDENRULE_VECTOR_CLONES void multiply_add(double sign, StridedMatrix a, const double* b,
                                           std::int64_t b_row, double* c, std::int64_t c_row,
                                           std::int64_t m, std::int64_t k, std::int64_t n) {
  const std::int64_t whole_rows = m - m % kRows;
  const std::int64_t whole_columns = n - n % kColumns;
  for (std::int64_t j = 0; j < whole_columns; j += kColumns) {
    for (std::int64_t i = 0; i < whole_rows; i += kRows) {
      block(sign, {a.data + i * a.row, a.row, a.column}, b + j, b_row, c + i * c_row + j, c_row, k);
    }
  }
  // Edges: the columns beyond the last whole block row by row in packs, then single elements.
  for (std::int64_t i = 0; i < m; ++i) {
    std::int64_t j = i < whole_rows ? whole_columns : 0;
    for (; j + kPackWidth <= n; j += kPackWidth) {
      Pack sum;
      for (std::int64_t x = 0; x < k; ++x) {
        sum += broadcast(a.data[i * a.row + x * a.column]) * load(b + x * b_row + j);
      }
      double* to = c + i * c_row + j;
      store(load(to) + broadcast(sign) * sum, to);
    }
    for (; j < n; ++j) element(sign, a, b, b_row, c, k, i, j, c_row);
  }
}

GOLDENRULE_VECTOR_CLONES void decayed_products(const double* left_k, const double* left_q,
                                               const double* right, const double* alpha,
                                               std::int64_t c, std::int64_t K, std::int64_t j,
                                               double* kk, double* qk, std::int64_t stride,
                                               double* decay) {
  for (std::int64_t x = 0; x < K; ++x) decay[x] = 1.0;
  const std::int64_t whole = K - K % kPackWidth;
  for (std::int64_t i = j; i < c; ++i) {
    const double* a = alpha + i * K;
    Pack sum_k;
    Pack sum_q;
    for (std::int64_t x = 0; x < whole; x += kPackWidth) {
      Pack d = load(decay + x);
      if (i > j) {
        d = d * load(a + x);
        store(d, decay + x);
      }
      const Pack decayed = d * load(right + j * K + x);
      sum_k += decayed * load(left_k + i * K + x);
      sum_q += decayed * load(left_q + i * K + x);
    }
    double total_k = 0.0;
    double total_q = 0.0;
    for (int lane = 0; lane < kPackWidth; ++lane) {
      total_k += sum_k[lane];
      total_q += sum_q[lane];
    }
    for (std::int64_t x = whole; x < K; ++x) {
      if (i > j) decay[x] *= a[x];
      const double decayed = decay[x] * right[j * K + x];
      total_k += decayed * left_k[i * K + x];
      total_q += decayed * left_q[i * K + x];
    }
    kk[i * stride] = total_k;
    qk[i * stride] = total_q;
  }
}

}  // namespace goldenrule::scalar
