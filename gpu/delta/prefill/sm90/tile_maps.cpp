// SPDX-License-Identifier: Apache-2.0
#include "gpu/delta/prefill/sm90/tile_maps.hpp"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "gpu/launch/guard.hpp"

namespace goldenrule::gpu::prefill {
namespace {

/// The driver's function, without linking to the driver: programs that use the library also run
/// where there is none.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static const auto function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                               12000, cudaEnableDefault, &result);
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess
               ? reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found)
               : nullptr;
  }();
  return function;
}

bool encode(const TokenView& view, int width, int heads, int tokens, int chunk, CUtensorMap& map) {
  constexpr cuuint32_t kBoxWidth = 64;
  const auto size = [](int x) { return static_cast<cuuint64_t>(x); };
  const cuuint64_t dims[] = {size(width), size(heads), size(tokens)};
  const cuuint64_t strides[] = {view.head, view.token};
  const cuuint32_t box[] = {kBoxWidth, 1, static_cast<cuuint32_t>(chunk)};
  const cuuint32_t steps[] = {1, 1, 1};
  return encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, view.data, dims, strides, box, steps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                   CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

Problem make_tile_maps(const Params& p, int chunk, TileMaps& maps) {
  if (encoder() == nullptr) return cuda_problem(cudaErrorNotSupported, "cuTensorMapEncodeTiled");
  const auto map_of = [&](const TokenView& view, int width, int heads, CUtensorMap& map) {
    return encode(view, width, heads, p.total, chunk, map);
  };
  const bool made = map_of(p.k, p.K, p.H, maps.k) && map_of(p.q, p.K, p.H, maps.q) &&
                    map_of(p.v, p.V, p.HV, maps.v) && map_of(p.o, p.V, p.HV, maps.o);
  return made ? Problem{} : cuda_problem(cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
}

}  // namespace goldenrule::gpu::prefill
