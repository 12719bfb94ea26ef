// SPDX-License-Identifier: Apache-2.0
#include "gpu/delta/recurrent/entries.cuh"

namespace goldenrule::gpu::recurrent {

const FormatEntries& entries_f32_vk() {
  return Entries<StateFormat{.bf16 = false, .kv = false}>::kEntries;
}

}  // namespace goldenrule::gpu::recurrent
