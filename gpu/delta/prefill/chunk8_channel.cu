// SPDX-License-Identifier: Apache-2.0
#include "gpu/delta/prefill/chunk8_channel.cuh"

#include "gpu/delta/prefill/chunk8_variant.cuh"

namespace goldenrule::gpu::prefill {
namespace {

struct KdaChunk8 {
  using Config = Chunk8ChannelConfig;
  static constexpr auto kKernel = &chunk8_channel_kernel<Config>;
  static constexpr int kThreads = Config::kThreads * Config::kRoles;
  static constexpr int kSharedBytes = sizeof(Chunk8ChannelStorage<Config>);
  static constexpr const char* kName = "kda_chunk8";
  static constexpr const char* kKernelName = "prefill_kda_chunk8";

  static bool serves(const Params& p) {
    return p.channel_gate != 0 && p.V % Config::kWarpRows == 0;
  }
};

}  // namespace

const Variant kKdaChunk8 = chunk8_variant<KdaChunk8>();

}  // namespace goldenrule::gpu::prefill
