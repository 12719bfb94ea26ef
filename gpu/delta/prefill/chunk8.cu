// SPDX-License-Identifier: Apache-2.0
#include "gpu/delta/prefill/chunk8.cuh"

#include "gpu/delta/prefill/chunk8_variant.cuh"

namespace goldenrule::gpu::prefill {
namespace {

struct GdnChunk8 {
  using Config = Chunk8Config;
  static constexpr auto kKernel = &chunk8_kernel<Config>;
  static constexpr int kThreads = Config::kThreads;
  static constexpr int kSharedBytes = sizeof(Chunk8Storage<Config>);
  static constexpr const char* kName = "gdn_chunk8";
  static constexpr const char* kKernelName = "prefill_gdn_chunk8";

  static bool serves(const Params& p) {
    return p.channel_gate == 0 && p.V % Config::kBlockRows == 0 && p.qk_type == Element::kBF16 &&
           p.q_unit >= 16 && p.k_unit >= 16;
  }
};

}  // namespace

const Variant kGdnChunk8 = chunk8_variant<GdnChunk8>();

}  // namespace goldenrule::gpu::prefill
