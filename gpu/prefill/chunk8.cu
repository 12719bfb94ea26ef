// SPDX-License-Identifier: Apache-2.0
#include "gpu/prefill/chunk8.cuh"

#include "gpu/prefill/variants.hpp"

namespace goldenrule::gpu::prefill {
namespace {

using Config = Chunk8Config;

bool serves(const Params& p, const Device& /*device*/) {
  return p.channel_gate == 0 && p.K == kHeadKeys && p.V % Config::kBlockRows == 0 &&
         p.qk_type == Element::kBF16 && p.q_unit >= 16 && p.k_unit >= 16 && p.vector_state != 0;
}

Kernel kernel(int /*i*/) {
  return {.function = reinterpret_cast<const void*>(chunk8_kernel<Config>),
          .threads = Config::kThreads,
          .shared_bytes = static_cast<int>(sizeof(Chunk8Storage<Config>)),
          .name = "prefill_gdn_chunk8"};
}

Problem launch(Launch& call) {
  Params& p = call.params;
  p.tiles = p.V / Config::kBlockRows;
  p.by_tiles = Divisor::of(p.tiles);
  return call.kernel(0, std::int64_t{p.N} * p.HV * p.tiles, &p, call.dependent);
}

}  // namespace

const Variant kGdnChunk8 = {.name = "gdn_chunk8",
                            .contracts = {},
                            .contracts_of_segments = {},
                            .serves = serves,
                            .may_cut = nullptr,
                            .workspace = nullptr,
                            .kernels = 1,
                            .kernel = kernel,
                            .launch = launch};

}  // namespace goldenrule::gpu::prefill
