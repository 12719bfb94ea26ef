// SPDX-License-Identifier: Apache-2.0
//
// Programmatic dependent launch behind a kernel that lets the next one begin at once and writes
// what it reads late: all inputs, states and slots. A kernel that reads one of them before its
// wait, or does not wait, computes with what was there before.
#include <array>

#include "gpu/attention/args_fields.hpp"
#include "gpu/prefill/args_fields.hpp"
#include "gpu/recurrent/args_fields.hpp"
#include "tests/gpu/gpu_test.hpp"
#include "tests/gpu/judge.hpp"
#include "tests/gpu/producer.hpp"
#include "tools/gpu_run/record_call.hpp"

namespace goldenrule::test {
namespace {

using call::Record;
using call::TensorMap;

/// The bytes of a record's inputs in device memory, and where they are to be in that of a call of
/// the same shapes, whose tensors are dense.
class LateInputs {
 public:
  LateInputs(const Record& record, LiveCall& target) {
    if (call::is_attention(record.op)) {
      collect<gpu::attention::Group>(record, target.attention_args());
    } else if (record.mode == call::Mode::kPrefill) {
      collect<gpu::prefill::Group>(record, target.prefill_args());
    } else {
      collect<gpu::recurrent::Group>(record, target.args());
    }
    const std::size_t bytes = deliveries_.size() * sizeof(Delivery);
    list_ = gpu::allocate_device(bytes);
    gpu::check_cuda(cudaMemcpy(list_.get(), deliveries_.data(), bytes, cudaMemcpyDefault), "list");
  }
  void launch(cudaStream_t stream, bool dependent = false) const {
    launch_producer(static_cast<const Delivery*>(list_.get()), static_cast<int>(deliveries_.size()),
                    stream, dependent);
  }

 private:
  template <class Group>
  void collect(const Record& record, const typename Group::Args& args) {
    for (const auto& tensor : Group::kTensors) {
      const std::string name = gpu::record_name(record, tensor.field.name);
      const call::Tensor* input = record.find_input(name);
      if (input == nullptr) input = record.find_input("initial_" + name);  // a ring
      const goldenrule_gpu_tensor& to = args.*tensor.field.member;
      if (input == nullptr || to.data == nullptr) continue;
      memory_.push_back(gpu::allocate_device(input->bytes().size()));
      gpu::check_cuda(cudaMemcpy(memory_.back().get(), input->bytes().data(), input->bytes().size(),
                                 cudaMemcpyDefault),
                      tensor.field.name);
      deliveries_.push_back({to.data, memory_.back().get(), input->bytes().size()});
    }
  }

  std::vector<Delivery> deliveries_;
  std::vector<gpu::DeviceMemory> memory_;
  gpu::DeviceMemory list_;
};

/// The same case with other numbers.
Record other_numbers(const LiveCase& c) {
  LiveCase other = c;
  other.call.seed += 1000;
  return make_record(other);
}

/// Gives the slots, counts and lengths of a call what means that there is nothing to do: 0 for all,
/// but slots are pads.
void forget_integers(const Record& record, LiveCall& live) {
  for (const auto& [name, tensor] : record.inputs) {
    if (tensor.dtype() != call::DType::kI32 && tensor.dtype() != call::DType::kI64) continue;
    const bool slots = name.ends_with("state_indices");
    call::Tensor nothing = tensor;
    for (std::int64_t i = 0; i < nothing.size(); ++i) {
      nothing.set(i, slots ? static_cast<double>(record.convention.pad_slot) : 0.);
    }
    live.overwrite(name, nothing);
  }
}

constexpr auto kDecode =
    "op={gdn,kda} mode=mtp B=3 T=1 H=1 HV=2 K={128,60} V=64 state_layout={vk,kv} "
    "state={f32,bf16} slots=padded index=i32 keeps=0";
constexpr auto kMtp =
    "op={gdn,kda} mode=mtp B=3 T=3 H=1 HV=2 K={128,60} V=64 state_layout={vk,kv} "
    "state={f32,bf16} slots=scatter_padded keeps=0";
constexpr auto kAccepted =
    "op={gdn,kda} mode=mtp B=3 T=3 H=1 HV=2 K=128 V=64 slots=padded accepted=mixed";
constexpr auto kPrefill =
    "op={gdn,kda} mode=prefill lens=70,0,9 H=1 HV=2 K={128,60} V=64 state={f32,bf16} "
    "slots=separate_padded checkpoints={none,listed}";
constexpr auto kReplay =
    "op={gdn,kda} mode=mtp B=3 T=3 H=1 HV=2 K={128,60} V=64 state_layout={vk,kv} "
    "state={f32,bf16} slots=padded ring=io window=9";
constexpr auto kDrafts =
    "op={gdn,kda} mode=mtp lens=3,0,5 H=1 HV=2 K={128,60} V=64 state_layout={vk,kv} "
    "state={f32,bf16} slots=padded tree=mixed kept=buffer track=mixed";
constexpr std::array kLists = {kDecode, kMtp, kAccepted, kReplay, kDrafts, kPrefill};
// It changes nothing that a chain could go on with.
constexpr auto kAttention =
    "op=attention mode=decode lens=4,3 ctx=70,9 H=1 HV=2 K={64,37} V=64 splits=4 "
    "table={permuted,csr} valid=mixed";

TEST_CASE("dependent launch: what the kernel in front writes late is what is read") {
  REQUIRE_GPU();
  const gpu::Stream stream = gpu::make_stream();
  std::vector<const char*> lists(kLists.begin(), kLists.end());
  lists.push_back(kAttention);
  for (const char* line : lists) {
    for_each_case(line, [&](const LiveCase& c, const Record& record) {
      const TensorMap expected = outputs_of(record, c.placement);
      Placement placement = c.placement;
      placement.dependent = 1;
      const Record before = other_numbers(c);
      CHECK(difference(expected, outputs_of(before, c.placement)) != "");
      LiveCall live(before, placement);
      forget_integers(record, live);
      const LateInputs late(record, live);
      late.launch(stream.get());
      live.launch(stream.get());
      live.synchronize();
      CHECK(difference(expected, live.outputs()) == "");
    });
  }
}

// Each call reads the states that the one in front of it leaves in the same pool.
TEST_CASE("dependent launch: a chain on one pool, launched and captured") {
  REQUIRE_GPU();
  const gpu::Stream stream = gpu::make_stream();
  for (const char* line : kLists) {
    for_each_case(line, [&](const LiveCase& c, const Record& record) {
      if (c.call.slots == cases::SlotPattern::kSeparatePadded) return;  // not in place
      Placement placement = c.placement;
      LiveCall plain(record, placement);
      placement.dependent = 1;
      LiveCall chained(record, placement), captured(record, placement);
      for (int i = 0; i < 3; ++i) {
        plain.launch(stream.get());
        plain.synchronize();
        chained.launch(stream.get());
      }
      chained.synchronize();
      CHECK(difference(plain.outputs(), chained.outputs()) == "");
      const gpu::GraphExec graph = gpu::capture(stream.get(), [&](cudaStream_t s) {
        for (int i = 0; i < 3; ++i) captured.launch(s);
      });
      gpu::check_cuda(cudaGraphLaunch(graph.get(), stream.get()), "graph");
      captured.synchronize();
      CHECK(difference(plain.outputs(), captured.outputs()) == "");
    });
  }
}

}  // namespace
}  // namespace goldenrule::test
