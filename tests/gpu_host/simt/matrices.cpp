// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_host/simt/matrices.hpp"

#include <array>
#include <cstring>

#include "tests/gpu_host/simt/fragments.hpp"
#include "tests/gpu_host/simt/grid.hpp"
#include "tests/gpu_host/simt/shared_memory.hpp"

namespace goldenrule::simt {
namespace {

struct Multiplication {
  float* c;
  const std::uint32_t* a;
  std::uint32_t b[2];
};

template <class Type>
void multiply_warp(const Lanes& lanes) {
  const auto of = [&](int lane) {
    return static_cast<Multiplication*>(lanes[static_cast<std::size_t>(lane)]);
  };
  float a[16][kInner];
  gather_left<Type>([&](int lane) { return of(lane)->a; }, a);
  float b[8][kInner];
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const auto [g, t] = place_of(lane);
    for (int i = 0; i < 2; ++i) {
      b[g][8 * i + 2 * t] = Type::low(of(lane)->b[i]);
      b[g][8 * i + 2 * t + 1] = Type::high(of(lane)->b[i]);
    }
  }
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const auto [g, t] = place_of(lane);
    for (int i = 0; i < 4; ++i) {
      const float* row = a[g + i / 2 * 8];
      const float* column = b[2 * t + i % 2];
      double sum = static_cast<double>(of(lane)->c[i]);
      for (int k = 0; k < kInner; ++k) {
        sum += static_cast<double>(row[k]) * static_cast<double>(column[k]);
      }
      of(lane)->c[i] = truncated(sum);
    }
  }
}

struct MatrixAccess {
  std::uint32_t address;
  std::uint32_t* x;
  const std::uint32_t* from;
};

/// Rows of the four matrices, as the lanes name them.
template <class Access>
void each_row(const Lanes& lanes, Access&& access) {
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const auto& m = *static_cast<MatrixAccess*>(lanes[static_cast<std::size_t>(lane)]);
    if (m.address % 16 != 0) fail("a row of a matrix is not aligned to 16 bytes");
    access(lane / 8, lane % 8, shared_pointer(m.address));
  }
}

using Matrices = std::array<std::array<std::array<std::uint16_t, 8>, 8>, 4>;

template <bool kTransposed, class F>
void each_element(const Lanes& lanes, Matrices& m, F&& f) {
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const auto [g, t] = place_of(lane);
    auto& mine = *static_cast<MatrixAccess*>(lanes[static_cast<std::size_t>(lane)]);
    for (std::size_t i = 0; i < 4; ++i) {
      for (int e = 0; e < 2; ++e) {
        const auto row = static_cast<std::size_t>(kTransposed ? 2 * t + e : g);
        const auto column = static_cast<std::size_t>(kTransposed ? g : 2 * t + e);
        f(mine, i, e, m[i][row][column]);
      }
    }
  }
}

template <bool kTransposed>
void load_warp(const Lanes& lanes) {
  Matrices m{};
  each_row(lanes, [&](int i, int row, const std::byte* at) {
    std::memcpy(m[static_cast<std::size_t>(i)][static_cast<std::size_t>(row)].data(), at, 16);
  });
  each_element<kTransposed>(lanes, m,
                            [](MatrixAccess& lane, std::size_t i, int e, std::uint16_t x) {
                              lane.x[i] = e == 0 ? x : lane.x[i] | std::uint32_t{x} << 16;
                            });
}

template <bool kTransposed>
void store_warp(const Lanes& lanes) {
  Matrices m{};
  each_element<kTransposed>(lanes, m,
                            [](MatrixAccess& lane, std::size_t i, int e, std::uint16_t& x) {
                              x = static_cast<std::uint16_t>(lane.from[i] >> 16 * e);
                            });
  each_row(lanes, [&](int i, int row, std::byte* at) {
    std::memcpy(at, m[static_cast<std::size_t>(i)][static_cast<std::size_t>(row)].data(), 16);
  });
}

void transpose_warp(const Lanes& lanes) {
  std::uint16_t m[8][8];
  const auto of = [&](int lane) {
    return static_cast<std::uint32_t*>(lanes[static_cast<std::size_t>(lane)]);
  };
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const auto [g, t] = place_of(lane);
    m[g][2 * t] = static_cast<std::uint16_t>(*of(lane));
    m[g][2 * t + 1] = static_cast<std::uint16_t>(*of(lane) >> 16);
  }
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const auto [g, t] = place_of(lane);
    *of(lane) = m[2 * t][g] | std::uint32_t{m[2 * t + 1][g]} << 16;
  }
}

}  // namespace

void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  Multiplication mine{c, a, {b0, b1}};
  this_block().meet(kAllLanes, multiply_warp<BF16Pair>, "mma", &mine);
}

void multiply_add_f16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                      std::uint32_t b1) {
  Multiplication mine{c, a, {b0, b1}};
  this_block().meet(kAllLanes, multiply_warp<F16Pair>, "mma of f16", &mine);
}

void load_matrices(std::uint32_t (&x)[4], std::uint32_t row_address, bool transposed) {
  MatrixAccess mine{row_address, x, nullptr};
  this_block().meet(kAllLanes, transposed ? load_warp<true> : load_warp<false>, "ldmatrix", &mine);
}

void store_matrices(std::uint32_t row_address, const std::uint32_t (&x)[4], bool transposed) {
  MatrixAccess mine{row_address, nullptr, x};
  this_block().meet(kAllLanes, transposed ? store_warp<true> : store_warp<false>, "stmatrix",
                    &mine);
}

std::uint32_t transpose(std::uint32_t x) {
  this_block().meet(kAllLanes, transpose_warp, "movmatrix", &x);
  return x;
}

}  // namespace goldenrule::simt
