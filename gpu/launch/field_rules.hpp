// SPDX-License-Identifier: Apache-2.0
//
// What a field of an aggregate has to be in one call: the extents of its axes, whether the call
// needs it, whether the call writes to it.
#pragma once

#include <array>

#include "gpu/launch/args_lists.hpp"

namespace goldenrule::gpu {

/// The extent of an axis; -1: the tensor of this call has no such axis.
template <class Group>
std::int64_t delta_extent_of(const typename Group::Args& a, Axis axis) {
  const bool vk = a.state_layout == GOLDENRULE_GPU_STATE_VK;
  switch (axis) {
    case Axis::kGateHead:
      return a.gate_head == GOLDENRULE_GPU_GATE_HEAD_QK ? a.H : a.HV;
    case Axis::kChannel:
      return a.op == GOLDENRULE_GPU_KDA ? a.K : -1;
    case Axis::kSlot:
      return a.slots;
    case Axis::kOuter:
      return vk ? a.V : a.K;
    case Axis::kInner:
      return vk ? a.K : a.V;
    default:
      return Group::extent_of(a, axis);
  }
}

template <class Group>
std::int64_t extent_of(const typename Group::Args& a, Axis axis) {
  switch (axis) {
    case Axis::kQkHead:
      return a.H;
    case Axis::kValueHead:
      return a.HV;
    case Axis::kKey:
      return a.K;
    case Axis::kValue:
      return a.V;
    case Axis::kEnd:
      return -1;
    default:
      if constexpr (DeltaArgs<typename Group::Args>) {
        return delta_extent_of<Group>(a, axis);
      } else {
        return Group::extent_of(a, axis);
      }
  }
}

template <class Group>
NeedAndWhy delta_need_of(const typename Group::Args& a, Presence presence) {
  const bool softplus = a.gate_kind == GOLDENRULE_GPU_GATE_SOFTPLUS;
  const bool raw = softplus || a.gate_kind == GOLDENRULE_GPU_GATE_BOUNDED;
  static constexpr const char* kKinds[] = {" (gate_kind 0)", " (gate_kind 1)", " (gate_kind 2)",
                                           " (gate_kind 3)", " (gate_kind 4)", " (gate_kind 5)"};
  const char* const kind = kKinds[a.gate_kind];
  switch (presence) {
    case Presence::kGate:
      return {a.gate_kind == GOLDENRULE_GPU_GATE_NONE ? Need::kForbidden : Need::kRequired, kind};
    case Presence::kRate:
      return {softplus ? Need::kRequired : raw ? Need::kOptional : Need::kForbidden, kind};
    case Presence::kBias:
      return {raw ? Need::kOptional : Need::kForbidden, kind};
    default:
      return Group::need_of(a, presence);
  }
}

template <class Group>
NeedAndWhy need_of(const typename Group::Args& a, Presence presence) {
  if (presence == Presence::kAlways) return {Need::kRequired, ""};
  if (presence == Presence::kOptional) return {Need::kOptional, ""};
  if constexpr (DeltaArgs<typename Group::Args>) {
    return delta_need_of<Group>(a, presence);
  } else {
    return Group::need_of(a, presence);
  }
}

/// Whether a call writes to this tensor.
template <class Args>
bool is_written(const Args& a, const TensorField<Args>& tensor) {
  if (tensor.use == Use::kRead) return false;
  if constexpr (DeltaArgs<Args>) {
    const bool pool = tensor.field.member == &Args::state;
    if (pool || tensor.field.member == &Args::final_state) {
      return a.disable_state_update == 0 && (!pool || a.final_state.data == nullptr);
    }
  }
  return true;
}

/// Room for the extents of one tensor.
using Extents = std::array<std::int64_t, 6>;

/// The rule of a field that this call needs in this way; its extents stand in `extents`.
template <class Group>
TensorRule rule_of(const typename Group::Args& a, const TensorField<typename Group::Args>& tensor,
                   Need need, Extents& extents) {
  using Args = typename Group::Args;
  std::size_t axes = 0;
  for (const Axis axis : tensor.axes) {
    if (axis == Axis::kEnd) break;
    if (const std::int64_t extent = extent_of<Group>(a, axis); extent >= 0) {
      extents[axes++] = extent;
    }
  }
  // The pool is written only where no other takes what is written.
  bool read_only = false;
  if constexpr (DeltaArgs<Args>) {
    read_only = tensor.field.member == &Args::state && a.final_state.data != nullptr;
  }
  return {.name = tensor.field.name,
          .need = need,
          .use = read_only ? Use::kRead : tensor.use,
          .types = tensor.types,
          .extents = {extents.data(), axes},
          .strided = tensor.strided};
}

}  // namespace goldenrule::gpu
