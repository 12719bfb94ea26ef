// SPDX-License-Identifier: Apache-2.0
//
// What the prefill call has of its own among the checks and the parameters.
#include "gpu/delta/prefill/args_fields.hpp"
#include "gpu/delta/prefill/variants.hpp"
#include "gpu/launch/check_args.hpp"
#include "gpu/launch/pack_call.hpp"

namespace goldenrule::gpu::prefill {
namespace {

/// A sequence without state_indices reads and writes the slot of its own number.
void check_slots(const Args& a, Problem& problem) {
  const bool writes = a.disable_state_update == 0 && a.output_state_indices.data == nullptr;
  const bool own_slots = a.state_indices.data == nullptr && (a.state.data != nullptr || writes);
  if (own_slots && a.slots < a.N) {
    problem.invalid("slots", "at least N=" + std::to_string(a.N) + " (no state_indices)", a.slots);
  }
}

void check_every(const Args& a, Problem& problem) {
  if (a.checkpoint_rows == 0) return;
  const bool listed = a.checkpoint_offsets.data != nullptr;
  if (listed != (a.checkpoint_every == 0)) {
    problem.invalid("checkpoint_every",
                    listed ? "0 (beside checkpoint_offsets)" : "1 or more (no checkpoint_offsets)",
                    a.checkpoint_every);
  }
}

void check_workspace(const Args& a, Problem& problem) {
  constexpr std::uintptr_t kAlignment = 256;
  const std::size_t needed = workspace_size(a);
  if (needed == 0) return;
  const auto bytes = [&] { return std::to_string(needed) + " bytes"; };
  if (a.workspace == nullptr) {
    problem.invalid("workspace", "a device pointer to " + bytes(), "NULL");
  }
  if (a.workspace_size < needed) {
    problem.invalid("workspace_size", "at least " + bytes(), std::to_string(a.workspace_size));
  }
  if (const auto rest = reinterpret_cast<std::uintptr_t>(a.workspace) % kAlignment; rest != 0) {
    problem.invalid("workspace", "alignment to " + std::to_string(kAlignment) + " bytes",
                    "an address " + std::to_string(rest) + " beyond it");
  }
}

}  // namespace

std::int64_t Group::extent_of(const Args& a, Axis axis) {
  switch (axis) {
    case kPacked:
      return a.total;
    case kSequence:
      return a.N;
    case kBound:
      return a.N + 1;
    case kCheckpoint:
      return a.checkpoint_rows;
    default:
      return -1;
  }
}

NeedAndWhy Group::need_of(const Args& a, Presence presence) {
  switch (presence) {
    case Presence::kFinal: {
      const bool needed = a.state.data == nullptr && a.disable_state_update == 0 && a.N > 0;
      return {needed ? Need::kRequired : Need::kOptional, " (no state to update)"};
    }
    case Presence::kNoOffsets:
      return {a.checkpoint_offsets.data != nullptr ? Need::kForbidden : Need::kOptional,
              " (checkpoint_offsets already says where)"};
    default:
      return {a.checkpoint_rows > 0 ? Need::kRequired : Need::kOptional, " (checkpoint_rows)"};
  }
}

std::int32_t Group::state_dtype(const Args& a) {
  for (const Tensor* tensor : {&a.state, &a.final_state, &a.checkpoints}) {
    if (tensor->data != nullptr) return tensor->dtype;
  }
  return GOLDENRULE_GPU_F32;
}

void Group::check_sizes(const Args& a, Problem& problem) {
  check_slots(a, problem);
  check_every(a, problem);
  check_grid(a, "N", a.N, problem);
  if (problem.ok()) check_workspace(a, problem);
}

void Group::pack_rest(const Args& a, const TensorStrides<Group>& strides, Params& p) {
  const Strides& c = strides[&Args::checkpoints];
  p.checkpoints = state_view(a.checkpoints, c[0], c[1], c[2]);
  if (a.checkpoint_rows == 0) p.checkpoints.data = nullptr;
  p.vector_state = p.vector_state && by_vectors(p.checkpoints, 0, state_dtype(a));
  p.dense_heads = p.dense_heads && is_dense(a, p.checkpoints);
  p.checkpoint_rows = narrow(a.checkpoint_rows);
  p.checkpoint_every = a.checkpoint_every;
  p.checkpoints_before = a.checkpoint_form == GOLDENRULE_GPU_CHECKPOINTS_BEFORE;
  p.start_step = narrow(strides[&Args::state_indices][0]);
  p.output_step = narrow(strides[&Args::output_state_indices][0]);
  p.cu_seqlens = a.cu_seqlens.data;
  p.wide_seqlens = is_wide(a.cu_seqlens);
  p.cu_checkpoints = a.cu_checkpoints.data;
  p.wide_cu_checkpoints = is_wide(a.cu_checkpoints);
  p.checkpoint_offsets = a.checkpoint_offsets.data;
  p.wide_offsets = is_wide(a.checkpoint_offsets);
  p.start_positions = a.start_positions.data;
  p.wide_positions = is_wide(a.start_positions);
  p.precise = (a.flags & GOLDENRULE_GPU_FLAG_PRECISE) != 0;
  p.never_split = (a.flags & GOLDENRULE_GPU_FLAG_NEVER_SPLIT) != 0;
  p.total = narrow(a.total);
  p.N = narrow(a.N);
  p.H = narrow(a.H);
  p.workspace = a.workspace;
}

}  // namespace goldenrule::gpu::prefill
