// SPDX-License-Identifier: Apache-2.0
//
// Builds the entries of one state format: which kernel template serves which key, with the shapes
// of variants.hpp.
#pragma once

#include <array>
#include <utility>

#include "gpu/delta/recurrent/decode.cuh"
#include "gpu/delta/recurrent/drafts.cuh"
#include "gpu/delta/recurrent/mtp.cuh"
#include "gpu/delta/recurrent/mtp_channel_replay.cuh"
#include "gpu/delta/recurrent/mtp_replay.cuh"
#include "gpu/delta/recurrent/recurrent.cuh"
#include "gpu/delta/recurrent/replay.cuh"
#include "gpu/delta/recurrent/table.hpp"

namespace goldenrule::gpu::recurrent {

/// E.g. vk_f32_head_few_r64x2: 64 value rows per block of 2 warps; vk_f32_replay_k256_r32x4.
constexpr EntryName name_of(const Key& key, int rows, int threads) {
  EntryName name;
  name << (key.format.kv ? "kv_" : "vk_") << (key.format.bf16 ? "bf16_" : "f32_");
  if (key.drafts) {
    name << "drafts_k" << kDraftK[key.general];
  } else if (key.replay && key.exact) {
    name << (key.channel_gate ? "replay_channel_few" : "replay_few");
  } else if (key.replay) {
    name << "replay_k" << kGeneralK[key.general];
  } else if (key.exact) {
    name << (key.channel_gate ? "channel_" : "head_") << kVariants[static_cast<int>(key.work)].name;
  } else {
    name << "general_k" << kGeneralK[key.general];
  }
  return name << "_r" << rows << "x" << threads / kWarp;
}

template <class C>
constexpr Entry make_entry(const Key& key, void (*kernel)(Params), std::size_t shared_bytes,
                           bool one_block_per_sm = false) {
  return {.key = key,
          .kernel = kernel,
          .rows = C::kBlockRows,
          .threads = C::kThreads,
          .shared_bytes = static_cast<int>(shared_bytes),
          .one_block_per_sm = one_block_per_sm,
          .name = name_of(key, C::kBlockRows, C::kThreads)};
}

inline constexpr int kTokensPrepared = 8;

template <StateFormat Format>
struct Entries {
  static constexpr Shapes kTuned = kShapes[index_of(Format)];

  static constexpr Specialization exact_with(bool channel_gate, int tokens_per_round, Shape shape) {
    return {.format = Format,
            .channel_gate = channel_gate,
            .exact = true,
            .padded_k = kExactK,
            .tokens_per_round = tokens_per_round,
            .shape = shape};
  }

  template <bool Channel, Shape S>
  static constexpr Entry mtp(const Key& key) {
    if constexpr (Channel) {
      using C = MtpChannelConfig<Format, S>;
      return make_entry<C>(key, &mtp_channel_kernel<C>, sizeof(MtpChannelStorage<C>),
                           S.one_block_per_sm);
    } else {
      using C = MtpConfig<Format, S>;
      return make_entry<C>(key, &mtp_kernel<C>, sizeof(MtpStorage<C>), S.one_block_per_sm);
    }
  }
  template <Specialization S>
  static constexpr Entry recurrent(const Key& key) {
    using C = Config<S>;
    return make_entry<C>(key, &recurrent_kernel<C>, sizeof(RecurrentStorage<C>));
  }

  template <bool Channel, Work W, bool Large>
  static constexpr Entry exact() {
    constexpr Key kKey = {
        .format = Format, .exact = true, .channel_gate = Channel, .work = W, .large = Large};
    if constexpr (W == Work::kOneToken) {
      using C = Config<exact_with(Channel, 1, kTuned.one[Large])>;
      return make_entry<C>(kKey, &decode_kernel<C>, sizeof(DecodeStorage<C>));
    } else if constexpr (W == Work::kFewTokens) {
      return mtp < Channel, Channel ? kTuned.few_channel[Large] : kTuned.few[Large] > (kKey);
    } else if constexpr (W == Work::kFewTokensWriteBound) {
      return mtp < Channel, Channel ? kTuned.few_channel_write_bound[Large]
                                    : kTuned.few_write_bound[Large] > (kKey);
    } else {
      // Only q and k that are not in bf16, T > 8 and V that no other divides come here.
      constexpr bool kTall = Large && Channel;
      return recurrent<exact_with(Channel, kTokensPrepared, kTuned.any[kTall])>(kKey);
    }
  }

  static constexpr Specialization general_with(int padded_k,
                                               int tokens_per_round = kTokensPrepared) {
    return {.format = Format,
            .channel_gate = true,
            .exact = false,
            .padded_k = padded_k,
            .tokens_per_round = tokens_per_round,
            .shape = {.rows = padded_k > 128 ? 2 : 4, .warps = 4, .min_blocks = 2}};
  }
  template <int I>
  static constexpr Entry general() {
    return recurrent<general_with(kGeneralK[I])>({.format = Format, .general = I});
  }
  template <int I>
  static constexpr Entry replay() {
    if constexpr (I > kGeneralEntries) {
      constexpr bool kLarge = I == kGeneralEntries + 2;
      using C = MtpChannelConfig<Format, kChannelReplayShapes[Format.bf16][kLarge]>;
      return make_entry<C>(
          {.format = Format, .exact = true, .channel_gate = true, .large = kLarge, .replay = true},
          &mtp_channel_replay_kernel<C>, sizeof(MtpChannelReplayStorage<C>));
    } else if constexpr (I == kGeneralEntries) {
      using C = MtpConfig<Format, kReplayShape>;
      return make_entry<C>({.format = Format, .exact = true, .replay = true}, &mtp_replay_kernel<C>,
                           sizeof(MtpStorage<C>));
    } else {
      using C = Config<general_with(kGeneralK[I])>;
      return make_entry<C>({.format = Format, .general = I, .replay = true}, &replay_kernel<C>,
                           sizeof(ReplayStorage<C>));
    }
  }

  template <int I>
  static constexpr Entry drafts() {
    using C = Config<general_with(kDraftK[I], GOLDENRULE_GPU_MAX_T)>;
    return make_entry<C>({.format = Format, .general = I, .drafts = true}, &drafts_kernel<C>,
                         sizeof(DraftStorage<C>));
  }

  /// The entry at place I, as in Key::in_format.
  template <std::size_t I>
  static constexpr Entry entry() {
    if constexpr (I < kExactEntries) {
      return exact<I / (2 * kWorks) == 1, static_cast<Work>(I / 2 % kWorks), I % 2 == 1>();
    } else if constexpr (I < kExactEntries + kGeneralEntries) {
      return general<I - kExactEntries>();
    } else if constexpr (I < kExactEntries + kGeneralEntries + kReplayEntries) {
      return replay<I - kExactEntries - kGeneralEntries>();
    } else {
      return drafts<I - kExactEntries - kGeneralEntries - kReplayEntries>();
    }
  }
  template <std::size_t... I>
  static constexpr FormatEntries entries(std::index_sequence<I...> /*places*/) {
    return {entry<I>()...};
  }
  static constexpr FormatEntries kEntries = entries(std::make_index_sequence<kEntriesPerFormat>{});
  static_assert(check_order(kEntries));
};

}  // namespace goldenrule::gpu::recurrent
