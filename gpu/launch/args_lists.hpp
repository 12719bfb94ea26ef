// SPDX-License-Identifier: Apache-2.0
//
// The fields of an aggregate of the C interface as data, in the order of the struct: names, types,
// defaults, ranges, axes. Defaults, checks, packing, callers by name (tools/gpu_run) and the
// description that the library gives to callers without a C compiler follow from these lists, for
// every kernel group alike.
//
// A group names its lists in a struct that the templates of this folder take as `Group`:
//
//   Args, Params                     the aggregate, and what its kernels are given
//   kName                            of the aggregate
//   kChoices, kExtents, kNumbers, kTensors, kStructSize, kFlags, kStream, and where the struct has
//   them kReserved, kWorkspaceSize and kWorkspace
//   kFirstSize                       bytes of the first version of the aggregate
//   kVersions                        where there are later versions: how many extents and tensors
//                                    each has, the first one too; what a version adds stands behind
//                                    what those before it have
//   kKnownFlags, kFlagNames          the bits of flags that it takes, and what they are called
//   extent_of(args, axis)            of the axes that are its own
//   need_of(args, presence)          of the tensors whose presence is decided its own way
//   check_sizes(args, problem)       what its extents have to be to each other
//   settle(args, strides)            where a call has strides that count for nothing: makes them 0
//   pack_rest(args, strides, params) the parameters that pack_call.hpp does not know
//
// and groups of the delta rule (DeltaArgs), whose gates and states the templates know, also
//
//   kTokenAxes                       axes that the tokens have in front of the heads
//   state_dtype(args)                the type that all states have to have
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>

#include "gpu/goldenrule_gpu.h"
#include "gpu/launch/check_tensor.hpp"

namespace goldenrule::gpu {

using Tensor = goldenrule_gpu_tensor;

inline constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
inline constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();
inline constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();

/// Aggregates of the delta rule: they have gates and states.
template <class Args>
concept DeltaArgs = requires(const Args& a) {
  a.gate_kind;
  a.state;
  a.final_state;
};

template <class Args, class T>
struct Field {
  const char* name;
  T Args::*member;
  std::size_t offset;
};
/// A Field of the aggregate that `Args` names where it is used.
#define GOLDENRULE_GPU_FIELD(member) \
  { #member, &Args::member, offsetof(Args, member) }

/// An enum or a switch: 0 to count - 1.
template <class Args>
struct Choice {
  Field<Args, std::int32_t> field;
  std::int32_t count;
  std::int32_t initial = 0;
};

template <class Args>
struct Extent {
  Field<Args, std::int64_t> field;
  std::int64_t low, high;
  std::int64_t initial = 0;
};

enum class Sign { kAny, kNotNegative, kPositive };
/// A finite number; `gate`: checked only for this gate_kind, -1 for every one.
template <class Args>
struct Number {
  Field<Args, double> field;
  double initial;
  Sign sign = Sign::kAny;
  std::int32_t gate = -1;
};

/// Axes by the extents they have. kGateHead: H or HV, see gate_head; kChannel: K, and no axis at
/// all with one gate per head; kOuter, kInner: V, K or K, V by the layout of the state; kStep: the
/// rows of intermediate_states; kPacked: the tokens of all sequences; kBound: one more than there
/// are rows or sequences; kPlace: the places of a ring; kRingChannel: as kChannel, and no axis
/// without a gate; kTokenRow, kToken: rows of tokens and tokens of one, where packed 1 and all;
/// kDraft: the most tokens of a row; kKeptRow: rows of a buffer of intermediate
/// states; kFresh: the keys of an attention call that are in no cache; kPage: pages of a cache,
/// whose slots and heads are kOuter and kInner by their layout; kTableColumn, kTableEntry: of the
/// two forms of its table; kLseOuter, kLseInner: queries and heads by the layout of lse.
enum class Axis : std::uint8_t {
  kEnd,
  kRow,
  kTokenRow,
  kToken,
  kDraft,
  kKeptRow,
  kStep,
  kPacked,
  kSequence,
  kBound,
  kCheckpoint,
  kSlot,
  kQkHead,
  kValueHead,
  kGateHead,
  kKey,
  kChannel,
  kValue,
  kOuter,
  kInner,
  kRing,
  kPlace,
  kRingChannel,
  kFresh,
  kPage,
  kTableColumn,
  kTableEntry,
  kLseOuter,
  kLseInner
};
/// Which calls are given a tensor.
enum class Presence : std::uint8_t {
  kAlways,
  kOptional,
  kGate,         ///< required but for gate_kind NONE, where it is forbidden
  kRate,         ///< required for SOFTPLUS, optional for BOUNDED, else forbidden
  kBias,         ///< optional for SOFTPLUS and BOUNDED, else forbidden
  kOutput,       ///< required, forbidden with GOLDENRULE_GPU_FLAG_NO_OUTPUT
  kOwnSlots,     ///< optional, forbidden beside ssm_state_indices
  kScatterOnly,  ///< required beside ssm_state_indices without state_indices, else forbidden
  kFinal,        ///< required without state where there is an update, else optional
  kCheckpoints,  ///< required where there are rows of checkpoints, else optional
  kNoOffsets,    ///< optional, forbidden beside checkpoint_offsets
  kAccepted,     ///< optional, forbidden beside ssm_state_indices and beside rings
  kNoRings,      ///< optional, forbidden beside rings
  kKeptChoice,   ///< optional beside intermediate_slots, else forbidden
  kSecondOnly,   ///< required beside checkpoint_state_indices, else forbidden
  kRings,        ///< required beside ring_d, else forbidden
  kRingChoice,   ///< optional beside ring_d, else forbidden
  kCache,        ///< required with a cache, else forbidden
  kFreshKeys,    ///< of attention: required without a cache or beside k, forbidden in the cache
  kTable,        ///< required with a cache that has no page_indptr, else forbidden
  kPageList,     ///< required beside page_indptr, else forbidden
  kPageBounds,   ///< optional with a cache, else forbidden
};
template <class Args>
struct TensorField {
  Field<Args, Tensor> field;
  Types types;
  Use use;  ///< kWritten also where only some calls write it (state)
  Presence presence;
  int strided;  ///< axes with an entry in `stride`
  Axis axes[6];
};

struct NeedAndWhy {
  Need need;
  const char* why;  ///< a constant: calls that pass build no text
};

/// How many extents and tensors the lists have up to a version of the aggregate.
struct VersionEnd {
  std::size_t extents, tensors;
};

/// Calls f(field, type) for every field in the order of the struct; the names of the types are
/// those of goldenrule_gpu_recurrent_fields.
template <class Group, class F>
constexpr void for_each_field(F&& f) {
  VersionEnd end{std::size(Group::kExtents), std::size(Group::kTensors)};
  if constexpr (requires { Group::kVersions; }) end = Group::kVersions[0];
  f(Group::kStructSize, "u64");
  for (const auto& choice : Group::kChoices) f(choice.field, "i32");
  f(Group::kFlags, "u32");
  if constexpr (requires { Group::kReserved; }) f(Group::kReserved, "i32");
  for (std::size_t i = 0; i < end.extents; ++i) f(Group::kExtents[i].field, "i64");
  for (const auto& number : Group::kNumbers) f(number.field, "f64");
  for (std::size_t i = 0; i < end.tensors; ++i) f(Group::kTensors[i].field, "tensor");
  if constexpr (requires { Group::kWorkspace; }) {
    f(Group::kWorkspaceSize, "u64");
    f(Group::kWorkspace, "pointer");
  }
  f(Group::kStream, "pointer");
  if constexpr (requires { Group::kVersions; }) {
    for (const VersionEnd& next : Group::kVersions) {
      for (; end.extents < next.extents; ++end.extents) {
        f(Group::kExtents[end.extents].field, "i64");
      }
      for (; end.tensors < next.tensors; ++end.tensors) {
        f(Group::kTensors[end.tensors].field, "tensor");
      }
    }
  }
}

/// Whether the lists are the struct: each field begins where the one before it ends, and the last
/// ends with it.
template <class Group>
constexpr bool lists_are_complete() {
  std::size_t end = 0;
  bool complete = true;
  for_each_field<Group>(
      [&]<class T>(const Field<typename Group::Args, T>& field, const char* /*type*/) {
        complete = complete && field.offset == end;
        end += sizeof(T);
      });
  return complete && end == sizeof(typename Group::Args);
}

template <class Group>
void set_defaults(typename Group::Args& args) {
  args = {};
  args.struct_size = sizeof(args);
  for (const auto& choice : Group::kChoices) args.*choice.field.member = choice.initial;
  for (const auto& extent : Group::kExtents) args.*extent.field.member = extent.initial;
  for (const auto& number : Group::kNumbers) args.*number.field.member = number.initial;
}

}  // namespace goldenrule::gpu
