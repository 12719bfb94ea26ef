// SPDX-License-Identifier: Apache-2.0
//
// The fields of goldenrule_gpu_attention_args as data, in the order of the struct
// (launch/args_lists.hpp); a field of the struct that stands in none of the lists does not compile.
#pragma once

#include "gpu/attention/params.hpp"
#include "gpu/launch/args_lists.hpp"
#include "gpu/launch/check_tensors.hpp"

namespace goldenrule::gpu::attention {

using Args = goldenrule_gpu_attention_args;
#define FIELD(member) GOLDENRULE_GPU_FIELD(member)

inline constexpr Choice<Args> kChoices[] = {
    {FIELD(mask), 3},     {FIELD(block_base), 2}, {FIELD(block_kv), 2},   {FIELD(kv_layout), 2},
    {FIELD(head_map), 2}, {FIELD(lse_base), 2},   {FIELD(lse_layout), 2},
};

inline constexpr Extent<Args> kExtents[] = {
    {FIELD(total), 0, kInt32Max},
    {FIELD(N), 0, kInt32Max - 1},  // N + 1 bounds
    {FIELD(most_q), 0, kInt32Max},
    {FIELD(fresh), 0, GOLDENRULE_GPU_MAX_KEYS},
    {FIELD(H), 1, 1 << 16},
    {FIELD(HV), 1, 1 << 16},
    {FIELD(K), 1, GOLDENRULE_GPU_MAX_HEAD_DIM},
    {FIELD(V), 1, GOLDENRULE_GPU_MAX_HEAD_DIM},
    {FIELD(pages), 0, kInt32Max},
    {FIELD(page_size), 0, GOLDENRULE_GPU_MAX_KEYS},
    {FIELD(table_width), 0, kInt32Max},
    {FIELD(table_size), 0, kInt32Max},
    {FIELD(block), 1, kInt32Max, 1},
    {FIELD(window_left), -1, kInt32Max, -1},
    {FIELD(window_right), -1, kInt32Max, -1},
    {FIELD(splits), 0, 16},
};

inline constexpr Number<Args> kNumbers[] = {{FIELD(scale), 1.0}};

using enum Axis;
using enum Presence;
using enum Types;
using enum Use;
inline constexpr TensorField<Args> kTensors[] = {
    {FIELD(q), kHalf, kRead, kAlways, 2, {kPacked, kValueHead, kKey}},
    {FIELD(k), kHalf, kRead, kFreshKeys, 2, {kFresh, kQkHead, kKey}},
    {FIELD(v), kHalf, kRead, kFreshKeys, 2, {kFresh, kQkHead, kValue}},
    {FIELD(k_cache), kHalfPool, kRead, kCache, 3, {kPage, kOuter, kInner, kKey}},
    {FIELD(v_cache), kHalfPool, kRead, kCache, 3, {kPage, kOuter, kInner, kValue}},
    {FIELD(o), kFloat, kWritten, kAlways, 2, {kPacked, kValueHead, kValue}},
    {FIELD(lse), kF32, kWritten, kOptional, 2, {kLseOuter, kLseInner}},
    {FIELD(cu_seqlens_q), kIndex, kRead, kAlways, 1, {kBound}},
    {FIELD(cu_seqlens_k), kIndex, kRead, kFreshKeys, 1, {kBound}},
    {FIELD(kv_lens), kRowIndex, kRead, kCache, 1, {kSequence}},
    {FIELD(page_table), kRowIndex, kRead, kTable, 1, {kSequence, kTableColumn}},
    {FIELD(page_indptr), kIndex, kRead, kPageBounds, 1, {kBound}},
    {FIELD(page_indices), kIndex, kRead, kPageList, 1, {kTableEntry}},
    {FIELD(q_offset), kRowIndex, kRead, kOptional, 1, {kSequence}},
    {FIELD(valid_q), kRowIndex, kRead, kOptional, 1, {kSequence}},
};

struct Group {
  using Args = attention::Args;
  using Params = attention::Params;
  static constexpr const char* kName = "goldenrule_gpu_attention_args";
  static constexpr const auto& kChoices = attention::kChoices;
  static constexpr const auto& kExtents = attention::kExtents;
  static constexpr const auto& kNumbers = attention::kNumbers;
  static constexpr const auto& kTensors = attention::kTensors;
  static constexpr Field<Args, std::uint64_t> kStructSize = FIELD(struct_size);
  static constexpr Field<Args, std::uint32_t> kFlags = FIELD(flags);
  static constexpr Field<Args, void*> kStream = FIELD(stream);
  static constexpr std::size_t kFirstSize = sizeof(Args);
  static constexpr std::uint32_t kKnownFlags = GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH;
  static constexpr const char* kFlagNames = "GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH";

  static std::int64_t extent_of(const Args& a, Axis axis);
  static NeedAndWhy need_of(const Args& a, Presence presence);
  static void check_sizes(const Args& a, Problem& problem);
  static void pack_rest(const Args& a, const TensorStrides<Group>& strides, Params& p);
};
#undef FIELD
static_assert(lists_are_complete<Group>(),
              "every field of goldenrule_gpu_attention_args is in a list");

}  // namespace goldenrule::gpu::attention
