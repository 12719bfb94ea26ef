// SPDX-License-Identifier: Apache-2.0
//
// Programmatic dependent launch behind a kernel that lets the next one begin at once and writes
// what it reads late: all inputs, states and slots. A kernel that reads one of them before its
// wait, or does not wait, computes with what was there before. Where states and slots are vouched
// for (GOLDENRULE_GPU_FLAG_STATE_READY) decode reads them before its wait, and nothing else.
#include <algorithm>
#include <array>
#include <string_view>

#include "gpu/attention/args_fields.hpp"
#include "gpu/delta/prefill/args_fields.hpp"
#include "gpu/delta/recurrent/args_fields.hpp"
#include "tests/gpu/gpu_test.hpp"
#include "tests/gpu/judge.hpp"
#include "tests/gpu/producer.hpp"
#include "tools/gpu_run/record_call.hpp"

namespace goldenrule::test {
namespace {

using call::Record;
using call::TensorMap;

/// Whether the kernel in front writes the input of this name late.
using IsLate = bool (*)(std::string_view name);
bool all_are_late(std::string_view /*name*/) { return true; }
bool state_is_late(std::string_view name) { return name == "initial_state"; }
bool slot_is_late(std::string_view name) { return name == "state_indices"; }
bool token_is_late(std::string_view name) { return !state_is_late(name) && !slot_is_late(name); }

gpu::DeviceMemory on_device(const void* data, std::size_t bytes) {
  gpu::DeviceMemory memory = gpu::allocate_device(bytes);
  gpu::check_cuda(cudaMemcpy(memory.get(), data, bytes, cudaMemcpyDefault), "to the device");
  return memory;
}
gpu::DeviceMemory on_device(const std::vector<Delivery>& list) {
  return on_device(list.data(), list.size() * sizeof(Delivery));
}

/// The bytes of those of a record's inputs that are late in device memory, and where they are to be
/// in that of a call of the same shapes, whose tensors are dense. The others are put there at once.
class LateInputs {
 public:
  LateInputs(const Record& record, LiveCall& target, IsLate is_late) : is_late_(is_late) {
    if (record.op == call::Op::kAttention) {
      collect<gpu::attention::Group>(record, target.attention_args());
    } else if (record.mode == call::Mode::kPrefill) {
      collect<gpu::prefill::Group>(record, target.prefill_args());
    } else {
      collect<gpu::recurrent::Group>(record, target.args());
    }
    list_ = on_device(deliveries_);
  }
  void launch(cudaStream_t stream) const {
    launch_producer(static_cast<const Delivery*>(list_.get()), static_cast<int>(deliveries_.size()),
                    stream);
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
      const std::size_t bytes = input->bytes().size();
      if (!is_late_(name)) {
        gpu::check_cuda(cudaMemcpy(to.data, input->bytes().data(), bytes, cudaMemcpyDefault),
                        tensor.field.name);
        continue;
      }
      memory_.push_back(on_device(input->bytes().data(), bytes));
      deliveries_.push_back({to.data, memory_.back().get(), bytes});
    }
  }

  IsLate is_late_;
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

/// Gives the late slots, counts and lengths of a call what means that there is nothing to do: 0 for
/// all, but slots are pads.
void forget_integers(const Record& record, LiveCall& live, IsLate is_late) {
  for (const auto& [name, tensor] : record.inputs) {
    if (!is_late(name)) continue;
    if (tensor.dtype() != call::DType::kI32 && tensor.dtype() != call::DType::kI64) continue;
    const bool slots = name.ends_with("state_indices");
    call::Tensor nothing = tensor;
    for (std::int64_t i = 0; i < nothing.size(); ++i) {
      nothing.set(i, slots ? static_cast<double>(record.convention.pad_slot) : 0.);
    }
    live.overwrite(name, nothing);
  }
}

/// What a call of other numbers leaves that becomes that of the record by what is delivered.
TensorMap outputs_behind_producer(const LiveCase& c, const Record& record, Placement placement,
                                  IsLate is_late, cudaStream_t stream) {
  placement.dependent = 1;
  LiveCall live(other_numbers(c), placement);
  forget_integers(record, live, is_late);
  const LateInputs late(record, live, is_late);
  late.launch(stream);
  live.launch(stream);
  live.synchronize();
  return live.outputs();
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
      CHECK(difference(expected, outputs_of(other_numbers(c), c.placement)) != "");
      const TensorMap actual =
          outputs_behind_producer(c, record, c.placement, all_are_late, stream.get());
      CHECK(difference(expected, actual) == "");
    });
  }
}

// Decode takes states and slots early; the others ignore the flag.
constexpr auto kEarly =
    "op={gdn,kda} mode=mtp B=3 T=1 H=1 HV=2 K=128 V=64 state_layout={vk,kv} state={f32,bf16} "
    "slots=padded index={i32,i64} keeps=0";
constexpr auto kEarlyWithoutSlots =
    "op={gdn,kda} mode=decode B=3 H=1 HV=2 K=128 V=64 state_layout={vk,kv} state={f32,bf16}";

TEST_CASE("dependent launch: beside states and slots that are vouched for, all else may be late") {
  REQUIRE_GPU();
  const gpu::Stream stream = gpu::make_stream();
  for (const char* line : {kEarly, kEarlyWithoutSlots, kDecode, kMtp, kAccepted, kReplay}) {
    for_each_case(line, [&](const LiveCase& c, const Record& record) {
      Placement placement = c.placement;
      placement.ready = 1;
      const TensorMap actual =
          outputs_behind_producer(c, record, placement, token_is_late, stream.get());
      CHECK(difference(outputs_of(record, c.placement), actual) == "");
    });
  }
}

// Most, because a schedule of the host execution may finish the kernel in front first. It fails a
// kernel whose asynchronous copy reads what changes meanwhile; a device computes with what was
// there.
TEST_CASE("dependent launch: states and slots that are vouched for are read before the wait") {
  REQUIRE_GPU();
  const gpu::Stream stream = gpu::make_stream();
  for (const IsLate is_late : {state_is_late, slot_is_late}) {
    int cases = 0, read_early = 0;
    for_each_case(kEarly, [&](const LiveCase& c, const Record& record) {
      const TensorMap expected = outputs_of(record, c.placement);
      Placement placement = c.placement;
      const auto is_right = [&] {
        return difference(expected,
                          outputs_behind_producer(c, record, placement, is_late, stream.get()))
            .empty();
      };
      CHECK(is_right());
      placement.ready = 1;
      ++cases;
      try {
        if (!is_right()) ++read_early;
      } catch (const Error&) {
        ++read_early;
      }
    });
    CHECK(2 * read_early > cases);
  }
}

// The kernel in front copies o and the states late: it finds what was there before the call.
TEST_CASE("dependent launch: nothing is written before the wait") {
  REQUIRE_GPU();
  const gpu::Stream stream = gpu::make_stream();
  for (const char* line : {kEarly, kDecode, kMtp}) {
    for_each_case(line, [&](const LiveCase& c, const Record& record) {
      for (const std::int64_t ready : {0, 1}) {
        Placement placement = c.placement;
        placement.dependent = 1;
        placement.ready = ready;
        LiveCall live(record, placement);
        const TensorMap before = live.outputs();
        std::vector<Delivery> list;
        std::vector<gpu::DeviceMemory> copies;
        for (const auto& [name, data] : {std::pair{"o", live.args().o.data},
                                         std::pair{"final_state", live.args().state.data}}) {
          const std::size_t bytes = before.at(name).bytes().size();
          copies.push_back(gpu::allocate_device(bytes));
          list.push_back({copies.back().get(), data, bytes});
        }
        const gpu::DeviceMemory on_its_way = on_device(list);
        launch_producer(static_cast<const Delivery*>(on_its_way.get()), 2, stream.get());
        live.launch(stream.get());
        live.synchronize();
        CHECK(difference(outputs_of(record, c.placement), live.outputs()) == "");
        for (std::size_t i = 0; i < 2; ++i) {
          const auto expected = before.at(i == 0 ? "o" : "final_state").bytes();
          Bytes copied(expected.size());
          gpu::check_cuda(
              cudaMemcpy(copied.data(), copies[i].get(), copied.size(), cudaMemcpyDefault), "copy");
          CHECK(std::ranges::equal(copied, expected));
        }
      }
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
