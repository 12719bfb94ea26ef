// SPDX-License-Identifier: Apache-2.0
//
// The matrix instructions of a warp: all lanes meet, and the last one does the work.
#pragma once

#include <cstdint>

namespace goldenrule::simt {

/// mma.sync m16n8k16 of a warp; c, a and b of this lane.
void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);

/// The same of f16.
void multiply_add_f16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                      std::uint32_t b1);

/// ldmatrix, stmatrix (x4) and movmatrix.
void load_matrices(std::uint32_t (&x)[4], std::uint32_t row_address, bool transposed);
void store_matrices(std::uint32_t row_address, const std::uint32_t (&x)[4], bool transposed);
[[nodiscard]] std::uint32_t transpose(std::uint32_t x);

}  // namespace goldenrule::simt
