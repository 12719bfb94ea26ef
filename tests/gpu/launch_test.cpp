// SPDX-License-Identifier: Apache-2.0
//
// What the library asks of the CUDA runtime, call by call, on devices that are only described
// (fake_runtime.hpp): which code it trusts to wait, what it knows of which device, what it launches
// and with which attributes, whose errors it reports, and that a launch takes nothing from the
// heap.
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "gpu/delta/recurrent/params.hpp"
#include "tests/gpu/counted_heap.hpp"
#include "tests/gpu/launch_calls.hpp"

namespace goldenrule::test {
namespace {

constexpr auto kDependent = GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH;
constexpr auto kTrigger = GOLDENRULE_GPU_FLAG_TRIGGER_EARLY;
constexpr auto kReady = GOLDENRULE_GPU_FLAG_STATE_READY;

/// The parameters of the latest decode or MTP kernel.
gpu::recurrent::Params& seen_params() {
  static gpu::recurrent::Params params{};
  return params;
}
void keep_params(const FakeLaunch& seen) {
  std::memcpy(&seen_params(), seen.argument, sizeof seen_params());
}

std::string name_of_last() { return fake_runtime().name_of(fake_runtime().last.function); }

TEST_CASE("a dependent launch is asked for only of code that waits") {
  FakeRuntime& runtime = fake_runtime();
  runtime.on_launch = keep_params;
  struct Row {
    FakeDevice device;
    bool waits;
  };
  // A device of 10.0 that runs PTX of 8.0 has a kernel without the instruction.
  for (const Row& row :
       {Row{{.capability = 90, .code = 90}, true}, Row{{.capability = 100, .code = 100}, true},
        Row{{.capability = 103, .code = 90}, true}, Row{{.capability = 100, .code = 80}, false},
        Row{{.capability = 120, .code = 80}, false},
        Row{{.capability = 90, .code = 80, .lacks_sm90a = true}, false},
        Row{{.capability = 89, .code = 89}, false}, Row{{.capability = 80, .code = 80}, false}}) {
    runtime.add_device(row.device);
    CAPTURE(row.device.capability);
    CAPTURE(row.device.code);
    for (const std::int64_t T : {1, 4, 16}) {
      Args a = call(3, T);
      CHECK_FALSE(launched(a).dependent);
      CHECK(seen_params().dependent == 0);
      a.flags = kDependent;
      CHECK(launched(a).dependent == row.waits);
      CHECK(seen_params().dependent ==
            (row.waits ? 1 : 0));  // so does the hint in front of the wait
    }
  }
  runtime.on_launch = nullptr;
}

TEST_CASE(
    "kernels of one prefill call follow each other by dependent launch only where they wait") {
  FakeRuntime& runtime = fake_runtime();
  static std::vector<FakeLaunch> seen;
  runtime.on_launch = [](const FakeLaunch& one) { seen.push_back(one); };
  PrefillArgs a = prefill_call();
  for (const int code : {90, 80}) {
    runtime.add_device({.capability = 90, .code = code});
    for (const std::uint32_t flags : {0U, static_cast<std::uint32_t>(kDependent)}) {
      seen.clear();
      a.flags = flags;
      static_cast<void>(launched(a));
      REQUIRE(seen.size() == 3);
      CHECK(seen.front().dependent == (flags != 0 && code == 90));
      CHECK(seen.back().dependent == (code == 90));
    }
  }
  runtime.on_launch = nullptr;
}

TEST_CASE("a kernel of instructions that the code does not have is not chosen") {
  fake_runtime().add_device({.capability = 90});
  static_cast<void>(launched(prefill_call()));
  CHECK(name_of_last().find("prefill_gdn_scan") != std::string::npos);
  fake_runtime().add_device({.capability = 90, .lacks_sm90a = true});
  static_cast<void>(launched(prefill_call()));
  CHECK(name_of_last().find("chunk8_kernel") != std::string::npos);
  CHECK(fake_runtime().last_error == cudaSuccess);
}

// The tile of whole heads in fp32 and their operands do not fit an L40S: lower tiles serve there.
TEST_CASE("a kernel that needs more shared memory than a block can have is not chosen") {
  Args a = call_that_keeps_states();
  a.op = GOLDENRULE_GPU_KDA;
  std::size_t shared[2] = {};
  for (const int small : {0, 1}) {
    const int all = small != 0 ? 102'400 : 233'472;
    fake_runtime().add_device({.capability = small != 0 ? 89 : 90,
                               .shared_per_multiprocessor = all,
                               .code = small != 0 ? 89 : 90});
    shared[small] = launched(a).shared_bytes;
    CHECK(shared[small] <= static_cast<std::size_t>(all - 1024));
    CHECK(name_of_last().find("mtp_channel_kernel") != std::string::npos);
  }
  CHECK(shared[1] < shared[0]);
}

TEST_CASE("a cluster that a device or a shape has not is the most below it") {
  for (const unsigned largest : {16U, 8U}) {
    fake_runtime().add_device({.largest_cluster = largest});
    for (const std::int64_t queries : {4, 16}) {   // 16 rows and 64: only those have one of 9
      for (const std::int64_t splits : {0, 16}) {  // 0: 9 where there are few requests
        AttentionArgs a = attention_call();
        a.splits = splits;
        a.total = a.most_q = queries;
        const unsigned expected = std::min(largest, splits == 16 ? 16U : queries == 16 ? 9U : 8U);
        CHECK((launched(a).cluster == expected && fake_runtime().last.blocks == expected));
        CHECK(name_of_last().find("attention_decode_kernel") != std::string::npos);
      }
    }
  }
}

TEST_CASE("kernels begin early, and take states early, only where the caller says so") {
  FakeRuntime& runtime = fake_runtime();
  runtime.on_launch = keep_params;
  runtime.add_device({});
  for (const std::int64_t T : {1, 4, 16}) {
    for (const int flags : {0, int{kDependent}, int{kTrigger}, int{kReady}, kDependent | kTrigger,
                            kDependent | kReady}) {
      Args a = call(3, T);
      a.flags = static_cast<std::uint32_t>(flags);
      CHECK(launched(a).dependent == ((flags & kDependent) != 0));
      CHECK(seen_params().triggers == ((flags & kTrigger) != 0 ? 1 : 0));
      CHECK(seen_params().state_ready == (flags == (kDependent | kReady) ? 1 : 0));
    }
  }
  const auto takes_early = [](Args a) {
    a.flags = kDependent | kReady;
    static_cast<void>(launched(a));
    return seen_params().state_ready != 0;
  };
  Args by_counts = call(3, 1);
  NoMemory memory(20);
  by_counts.ssm_state_indices = memory.tensor(GOLDENRULE_GPU_I32);
  by_counts.num_accepted_tokens = memory.tensor(GOLDENRULE_GPU_I32);
  by_counts.state_indices = {};
  CHECK_FALSE(takes_early(by_counts));
  runtime.add_device({.capability = 90, .code = 80});
  CHECK_FALSE(takes_early(call(3, 1)));
  runtime.on_launch = nullptr;
}

TEST_CASE(
    "MTP of about one wave lies beside no other call, of few blocks and of many waves it does") {
  FakeRuntime& runtime = fake_runtime();
  runtime.on_launch = keep_params;
  runtime.add_device({});
  const auto beside = [&](std::int64_t B, std::int64_t T) {
    Args a = call(B, T);
    a.flags = kDependent | kTrigger;
    CHECK(launched(a).dependent);  // the launch itself keeps its attribute
    CHECK(seen_params().triggers == seen_params().dependent);
    return seen_params().triggers != 0;
  };
  CHECK(beside(1, 4));
  const std::int64_t blocks_of_row = runtime.last.blocks;
  const std::int64_t rows_of_wave = seen_params().wave / blocks_of_row;
  CHECK(beside(rows_of_wave / 5, 4));
  CHECK_FALSE(beside(rows_of_wave, 4));
  CHECK(beside(3 * rows_of_wave, 4));
  CHECK(beside(rows_of_wave, 1));
  runtime.on_launch = nullptr;
}

TEST_CASE("what was found out about one device is not used on another") {
  FakeRuntime& runtime = fake_runtime();
  const Args a = call_that_keeps_states();
  constexpr int kSmall = 102'400, kLarge = 233'472;  // of an L40S and of an H200
  for (const bool small_first : {true, false}) {
    int ids[2];
    for (const bool small : {small_first, !small_first}) {
      runtime.add_device(small ? FakeDevice{.capability = 89,
                                            .multiprocessors = 142,
                                            .shared_per_multiprocessor = kSmall,
                                            .code = 89}
                               : FakeDevice{.shared_per_multiprocessor = kLarge});
      ids[small ? 1 : 0] = runtime.current;
      static_cast<void>(launched(a));
    }
    for (const int round : {0, 1}) {
      runtime.current = ids[round];
      const FakeLaunch& seen = launched(a);
      CHECK(seen.device == ids[round]);
      const int all = round == 1 ? kSmall : kLarge;
      CHECK(static_cast<int>(seen.shared_bytes) >= all / 2);
      CHECK(static_cast<int>(seen.shared_bytes) < all);
      CHECK(name_of_last().find("mtp_kernel") != std::string::npos);
    }
  }
}

TEST_CASE("after goldenrule_gpu_initialize every kernel is loaded, those of the checks too") {
  FakeRuntime& runtime = fake_runtime();
  for (const int capability : {90, 80}) {
    runtime.add_device({.capability = capability, .code = capability});
    char message[256] = "";
    CHECK_MESSAGE(goldenrule_gpu_initialize(message, sizeof message) == GOLDENRULE_GPU_OK, message);
    CHECK(runtime.kernels.size() > 50);
    int missing = 0;
    for (const auto& [function, name] : runtime.kernels) {
      if (!runtime.has_code(function) || runtime.loaded.contains({runtime.current, function}))
        continue;
      MESSAGE(name);
      ++missing;
    }
    CHECK(missing == 0);
  }
}

TEST_CASE("an error that somebody else has left is neither reported nor taken away") {
  FakeRuntime& runtime = fake_runtime();
  runtime.add_device({});
  goldenrule_gpu_index_report report{};
  goldenrule_gpu_prefill_report prefill_report{};
  const Args a = call(3, 1);
  const PrefillArgs p = prefill_call();
  char message[256] = "";
  const auto ok = [&](goldenrule_gpu_status status) {
    CHECK_MESSAGE(status == GOLDENRULE_GPU_OK, message);
    CHECK(runtime.last_error == cudaErrorInvalidConfiguration);
  };
  ok((runtime.last_error = cudaErrorInvalidConfiguration, launch(a).status));
  ok(goldenrule_gpu_recurrent_check(&a, &report, message, sizeof message));
  ok(launch(p).status);
  ok(goldenrule_gpu_prefill_check(&p, &prefill_report, message, sizeof message));
  runtime.last_error = cudaSuccess;
}

TEST_CASE("no device is one status, and every other failure to ask for it is an error") {
  FakeRuntime& runtime = fake_runtime();
  runtime.add_device({});
  const Args a = call(3, 1);
  char message[256] = "";
  for (const auto& [answer, status] :
       {std::pair{cudaErrorNoDevice, GOLDENRULE_GPU_NO_DEVICE},
        std::pair{cudaErrorInsufficientDriver, GOLDENRULE_GPU_NO_DEVICE},
        std::pair{cudaErrorIllegalAddress, GOLDENRULE_GPU_CUDA_ERROR},
        std::pair{cudaErrorMemoryAllocation, GOLDENRULE_GPU_CUDA_ERROR},
        std::pair{cudaErrorDevicesUnavailable, GOLDENRULE_GPU_CUDA_ERROR}}) {
    runtime.get_device_answer = answer;
    CHECK(goldenrule_gpu_recurrent_validate(&a, message, sizeof message) == status);
    CHECK(std::string(message).rfind("device: expected ", 0) == 0);
    CHECK(launch(a).status == status);
    CHECK(runtime.last_error == cudaSuccess);
  }
  runtime.get_device_answer = cudaSuccess;
  CHECK(launch(a).status == GOLDENRULE_GPU_OK);
  runtime.add_device({.capability = 75, .code = 75});
  CHECK(launch(a).status == GOLDENRULE_GPU_UNSUPPORTED_ARCHITECTURE);
}

TEST_CASE("a call that passes takes nothing from the heap") {
  fake_runtime().add_device({});
  Args scatter = call(5, 3);
  scatter.ssm_state_indices = scatter.num_accepted_tokens = scatter.state_indices;
  scatter.state_indices.data = nullptr;
  Args ring = call(70, 4), commit = call(70, 0);
  give_rings(ring);
  give_rings(commit);
  std::vector<PrefillArgs> prefills{prefill_call(), prefill_call()};
  prefills.back().V = 100;  // no tuned kernel
  const std::vector<Args> calls{call(1, 1), call(70, 1), call(3, 4), call_that_keeps_states(),
                                scatter,    ring,        commit};
  const auto run = [&] {
    bool ok = true;
    for (const Args& a : calls)
      ok = ok && goldenrule_gpu_recurrent(&a, nullptr, 0) == GOLDENRULE_GPU_OK;
    for (const PrefillArgs& a : prefills) {
      ok = ok && goldenrule_gpu_prefill(&a, nullptr, 0) == GOLDENRULE_GPU_OK;
    }
    return ok;
  };
  REQUIRE(run());  // the first call loads
  const std::uint64_t before = heap_allocations();
  const bool ok = run();
  CHECK(heap_allocations() - before == 0);
  CHECK(ok);
  const std::uint64_t here = heap_allocations();
  const std::string refusal = launch(PrefillArgs{}).text;
  CHECK(heap_allocations() > here);  // it does count: a refusal has a text
  CHECK(refusal.find("struct_size") == 0);
}

}  // namespace
}  // namespace goldenrule::test
