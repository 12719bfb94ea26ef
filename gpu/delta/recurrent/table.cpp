// SPDX-License-Identifier: Apache-2.0
#include "gpu/delta/recurrent/table.hpp"

namespace goldenrule::gpu::recurrent {
namespace {

Kernel kernel_at(int i) {
  const Entry& entry = table_entry(i);
  return {.function = reinterpret_cast<const void*>(entry.kernel),
          .threads = entry.threads,
          .shared_bytes = entry.shared_bytes,
          .one_block_per_sm = entry.one_block_per_sm,
          .name = entry.name.text};
}

}  // namespace

const Entry& table_entry(int i) {
  constexpr const FormatEntries& (*kFormats[kStateFormats])() = {entries_f32_vk, entries_f32_kv,
                                                                 entries_bf16_vk, entries_bf16_kv};
  return kFormats[i / kEntriesPerFormat]()[static_cast<std::size_t>(i % kEntriesPerFormat)];
}

KernelTable& kernels() {
  static KernelTable table(kTableSize, kernel_at);
  return table;
}

}  // namespace goldenrule::gpu::recurrent
