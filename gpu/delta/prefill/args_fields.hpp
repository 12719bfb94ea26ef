// SPDX-License-Identifier: Apache-2.0
//
// The fields of goldenrule_gpu_prefill_args as data, in the order of the struct
// (launch/args_lists.hpp); a field of the struct that stands in none of the lists does not compile.
#pragma once

#include "gpu/delta/prefill/params.hpp"
#include "gpu/launch/args_lists.hpp"
#include "gpu/launch/check_tensors.hpp"

namespace goldenrule::gpu::prefill {

using Args = goldenrule_gpu_prefill_args;
#define FIELD(member) GOLDENRULE_GPU_FIELD(member)

inline constexpr Choice<Args> kChoices[] = {
    {FIELD(op), 2},
    {FIELD(state_layout), 2},
    {FIELD(gate_kind), 6},
    {FIELD(beta_kind), 3},
    {FIELD(qk_norm), 4, GOLDENRULE_GPU_NORM_RSQRT_SUM_EPS},
    {FIELD(head_map), 2},
    {FIELD(gate_head), 2},
    {FIELD(disable_state_update), 2},
    {FIELD(checkpoint_form), 2},
};

inline constexpr Extent<Args> kExtents[] = {
    {FIELD(total), 0, kInt32Max},
    {FIELD(N), 0, kInt32Max - 1},  // N + 1 bounds
    {FIELD(H), 1, 1 << 20},
    {FIELD(HV), 1, 1 << 20},
    {FIELD(K), 1, GOLDENRULE_GPU_MAX_K},
    {FIELD(V), 1, 1 << 24},
    {FIELD(slots), 0, kInt32Max},
    {FIELD(checkpoint_rows), 0, kInt32Max},
    {FIELD(checkpoint_every), 0, kInt32Max},
    {FIELD(pad_slot), kInt64Min, kInt64Max, -1},
};

inline constexpr Number<Args> kNumbers[] = {
    {FIELD(scale), 1.0},
    {FIELD(l2_eps), 1e-6, Sign::kNotNegative},
    {FIELD(softplus_beta), 1.0, Sign::kPositive, GOLDENRULE_GPU_GATE_SOFTPLUS},
    {FIELD(softplus_threshold), 20.0, Sign::kAny, GOLDENRULE_GPU_GATE_SOFTPLUS},
    {FIELD(lower_bound), -5.0, Sign::kAny, GOLDENRULE_GPU_GATE_BOUNDED},
};

using enum Axis;
using enum Presence;
using enum Types;
using enum Use;
inline constexpr TensorField<Args> kTensors[] = {
    {FIELD(q), kFloat, kRead, kAlways, 2, {kPacked, kQkHead, kKey}},
    {FIELD(k), kFloat, kRead, kAlways, 2, {kPacked, kQkHead, kKey}},
    {FIELD(v), kFloat, kRead, kAlways, 2, {kPacked, kValueHead, kValue}},
    {FIELD(gate), kFloat, kRead, kGate, 2, {kPacked, kValueHead, kChannel}},
    {FIELD(A_log), kFloat, kRead, kRate, 1, {kGateHead}},
    {FIELD(dt_bias), kFloat, kRead, kBias, 1, {kGateHead, kChannel}},
    {FIELD(beta), kFloat, kRead, kAlways, 2, {kPacked, kValueHead}},
    {FIELD(o), kFloat, kWritten, kAlways, 2, {kPacked, kValueHead, kValue}},
    {FIELD(state), kState, kWritten, kOptional, 3, {kSlot, kValueHead, kOuter, kInner}},
    {FIELD(final_state), kState, kWritten, kFinal, 3, {kSlot, kValueHead, kOuter, kInner}},
    {FIELD(checkpoints),
     kState,
     kWritten,
     kCheckpoints,
     3,
     {kCheckpoint, kValueHead, kOuter, kInner}},
    {FIELD(cu_seqlens), kIndex, kRead, kAlways, 1, {kBound}},
    {FIELD(state_indices), kRowIndex, kRead, kOptional, 1, {kSequence}},
    {FIELD(output_state_indices), kRowIndex, kRead, kOptional, 1, {kSequence}},
    {FIELD(cu_checkpoints), kIndex, kRead, kCheckpoints, 1, {kBound}},
    {FIELD(checkpoint_offsets), kIndex, kRead, kOptional, 1, {kCheckpoint}},
    {FIELD(start_positions), kIndex, kRead, kNoOffsets, 1, {kSequence}},
};

struct Group {
  using Args = prefill::Args;
  using Params = prefill::Params;
  static constexpr const char* kName = "goldenrule_gpu_prefill_args";
  static constexpr const auto& kChoices = prefill::kChoices;
  static constexpr const auto& kExtents = prefill::kExtents;
  static constexpr const auto& kNumbers = prefill::kNumbers;
  static constexpr const auto& kTensors = prefill::kTensors;
  static constexpr Field<Args, std::uint64_t> kStructSize = FIELD(struct_size);
  static constexpr Field<Args, std::uint32_t> kFlags = FIELD(flags);
  static constexpr Field<Args, std::uint64_t> kWorkspaceSize = FIELD(workspace_size);
  static constexpr Field<Args, void*> kWorkspace = FIELD(workspace);
  static constexpr Field<Args, void*> kStream = FIELD(stream);
  static constexpr std::size_t kFirstSize = sizeof(Args);
  static constexpr std::uint32_t kKnownFlags = GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH |
                                               GOLDENRULE_GPU_FLAG_PRECISE |
                                               GOLDENRULE_GPU_FLAG_NEVER_SPLIT;
  static constexpr const char* kFlagNames =
      "GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH, .._PRECISE and .._NEVER_SPLIT";
  static constexpr int kTokenAxes = 1;

  static std::int64_t extent_of(const Args& a, Axis axis);
  static NeedAndWhy need_of(const Args& a, Presence presence);
  /// Of the first state that is there.
  static std::int32_t state_dtype(const Args& a);
  static void check_sizes(const Args& a, Problem& problem);
  static void pack_rest(const Args& a, const TensorStrides<Group>& strides, Params& p);
};
#undef FIELD
static_assert(lists_are_complete<Group>(),
              "every field of goldenrule_gpu_prefill_args is in a list");

}  // namespace goldenrule::gpu::prefill
