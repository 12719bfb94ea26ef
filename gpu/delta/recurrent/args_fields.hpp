// SPDX-License-Identifier: Apache-2.0
//
// The fields of goldenrule_gpu_recurrent_args as data, in the order of the struct
// (launch/args_lists.hpp); a field of the struct that stands in none of the lists does not compile.
#pragma once

#include "gpu/delta/recurrent/params.hpp"
#include "gpu/launch/args_lists.hpp"
#include "gpu/launch/check_tensors.hpp"

namespace goldenrule::gpu::recurrent {

using Args = goldenrule_gpu_recurrent_args;
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
};

inline constexpr Extent<Args> kExtents[] = {
    {FIELD(B), 0, kInt32Max},
    {FIELD(T), 0, GOLDENRULE_GPU_MAX_T},
    {FIELD(H), 1, 1 << 20},
    {FIELD(HV), 1, 1 << 20},
    {FIELD(K), 1, GOLDENRULE_GPU_MAX_K},
    {FIELD(V), 1, 1 << 24},
    {FIELD(slots), 0, kInt32Max},
    {FIELD(intermediate_rows), kInt64Min, kInt64Max},
    {FIELD(pad_slot), kInt64Min, kInt64Max, -1},
    // Since version 2.
    {FIELD(rings), 0, kInt32Max},
    {FIELD(ring_places), 0, GOLDENRULE_GPU_MAX_PLACES},
    // Since version 3.
    {FIELD(tokens), 0, kInt32Max},
    {FIELD(intermediate_slots), 0, kInt32Max},
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
    {FIELD(q), kFloat, kRead, kAlways, 3, {kTokenRow, kToken, kQkHead, kKey}},
    {FIELD(k), kFloat, kRead, kAlways, 3, {kTokenRow, kToken, kQkHead, kKey}},
    {FIELD(v), kFloat, kRead, kAlways, 3, {kTokenRow, kToken, kValueHead, kValue}},
    {FIELD(gate), kFloat, kRead, kGate, 3, {kTokenRow, kToken, kValueHead, kChannel}},
    {FIELD(A_log), kFloat, kRead, kRate, 1, {kGateHead}},
    {FIELD(dt_bias), kFloat, kRead, kBias, 1, {kGateHead, kChannel}},
    {FIELD(beta), kFloat, kRead, kAlways, 3, {kTokenRow, kToken, kValueHead}},
    {FIELD(o), kFloat, kWritten, kOutput, 3, {kTokenRow, kToken, kValueHead, kValue}},
    {FIELD(state), kState, kWritten, kAlways, 3, {kSlot, kValueHead, kOuter, kInner}},
    {FIELD(final_state), kState, kWritten, kOptional, 3, {kSlot, kValueHead, kOuter, kInner}},
    {FIELD(intermediate_states),
     kKept,
     kWritten,
     kNoRings,
     4,
     {kKeptRow, kStep, kValueHead, kOuter, kInner}},
    {FIELD(state_indices), kRowIndex, kRead, kOptional, 1, {kRow}},
    {FIELD(output_state_indices), kRowIndex, kRead, kOwnSlots, 1, {kRow}},
    {FIELD(ssm_state_indices), kIndex, kRead, kNoRings, 2, {kRow, kDraft}},
    {FIELD(num_accepted_tokens), kRowIndex, kRead, kScatterOnly, 1, {kRow}},
    {FIELD(accepted_tokens), kRowIndex, kRead, kAccepted, 1, {kRow}},
    // Since version 2.
    {FIELD(ring_d), kFloat, kWritten, kOptional, 3, {kRing, kValueHead, kPlace, kValue}},
    {FIELD(ring_k), kFloat, kWritten, kRings, 3, {kRing, kQkHead, kPlace, kKey}},
    {FIELD(ring_g), kFloat, kWritten, kRings, 3, {kRing, kValueHead, kPlace, kRingChannel}},
    {FIELD(ring_indices), kRowIndex, kRead, kRingChoice, 1, {kRow}},
    {FIELD(ring_start), kRowIndex, kRead, kRings, 1, {kRow}},
    {FIELD(ring_count), kRowIndex, kRead, kRings, 1, {kRow}},
    {FIELD(ring_flush), kRowIndex, kRead, kRingChoice, 1, {kRow}},
    // Since version 3.
    {FIELD(cu_seqlens), kIndex, kRead, kOptional, 1, {kBound}},
    {FIELD(parent_tokens), kIndex, kRead, kNoRings, 2, {kTokenRow, kToken}},
    {FIELD(intermediate_state_indices), kRowIndex, kRead, kKeptChoice, 1, {kRow}},
    {FIELD(checkpoint_state_indices), kRowIndex, kRead, kAccepted, 1, {kRow}},
    {FIELD(checkpoint_tokens), kRowIndex, kRead, kSecondOnly, 1, {kRow}},
};

struct Group {
  using Args = recurrent::Args;
  using Params = recurrent::Params;
  static constexpr const char* kName = "goldenrule_gpu_recurrent_args";
  static constexpr const auto& kChoices = recurrent::kChoices;
  static constexpr const auto& kExtents = recurrent::kExtents;
  static constexpr const auto& kNumbers = recurrent::kNumbers;
  static constexpr const auto& kTensors = recurrent::kTensors;
  static constexpr Field<Args, std::uint64_t> kStructSize = FIELD(struct_size);
  static constexpr Field<Args, std::uint32_t> kFlags = FIELD(flags);
  static constexpr Field<Args, std::int32_t> kReserved = FIELD(reserved);
  static constexpr Field<Args, void*> kStream = FIELD(stream);
  static constexpr std::size_t kFirstSize = offsetof(Args, rings);
  static constexpr VersionEnd kVersions[] = {{9, 16}, {11, 23}, {13, 28}};
  static constexpr std::size_t kSecondSize = offsetof(Args, tokens);
  static constexpr std::uint32_t kKnownFlags =
      GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH | GOLDENRULE_GPU_FLAG_TRIGGER_EARLY |
      GOLDENRULE_GPU_FLAG_NO_OUTPUT | GOLDENRULE_GPU_FLAG_STATE_READY;
  static constexpr const char* kFlagNames =
      "GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH, .._TRIGGER_EARLY, .._NO_OUTPUT and .._STATE_READY";
  static constexpr int kTokenAxes = 2;

  static std::int64_t extent_of(const Args& a, Axis axis);
  static NeedAndWhy need_of(const Args& a, Presence presence);
  static std::int32_t state_dtype(const Args& a) { return a.state.dtype; }
  /// Packed tokens have no rows to step over.
  static void settle(const Args& a, TensorStrides<Group>& strides);
  static void check_sizes(const Args& a, Problem& problem);
  static void pack_rest(const Args& a, const TensorStrides<Group>& strides, Params& p);
};
#undef FIELD
static_assert(lists_are_complete<Group>(),
              "every field of goldenrule_gpu_recurrent_args is in a list");

}  // namespace goldenrule::gpu::recurrent
