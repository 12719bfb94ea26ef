// SPDX-License-Identifier: Apache-2.0
//
// The dispatch table, fixed when the library is built: no entry is ever added, compiled or tuned at
// run time. The key holds what selects code: state type, layout, kind of gate, K, tokens, and the
// size of the grid (small ones take fewer rows per block). What is an argument of a kernel (scale,
// heads, norms, types of q, k, v and o) is not in it. Entries for one state format, gate, K and
// token count give a row the same bits, whatever the grid; kFewTokens and kAnyTokens differ within
// the budget of both (tests/gpu/bits_test.cpp).
//
// The place of an entry is computed from its key; check_order() proves at build time that the table
// is laid out that way.
#pragma once

#include <array>
#include <cstddef>

#include "gpu/delta/recurrent/variants.hpp"
#include "gpu/launch/entry_name.hpp"
#include "gpu/launch/kernel_table.hpp"

namespace goldenrule::gpu::recurrent {

inline constexpr int kExactK = 128;
inline constexpr int kGeneralK[] = {64, 128, 256};
inline constexpr int kExactEntries = 2 * kWorks * 2;
inline constexpr int kGeneralEntries = 3;
inline constexpr int kReplayEntries = kGeneralEntries + 3;
inline constexpr int kDraftK[] = {128, 256};
inline constexpr int kDraftEntries = 2;
inline constexpr int kEntriesPerFormat =
    kExactEntries + kGeneralEntries + kReplayEntries + kDraftEntries;
inline constexpr int kTableSize = kStateFormats * kEntriesPerFormat;

struct Key {
  StateFormat format;
  bool exact = false;            ///< K = 128, whole blocks of V, whole vectors, dense heads
  bool channel_gate = false;     ///< exact only: the general kernels take both
  Work work = Work::kAnyTokens;  ///< exact only
  bool large = false;            ///< exact only: enough rows to fill the device with tall tiles
  int general = 0;               ///< general only: place in kGeneralK, of drafts in kDraftK
  bool replay = false;           ///< with rings; exact: mtp_replay.cuh, where no other member
                                 ///< counts, or with channel_gate mtp_channel_replay.cuh
  bool drafts = false;           ///< drafts.cuh: no other member but `general` counts

  bool operator==(const Key&) const = default;

  [[nodiscard]] constexpr int in_format() const {
    if (drafts) return kExactEntries + kGeneralEntries + kReplayEntries + general;
    if (replay) {
      const int few = kGeneralEntries + (channel_gate ? 1 + (large ? 1 : 0) : 0);
      return kExactEntries + kGeneralEntries + (exact ? few : general);
    }
    if (!exact) return kExactEntries + general;
    return ((channel_gate ? kWorks : 0) + static_cast<int>(work)) * 2 + (large ? 1 : 0);
  }
};

struct Entry {
  Key key;
  void (*kernel)(Params) = nullptr;
  int rows = 0;  ///< value rows of a block
  int threads = 0;
  int shared_bytes = 0;
  bool one_block_per_sm = false;
  EntryName name;
};

using FormatEntries = std::array<Entry, kEntriesPerFormat>;

/// Whether every entry stands at the place that its key computes.
constexpr bool check_order(const FormatEntries& entries) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].key.in_format() != static_cast<int>(i)) return false;
  }
  return true;
}

const FormatEntries& entries_f32_vk();
const FormatEntries& entries_f32_kv();
const FormatEntries& entries_bf16_vk();
const FormatEntries& entries_bf16_kv();

/// Entry i of the whole table, 0 <= i < kTableSize.
const Entry& table_entry(int i);

/// Where the entry of `key` stands.
[[nodiscard]] constexpr int table_index(const Key& key) {
  return index_of(key.format) * kEntriesPerFormat + key.in_format();
}

/// The table as the launcher sees it, with its counters.
KernelTable& kernels();

}  // namespace goldenrule::gpu::recurrent
