// SPDX-License-Identifier: Apache-2.0
#include "gpu/recurrent/check_tensors.hpp"

#include <algorithm>
#include <string>

namespace goldenrule::gpu::recurrent {
namespace {

/// The extent of an axis; -1: the tensor of this call has no such axis.
std::int64_t extent_of(const Args& a, Axis axis) {
  const bool vk = a.state_layout == GOLDENRULE_GPU_STATE_VK;
  switch (axis) {
    case kRow:
      return a.B;
    case kToken:
      return a.T;
    case kQkHead:
      return a.H;
    case kValueHead:
      return a.HV;
    case kGateHead:
      return a.gate_head == GOLDENRULE_GPU_GATE_HEAD_QK ? a.H : a.HV;
    case kKey:
      return a.K;
    case kChannel:
      return a.op == GOLDENRULE_GPU_KDA ? a.K : -1;
    case kValue:
      return a.V;
    case kSlot:
      return a.slots;
    case kStep:
      return a.intermediate_rows;
    case kOuter:
      return vk ? a.V : a.K;
    case kInner:
      return vk ? a.K : a.V;
    case kEnd:
      break;
  }
  return -1;
}

struct NeedAndWhy {
  Need need;
  std::string why;
};

NeedAndWhy need_of(const Args& a, Presence presence) {
  const bool softplus = a.gate_kind == GOLDENRULE_GPU_GATE_SOFTPLUS;
  const bool raw = softplus || a.gate_kind == GOLDENRULE_GPU_GATE_BOUNDED;
  const bool scatter = a.ssm_state_indices.data != nullptr;
  const std::string kind = " (gate_kind " + std::to_string(a.gate_kind) + ")";
  switch (presence) {
    case Presence::kAlways:
      break;
    case Presence::kOptional:
      return {Need::kOptional, ""};
    case Presence::kGate:
      return {a.gate_kind == GOLDENRULE_GPU_GATE_NONE ? Need::kForbidden : Need::kRequired, kind};
    case Presence::kRate:
      return {softplus ? Need::kRequired : raw ? Need::kOptional : Need::kForbidden, kind};
    case Presence::kBias:
      return {raw ? Need::kOptional : Need::kForbidden, kind};
    case Presence::kOwnSlots:
      return {scatter ? Need::kForbidden : Need::kOptional,
              " (ssm_state_indices already names every slot)"};
    case Presence::kScatterOnly:
      return {scatter ? Need::kRequired : Need::kForbidden,
              scatter ? " (beside ssm_state_indices)" : " (no ssm_state_indices)"};
  }
  return {Need::kRequired, ""};
}

Strides check_field(const Args& a, const TensorField& tensor, Problem& problem) {
  const Tensor& given = a.*tensor.field.member;
  const std::string name = tensor.field.name;
  std::array<std::int64_t, 6> extents{};
  std::size_t axes = 0;
  for (const Axis axis : tensor.axes) {
    if (const std::int64_t extent = extent_of(a, axis); extent >= 0) extents[axes++] = extent;
  }
  // The pool is written only where no other takes what is written.
  const bool read_only = tensor.field.member == &Args::state && a.final_state.data != nullptr;
  const NeedAndWhy presence = need_of(a, tensor.presence);
  const TensorRule rule{.name = tensor.field.name,
                        .need = presence.need,
                        .use = read_only ? Use::kRead : tensor.use,
                        .types = tensor.types,
                        .extents = {extents.data(), axes},
                        .strided = tensor.strided};
  const Strides strides = check_tensor(given, rule, presence.why, problem);
  // A row of state may be long, but is stepped over in 32 bits.
  const bool state = tensor.types == Types::kState;
  const std::int64_t most = kInt32Max / std::max(1, dtype_size(given.dtype));
  for (int i = 0; i < tensor.strided; ++i) {
    const std::int64_t stride = strides[static_cast<std::size_t>(i)];
    if (!state && stride > most) {
      problem.report(GOLDENRULE_GPU_UNSUPPORTED, name + ".stride[" + std::to_string(i) + "]",
                     "at most " + std::to_string(most), std::to_string(stride));
    }
    if (state && i == tensor.strided - 1 && stride > kInt32Max) {
      problem.report(GOLDENRULE_GPU_UNSUPPORTED, name + " stride of a row of state",
                     "at most " + std::to_string(kInt32Max), std::to_string(stride));
    }
  }
  const bool list = tensor.types == Types::kIndex && tensor.strided == 1;
  if (list && given.data != nullptr && a.B > 1 && strides[0] != 1) {
    problem.report(GOLDENRULE_GPU_UNSUPPORTED, name + ".stride[0]", "1",
                   std::to_string(strides[0]));
  }
  return strides;
}

void same_dtype(const Args& a, Tensor Args::*member, const char* name, Problem& problem) {
  const Tensor& tensor = a.*member;
  if (tensor.data != nullptr && tensor.dtype != a.state.dtype) {
    problem.invalid(std::string(name) + ".dtype", "that of state, " + std::to_string(a.state.dtype),
                    tensor.dtype);
  }
}

}  // namespace

Problem check_tensors(const Args& a, TensorStrides& strides) {
  Problem problem;
  for (const TensorField& tensor : kTensors) {
    strides[tensor.field.member] = check_field(a, tensor, problem);
  }
  if (a.q.data != nullptr && a.k.data != nullptr && a.k.dtype != a.q.dtype) {
    problem.report(GOLDENRULE_GPU_UNSUPPORTED, "k.dtype", "that of q, " + std::to_string(a.q.dtype),
                   std::to_string(a.k.dtype));
  }
  same_dtype(a, &Args::final_state, "final_state", problem);
  same_dtype(a, &Args::intermediate_states, "intermediate_states", problem);
  if (a.final_state.data != nullptr && a.final_state.data == a.state.data &&
      strides[&Args::final_state] != strides[&Args::state]) {
    problem.invalid("final_state.stride", "the strides of state (same memory)", "others");
  }
  if (a.ssm_state_indices.data != nullptr && a.T == 0) {
    problem.invalid("T", "1 or more (ssm_state_indices)", a.T);
  }
  return problem;
}

}  // namespace goldenrule::gpu::recurrent
