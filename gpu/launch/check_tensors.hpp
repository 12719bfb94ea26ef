// SPDX-License-Identifier: Apache-2.0
//
// The checks of the tensors of an aggregate, by the list of its group. An aggregate has up to 35
// tensors of which a call uses 8 to 15, and a kernel of 3 us waits for these checks: what is absent
// is only asked whether it may be, and places in the list are found while this is compiled.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "gpu/launch/aliasing.hpp"
#include "gpu/launch/field_rules.hpp"
#include "gpu/launch/problem.hpp"

namespace goldenrule::gpu {

/// Resolved strides in elements, in the order of kTensors; 0 for a tensor that is absent.
template <class Group>
class TensorStrides {
 public:
  /// A tensor of the aggregate and its place in kTensors.
  struct Place {
    Tensor Group::Args::*member;
    std::size_t index = 0;

    consteval Place(Tensor Group::Args::*of) : member(of) {  // NOLINT(google-explicit-constructor)
      while (Group::kTensors[index].field.member != member) ++index;
    }
  };
  [[nodiscard]] const Strides& operator[](Place place) const { return all_[place.index]; }
  [[nodiscard]] Strides& at(std::size_t index) { return all_[index]; }
  [[nodiscard]] const Strides& at(std::size_t index) const { return all_[index]; }

 private:
  std::array<Strides, std::size(Group::kTensors)> all_{};
};

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

/// The tensors of a call that are there: places in kTensors, in that order, and their bytes.
template <class Group>
struct PresentTensors {
  struct Entry {
    std::size_t index;
    Range bytes;
  };
  std::array<Entry, std::size(Group::kTensors)> entries;  // the first `count` are set
  std::size_t count = 0;

  [[nodiscard]] std::span<const Entry> all() const { return {entries.data(), count}; }
};

/// Checks one tensor and notes it in `present` if it is there.
template <class Group>
void check_field(const typename Group::Args& a, std::size_t index, TensorStrides<Group>& strides,
                 PresentTensors<Group>& present, Problem& problem) {
  const auto& tensor = Group::kTensors[index];
  const Tensor& given = a.*tensor.field.member;
  const NeedAndWhy presence = need_of<Group>(a, tensor.presence);
  const bool there = given.data != nullptr;
  if (!there && presence.need != Need::kRequired) return;
  Extents extents{};
  const TensorRule rule = rule_of<Group>(a, tensor, presence.need, extents);
  Strides& found = strides.at(index);
  found = check_tensor(given, rule, presence.why, problem);
  if (!there || !problem.ok()) return;
  check_steps(given, tensor, rule.extents, found, problem);
  present.entries[present.count++] = {index, range_of(region_of(given, rule, found))};
}

/// The memory of a tensor that has passed check_field.
template <class Group>
Region region_at(const typename Group::Args& a, std::size_t index,
                 const TensorStrides<Group>& strides) {
  const auto& tensor = Group::kTensors[index];
  Extents extents{};
  const TensorRule rule = rule_of<Group>(a, tensor, Need::kOptional, extents);
  return region_of(a.*tensor.field.member, rule, strides.at(index));
}

/// Nothing that is written is shared with anything; final_state may be state itself. Where the
/// bytes of two tensors lie apart, their elements are not looked at.
template <class Group>
void check_sharing(const typename Group::Args& a, const PresentTensors<Group>& present,
                   const TensorStrides<Group>& strides, Problem& problem) {
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
  for (const auto& [i, bytes] : present.all()) {
    const auto& written = Group::kTensors[i];
    if (!is_written(a, written)) continue;
    for (const auto& [j, other_bytes] : present.all()) {
      const auto& other = Group::kTensors[j];
      if (are_apart(bytes, other_bytes) || i == j || one_pool(written, other)) continue;
      if (share_memory(region_at<Group>(a, i, strides), region_at<Group>(a, j, strides))) {
        complain(written.field.name, other.field.name);
      }
    }
  }
  if constexpr (requires { Group::kWorkspace; }) {
    const Region workspace = region_of(a.workspace, a.workspace == nullptr ? 0 : a.workspace_size);
    for (const auto& [j, bytes] : present.all()) {
      if (are_apart(range_of(workspace), bytes)) continue;
      if (share_memory(workspace, region_at<Group>(a, j, strides))) {
        complain("workspace", Group::kTensors[j].field.name);
      }
    }
  }
}

/// q and k of one type, all states of one type, and one pool that is stepped over in one way.
template <class Group>
void check_delta_tensors(const typename Group::Args& a, const PresentTensors<Group>& present,
                         const TensorStrides<Group>& strides, Problem& problem) {
  using Args = typename Group::Args;
  if (a.q.data != nullptr && a.k.data != nullptr && a.k.dtype != a.q.dtype) {
    problem.report(GOLDENRULE_GPU_UNSUPPORTED, "k.dtype", "that of q, " + std::to_string(a.q.dtype),
                   std::to_string(a.k.dtype));
  }
  const std::int32_t dtype = Group::state_dtype(a);
  for (const auto& [i, bytes] : present.all()) {
    const auto& tensor = Group::kTensors[i];
    const std::int32_t actual = (a.*tensor.field.member).dtype;
    if (tensor.types == Types::kState && actual != dtype) {
      problem.invalid(std::string(tensor.field.name) + ".dtype",
                      "that of state, " + std::to_string(dtype), actual);
    }
  }
  if (a.final_state.data != nullptr && a.final_state.data == a.state.data &&
      strides[&Args::final_state] != strides[&Args::state]) {
    problem.invalid("final_state.stride", "the strides of state (same memory)", "others");
  }
}

/// Every tensor of type kHalf or kHalfPool has the type of q.
template <class Group>
void check_half_tensors(const typename Group::Args& a, const PresentTensors<Group>& present,
                        Problem& problem) {
  for (const auto& [i, bytes] : present.all()) {
    const auto& tensor = Group::kTensors[i];
    const std::int32_t actual = (a.*tensor.field.member).dtype;
    const bool half = tensor.types == Types::kHalf || tensor.types == Types::kHalfPool;
    if (half && a.q.data != nullptr && actual != a.q.dtype) {
      problem.report(GOLDENRULE_GPU_UNSUPPORTED, std::string(tensor.field.name) + ".dtype",
                     "that of q, " + std::to_string(a.q.dtype), std::to_string(actual));
    }
  }
}

/// Presence, types, alignment, strides and memory of every tensor; `a` has passed check_scalars.
template <class Group>
[[nodiscard]] Problem check_tensors(const typename Group::Args& a, TensorStrides<Group>& strides) {
  Problem problem;
  PresentTensors<Group> present;
  for (std::size_t i = 0; i < std::size(Group::kTensors) && problem.ok(); ++i) {
    check_field<Group>(a, i, strides, present, problem);
  }
  if (!problem.ok()) return problem;
  if constexpr (DeltaArgs<typename Group::Args>) {
    check_delta_tensors<Group>(a, present, strides, problem);
  } else {
    check_half_tensors<Group>(a, present, problem);
  }
  if (problem.ok()) check_sharing<Group>(a, present, strides, problem);
  return problem;
}

}  // namespace goldenrule::gpu
