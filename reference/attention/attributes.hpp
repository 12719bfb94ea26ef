// SPDX-License-Identifier: Apache-2.0
//
// The conventions in which attention kernels differ. One function under different masks and sources
// of keys is block-diffusion decode, block-causal prefill, DFlash's draft and its verification:
//
//   o_i = sum_{t in V(i)} exp(s_it) v_t / sum_{t in V(i)} exp(s_it),   s_it = scale <q_i, k_t>
//   lse_i = log sum_{t in V(i)} exp(s_it)
//
// with s <- cap tanh(s / cap) where soft_cap > 0. A key has a position t (0 is the first cached
// token), query i of a request the position t_q = q_offset + i; t is in V(i) iff the key exists,
// t_q - t <= window_left, t - t_q <= window_right, and the mask allows it. None of the values below
// can be seen in the tensors of a call.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "fixtures/call/convention.hpp"
#include "fixtures/call/record.hpp"

namespace goldenrule::attention {

/// Which keys a query sees by their positions.
enum class Mask {
  kFull,         ///< all
  kCausal,       ///< t <= t_q
  kBlockCausal,  ///< floor(t / block) <= floor(t_q / block)
};

/// What the blocks of a block-causal mask are counted from.
enum class BlockBase {
  kAbsolute,  ///< position 0
  kSegment,   ///< the first query of the request
};

/// Where the keys of the tokens that are queried lie.
enum class BlockKv {
  kSeparate,  ///< in k and v, beside a cache whose kv_lens exclude them
  kInCache,   ///< in the cache, whose kv_lens include them
};

enum class KvLayout {
  kNhd,  ///< [pages,P,H,dim]
  kHnd,  ///< [pages,H,P,dim]
};

/// What page -1 below kv_lens is in a page_table.
enum class MissingPage {
  kError,
  kSkip,  ///< its keys do not exist; those behind it keep their positions
};

enum class LseBase { kE, k2 };
enum class LseLayout {
  kTh,  ///< [total_q,HV]
  kHt,  ///< [HV,total_q]
};

/// An absent attribute has the default that stands here.
struct Attributes {
  Mask mask = Mask::kFull;
  std::int64_t block = 1;  ///< tokens of a block of the mask
  BlockBase block_base = BlockBase::kAbsolute;
  std::int64_t window_left = -1;   ///< the largest t_q - t; -1: no limit
  std::int64_t window_right = -1;  ///< the largest t - t_q; -1: no limit
  BlockKv block_kv = BlockKv::kSeparate;
  KvLayout kv_layout = KvLayout::kNhd;
  MissingPage missing_page = MissingPage::kError;
  call::HeadMap head_map = call::HeadMap::kGrouped;  ///< the key/value head of a query head
  std::optional<double> scale;                       ///< absent: double(K^-0.5)
  double soft_cap = 0.0;                             ///< 0: none
  LseBase lse_base = LseBase::kE;
  LseLayout lse_layout = LseLayout::kTh;

  bool operator==(const Attributes&) const = default;
};

/// A record and what its tensors cannot tell.
struct Call {
  call::Record record;
  Attributes attributes;
};

}  // namespace goldenrule::attention

namespace goldenrule::call {

template <>
struct EnumNames<attention::Mask> {
  static constexpr std::string_view kWhat = "mask";
  static constexpr std::array<std::string_view, 3> kNames{"full", "causal", "block_causal"};
};
template <>
struct EnumNames<attention::BlockBase> {
  static constexpr std::string_view kWhat = "block_base";
  static constexpr std::array<std::string_view, 2> kNames{"absolute", "segment"};
};
template <>
struct EnumNames<attention::BlockKv> {
  static constexpr std::string_view kWhat = "block_kv";
  static constexpr std::array<std::string_view, 2> kNames{"separate", "in_cache"};
};
template <>
struct EnumNames<attention::KvLayout> {
  static constexpr std::string_view kWhat = "kv_layout";
  static constexpr std::array<std::string_view, 2> kNames{"nhd", "hnd"};
};
template <>
struct EnumNames<attention::MissingPage> {
  static constexpr std::string_view kWhat = "missing_page";
  static constexpr std::array<std::string_view, 2> kNames{"error", "skip"};
};
template <>
struct EnumNames<attention::LseBase> {
  static constexpr std::string_view kWhat = "lse_base";
  static constexpr std::array<std::string_view, 2> kNames{"e", "2"};
};
template <>
struct EnumNames<attention::LseLayout> {
  static constexpr std::string_view kWhat = "lse_layout";
  static constexpr std::array<std::string_view, 2> kNames{"th", "ht"};
};

}  // namespace goldenrule::call
