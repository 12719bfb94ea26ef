// SPDX-License-Identifier: Apache-2.0
//
// The checks of the tensors of an aggregate, by the list of its group.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "gpu/launch/aliasing.hpp"
#include "gpu/launch/args_lists.hpp"
#include "gpu/launch/problem.hpp"

namespace goldenrule::gpu {

/// Resolved strides in elements, in the order of kTensors.
template <class Group>
class TensorStrides {
 public:
  using Member = Tensor Group::Args::*;
  [[nodiscard]] const Strides& operator[](Member member) const { return all_[at(member)]; }
  [[nodiscard]] Strides& operator[](Member member) { return all_[at(member)]; }

 private:
  static std::size_t at(Member member) {
    std::size_t i = 0;
    while (Group::kTensors[i].field.member != member) ++i;
    return i;
  }
  std::array<Strides, std::size(Group::kTensors)> all_{};
};

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

/// What the kernels step over in 32 bits: bytes of a token tensor, elements of a row of state; and
/// which lists have no gaps.
template <class Args>
void check_steps(const Tensor& given, const TensorField<Args>& tensor,
                 std::span<const std::int64_t> extents, const Strides& strides, Problem& problem) {
  const bool state = tensor.types == Types::kState || tensor.types == Types::kKept;
  const bool pool = tensor.types == Types::kHalfPool;
  const std::int64_t most = kInt32Max / std::max(1, dtype_size(given.dtype));
  for (int i = 0; i < tensor.strided; ++i) {
    const std::int64_t stride = strides[static_cast<std::size_t>(i)];
    if (extents[static_cast<std::size_t>(i)] <= 1) continue;
    if (!state && !(pool && i == 0) && stride > most) {
      problem.report(GOLDENRULE_GPU_UNSUPPORTED, stride_name(tensor.field.name, i),
                     "at most " + std::to_string(most), std::to_string(stride));
    }
    if (state && i == tensor.strided - 1 && stride > kInt32Max) {
      problem.report(GOLDENRULE_GPU_UNSUPPORTED,
                     std::string(tensor.field.name) + " stride of a row of state",
                     "at most " + std::to_string(kInt32Max), std::to_string(stride));
    }
  }
  const bool list = tensor.types == Types::kIndex && tensor.strided == 1;
  if (list && given.data != nullptr && extents[0] > 1 && strides[0] != 1) {
    problem.report(GOLDENRULE_GPU_UNSUPPORTED, stride_name(tensor.field.name, 0), "1",
                   std::to_string(strides[0]));
  }
}

/// A tensor as it was found: its strides, and the memory that it is.
struct CheckedTensor {
  Strides strides{};
  Region region;
};

template <class Group>
CheckedTensor check_field(const typename Group::Args& a,
                          const TensorField<typename Group::Args>& tensor, Problem& problem) {
  using Args = typename Group::Args;
  const Tensor& given = a.*tensor.field.member;
  std::array<std::int64_t, 6> extents{};
  std::size_t axes = 0;
  for (const Axis axis : tensor.axes) {
    if (const std::int64_t extent = extent_of<Group>(a, axis); extent >= 0) {
      extents[axes++] = extent;
    }
  }
  // The pool is written only where no other takes what is written.
  bool read_only = false;
  if constexpr (DeltaArgs<Args>) {
    read_only = tensor.field.member == &Args::state && a.final_state.data != nullptr;
  }
  const NeedAndWhy presence = need_of<Group>(a, tensor.presence);
  const TensorRule rule{.name = tensor.field.name,
                        .need = presence.need,
                        .use = read_only ? Use::kRead : tensor.use,
                        .types = tensor.types,
                        .extents = {extents.data(), axes},
                        .strided = tensor.strided};
  CheckedTensor checked{.strides = check_tensor(given, rule, presence.why, problem), .region = {}};
  check_steps(given, tensor, rule.extents, checked.strides, problem);
  if (problem.ok()) checked.region = region_of(given, rule, checked.strides);
  return checked;
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

/// Nothing that is written is shared with anything; final_state may be state itself.
template <class Group>
void check_sharing(const typename Group::Args& a,
                   const std::array<CheckedTensor, std::size(Group::kTensors)>& checked,
                   Problem& problem) {
  using Args = typename Group::Args;
  const auto one_pool = [&](const auto& written, const auto& other) {
    if constexpr (DeltaArgs<Args>) {
      return a.final_state.data == a.state.data && written.field.member == &Args::final_state &&
             other.field.member == &Args::state;
    }
    return false;
  };
  const auto complain = [&](const char* written, const char* other) {
    problem.invalid(std::string(written) + ".data", "memory that nothing else of the call is in",
                    std::string("shared with ") + other);
  };
  for (std::size_t i = 0; i < checked.size() && problem.ok(); ++i) {
    const auto& written = Group::kTensors[i];
    if (!is_written(a, written)) continue;
    for (std::size_t j = 0; j < checked.size() && problem.ok(); ++j) {
      const auto& other = Group::kTensors[j];
      const bool same = i == j || one_pool(written, other);
      if (!same && share_memory(checked[i].region, checked[j].region)) {
        complain(written.field.name, other.field.name);
      }
    }
  }
  if constexpr (requires { Group::kWorkspace; }) {
    const Region workspace = region_of(a.workspace, a.workspace == nullptr ? 0 : a.workspace_size);
    for (std::size_t j = 0; j < checked.size() && problem.ok(); ++j) {
      if (share_memory(workspace, checked[j].region)) {
        complain("workspace", Group::kTensors[j].field.name);
      }
    }
  }
}

/// q and k of one type, all states of one type, and one pool that is stepped over in one way.
template <class Group>
void check_delta_tensors(const typename Group::Args& a, const TensorStrides<Group>& strides,
                         Problem& problem) {
  using Args = typename Group::Args;
  if (a.q.data != nullptr && a.k.data != nullptr && a.k.dtype != a.q.dtype) {
    problem.report(GOLDENRULE_GPU_UNSUPPORTED, "k.dtype", "that of q, " + std::to_string(a.q.dtype),
                   std::to_string(a.k.dtype));
  }
  for (const auto& tensor : Group::kTensors) {
    const Tensor& given = a.*tensor.field.member;
    const std::int32_t dtype = Group::state_dtype(a);
    if (tensor.types == Types::kState && given.data != nullptr && given.dtype != dtype) {
      problem.invalid(std::string(tensor.field.name) + ".dtype",
                      "that of state, " + std::to_string(dtype), given.dtype);
    }
  }
  if (a.final_state.data != nullptr && a.final_state.data == a.state.data &&
      strides[&Args::final_state] != strides[&Args::state]) {
    problem.invalid("final_state.stride", "the strides of state (same memory)", "others");
  }
}

/// Every tensor of type kHalf or kHalfPool has the type of q.
template <class Group>
void check_half_tensors(const typename Group::Args& a, Problem& problem) {
  for (const auto& tensor : Group::kTensors) {
    const Tensor& given = a.*tensor.field.member;
    const bool half = tensor.types == Types::kHalf || tensor.types == Types::kHalfPool;
    if (half && given.data != nullptr && a.q.data != nullptr && given.dtype != a.q.dtype) {
      problem.report(GOLDENRULE_GPU_UNSUPPORTED, std::string(tensor.field.name) + ".dtype",
                     "that of q, " + std::to_string(a.q.dtype), std::to_string(given.dtype));
    }
  }
}

/// Presence, types, alignment, strides and memory of every tensor; `a` has passed check_scalars.
template <class Group>
[[nodiscard]] Problem check_tensors(const typename Group::Args& a, TensorStrides<Group>& strides) {
  Problem problem;
  std::array<CheckedTensor, std::size(Group::kTensors)> checked;
  for (std::size_t i = 0; i < checked.size(); ++i) {
    const auto& tensor = Group::kTensors[i];
    checked[i] = check_field<Group>(a, tensor, problem);
    strides[tensor.field.member] = checked[i].strides;
  }
  if constexpr (DeltaArgs<typename Group::Args>) {
    check_delta_tensors<Group>(a, strides, problem);
  } else {
    check_half_tensors<Group>(a, problem);
  }
  if (problem.ok()) check_sharing<Group>(a, checked, problem);
  return problem;
}

}  // namespace goldenrule::gpu
