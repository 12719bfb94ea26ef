// SPDX-License-Identifier: Apache-2.0
//
// Builds the entries of one family. The numbers that a kernel is tuned by (register rows, warps,
// blocks per multiprocessor) are chosen here and nowhere else; tools/bench_gpu/README.md measures.
#pragma once

#include <array>
#include <utility>

#include "gpu/kernels/decode.cuh"
#include "gpu/kernels/recurrent.cuh"
#include "gpu/kernels/verify.cuh"
#include "gpu/launch/table.hpp"

namespace goldenrule::gpu {

constexpr void append(char (&to)[40], int& at, const char* text) {
  while (*text != '\0' && at < 39) to[at++] = *text++;
}
constexpr void append(char (&to)[40], int& at, int number) {
  if (number >= 10) append(to, at, number / 10);
  const char digit[2] = {static_cast<char>('0' + number % 10), '\0'};
  append(to, at, digit);
}

/// An entry and its name, e.g. vk_f32_head_few_r64x4: 64 rows a block of 4 warps.
constexpr Entry make_entry(Key key, void (*kernel)(Params), int rows, int threads,
                           int shared_bytes) {
  Entry entry{.key = key,
              .kernel = kernel,
              .rows = rows,
              .threads = threads,
              .shared_bytes = shared_bytes,
              .alone = key.exact && key.work == Work::kFewTokensKept && !key.channel_gate};
  constexpr const char* kWorkNames[kWorks] = {"one", "few", "kept", "any"};
  int at = 0;
  append(entry.name, at, key.kv ? "kv_" : "vk_");
  append(entry.name, at, key.bf16_state ? "bf16_" : "f32_");
  if (key.exact) {
    append(entry.name, at, key.channel_gate ? "channel_" : "head_");
    append(entry.name, at, kWorkNames[static_cast<int>(key.work)]);
  } else {
    append(entry.name, at, "general_k");
    append(entry.name, at, kGeneralK[key.general]);
  }
  append(entry.name, at, "_r");
  append(entry.name, at, rows);
  append(entry.name, at, "x");
  append(entry.name, at, threads / kWarp);
  return entry;
}

template <class C>
constexpr Entry decode_entry(Key key) {
  return make_entry(key, &decode_kernel<C>, C::kRows, C::kThreads, sizeof(DecodeStorage<C>));
}
template <class C>
constexpr Entry verify_entry(Key key) {
  return make_entry(key, &verify_kernel<C>, C::kRows, C::kThreads, sizeof(VerifyStorage<C>));
}
template <class C>
constexpr Entry recurrent_entry(Key key) {
  return make_entry(key, &recurrent_kernel<C>, C::kRows, C::kThreads, sizeof(RecurrentStorage<C>));
}

/// Rows, warps, resident blocks and chunks of one exact kernel, as in Config; rows are register
/// rows of a thread, or in VerifyConfig matrices of a warp.
struct Shape {
  int rows, warps, min_blocks, chunks = 1;
};

/// The shapes of a family for small and for large grids.
struct Shapes {
  Shape one[2], few[2], any[2];
};

inline constexpr int kTokensPrepared = 8;

template <class State, int Layout, Shapes S>
struct Family {
  static constexpr bool kBF16 = sizeof(State) == 2;
  static constexpr bool kKV = Layout == GOLDENRULE_GPU_STATE_KV;

  template <bool Channel, Work W, bool Large>
  static constexpr Entry exact() {
    constexpr Key kKey = {.bf16_state = kBF16,
                          .kv = kKV,
                          .exact = true,
                          .channel_gate = Channel,
                          .work = W,
                          .large = Large};
    if constexpr (W == Work::kOneToken) {
      constexpr Shape kShape = S.one[Large];
      return decode_entry<Config<State, Layout, Channel, kExactK, true, 1, kShape.rows,
                                 kShape.warps, kShape.min_blocks, kShape.chunks>>(kKey);
    } else if constexpr (W == Work::kFewTokens && !Channel) {
      constexpr Shape kShape = S.few[Large];
      return verify_entry<
          VerifyConfig<State, Layout, kShape.rows, kShape.warps, kShape.min_blocks>>(kKey);
    } else if constexpr (W == Work::kFewTokensKept && !Channel) {
      return verify_entry<VerifyConfig<State, Layout, 1, 8, 1>>(kKey);
    } else {
      // One gate a head comes here only with q and k that are not in bf16, or T > 8.
      constexpr Shape kShape = S.any[(Large || W == Work::kFewTokensKept) && Channel];
      return recurrent_entry<Config<State, Layout, Channel, kExactK, true, kTokensPrepared,
                                    kShape.rows, kShape.warps, kShape.min_blocks>>(kKey);
    }
  }

  template <std::size_t I>
  static constexpr Entry general() {
    constexpr int kKP = kGeneralK[I];
    constexpr int kRows = kKP > 128 ? 2 : 4;
    return recurrent_entry<Config<State, Layout, true, kKP, false, kTokensPrepared, kRows, 4, 2>>(
        {.bf16_state = kBF16, .kv = kKV, .general = I});
  }

  /// The entry at place I, as in Key::in_family.
  template <std::size_t I>
  static constexpr Entry entry() {
    if constexpr (I < kExactEntries) {
      return exact<I / (2 * kWorks) == 1, static_cast<Work>(I / 2 % kWorks), I % 2 == 1>();
    } else {
      return general<I - kExactEntries>();
    }
  }
  template <std::size_t... I>
  static constexpr FamilyEntries entries(std::index_sequence<I...> /*places*/) {
    return {entry<I>()...};
  }
  static constexpr FamilyEntries kEntries = entries(std::make_index_sequence<kEntriesPerFamily>{});
  static_assert(check_order(kEntries));
};

}  // namespace goldenrule::gpu
