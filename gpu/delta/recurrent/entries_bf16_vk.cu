// SPDX-License-Identifier: Apache-2.0
#include "gpu/delta/recurrent/entries.cuh"

namespace goldenrule::gpu::recurrent {

const FormatEntries& entries_bf16_vk() {
  return Entries<StateFormat{.bf16 = true, .kv = false}>::kEntries;
}

}  // namespace goldenrule::gpu::recurrent
