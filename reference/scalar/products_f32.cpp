// SPDX-License-Identifier: Apache-2.0
#include "reference/scalar/products_f32.hpp"

#include <cstring>
#include <vector>

#include "reference/scalar/pack.hpp"

namespace goldenrule::scalar {
namespace {

constexpr int kWidth = 16;  // floats of a pack
using Floats = float __attribute__((vector_size(kWidth * sizeof(float))));
constexpr int kBlockRows = 4;
constexpr int kBlockPacks = 2;
constexpr std::int64_t kPack = kWidth;
constexpr std::int64_t kBlockColumns = kBlockPacks * kPack;

GOLDENRULE_INLINE void read(const float* p, Floats& x) { std::memcpy(&x, p, sizeof x); }
GOLDENRULE_INLINE void write(const Floats& x, float* p) { std::memcpy(p, &x, sizeof x); }

// kBlockRows rows and kBlockColumns columns: accumulators stay in registers.
GOLDENRULE_INLINE void float_block(float sign, const StridedFloats& a, const float* b,
                                   std::int64_t b_row, float* c, std::int64_t c_row,
                                   std::int64_t k) {
  Floats sum[kBlockRows][kBlockPacks] = {};
  for (std::int64_t x = 0; x < k; ++x) {
    Floats right[kBlockPacks];
    for (int p = 0; p < kBlockPacks; ++p) read(b + x * b_row + p * kPack, right[p]);
    for (int i = 0; i < kBlockRows; ++i) {
      const float left = a.data[i * a.row + x * a.column];
      for (int p = 0; p < kBlockPacks; ++p) sum[i][p] += left * right[p];
    }
  }
  for (int i = 0; i < kBlockRows; ++i) {
    for (int p = 0; p < kBlockPacks; ++p) {
      float* to = c + i * c_row + p * kPack;
      Floats before;
      read(to, before);
      write(before + sign * sum[i][p], to);
    }
  }
}

}  // namespace

GOLDENRULE_VECTOR_CLONES void multiply_add(float sign, StridedFloats a, const float* b,
                                           std::int64_t b_row, float* c, std::int64_t c_row,
                                           std::int64_t m, std::int64_t k, std::int64_t n) {
  const std::int64_t whole_rows = m - m % kBlockRows;
  const std::int64_t whole_columns = n - n % kBlockColumns;
  for (std::int64_t j = 0; j < whole_columns; j += kBlockColumns) {
    for (std::int64_t i = 0; i < whole_rows; i += kBlockRows) {
      float_block(sign, {a.data + i * a.row, a.row, a.column}, b + j, b_row, c + i * c_row + j,
                  c_row, k);
    }
  }
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = i < whole_rows ? whole_columns : 0; j < n; ++j) {
      float sum = 0.0F;
      for (std::int64_t x = 0; x < k; ++x) {
        sum += a.data[i * a.row + x * a.column] * b[x * b_row + j];
      }
      c[i * c_row + j] += sign * sum;
    }
  }
}

GOLDENRULE_VECTOR_CLONES void decayed_products(const DecayedRows& rows, const float* left,
                                               const float* right, float* s, std::int64_t stride) {
  const std::int64_t K = rows.K;
  const std::int64_t whole = K - K % kWidth;
  std::vector<float> decayed(static_cast<std::size_t>(K));
  float* d = decayed.data();
  for (std::int64_t j = rows.first; j < rows.last; ++j) {
    for (std::int64_t x = 0; x < K; ++x) d[x] = right[j * K + x];
    for (std::int64_t i = j; i < rows.last; ++i) {
      if (i > j) {
        for (std::int64_t x = 0; x < K; ++x) d[x] *= rows.alpha[i * K + x];
      }
      Floats sums = {};
      for (std::int64_t x = 0; x < whole; x += kWidth) {
        Floats a;
        Floats b;
        read(left + i * K + x, a);
        read(d + x, b);
        sums += a * b;
      }
      float sum = 0.0F;
      for (int lane = 0; lane < kWidth; ++lane) sum += sums[lane];
      for (std::int64_t x = whole; x < K; ++x) sum += left[i * K + x] * d[x];
      s[i * stride + j] = sum;
    }
  }
}

GOLDENRULE_VECTOR_CLONES void decayed_sums(const DecayedRows& rows, const float* s,
                                           std::int64_t stride, const float* left,
                                           const float* right, float* y, float* z) {
  const std::int64_t K = rows.K;
  std::vector<float> decay(static_cast<std::size_t>(K));
  float* d = decay.data();
  for (std::int64_t j = rows.first; j < rows.last; ++j) {
    for (std::int64_t x = 0; x < K; ++x) d[x] = 1.0F;
    for (std::int64_t i = j; i < rows.last; ++i) {
      if (i > j) {
        for (std::int64_t x = 0; x < K; ++x) d[x] *= rows.alpha[i * K + x];
      }
      const float m = s[i * stride + j];
      for (std::int64_t x = 0; x < K; ++x) {
        y[i * K + x] += m * d[x] * right[j * K + x];
        z[j * K + x] += m * d[x] * left[i * K + x];
      }
    }
  }
}

}  // namespace goldenrule::scalar
