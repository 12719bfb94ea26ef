// SPDX-License-Identifier: Apache-2.0
//
// Products, matrices and boxes of the host execution against plain loops. Their operands are whole
// numbers, so that every sum is exact and order does not matter.
#include <doctest/doctest.h>

#include <cuda.h>

#include <cstring>
#include <string>
#include <vector>

#include "gpu/delta/prefill/sm90/lower_tiles.cuh"
#include "gpu/delta/prefill/sm90/scan_products.cuh"
#include "gpu/ptx/bulk_copy.cuh"
#include "gpu/ptx/matrix.cuh"
#include "gpu/ptx/warpgroup.cuh"

namespace goldenrule::gpu::prefill {
extern __shared__ __align__(1024) char memory[];
}

namespace goldenrule::test {
namespace {

namespace ptx = gpu::ptx;
using namespace gpu::prefill;

constexpr int kThreads = 128;

template <class... P, class... A>
std::string launch(void (*kernel)(P...), A... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = 48 << 10;
  CHECK(cudaLaunchKernelEx(&config, kernel, arguments...) == cudaSuccess);
  static_cast<void>(cudaDeviceSynchronize());
  static_cast<void>(cudaGetLastError());
  return simt::take_failure();
}

float number(int row, int column) { return static_cast<float>((7 * row + 3 * column) % 11 - 5); }
std::uint32_t pair_of(float x, float y) {
  return __float_as_uint(x) >> 16 | (__float_as_uint(y) & 0xffff0000U);
}

/// A tile of 64 x 64 numbers as tile.cuh has it.
void fill_tile(char* tile) {
  for (int i = static_cast<int>(threadIdx.x); i < 64 * 32; i += kThreads) {
    const int row = i / 32, column = i % 32 * 2;
    *reinterpret_cast<std::uint32_t*>(tile + pair_offset(row, column)) =
        pair_of(number(row, column), number(row, column + 1));
  }
  ptx::fence_async_readers();
  __syncthreads();
}

enum class Left { kRegisters, kShared };
enum class Mistake { kNone, kReadsEarly, kNoFence };

/// C = A B^T for A = B = the tile, or C = A B over 128 columns, whose second half is the same tile.
template <int kColumns, Left kLeft, Mistake kMistake>
__global__ void multiply_tiles(float* out) {
  fill_tile(memory);
  if (kColumns == 128) fill_tile(memory + kTileBytes);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;
  float c[kColumns / 2];
  for (float& x : c) x = 1.f;
  const std::uint32_t tile = ptx::shared_address(memory);
  if (kMistake != Mistake::kNoFence) ptx::arrange_products();
  for (int s = 0; s < 4; ++s) {
    std::uint32_t a[4];
    for (int i = 0; i < 4; ++i) {
      const int row = 16 * warp + g + i % 2 * 8, column = 16 * s + i / 2 * 8 + 2 * t;
      a[i] = pair_of(number(row, column), number(row, column + 1));
    }
    const std::uint64_t rows = advanced(rows_descriptor(tile), column_step(s));
    if constexpr (kColumns == 128) {
      ptx::multiply_128_columns<true>(c, a, advanced(columns_descriptor(tile), row_step(s)));
    } else if constexpr (kLeft == Left::kRegisters) {
      ptx::multiply_64_rows<true>(c, a, rows);
    } else {
      ptx::multiply_64_shared_rows<true>(c, rows, rows);
    }
  }
  ptx::commit_products();
  float* to = out + threadIdx.x * (kColumns / 2);
  if (kMistake == Mistake::kReadsEarly) std::copy_n(c, kColumns / 2, to);
  ptx::wait_for_products_but<0>();
  if (kMistake != Mistake::kReadsEarly) std::copy_n(c, kColumns / 2, to);
}

/// How many elements of a result differ from 1 + the sum of 64 products.
template <int kColumns>
int differences(const std::vector<float>& out) {
  int different = 0;
  for (int thread = 0; thread < kThreads; ++thread) {
    for (int i = 0; i < kColumns / 2; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
      const int column = i / 4 * 8 + 2 * (thread % 4) + i % 2;
      float sum = 1.f;
      for (int k = 0; k < 64; ++k) {
        sum += number(row, k) * (kColumns == 128 ? number(k, column % 64) : number(column, k));
      }
      const auto at = static_cast<std::size_t>(thread * (kColumns / 2) + i);
      different += out[at] == sum ? 0 : 1;
    }
  }
  return different;
}

template <int kColumns, Left kLeft, Mistake kMistake = Mistake::kNone>
int wrong_elements() {
  std::vector<float> out(kThreads * (kColumns / 2));
  CHECK(launch(multiply_tiles<kColumns, kLeft, kMistake>, out.data()) == "");
  return differences<kColumns>(out);
}

TEST_CASE("host execution: products of a warpgroup are those of their matrices, at their wait") {
  CHECK(wrong_elements<64, Left::kRegisters>() == 0);
  CHECK(wrong_elements<64, Left::kShared>() == 0);
  CHECK(wrong_elements<128, Left::kRegisters>() == 0);
  CHECK(wrong_elements<64, Left::kRegisters, Mistake::kReadsEarly>() == 64 * 64);
  std::vector<float> out(kThreads * 32);
  CHECK(launch(multiply_tiles<64, Left::kShared, Mistake::kNoFence>, out.data())
            .find("without a fence") != std::string::npos);
}

/// C = 1 + A B^T with the blocks of the numbers at and below the diagonal, packed, then spread. The
/// second of the pair of triangles is the one that is multiplied.
__global__ void multiply_lower_tile(float* out) {
  char* packed = memory + kSpreadPanels;
  for (int i = static_cast<int>(threadIdx.x); i < 64 * 32; i += kThreads) {
    const int row = i / 32, column = i % 32 * 2;
    if (column / 16 > row / 16) continue;
    char* to = packed + packed_block(row / 16 * 16, column / 16 * 16) +
               piece_of_block(row % 16, column / 8 % 2) + column % 8 * 2;
    *reinterpret_cast<std::uint32_t*>(to) = pair_of(99.f, 99.f);
    *reinterpret_cast<std::uint32_t*>(to + kOfSecond) =
        pair_of(number(row, column), number(row, column + 1));
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    std::memset(memory, 0, kSpreadPanels);
    for (int s = 0; s < kPanels; ++s) {
      std::memcpy(memory + spread_panel(s), packed + packed_panel(s),
                  static_cast<std::size_t>(panel_bytes(s)));
    }
  }
  ptx::fence_async_readers();
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t a[16];
  for (int i = 0; i < 16; ++i) {
    const int row = 16 * warp + lane / 4 + i % 2 * 8, column = i / 2 * 8 + 2 * (lane % 4);
    a[i] = pair_of(number(row, column), number(row, column + 1));
  }
  float c[32];
  for (float& x : c) x = 1.f;
  ptx::arrange_products();
  multiply_tokens(c, a, memory + kOfSecond);
  ptx::commit_products();
  ptx::wait_for_products_but<0>();
  std::copy_n(c, 32, out + threadIdx.x * 32);
}

TEST_CASE("host execution: a lower triangle multiplies as the matrix with zeros above its blocks") {
  std::vector<float> out(kThreads * 32);
  CHECK(launch(multiply_lower_tile, out.data()) == "");
  for (int thread = 0; thread < kThreads; ++thread) {
    for (int i = 0; i < 32; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
      const int column = i / 4 * 8 + 2 * (thread % 4) + i % 2;
      float sum = 1.f;
      for (int k = 0; k < column / 16 * 16 + 16; ++k) sum += number(row, k) * number(column, k);
      CHECK(out[static_cast<std::size_t>(thread * 32 + i)] == sum);
    }
  }
}

/// The left operand by ldmatrix, the right one transposed, and the result through stmatrix.
__global__ void multiply_block(float* out) {
  fill_tile(memory);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t at = ptx::shared_address(memory) + piece_offset(lane % 16, lane / 16);
  std::uint32_t a[4], b[4];
  ptx::load_matrices(a, at);
  ptx::load_transposed_matrices(b, at);
  __syncthreads();
  float c[2][4] = {};
  for (int n = 0; n < 2; ++n) ptx::multiply_add(c[n], a, make_uint2(b[2 * n], b[2 * n + 1]));
  // By halves of 8: the sums of integers are the same.
  float halves[4] = {};
  ptx::multiply_add(halves, {a[0], a[1]}, b[0]);
  ptx::multiply_add(halves, {a[2], a[3]}, b[1]);
  if (threadIdx.x >= 32) return;
  std::copy_n(&c[0][0], 8, out + 8 * lane);
  const bool same = std::equal(halves, halves + 4, c[0]);
  // Back to where it came from: transposed twice.
  for (std::uint32_t& x : b) x = ptx::transpose(x);
  ptx::store_matrices(at, b);
  ptx::load_transposed_matrices(a, at);
  for (int i = 0; i < 4; ++i) a[i] = a[i] == ptx::transpose(b[i]) ? 0 : 1;
  out[256 + lane] = static_cast<float>(a[0] + a[1] + a[2] + a[3] + (same ? 0 : 1));
}

TEST_CASE("host execution: matrices of a warp: loaded, transposed, multiplied, stored") {
  std::vector<float> out(256 + 32, -1.f);
  CHECK(launch(multiply_block, out.data()) == "");
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 8; ++i) {
      const int row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + 2 * (lane % 4) + i % 2;
      float sum = 0.f;
      for (int k = 0; k < 16; ++k) sum += number(row, k) * number(k, column);
      CHECK(out[static_cast<std::size_t>(8 * lane + i)] == sum);
    }
    CHECK(out[static_cast<std::size_t>(256 + lane)] == 0.f);
  }
}

__global__ void move_box(std::uint16_t* to, const __grid_constant__ CUtensorMap map, int first) {
  auto& barrier = *reinterpret_cast<std::uint64_t*>(memory + 4 * kTileBytes);
  if (threadIdx.x == 0) {
    ptx::initialize_barrier(barrier, 1);
    ptx::arrive_expecting(barrier, kTileBytes);
    ptx::copy_box(memory, &map, 0, 1, first, barrier);
    ptx::wait_for_phase(barrier, 0);
    ptx::store_box(&map, 0, 0, first, memory);
    ptx::commit_bulk_stores();
    ptx::wait_for_bulk_reads();
    for (int i = 0; i < 64 * 64; ++i) {
      to[i] =
          *reinterpret_cast<std::uint16_t*>(memory + piece_offset(i / 64, i % 64 / 8) + i % 8 * 2);
    }
  }
}

CUresult make_map(CUtensorMap& map, std::uint16_t* data, cuuint64_t token_bytes) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                         cudaEnableDefault, &result) == cudaSuccess);
  const cuuint64_t extents[] = {64, 2, 70}, strides[] = {128, token_bytes};
  const cuuint32_t box[] = {64, 1, 64}, steps[] = {1, 1, 1};
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, data, extents, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// Token t of head 1 of a tensor of 70 tokens and two heads; rows from token 70 on do not exist.
TEST_CASE("host execution: boxes: swizzled, zeros outside the tensor, nothing stored there") {
  constexpr int kTokens = 70, kRow = 2 * 64;
  alignas(16) std::uint16_t x[(kTokens + 8) * kRow];
  for (int i = 0; i < (kTokens + 8) * kRow; ++i) x[i] = static_cast<std::uint16_t>(i + 1);
  CUtensorMap map{};
  CHECK(make_map(map, x, 250) == CUDA_ERROR_INVALID_VALUE);
  CHECK(make_map(map, x + 1, 2 * kRow) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(make_map(map, x, 2 * kRow) == CUDA_SUCCESS);
  for (const int first : {0, 6, 30}) {
    std::vector<std::uint16_t> box(64 * 64);
    CHECK(launch(move_box, box.data(), map, first) == "");
    for (int i = 0; i < 64 * 64; ++i) {
      const int token = first + i / 64;
      const int expected = token < kTokens ? token * kRow + 64 + i % 64 + 1 : 0;
      CHECK(box[static_cast<std::size_t>(i)] == expected);
      // Stored to head 0.
      if (token < kTokens) CHECK(x[token * kRow + i % 64] == expected);
    }
    for (int i = kTokens * kRow; i < (kTokens + 8) * kRow; ++i) CHECK(x[i] == i + 1);
  }
}

}  // namespace
}  // namespace goldenrule::test
