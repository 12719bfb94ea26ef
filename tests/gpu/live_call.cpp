// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/live_call.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace goldenrule::test {

LiveCall::LiveCall(const Scenario& scenario, Memory memory) : s_(scenario), memory_(memory) {
  const Case& c = s_.c;
  goldenrule_gpu_recurrent_args& a = args_;
  goldenrule_gpu_recurrent_defaults(&a);
  a.op = c.kda ? GOLDENRULE_GPU_KDA : GOLDENRULE_GPU_GATED_DELTA_RULE;
  a.state_layout = static_cast<std::int32_t>(c.layout);
  a.gate_kind = static_cast<std::int32_t>(c.gate);
  a.beta_kind = static_cast<std::int32_t>(c.beta);
  a.qk_norm = static_cast<std::int32_t>(c.norm);
  a.head_map = static_cast<std::int32_t>(c.head_map);
  a.gate_head = static_cast<std::int32_t>(c.gate_head);
  a.disable_state_update = c.disable_update ? 1 : 0;
  a.flags = c.dependent ? GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH : 0;
  a.B = c.B;
  a.T = c.T;
  a.H = c.H;
  a.HV = c.HV;
  a.K = c.K;
  a.V = c.V;
  a.slots = s_.pool;
  a.intermediate_rows = c.T + c.extra_rows;
  a.pad_slot = c.pad_slot;
  a.scale = s_.scale;
  a.l2_eps = c.l2_eps;
  a.q = place(s_.q, "q");
  a.k = place(s_.k, "k");
  a.v = place(s_.v, "v");
  a.gate = place(s_.gate, "gate");
  a.A_log = place(s_.A_log, "A_log");
  a.dt_bias = place(s_.dt_bias, "dt_bias");
  a.beta = place(s_.beta, "beta");
  a.o = place(s_.o, "o");
  a.state = place(s_.state, "state");
  a.final_state = place(s_.final_state, "final_state");
  a.intermediate_states = place(s_.intermediates, "intermediate_states");
  a.state_indices = place(s_.state_indices, "state_indices");
  a.output_state_indices = place(s_.output_state_indices, "output_state_indices");
  a.ssm_state_indices = place(s_.ssm_state_indices, "ssm_state_indices");
  a.num_accepted_tokens = place(s_.num_accepted, "num_accepted_tokens");
  a.accepted_tokens = place(s_.accepted, "accepted_tokens");
}

goldenrule_gpu_tensor LiveCall::place(const HostTensor& tensor, const char* name) {
  if (!tensor.present()) return {};
  const std::size_t shift = static_cast<std::size_t>(s_.c.shift) * call::info(tensor.dtype()).bytes;
  auto buffer = std::make_unique<GuardedBuffer>(
      name, tensor.bytes().size(), s_.poison * 1000 + 100 + slots_.size(), shift, memory_);
  const bool only_written = is_output(&tensor) && &tensor != &s_.state;
  if (memory_ == Memory::kGuarded || !only_written) buffer->upload(tensor.bytes());
  goldenrule_gpu_tensor t{.data = buffer->data(),
                          .stride = {},
                          .dtype = static_cast<std::int32_t>(tensor.dtype()),
                          .reserved = 0};
  // Also the stride of a contiguous last axis, where the interface has an entry for none: ignored.
  for (std::size_t i = 0; i < std::min<std::size_t>(4, tensor.strides().size()); ++i) {
    t.stride[i] = tensor.strides()[i];
  }
  slots_.push_back({&tensor, std::move(buffer)});
  return t;
}

const GuardedBuffer* LiveCall::find(const HostTensor& tensor) const {
  const auto it = std::ranges::find(slots_, &tensor, &Slot::host);
  return it == slots_.end() ? nullptr : it->buffer.get();
}

void LiveCall::launch(cudaStream_t stream, Kernel kernel) {
  args_.stream = stream;
  char message[256];
  const goldenrule_gpu_status status = kernel(&args_, message, sizeof message);
  if (status != GOLDENRULE_GPU_OK) {
    throw Error(ErrorKind::kArgument, "goldenrule_gpu_recurrent", "ok",
                std::string(goldenrule_gpu_status_name(status)) + ": " + message);
  }
}

void LiveCall::synchronize() const { gpu::check_cuda(cudaDeviceSynchronize(), "kernel"); }

Outputs LiveCall::outputs() const {
  const auto bytes = [&](const HostTensor& tensor) {
    const GuardedBuffer* buffer = find(tensor);
    return buffer == nullptr ? Bytes{} : buffer->download();
  };
  return {bytes(s_.o), bytes(final_tensor()), bytes(s_.intermediates)};
}

void LiveCall::reset(const Scenario& scenario) {
  s_ = scenario;
  for (Slot& slot : slots_) slot.buffer->upload(slot.host->bytes());
}

std::string LiveCall::stray_write(const Expected& expected) const {
  for (const Slot& slot : slots_) {
    if (std::string complaint = slot.buffer->violation(); !complaint.empty()) return complaint;
    const HostTensor& tensor = *slot.host;
    Bytes now = slot.buffer->download();
    if (is_output(&tensor)) {
      const ExpectedTensor& e = &tensor == &s_.o               ? expected.o
                                : &tensor == &s_.intermediates ? expected.intermediates
                                                               : expected.final_state;
      for (std::size_t i = 0; i < e.written.size(); ++i) {
        if (e.written[i] == 0) continue;
        const std::size_t at = tensor.offset(static_cast<std::int64_t>(i));
        std::copy_n(&tensor.bytes()[at], call::info(tensor.dtype()).bytes, &now[at]);
      }
    }
    const char* what = is_output(&tensor) ? " (unwritten)" : " (input)";
    std::string complaint = first_difference(slot.buffer->name() + what, tensor.bytes(), now);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

std::string LiveCall::wrong_value(const Expected& expected) const {
  worst_ = 0;
  for (const auto& [tensor, e] :
       {std::pair{&s_.o, &expected.o}, std::pair{&final_tensor(), &expected.final_state},
        std::pair{&s_.intermediates, &expected.intermediates}}) {
    if (!tensor->present()) continue;
    const GuardedBuffer& buffer = *find(*tensor);
    const Bytes now = buffer.download();
    for (std::size_t i = 0; i < e->value.size(); ++i) {
      if (e->written[i] == 0) continue;
      const double y =
          call::decode(tensor->dtype(), &now[tensor->offset(static_cast<std::int64_t>(i))]);
      const double error = std::abs(y - e->value[i]);
      if (!(error <= e->tolerance[i])) {
        char text[200];
        std::snprintf(text, sizeof text, ": element %zu: expected %.9g within %.3g, actual %.9g", i,
                      e->value[i], e->tolerance[i], y);
        return buffer.name() + text;
      }
      if (e->tolerance[i] > 0) worst_ = std::max(worst_, error / e->tolerance[i]);
    }
  }
  return "";
}

std::string LiveCall::judge(const Expected& expected) const {
  std::string complaint = stray_write(expected);
  return complaint.empty() ? wrong_value(expected) : complaint;
}

std::string run_case(const Case& c) {
  try {
    const Scenario scenario(c);
    LiveCall live(scenario);
    live.launch();
    live.synchronize();
    const std::string complaint = live.judge(expect(scenario));
    return complaint.empty() ? "" : c.name() + ": " + complaint;
  } catch (const Error& e) {
    return c.name() + ": " + e.what();
  }
}

Outputs outputs_of(const Case& c, std::uint64_t poison_seed) {
  LiveCall live(Scenario(c, poison_seed));
  live.launch();
  live.synchronize();
  return live.outputs();
}

}  // namespace goldenrule::test
