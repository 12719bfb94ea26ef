// SPDX-License-Identifier: Apache-2.0
//
// Builds the entries of one family. The numbers that a kernel is tuned by (register rows, warps,
// blocks per multiprocessor) are chosen here and nowhere else; tools/bench_gpu/README.md measures.
#pragma once

#include <array>

#include "gpu/kernels/decode.cuh"
#include "gpu/kernels/recurrent.cuh"
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

template <class C>
constexpr Entry make_entry(Key key) {
  Entry entry{.key = key, .rows = C::kRows, .threads = C::kThreads};
  if constexpr (C::kTC == 1) {
    entry.kernel = &decode_kernel<C>;
    entry.shared_bytes = static_cast<int>(sizeof(DecodeStorage<C>));
  } else {
    entry.kernel = &recurrent_kernel<C>;
    entry.shared_bytes = static_cast<int>(sizeof(RecurrentStorage<C>));
  }
  int at = 0;
  append(entry.name, at, key.kv ? "kv_" : "vk_");
  append(entry.name, at, key.bf16_state ? "bf16_" : "f32_");
  append(entry.name, at, key.exact ? (key.channel_gate ? "channel_k" : "head_k") : "general_k");
  append(entry.name, at, C::kKP);
  append(entry.name, at, key.exact && !key.many_tokens ? "_t1_r" : "_tn_r");
  append(entry.name, at, C::kR);
  append(entry.name, at, "w");
  append(entry.name, at, C::kWarps);
  append(entry.name, at, "c");
  append(entry.name, at, C::kChunks);
  return entry;
}

/// Register rows, warps, resident blocks and chunks of one exact kernel, as in Config.
struct Shape {
  int rows, warps, min_blocks, chunks = 1;
};

/// The four shapes of a family: {one token, many tokens} x {small grid, large grid}.
struct Shapes {
  Shape small_one, large_one, small_many, large_many;
};

inline constexpr int kTokensPrepared = 8;

template <class State, int Layout, Shapes S>
struct Family {
  static constexpr bool kBF16 = sizeof(State) == 2;
  static constexpr bool kKV = Layout == GOLDENRULE_GPU_STATE_KV;

  template <bool Channel, bool Many, bool Large>
  static constexpr Entry exact() {
    constexpr Shape kShape =
        Many ? (Large ? S.large_many : S.small_many) : (Large ? S.large_one : S.small_one);
    return make_entry<Config<State, Layout, Channel, kExactK, true, Many ? kTokensPrepared : 1,
                             kShape.rows, kShape.warps, kShape.min_blocks, kShape.chunks>>(
        {.bf16_state = kBF16,
         .kv = kKV,
         .exact = true,
         .channel_gate = Channel,
         .many_tokens = Many,
         .large = Large});
  }

  template <int I>
  static constexpr Entry general() {
    constexpr int kKP = kGeneralK[I];
    constexpr int kRows = kKP > 128 ? 2 : 4;
    return make_entry<Config<State, Layout, true, kKP, false, kTokensPrepared, kRows, 4, 2>>(
        {.bf16_state = kBF16, .kv = kKV, .general = I});
  }

  /// In the order of Key::in_family.
  static constexpr std::array<Entry, kEntriesPerFamily> kEntries = {exact<false, false, false>(),
                                                                    exact<false, false, true>(),
                                                                    exact<false, true, false>(),
                                                                    exact<false, true, true>(),
                                                                    exact<true, false, false>(),
                                                                    exact<true, false, true>(),
                                                                    exact<true, true, false>(),
                                                                    exact<true, true, true>(),
                                                                    general<0>(),
                                                                    general<1>(),
                                                                    general<2>()};
  static_assert(check_order(kEntries));

  /// select() asks only whether the rows of the large kernel divide V.
  static constexpr bool divides(int large, int small) {
    return kEntries[static_cast<std::size_t>(large)].rows %
               kEntries[static_cast<std::size_t>(small)].rows ==
           0;
  }
  static_assert(divides(1, 0) && divides(3, 2) && divides(5, 4) && divides(7, 6));
};

}  // namespace goldenrule::gpu
