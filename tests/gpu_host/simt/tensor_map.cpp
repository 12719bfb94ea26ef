// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_host/simt/tensor_map.hpp"

#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/gpu_host/simt/grid.hpp"
#include "tests/gpu_host/simt/shared_memory.hpp"

namespace goldenrule::simt {
namespace {

static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));

/// What the kernels ask for; the driver knows more, this does not.
bool is_known(CUtensorMapDataType type, cuuint32_t rank, const cuuint32_t* steps,
              CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
              CUtensorMapFloatOOBfill fill) {
  return type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 && rank == TensorMap::kAxes &&
         std::all_of(steps, steps + rank, [](cuuint32_t s) { return s == 1; }) &&
         interleave == CU_TENSOR_MAP_INTERLEAVE_NONE && swizzle == CU_TENSOR_MAP_SWIZZLE_128B &&
         fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
}

/// The limits of the driver's documentation.
bool is_allowed(const void* data, const cuuint64_t* extent, const cuuint64_t* stride,
                const cuuint32_t* box, std::size_t element) {
  bool allowed = reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && box[0] * element <= 128;
  for (int i = 0; i < TensorMap::kAxes; ++i) {
    allowed =
        allowed && extent[i] > 0 && extent[i] <= cuuint64_t{1} << 32 && box[i] > 0 && box[i] <= 256;
  }
  for (int i = 0; i + 1 < TensorMap::kAxes; ++i) {
    allowed = allowed && stride[i] > 0 && stride[i] % 16 == 0 && stride[i] < cuuint64_t{1} << 40;
  }
  return allowed;
}

CUresult encode(CUtensorMap* to, CUtensorMapDataType type, cuuint32_t rank, void* data,
                const cuuint64_t* extent, const cuuint64_t* stride, const cuuint32_t* box,
                const cuuint32_t* steps, CUtensorMapInterleave interleave,
                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion /*promotion*/,
                CUtensorMapFloatOOBfill fill) {
  constexpr std::size_t kElement = 2;
  if (!is_known(type, rank, steps, interleave, swizzle, fill)) return CUDA_ERROR_NOT_SUPPORTED;
  if (!is_allowed(data, extent, stride, box, kElement)) return CUDA_ERROR_INVALID_VALUE;
  TensorMap map{.mark = TensorMap::kMark,
                .data = static_cast<std::byte*>(data),
                .extent = {},
                .stride = {},
                .box = {},
                .element_bytes = kElement};
  std::copy_n(extent, TensorMap::kAxes, map.extent);
  std::copy_n(stride, TensorMap::kAxes - 1, map.stride);
  std::copy_n(box, TensorMap::kAxes, map.box);
  std::memset(to, 0, sizeof *to);
  std::memcpy(to, &map, sizeof map);
  return CUDA_SUCCESS;
}

TensorMap load(const void* at) {
  TensorMap map{};
  std::memcpy(&map, at, sizeof map);
  if (map.mark != TensorMap::kMark) fail("a box is copied by what is no tensor map");
  if (reinterpret_cast<std::uintptr_t>(at) % 64 != 0) fail("a tensor map is not aligned");
  return map;
}

/// A row of a box along the inner axis: where it lies in the box, and in the tensor.
struct Row {
  std::uint32_t in_box;
  std::byte* in_tensor;
  std::int64_t before, inside;  ///< elements outside the tensor at the start; elements inside
};

/// Calls f(row) for each row of a box, also for those that lie outside.
template <class F>
void for_each_row(const TensorMap& map, int inner, int middle, int outer, F&& f) {
  const std::int64_t begin = std::clamp<std::int64_t>(-std::int64_t{inner}, 0, map.box[0]);
  const std::int64_t end = std::clamp<std::int64_t>(map.extent[0] - inner, begin, map.box[0]);
  std::uint32_t at = 0;
  for (std::int64_t z = outer; z < outer + map.box[2]; ++z) {
    for (std::int64_t y = middle; y < middle + map.box[1]; ++y) {
      const bool exists = z >= 0 && z < map.extent[2] && y >= 0 && y < map.extent[1];
      std::byte* const row = exists ? map.data + z * map.stride[1] + y * map.stride[0] +
                                          (inner + begin) * map.element_bytes
                                    : nullptr;
      f(Row{at, row, begin, exists ? end - begin : 0});
      at += static_cast<std::uint32_t>(map.box[0] * map.element_bytes);
    }
  }
}

std::size_t box_bytes(const TensorMap& map) {
  return static_cast<std::size_t>(map.box[0]) * static_cast<std::size_t>(map.box[1]) *
         static_cast<std::size_t>(map.box[2]) * static_cast<std::size_t>(map.element_bytes);
}

std::uint32_t checked_place(const void* shared) {
  const std::uint32_t place = shared_address(shared);
  if (place % 128 != 0) fail("a box in shared memory is not aligned to 128 bytes");
  return place;
}

/// The bytes of a box in the order of its elements; 0 outside the tensor.
std::vector<std::byte> read_box(const TensorMap& map, int inner, int middle, int outer) {
  std::vector<std::byte> box(box_bytes(map));
  for_each_row(map, inner, middle, outer, [&](const Row& row) {
    if (row.inside == 0) return;
    std::memcpy(&box[row.in_box] + row.before * map.element_bytes, row.in_tensor,
                static_cast<std::size_t>(row.inside * map.element_bytes));
  });
  return box;
}

}  // namespace

void* encode_function() { return reinterpret_cast<void*>(&encode); }

void begin_box_copy(void* shared, const void* at, int inner, int middle, int outer,
                    std::uint64_t& barrier) {
  const TensorMap map = load(at);
  const std::uint32_t place = checked_place(shared);
  std::memset(shared, 0xff, box_bytes(map));
  this_block().bulk_copies().begin(barrier, box_bytes(map),
                                   [=, before = read_box(map, inner, middle, outer)] {
                                     if (read_box(map, inner, middle, outer) != before)
                                       fail_for_changed_source();
                                     for (std::uint32_t i = 0; i < before.size(); ++i) {
                                       *shared_pointer(swizzled(place + i)) = before[i];
                                     }
                                   });
}

void begin_box_store(const void* at, int inner, int middle, int outer, const void* shared) {
  const TensorMap map = load(at);
  const std::uint32_t place = checked_place(shared);
  this_thread().stores.begin([=]() -> BulkStores::Write {
    std::vector<std::byte> box(box_bytes(map));
    for (std::uint32_t i = 0; i < box.size(); ++i) box[i] = *shared_pointer(swizzled(place + i));
    return [=, box = std::move(box)] {
      for_each_row(map, inner, middle, outer, [&](const Row& row) {
        const std::byte* from = &box[row.in_box] + row.before * map.element_bytes;
        std::copy_n(from, row.inside * map.element_bytes, row.in_tensor);
      });
    };
  });
}

}  // namespace goldenrule::simt
