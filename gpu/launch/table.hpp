// SPDX-License-Identifier: Apache-2.0
//
// The dispatch table, fixed when the library is built: no entry is ever added, compiled or tuned at
// run time. The key holds what selects code (state type, layout, gate, K, tokens) and one
// thing that selects speed only (small grids take fewer rows a block); nothing of it changes a
// result, and what does change one (scale, heads, norms, dtypes of q, k, v, o) is an argument.
//
// The place of an entry is computed from its key; check_order() proves at build time that the table
// is laid out that way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "gpu/kernels/params.hpp"

namespace goldenrule::gpu {

inline constexpr int kExactK = 128;
inline constexpr int kGeneralK[] = {64, 128, 256};
inline constexpr int kWorks = 4;
inline constexpr int kExactEntries = 2 * kWorks * 2;
inline constexpr int kEntriesPerFamily = kExactEntries + 3;
inline constexpr int kFamilies = 4;
inline constexpr int kTableSize = kFamilies * kEntriesPerFamily;

/// What an exact kernel does, and thereby how: decode.cuh, verify.cuh (with one gate a head, else
/// as kAnyTokens), recurrent.cuh.
enum class Work : std::uint8_t {
  kOneToken,       ///< q and k in bf16 or f16, aligned to four elements
  kFewTokens,      ///< 2 to 8, q and k in bf16, aligned to four elements
  kFewTokensKept,  ///< of these, so many states kept that only writing counts
  kAnyTokens,
};

/// A family is one (state type, layout), one .cu file.
struct Key {
  bool bf16_state = false;
  bool kv = false;
  bool exact = false;            ///< K = 128, whole blocks of V, whole vectors, dense heads
  bool channel_gate = false;     ///< exact only: the general kernels take both
  Work work = Work::kAnyTokens;  ///< exact only
  bool large = false;            ///< exact only: enough rows to fill the device with tall tiles
  int general = 0;               ///< general only: place in kGeneralK

  bool operator==(const Key&) const = default;

  [[nodiscard]] constexpr int in_family() const {
    if (!exact) return kExactEntries + general;
    return ((channel_gate ? kWorks : 0) + static_cast<int>(work)) * 2 + (large ? 1 : 0);
  }
  [[nodiscard]] constexpr int family() const { return (bf16_state ? 2 : 0) + (kv ? 1 : 0); }
};

struct Entry {
  Key key;
  void (*kernel)(Params) = nullptr;
  int rows = 0;  ///< value rows of a block
  int threads = 0;
  int shared_bytes = 0;
  bool alone = false;  ///< one block a multiprocessor is faster than as many as fit
  char name[40] = {};
};

using FamilyEntries = std::array<Entry, kEntriesPerFamily>;

/// Whether every entry stands at the place that its key computes.
constexpr bool check_order(const FamilyEntries& entries) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].key.in_family() != static_cast<int>(i)) return false;
  }
  return true;
}

/// Families 0 to 3.
const FamilyEntries& family_f32_vk();
const FamilyEntries& family_f32_kv();
const FamilyEntries& family_bf16_vk();
const FamilyEntries& family_bf16_kv();

/// Entry i of the whole table, 0 <= i < kTableSize.
const Entry& table_entry(int i);

/// Where the entry of `key` stands.
[[nodiscard]] constexpr int table_index(const Key& key) {
  return key.family() * kEntriesPerFamily + key.in_family();
}

}  // namespace goldenrule::gpu
