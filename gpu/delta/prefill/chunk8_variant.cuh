// SPDX-License-Identifier: Apache-2.0
//
// The variants of one kernel in which a block carries the state of some value rows of a head along
// its sequence: what chunk8.cu and chunk8_channel.cu have in common.
#pragma once

#include <cstdint>

#include "gpu/delta/prefill/tile.cuh"
#include "gpu/delta/prefill/variants.hpp"

namespace goldenrule::gpu::prefill {

/// D describes the kernel:
///   Config, kKernel            the value rows of a block, and what is launched
///   kThreads, kSharedBytes     of a block
///   kName, kKernelName         of the variant and of its kernel
///   serves(params)             what it asks for beside K = 128 and states in whole vectors
template <class D>
constexpr Variant chunk8_variant() {
  constexpr int kRows = D::Config::kBlockRows;
  return {.name = D::kName,
          .contracts = {},
          .contracts_of_segments = {},
          .serves =
              [](const Params& p, const Device& /*device*/) {
                return p.K == kHeadKeys && p.vector_state != 0 && D::serves(p);
              },
          .may_cut = nullptr,
          .workspace = nullptr,
          .kernels = 1,
          .kernel =
              [](int /*i*/) {
                return Kernel{.function = reinterpret_cast<const void*>(D::kKernel),
                              .threads = D::kThreads,
                              .shared_bytes = D::kSharedBytes,
                              .name = D::kKernelName};
              },
          .launch =
              [](Launch& call) {
                Params& p = call.params;
                p.tiles = (p.V + kRows - 1) / kRows;
                p.by_tiles = Divisor::of(p.tiles);
                return call.kernel(0, std::int64_t{p.N} * p.HV * p.tiles, &p, call.dependent);
              }};
}

}  // namespace goldenrule::gpu::prefill
