// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_run/record_call.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "gpu/delta/prefill/args_fields.hpp"
#include "gpu/delta/prefill/variants.hpp"
#include "gpu/delta/recurrent/args_fields.hpp"
#include "gpu/launch/pack_call.hpp"
#include "tools/gpu_run/attention_call.hpp"
#include "tools/gpu_run/numbering.hpp"

namespace goldenrule::gpu {
namespace {

static_assert(same(call::DType::kF32, GOLDENRULE_GPU_F32) &&
              same(call::DType::kF16, GOLDENRULE_GPU_F16) &&
              same(call::DType::kBF16, GOLDENRULE_GPU_BF16) &&
              same(call::DType::kI64, GOLDENRULE_GPU_I64) &&
              same(call::DType::kI32, GOLDENRULE_GPU_I32));
static_assert(same(call::Op::kGatedDeltaRule, GOLDENRULE_GPU_GATED_DELTA_RULE) &&
              same(call::Op::kKda, GOLDENRULE_GPU_KDA));
static_assert(same(call::StateLayout::kVK, GOLDENRULE_GPU_STATE_VK) &&
              same(call::StateLayout::kKV, GOLDENRULE_GPU_STATE_KV));
static_assert(same(call::Gate::kSoftplus, GOLDENRULE_GPU_GATE_SOFTPLUS) &&
              same(call::Gate::kBounded, GOLDENRULE_GPU_GATE_BOUNDED) &&
              same(call::Gate::kLog, GOLDENRULE_GPU_GATE_LOG) &&
              same(call::Gate::kLog2, GOLDENRULE_GPU_GATE_LOG2) &&
              same(call::Gate::kLinear, GOLDENRULE_GPU_GATE_LINEAR) &&
              same(call::Gate::kNone, GOLDENRULE_GPU_GATE_NONE));
static_assert(same(call::BetaForm::kSigmoid, GOLDENRULE_GPU_BETA_SIGMOID) &&
              same(call::BetaForm::kSigmoid2, GOLDENRULE_GPU_BETA_SIGMOID2) &&
              same(call::BetaForm::kDirect, GOLDENRULE_GPU_BETA_DIRECT));
static_assert(same(call::QkNorm::kNone, GOLDENRULE_GPU_NORM_NONE) &&
              same(call::QkNorm::kRsqrtSumEps, GOLDENRULE_GPU_NORM_RSQRT_SUM_EPS) &&
              same(call::QkNorm::kMaxNormEps, GOLDENRULE_GPU_NORM_MAX_NORM_EPS) &&
              same(call::QkNorm::kNormPlusEps, GOLDENRULE_GPU_NORM_NORM_PLUS_EPS));
static_assert(same(call::HeadMap::kGrouped, GOLDENRULE_GPU_HEADS_GROUPED) &&
              same(call::HeadMap::kTiled, GOLDENRULE_GPU_HEADS_TILED));
static_assert(same(call::GateHead::kV, GOLDENRULE_GPU_GATE_HEAD_V) &&
              same(call::GateHead::kQK, GOLDENRULE_GPU_GATE_HEAD_QK));

template <class Args>
void set_conventions(const call::Record& record, const call::Dims& d, Args& a) {
  const call::Convention& c = record.convention;
  a.op = static_cast<std::int32_t>(record.op);
  a.state_layout = static_cast<std::int32_t>(c.state_layout);
  a.gate_kind = static_cast<std::int32_t>(c.gate);
  a.beta_kind = static_cast<std::int32_t>(c.beta);
  a.qk_norm = static_cast<std::int32_t>(c.qk_l2norm);
  a.head_map = static_cast<std::int32_t>(c.head_map);
  a.gate_head = static_cast<std::int32_t>(c.gate_head);
  a.disable_state_update = static_cast<std::int32_t>(c.disable_state_update);
  a.H = d.H;
  a.HV = d.HV;
  a.K = d.K;
  a.V = d.V;
  a.slots = d.slots;
  a.pad_slot = c.pad_slot;
  a.scale = call::resolved_scale(c, d.K);
  a.l2_eps = c.l2_eps;
  a.softplus_beta = c.softplus_beta;
  a.softplus_threshold = c.softplus_threshold;
  a.lower_bound = c.lower_bound;
}

template <class Group>
void place_tensors(const call::Record& record, const Place& place, typename Group::Args& a) {
  for (const auto& tensor : Group::kTensors) {
    const std::string name = record_name(record, tensor.field.name);
    for (const call::TensorMap* from : {&record.inputs, &record.outputs}) {
      const auto it = from->find(name);
      if (it == from->end()) continue;
      goldenrule_gpu_tensor& to = a.*tensor.field.member;
      to = place(name, it->second);
      std::copy_backward(std::begin(to.stride), std::end(to.stride) - added_axes(record, name),
                         std::end(to.stride));
      to.dtype = static_cast<std::int32_t>(it->second.dtype());
    }
  }
}

// What the kernels have no argument for.
void refuse_new_rows(const call::Record& record) {
  if (record.find_input("has_initial_state") == nullptr) return;
  throw Error(ErrorKind::kSchema, "/inputs/has_initial_state",
              "no dataset: the kernels start every row from its slot (a caller clears the slots of "
              "new requests)",
              "a dataset");
}

// Of a row: as many as there are slots for where each token has one.
std::int64_t most_tokens(const call::Record& record, const call::Dims& d) {
  if (!call::is_packed(record)) return d.T;
  if (record.inputs.contains("ssm_state_indices")) return d.steps;
  const std::vector<std::int64_t> bounds = call::token_bounds(record, d);
  std::int64_t most = 0;
  for (std::size_t n = 1; n < bounds.size(); ++n) most = std::max(most, bounds[n] - bounds[n - 1]);
  return most;
}

}  // namespace

std::string record_name(const call::Record& record, std::string_view tensor) {
  const call::Convention& c = record.convention;
  const bool logits = call::has_logit_gate(c);
  if (tensor == "gate") return c.gate == call::Gate::kNone ? "" : logits ? "a" : "g";
  if (tensor == "beta") return c.beta == call::BetaForm::kDirect ? "beta" : "b";
  if (tensor == "state") return "initial_state";
  const bool unused = (!logits && (tensor == "A_log" || tensor == "dt_bias")) ||
                      (tensor == "num_accepted_tokens" &&
                       record.inputs.find("ssm_state_indices") == record.inputs.end());
  return unused ? "" : std::string(tensor);
}

int added_axes(const call::Record& record, std::string_view name) {
  if (record.mode != call::Mode::kMtp || !call::is_packed(record)) return 0;
  for (const auto& tensor : recurrent::kTensors) {
    const Axis first = tensor.axes[0];
    if (record_name(record, tensor.field.name) != name) continue;
    return first == Axis::kTokenRow || (first == Axis::kKeptRow && !call::has_kept_buffer(record))
               ? 1
               : 0;
  }
  return 0;
}

std::string name_before(std::string_view output) {
  std::string name("initial_");
  name.append(output);
  return name;
}

bool holds_before(const call::Record& record, std::string_view output) {
  return record.inputs.contains(name_before(output));
}

call::TensorMap make_outputs(const call::Record& record, Update update) {
  if (record.op == call::Op::kAttention) return make_attention_outputs(record);
  if (!call::operation(record.op).has_states) {
    throw Error(ErrorKind::kValue, "/@op", "an operation that the kernels compute",
                std::string(call::name_of(record.op)));
  }
  const call::Dims d = call::validate(record);
  const call::Tensor* start = record.find_input("initial_state");
  const call::DType dtype = start != nullptr ? start->dtype() : call::DType::kF32;
  const auto output = [&](const char* name, call::DType type) {
    return call::Tensor(type, call::output_shape(record, d, name));
  };
  call::TensorMap outputs;
  outputs["o"] = output("o", record.inputs.at("v").dtype());
  if (start == nullptr) {
    outputs["final_state"] = output("final_state", dtype);
  } else if (update == Update::kSeparate) {
    outputs["final_state"] = *start;
  }
  for (const char* name : {"ring_d", "ring_k", "ring_g", "intermediate_states"}) {
    if (holds_before(record, name)) outputs[name] = record.inputs.at(name_before(name));
  }
  if (record.mode == call::Mode::kMtp && !call::has_ring(record) &&
      !call::has_kept_buffer(record)) {
    outputs["intermediate_states"] = output("intermediate_states", dtype);
  }
  if (record.inputs.contains("checkpoint_offsets")) {
    outputs["checkpoints"] = output("checkpoints", dtype);
  }
  return outputs;
}

goldenrule_gpu_recurrent_args make_args(const call::Record& record, const Place& place) {
  if (record.mode == call::Mode::kPrefill) {
    throw Error(ErrorKind::kValue, "mode", "decode or mtp",
                std::string(call::name_of(record.mode)));
  }
  refuse_new_rows(record);
  goldenrule_gpu_recurrent_args a;
  goldenrule_gpu_recurrent_defaults(&a, sizeof a);
  const call::Dims d = call::validate(record);
  set_conventions(record, d, a);
  a.B = d.rows;
  a.T = most_tokens(record, d);
  a.tokens = call::is_packed(record) ? d.tokens : 0;
  a.intermediate_slots = d.kept_rows;
  a.intermediate_rows = call::has_kept_buffer(record) ? d.kept_steps
                        : call::is_packed(record)     ? d.tokens
                                                      : d.T;
  a.rings = d.rings;
  a.ring_places = d.ring_places;
  place_tensors<recurrent::Group>(record, place, a);
  return a;
}

goldenrule_gpu_prefill_args make_prefill_args(const call::Record& record, const Place& place) {
  if (record.mode != call::Mode::kPrefill) {
    throw Error(ErrorKind::kValue, "mode", "prefill", std::string(call::name_of(record.mode)));
  }
  refuse_new_rows(record);
  goldenrule_gpu_prefill_args a;
  goldenrule_gpu_prefill_defaults(&a, sizeof a);
  const call::Dims d = call::validate(record);
  set_conventions(record, d, a);
  a.total = d.tokens;
  a.N = d.rows;
  if (const call::Tensor* offsets = record.find_input("checkpoint_offsets")) {
    a.checkpoint_rows = offsets->size();
  }
  place_tensors<prefill::Group>(record, place, a);
  return a;
}

const char* contract_of(const call::Record& record) {
  if (record.op == call::Op::kAttention) return kAttentionContract;
  const call::Tensor* start = record.find_input("initial_state");
  const bool narrow = start != nullptr && start->dtype() == call::DType::kBF16;
  return narrow ? "recurrent_bf16_state" : "recurrent_f32";
}

const char* contract_of(const call::Record& record, const goldenrule_gpu_prefill_args& args) {
  CheckedCall<prefill::Group> call;
  // Without a device: as if none had tuned kernels.
  if (check_call(&args, call).ok()) static_cast<void>(prefill::kernels().prepare(call.device));
  const prefill::Variant& variant = prefill::select(call.params, call.device);
  const bool cuts = variant.may_cut != nullptr && variant.may_cut(call.params);
  const prefill::Contracts& contracts = cuts ? variant.contracts_of_segments : variant.contracts;
  const char* contract = call.params.bf16_state != 0 ? contracts.bf16_state : contracts.f32_state;
  return contract != nullptr ? contract : contract_of(record);
}

}  // namespace goldenrule::gpu
