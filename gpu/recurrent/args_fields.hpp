// SPDX-License-Identifier: Apache-2.0
//
// The fields of goldenrule_gpu_recurrent_args as data, in the order of the struct: names, types,
// defaults, ranges, axes. Defaults, checks, callers by name (tools/gpu_run) and the description
// that the library gives to callers without a C compiler follow from these lists; a field of the
// struct that stands in none of them does not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "gpu/goldenrule_gpu.h"
#include "gpu/launch/check_tensor.hpp"

namespace goldenrule::gpu::recurrent {

using Args = goldenrule_gpu_recurrent_args;
using Tensor = goldenrule_gpu_tensor;

inline constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
inline constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();
inline constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();

template <class T>
struct Field {
  const char* name;
  T Args::*member;
  std::size_t offset;
};
#define FIELD(member) \
  { #member, &Args::member, offsetof(Args, member) }

/// An enum or a switch: 0 to count - 1.
struct Choice {
  Field<std::int32_t> field;
  std::int32_t count;
  std::int32_t initial = 0;
};
inline constexpr Choice kChoices[] = {
    {FIELD(op), 2},
    {FIELD(state_layout), 2},
    {FIELD(gate_kind), 6},
    {FIELD(beta_kind), 3},
    {FIELD(qk_norm), 4, GOLDENRULE_GPU_NORM_RSQRT_SUM_EPS},
    {FIELD(head_map), 2},
    {FIELD(gate_head), 2},
    {FIELD(disable_state_update), 2},
};

struct Extent {
  Field<std::int64_t> field;
  std::int64_t low, high;
  std::int64_t initial = 0;
};
inline constexpr Extent kExtents[] = {
    {FIELD(B), 0, kInt32Max},
    {FIELD(T), 0, GOLDENRULE_GPU_MAX_T},
    {FIELD(H), 1, 1 << 20},
    {FIELD(HV), 1, 1 << 20},
    {FIELD(K), 1, GOLDENRULE_GPU_MAX_K},
    {FIELD(V), 1, 1 << 24},
    {FIELD(slots), 0, kInt32Max},
    {FIELD(intermediate_rows), kInt64Min, kInt64Max},
    {FIELD(pad_slot), kInt64Min, kInt64Max, -1},
};

/// A finite number; `gate`: checked only for this gate_kind, -1 for every one.
struct Number {
  enum class Sign { kAny, kNotNegative, kPositive };
  Field<double> field;
  double initial;
  Sign sign = Sign::kAny;
  std::int32_t gate = -1;
};
inline constexpr Number kNumbers[] = {
    {FIELD(scale), 1.0},
    {FIELD(l2_eps), 1e-6, Number::Sign::kNotNegative},
    {FIELD(softplus_beta), 1.0, Number::Sign::kPositive, GOLDENRULE_GPU_GATE_SOFTPLUS},
    {FIELD(softplus_threshold), 20.0, Number::Sign::kAny, GOLDENRULE_GPU_GATE_SOFTPLUS},
    {FIELD(lower_bound), -5.0, Number::Sign::kAny, GOLDENRULE_GPU_GATE_BOUNDED},
};

/// Axes by the extents they have. kGateHead: H or HV, see gate_head; kChannel: K, and no axis at
/// all with one gate per head; kOuter, kInner: V, K or K, V by the layout of the state; kStep: the
/// rows of intermediate_states.
enum class Axis : std::uint8_t {
  kEnd,
  kRow,
  kToken,
  kStep,
  kSlot,
  kQkHead,
  kValueHead,
  kGateHead,
  kKey,
  kChannel,
  kValue,
  kOuter,
  kInner
};
/// Which calls are given a tensor.
enum class Presence : std::uint8_t {
  kAlways,
  kOptional,
  kGate,         ///< required but for gate_kind NONE, where it is forbidden
  kRate,         ///< required for SOFTPLUS, optional for BOUNDED, else forbidden
  kBias,         ///< optional for SOFTPLUS and BOUNDED, else forbidden
  kOwnSlots,     ///< optional, forbidden beside ssm_state_indices
  kScatterOnly,  ///< required beside ssm_state_indices, else forbidden
};
struct TensorField {
  Field<Tensor> field;
  Types types;
  Use use;  ///< kWritten also where only some calls write it (state)
  Presence presence;
  int strided;  ///< axes with an entry in `stride`
  Axis axes[6];
};
using enum Axis;
using enum Presence;
using enum Types;
using enum Use;
inline constexpr TensorField kTensors[] = {
    {FIELD(q), kFloat, kRead, kAlways, 3, {kRow, kToken, kQkHead, kKey}},
    {FIELD(k), kFloat, kRead, kAlways, 3, {kRow, kToken, kQkHead, kKey}},
    {FIELD(v), kFloat, kRead, kAlways, 3, {kRow, kToken, kValueHead, kValue}},
    {FIELD(gate), kFloat, kRead, kGate, 3, {kRow, kToken, kValueHead, kChannel}},
    {FIELD(A_log), kFloat, kRead, kRate, 1, {kGateHead}},
    {FIELD(dt_bias), kFloat, kRead, kBias, 1, {kGateHead, kChannel}},
    {FIELD(beta), kFloat, kRead, kAlways, 3, {kRow, kToken, kValueHead}},
    {FIELD(o), kFloat, kWritten, kAlways, 3, {kRow, kToken, kValueHead, kValue}},
    {FIELD(state), kState, kWritten, kAlways, 3, {kSlot, kValueHead, kOuter, kInner}},
    {FIELD(final_state), kState, kWritten, kOptional, 3, {kSlot, kValueHead, kOuter, kInner}},
    {FIELD(intermediate_states),
     kState,
     kWritten,
     kOptional,
     4,
     {kRow, kStep, kValueHead, kOuter, kInner}},
    {FIELD(state_indices), kIndex, kRead, kOwnSlots, 1, {kRow}},
    {FIELD(output_state_indices), kIndex, kRead, kOwnSlots, 1, {kRow}},
    {FIELD(ssm_state_indices), kIndex, kRead, kOptional, 2, {kRow, kToken}},
    {FIELD(num_accepted_tokens), kIndex, kRead, kScatterOnly, 1, {kRow}},
    {FIELD(accepted_tokens), kIndex, kRead, kOwnSlots, 1, {kRow}},
};

inline constexpr Field<std::uint64_t> kStructSize = FIELD(struct_size);
inline constexpr Field<std::uint32_t> kFlags = FIELD(flags);
inline constexpr Field<std::int32_t> kReserved = FIELD(reserved);
inline constexpr Field<void*> kStream = FIELD(stream);
#undef FIELD

/// Calls f(field, type) for every field in the order of the struct; the names of the types are
/// those of goldenrule_gpu_recurrent_fields.
template <class F>
constexpr void for_each_field(F&& f) {
  f(kStructSize, "u64");
  for (const Choice& choice : kChoices) f(choice.field, "i32");
  f(kFlags, "u32");
  f(kReserved, "i32");
  for (const Extent& extent : kExtents) f(extent.field, "i64");
  for (const Number& number : kNumbers) f(number.field, "f64");
  for (const TensorField& tensor : kTensors) f(tensor.field, "tensor");
  f(kStream, "pointer");
}

/// Whether the lists are the struct: each field begins where the one before it ends, and the last
/// ends with it.
constexpr bool lists_are_complete() {
  std::size_t end = 0;
  bool complete = true;
  for_each_field([&]<class T>(const Field<T>& field, const char* /*type*/) {
    complete = complete && field.offset == end;
    end += sizeof(T);
  });
  return complete && end == sizeof(Args);
}
static_assert(lists_are_complete(), "every field of goldenrule_gpu_recurrent_args is in a list");

}  // namespace goldenrule::gpu::recurrent
