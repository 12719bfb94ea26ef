// SPDX-License-Identifier: Apache-2.0
//
// Products of matrices whose elements are sums of bf16 terms (bf16_terms.cuh), with 8 elements in
// the inner sum. Of the nine products of terms six are made,
//
//     a0 b0,  a0 b1,  a1 b0,  a0 b2,  a1 b1,  a2 b0
//
// and a1 b2, a2 b1, a2 b2 are left out: below 2^-21 |a b| where both are cut off, and below 2^-23
// |a b| where both are rounded to nearest.
#pragma once

#include "gpu/common/bf16_terms.cuh"
#include "gpu/ptx/matrix.cuh"

namespace goldenrule::gpu {

/// sum += A B, the smallest terms first. rows: elements 2t and 2t + 1 of rows g and g + 8 of A;
/// column: the same of column g of B.
__device__ __forceinline__ void multiply_terms(float (&sum)[4], const PairTerms (&rows)[2],
                                               const PairTerms& column) {
#pragma unroll
  for (int zeros = kTerms - 1; zeros >= 0; --zeros) {
#pragma unroll
    for (int term = zeros; term >= 0; --term) {
      const uint32_t a[2] = {rows[0].term[term], rows[1].term[term]};
      ptx::multiply_add(sum, a, column.term[zeros - term]);
    }
  }
}

}  // namespace goldenrule::gpu
