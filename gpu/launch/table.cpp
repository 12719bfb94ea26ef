// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/table.hpp"

namespace goldenrule::gpu {

const Entry& table_entry(int i) {
  const auto place = static_cast<std::size_t>(i % kEntriesPerFamily);
  switch (i / kEntriesPerFamily) {
    case 0:
      return family_f32_vk()[place];
    case 1:
      return family_f32_kv()[place];
    case 2:
      return family_bf16_vk()[place];
    default:
      return family_bf16_kv()[place];
  }
}

}  // namespace goldenrule::gpu
