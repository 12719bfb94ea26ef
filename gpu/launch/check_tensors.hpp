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
  /// A place in kTensors; that of a field is found when the library is built.
  struct Place {
    std::size_t i = 0;
    consteval Place(Tensor Group::Args::*member) {  // NOLINT(google-explicit-constructor)
      while (Group::kTensors[i].field.member != member) ++i;
    }
    explicit constexpr Place(std::size_t number) : i(number) {}
  };
  [[nodiscard]] const Strides& operator[](Place place) const { return all_[place.i]; }
  [[nodiscard]] Strides& operator[](Place place) { return all_[place.i]; }

 private:
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
  const int size = std::max(1, dtype_size(given.dtype));
  for (int i = 0; i < tensor.strided; ++i) {
    const std::int64_t stride = strides[static_cast<std::size_t>(i)];
    if (extents[static_cast<std::size_t>(i)] <= 1) continue;
    const bool far = stride > kInt32Max || stride * size > kInt32Max;
    if (!state && !(pool && i == 0) && far) {
      problem.report(GOLDENRULE_GPU_UNSUPPORTED, stride_name(tensor.field.name, i),
                     "at most " + std::to_string(kInt32Max / size), std::to_string(stride));
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

/// What tensor i of a call has to be.
template <class Group>
class FieldRule {
 public:
  FieldRule(const typename Group::Args& a, std::size_t i, Need need) {
    using Args = typename Group::Args;
    const TensorField<Args>& tensor = Group::kTensors[i];
    std::size_t axes = 0;
    for (const Axis axis : tensor.axes) {
      if (const std::int64_t extent = extent_of<Group>(a, axis); extent >= 0) {
        extents_[axes++] = extent;
      }
    }
    // The pool is written only where no other takes what is written.
    bool read_only = false;
    if constexpr (DeltaArgs<Args>) {
      read_only = tensor.field.member == &Args::state && a.final_state.data != nullptr;
    }
    rule_ = {.name = tensor.field.name,
             .need = need,
             .use = read_only ? Use::kRead : tensor.use,
             .types = tensor.types,
             .extents = {extents_.data(), axes},
             .strided = tensor.strided};
  }
  FieldRule(const FieldRule&) = delete;  // the rule names its own extents
  FieldRule& operator=(const FieldRule&) = delete;

  [[nodiscard]] const TensorRule& operator*() const { return rule_; }

 private:
  std::array<std::int64_t, 6> extents_{};
  TensorRule rule_{};
};

/// The tensors of a call that are memory, in the order of kTensors: few of those that it can have.
template <class Group>
struct Ranges {
  struct Held {
    std::size_t tensor;  ///< its place in kTensors
    Range range;
  };
  std::array<Held, std::size(Group::kTensors)> all;  // nothing beyond the first `count`
  std::size_t count = 0;

  [[nodiscard]] std::span<const Held> held() const { return {all.data(), count}; }
};

/// Fills in the strides of tensor i, and where it lies.
template <class Group>
void check_field(const typename Group::Args& a, std::size_t i, Strides& strides,
                 Ranges<Group>& ranges, Problem& problem) {
  const auto& tensor = Group::kTensors[i];
  const Tensor& given = a.*tensor.field.member;
  const NeedAndWhy presence = need_of<Group>(a, tensor.presence);
  if (given.data == nullptr && presence.need != Need::kRequired) return;
  const FieldRule<Group> rule(a, i, presence.need);
  strides = check_tensor(given, *rule, presence.why, problem);
  check_steps(given, tensor, (*rule).extents, strides, problem);
  if (!problem.ok() || given.data == nullptr) return;
  ranges.all[ranges.count] = {.tensor = i, .range = range_of(given, *rule, strides)};
  if (ranges.all[ranges.count].range.bytes != 0) ++ranges.count;
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

/// The memory of tensor i of a call.
template <class Group>
Region region_of(const typename Group::Args& a, std::size_t i,
                 const TensorStrides<Group>& strides) {
  const FieldRule<Group> rule(a, i, Need::kOptional);
  return region_of(a.*Group::kTensors[i].field.member, *rule,
                   strides[typename TensorStrides<Group>::Place(i)]);
}

/// Nothing that is written is shared with anything; final_state may be state itself.
template <class Group>
void check_sharing(const typename Group::Args& a, const TensorStrides<Group>& strides,
                   const Ranges<Group>& ranges, Problem& problem) {
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
  for (const auto& mine : ranges.held()) {
    const auto& written = Group::kTensors[mine.tensor];
    if (!is_written(a, written)) continue;
    for (const auto& its : ranges.held()) {
      if (mine.tensor == its.tensor || !mine.range.meets(its.range)) continue;
      const auto& other = Group::kTensors[its.tensor];
      const bool shared =
          !one_pool(written, other) && share_memory(region_of<Group>(a, mine.tensor, strides),
                                                    region_of<Group>(a, its.tensor, strides));
      if (shared) return complain(written.field.name, other.field.name);
    }
  }
  if constexpr (requires { Group::kWorkspace; }) {
    const std::uint64_t bytes = a.workspace == nullptr ? 0 : a.workspace_size;
    const Range whole{.first = reinterpret_cast<std::uintptr_t>(a.workspace), .bytes = bytes};
    for (const auto& its : ranges.held()) {
      if (!whole.meets(its.range)) continue;
      if (share_memory(region_of(a.workspace, bytes), region_of<Group>(a, its.tensor, strides))) {
        return complain("workspace", Group::kTensors[its.tensor].field.name);
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
  Ranges<Group> ranges;
  for (std::size_t i = 0; i < std::size(Group::kTensors) && problem.ok(); ++i) {
    check_field<Group>(a, i, strides[typename TensorStrides<Group>::Place(i)], ranges, problem);
  }
  if constexpr (DeltaArgs<typename Group::Args>) {
    check_delta_tensors<Group>(a, strides, problem);
  } else {
    check_half_tensors<Group>(a, problem);
  }
  if (problem.ok()) check_sharing<Group>(a, strides, ranges, problem);
  return problem;
}

}  // namespace goldenrule::gpu
