// SPDX-License-Identifier: Apache-2.0
//
// From case to record to arguments to validation: which calls the kernels take. Needs no GPU.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "fixtures/call/error.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/cases/suite.hpp"
#include "tests/gpu/no_memory.hpp"
#include "tools/gpu_run/record_call.hpp"

namespace goldenrule::test {
namespace {

using call::DType;

/// The type is filled in by make_args.
goldenrule_gpu_tensor no_memory(const std::string& /*name*/, const call::Tensor& /*tensor*/) {
  static NoMemory memory;
  return memory.tensor(0);
}

goldenrule_gpu_status validate(call::Record record, std::string& message) {
  record.outputs = gpu::make_outputs(record, gpu::Update::kSeparate);
  char text[256] = "";
  goldenrule_gpu_status status = GOLDENRULE_GPU_OK;
  if (record.mode == call::Mode::kPrefill) {
    goldenrule_gpu_prefill_args args = gpu::make_prefill_args(record, no_memory);
    args.workspace_size = goldenrule_gpu_prefill_workspace_size(&args);
    if (args.workspace_size > 0) args.workspace = no_memory("", {}).data;
    status = goldenrule_gpu_prefill_validate(&args, text, sizeof text);
  } else {
    const goldenrule_gpu_recurrent_args args = gpu::make_args(record, no_memory);
    status = goldenrule_gpu_recurrent_validate(&args, text, sizeof text);
  }
  message = text;
  return status;
}

bool accepted(goldenrule_gpu_status status) {
  // Arguments are checked before the device is asked for.
  return status == GOLDENRULE_GPU_OK || status == GOLDENRULE_GPU_NO_DEVICE;
}

const char* const kNoF16State = "state.dtype: expected f32 or bf16, actual f16";

TEST_CASE("cases of the suites: accepted, or refused for the type of the state") {
  int taken = 0, refused = 0;
  for (const char* suite : {"boundary", "stress"}) {
    for (const cases::Case& c : cases::load_suite(suite).cases) {
      std::string message;
      const call::Record record = cases::make_record(c);
      if (record.find_input("has_initial_state") != nullptr) {  // no argument says it
        CHECK_THROWS_AS(static_cast<void>(validate(record, message)), Error);
        continue;
      }
      const goldenrule_gpu_status status = validate(record, message);
      const call::Tensor* start = record.find_input("initial_state");
      if (start != nullptr && start->dtype() == DType::kF16) {
        CHECK(status == GOLDENRULE_GPU_UNSUPPORTED);
        CHECK(message == kNoF16State);
        ++refused;
      } else {
        CHECK_MESSAGE(accepted(status), cases::canonical(c) << ": " << message);
        ++taken;
      }
    }
  }
  std::printf("%d cases accepted, %d refused: %s\n", taken, refused, kNoF16State);
  CHECK(taken > 400);
  CHECK(refused > 0);
}

TEST_CASE("calls that the reference takes and the kernels do not are refused, never truncated") {
  const auto message_of = [](const call::Record& record, goldenrule_gpu_status expected) {
    std::string message;
    CHECK(validate(record, message) == expected);
    return message;
  };
  const auto record_of = [](const char* line) { return cases::make_record(cases::parse(line)); };
  CHECK(message_of(record_of("op=gdn mode=decode B=1 H=1 HV=1 K=257 V=8"),
                   GOLDENRULE_GPU_INVALID_ARGUMENT) == "K: expected 1 to 256, actual 257");
  CHECK(message_of(record_of("op=kda mode=mtp B=1 T=17 H=1 HV=1 K=8 V=8"),
                   GOLDENRULE_GPU_INVALID_ARGUMENT) == "T: expected 0 to 16, actual 17");
  const char* const small = "op=gdn mode=decode B=2 H=1 HV=1 K=8 V=8 slots=permuted";
  for (const auto& [name, message] :
       {std::pair{"q", "q.dtype: expected f32, f16 or bf16, actual f64"},
        std::pair{"b", "beta.dtype: expected f32, f16 or bf16, actual f64"},
        std::pair{"initial_state", "state.dtype: expected f32 or bf16, actual f64"}}) {
    call::Record record = record_of(small);
    call::Tensor& tensor = record.inputs.at(name);
    tensor = call::Tensor(DType::kF64, tensor.shape(), tensor.to_doubles());
    CHECK(message_of(record, GOLDENRULE_GPU_UNSUPPORTED) == message);
  }
  // The host cannot see slots; the record can, and goldenrule_gpu_recurrent_check on the device.
  call::Record twice = record_of(small);
  twice.inputs.at("state_indices").set(1, twice.inputs.at("state_indices")[0]);
  CHECK_THROWS_WITH_AS(static_cast<void>(call::make_plan(twice, false)),
                       doctest::Contains("each slot written once"), Error);
  const call::Record prefill = record_of("op=gdn mode=prefill lens=3 H=1 HV=1 K=8 V=8");
  CHECK_THROWS_WITH_AS(static_cast<void>(gpu::make_args(prefill, no_memory)),
                       doctest::Contains("expected decode or mtp"), Error);
  CHECK_THROWS_WITH_AS(static_cast<void>(gpu::make_prefill_args(twice, no_memory)),
                       doctest::Contains("expected prefill"), Error);
  CHECK(message_of(record_of("op=kda mode=prefill lens=9 H=1 HV=1 K=257 V=8"),
                   GOLDENRULE_GPU_INVALID_ARGUMENT) == "K: expected 1 to 256, actual 257");
}

}  // namespace
}  // namespace goldenrule::test
