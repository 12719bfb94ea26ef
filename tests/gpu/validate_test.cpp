// SPDX-License-Identifier: Apache-2.0
//
// Everything that the host refuses, with the argument in the message. Needs no GPU: arguments are
// checked before the device is asked.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "fixtures/random/philox.hpp"
#include "gpu/goldenrule_gpu.h"
#include "tests/gpu/good_call.hpp"

namespace goldenrule::test {
namespace {

using Args = goldenrule_gpu_recurrent_args;

struct Refusal {
  const char* argument;
  goldenrule_gpu_status status;
  std::function<void(Args&)> spoil;
};

TEST_CASE("a well-formed call passes, or only the device is missing") {
  Args a = good_call();
  char message[256] = "";
  const goldenrule_gpu_status status =
      goldenrule_gpu_recurrent_validate(&a, message, sizeof message);
  CHECK_MESSAGE((status == GOLDENRULE_GPU_OK || status == GOLDENRULE_GPU_NO_DEVICE), message);
  if (status == GOLDENRULE_GPU_NO_DEVICE) {
    const std::string text = message;
    CHECK_MESSAGE(text.rfind("device: expected ", 0) == 0, text);
    CHECK(goldenrule_gpu_recurrent(&a, message, sizeof message) == status);
    CHECK(message == text);
  }
  CHECK(goldenrule_gpu_recurrent_workspace_size(&a) == 0);
}

TEST_CASE("each refusal names its argument") {
  constexpr auto kInvalid = GOLDENRULE_GPU_INVALID_ARGUMENT;
  constexpr auto kUnsupported = GOLDENRULE_GPU_UNSUPPORTED;
  const std::vector<Refusal> refusals = {
      {"struct_size", kInvalid, [](Args& a) { a.struct_size = 8; }},
      {"op", kInvalid, [](Args& a) { a.op = 2; }},
      {"state_layout", kInvalid, [](Args& a) { a.state_layout = -1; }},
      {"gate_kind", kInvalid, [](Args& a) { a.gate_kind = 6; }},
      {"beta_kind", kInvalid, [](Args& a) { a.beta_kind = 3; }},
      {"qk_norm", kInvalid, [](Args& a) { a.qk_norm = 4; }},
      {"head_map", kInvalid, [](Args& a) { a.head_map = 2; }},
      {"gate_head", kInvalid, [](Args& a) { a.gate_head = 2; }},
      {"disable_state_update", kInvalid, [](Args& a) { a.disable_state_update = 7; }},
      {"flags", kInvalid, [](Args& a) { a.flags = 2; }},
      {"flags", kInvalid, [](Args& a) { a.flags = 64; }},
      {"reserved", kInvalid, [](Args& a) { a.reserved = 1; }},
      {"B", kInvalid, [](Args& a) { a.B = -1; }},
      {"H", kInvalid, [](Args& a) { a.H = -2; }},
      {"HV", kInvalid, [](Args& a) { a.HV = -4; }},
      {"K", kInvalid, [](Args& a) { a.K = -1; }},
      {"V", kInvalid, [](Args& a) { a.V = -1; }},
      {"T", kInvalid, [](Args& a) { a.T = 17; }},
      {"T", kInvalid, [](Args& a) { a.T = -1; }},
      {"H", kInvalid, [](Args& a) { a.H = 0; }},
      {"HV", kInvalid, [](Args& a) { a.HV = 3; }},
      {"K", kInvalid, [](Args& a) { a.K = 257; }},
      {"K", kInvalid, [](Args& a) { a.K = 0; }},
      {"V", kInvalid, [](Args& a) { a.V = 0; }},
      {"slots", kInvalid, [](Args& a) { a.slots = -2; }},
      {"slots", kInvalid,
       [](Args& a) {
         a.state_indices.data = nullptr;
         a.slots = 1;
       }},
      {"scale", kInvalid, [](Args& a) { a.scale = 1.0 / 0.0 * 0.0; }},
      {"l2_eps", kInvalid, [](Args& a) { a.l2_eps = -1; }},
      {"softplus_beta", kInvalid, [](Args& a) { a.softplus_beta = 0; }},
      {"q.data", kInvalid, [](Args& a) { a.q.data = nullptr; }},
      {"k.data", kInvalid, [](Args& a) { a.k.data = moved(a.k.data, 1); }},
      {"k.dtype", kUnsupported, [](Args& a) { a.k.dtype = GOLDENRULE_GPU_F16; }},
      {"v.dtype", kUnsupported, [](Args& a) { a.v.dtype = 0; }},
      {"gate.data", kInvalid, [](Args& a) { a.gate_kind = GOLDENRULE_GPU_GATE_NONE; }},
      {"gate.data", kInvalid, [](Args& a) { a.gate.data = nullptr; }},
      {"A_log.data", kInvalid, [](Args& a) { a.A_log.data = nullptr; }},
      {"A_log.data", kInvalid, [](Args& a) { a.gate_kind = GOLDENRULE_GPU_GATE_LOG; }},
      {"beta.stride[1]", kInvalid,
       [](Args& a) {
         set_strides(a.beta, {12, -4, 1});
       }},
      {"o.stride[2]", kInvalid,
       [](Args& a) {
         set_strides(a.o, {4096, 256, 63});
       }},
      {"o.stride[0]", kInvalid,
       [](Args& a) {
         set_strides(a.o, {600, 256, 64});
       }},
      {"q.stride[0]", kUnsupported,
       [](Args& a) {
         set_strides(a.q, {std::int64_t{1} << 31, 256, 128});
       }},
      {"q.dense", kInvalid, [](Args& a) { a.q.dense = 2; }},
      // What was never filled in, and a broadcast, are no dense tensors.
      {"beta.stride[0]", kInvalid, [](Args& a) { a.beta.dense = 0; }},
      {"A_log.stride[0]", kInvalid, [](Args& a) { a.A_log.dense = 0; }},
      {"q.stride[2]", kInvalid,
       [](Args& a) {
         set_strides(a.q, {768, 256, 0});
       }},
      {"state.dtype", kUnsupported, [](Args& a) { a.state.dtype = GOLDENRULE_GPU_F16; }},
      {"state.dtype", kUnsupported, [](Args& a) { a.state.dtype = 0; }},
      {"state.dtype", kUnsupported, [](Args& a) { a.state.dtype = 99; }},
      {"state.dtype", kUnsupported, [](Args& a) { a.state.dtype = GOLDENRULE_GPU_I32; }},
      {"state.stride[1]", kInvalid,
       [](Args& a) {
         set_strides(a.state, {4 * 64 * 128, 64 * 127, 128});
       }},
      {"state.stride[0]", kInvalid,
       [](Args& a) {
         set_strides(a.state, {std::numeric_limits<std::int64_t>::max() / 8, 64 * 128, 128});
       }},
      {"final_state.dtype", kInvalid,
       [](Args& a) {
         a.final_state = a.state;
         a.final_state.dtype = GOLDENRULE_GPU_BF16;
       }},
      {"final_state.stride", kInvalid,
       [](Args& a) {
         a.final_state = a.state;
         set_strides(a.final_state, {1 << 20, 64 * 128, 128});
       }},
      {"intermediate_rows", kInvalid,
       [](Args& a) {
         a.intermediate_states = a.state;
         a.intermediate_rows = 2;
       }},
      {"state_indices.dtype", kUnsupported,
       [](Args& a) { a.state_indices.dtype = GOLDENRULE_GPU_F32; }},
      {"num_accepted_tokens.data", kInvalid,
       [](Args& a) { a.ssm_state_indices = a.num_accepted_tokens = a.state_indices; }},
      {"output_state_indices.data", kInvalid,
       [](Args& a) { a.ssm_state_indices = a.output_state_indices = a.state_indices; }},
      {"ssm_state_indices.stride[1]", kInvalid,
       [](Args& a) {
         a.ssm_state_indices = a.state_indices;
         set_strides(a.ssm_state_indices, {3, 0});
       }},
      {"state_indices.stride[0]", kInvalid, [](Args& a) { set_strides(a.state_indices, {0}); }},
      {"state_indices.stride[0]", kUnsupported,
       [](Args& a) { set_strides(a.state_indices, {std::int64_t{1} << 30}); }},
      {"o.data", kInvalid, [](Args& a) { a.flags = GOLDENRULE_GPU_FLAG_NO_OUTPUT; }},
      {"num_accepted_tokens.data", kInvalid,
       [](Args& a) {
         a.ssm_state_indices = a.state_indices;
         a.state_indices.data = nullptr;
       }},
      {"num_accepted_tokens.data", kInvalid,
       [](Args& a) { a.num_accepted_tokens = a.state_indices; }},
      {"T", kInvalid,
       [](Args& a) {
         std::swap(a.ssm_state_indices, a.state_indices);
         a.num_accepted_tokens = a.ssm_state_indices;
         a.T = 0;
       }},
  };
  for (const Refusal& refusal : refusals) {
    Args a = good_call();
    refusal.spoil(a);
    for (const bool launch : {false, true}) {
      char message[256] = "";
      const goldenrule_gpu_status status =
          launch ? goldenrule_gpu_recurrent(&a, message, sizeof message)
                 : goldenrule_gpu_recurrent_validate(&a, message, sizeof message);
      CHECK_MESSAGE(status == refusal.status, refusal.argument << ": " << message);
      const std::string text = message;
      CHECK_MESSAGE(text.rfind(std::string(refusal.argument) + ":", 0) == 0,
                    refusal.argument << ": " << message);
      CHECK(text.find("expected") != std::string::npos);
      CHECK(text.find("actual") != std::string::npos);
    }
  }
}

TEST_CASE("every pointer: null where it is required, off its alignment, of no known type") {
  struct Member {
    const char* name;
    goldenrule_gpu_tensor Args::*tensor;
    std::ptrdiff_t size;
    bool required;
  };
  const Member members[] = {
      {"q", &Args::q, 2, true},         {"k", &Args::k, 2, true},
      {"v", &Args::v, 2, true},         {"gate", &Args::gate, 2, true},
      {"A_log", &Args::A_log, 2, true}, {"dt_bias", &Args::dt_bias, 2, false},
      {"beta", &Args::beta, 2, true},   {"o", &Args::o, 2, true},
      {"state", &Args::state, 4, true}, {"state_indices", &Args::state_indices, 4, false}};
  const auto refused = [](const Args& a, const std::string& start) {
    char message[256] = "";
    CHECK(goldenrule_gpu_recurrent(&a, message, sizeof message) != GOLDENRULE_GPU_OK);
    CHECK_MESSAGE(std::string(message).rfind(start, 0) == 0, message);
  };
  for (const Member& m : members) {
    const std::string name = m.name;
    Args a = good_call();
    (a.*m.tensor).data = nullptr;
    if (m.required) refused(a, name + ".data: expected a device pointer");
    a = good_call();
    (a.*m.tensor).data = moved((a.*m.tensor).data, m.size / 2);
    refused(a, name + ".data: expected alignment to " + std::to_string(m.size) + " bytes");
    for (const std::int32_t dtype : {0, -1, 6, 1 << 20}) {
      a = good_call();
      (a.*m.tensor).dtype = dtype;
      refused(a, name + ".dtype: expected ");
    }
  }
}

TEST_CASE("an empty call has no pointers") {
  Args a;
  goldenrule_gpu_recurrent_defaults(&a, sizeof a);
  a.H = a.HV = a.K = a.V = 1;
  char message[256] = "";
  const goldenrule_gpu_status status =
      goldenrule_gpu_recurrent_validate(&a, message, sizeof message);
  CHECK_MESSAGE(std::string(message).find("A_log.data: expected a device pointer") == 0,
                message);  // not empty when B is 0
  CHECK(status == GOLDENRULE_GPU_INVALID_ARGUMENT);
  a.gate_kind = GOLDENRULE_GPU_GATE_LOG;
  const goldenrule_gpu_status empty =
      goldenrule_gpu_recurrent_validate(&a, message, sizeof message);
  CHECK_MESSAGE((empty == GOLDENRULE_GPU_OK || empty == GOLDENRULE_GPU_NO_DEVICE), message);
}

TEST_CASE("arguments of any value: an answer, never a crash") {
  // Whole words of the aggregate take values that are extreme for some field of it.
  using Wide = std::numeric_limits<std::int64_t>;
  const std::vector<std::int64_t> values{
      0,         1,           -1,         2,       3,       7,          16,           17,
      128,       256,         257,        1 << 20, 1 << 24, 0x7fffffff, -(1LL << 31), 1LL << 31,
      1LL << 40, Wide::max(), Wide::min()};
  constexpr std::size_t kWords = sizeof(Args) / sizeof(std::int64_t);
  int refused = 0;
  for (std::uint64_t run = 0; run < 200'000; ++run) {
    Args a = run % 4 == 0 ? good_ring_call() : good_call();
    const random::Stream stream(run, "arguments");
    for (std::int64_t i = 0; i <= static_cast<std::int64_t>(run % 3); ++i) {
      const std::uint64_t bits = stream.bits(i);
      const std::size_t word = 1 + bits % (kWords - 1);  // struct_size stays
      const std::int64_t value = values[(bits >> 32) % values.size()];
      std::memcpy(reinterpret_cast<char*>(&a) + word * sizeof value, &value, sizeof value);
    }
    char message[256] = "";
    const goldenrule_gpu_status status =
        goldenrule_gpu_recurrent_validate(&a, message, sizeof message);
    if (status == GOLDENRULE_GPU_OK) continue;
    ++refused;
    if (std::string(message).find(": expected ") == std::string::npos) FAIL(message);
  }
  CHECK(refused > 100'000);
}

TEST_CASE("null pointers and short messages") {
  char message[8] = "1234567";
  CHECK(goldenrule_gpu_recurrent(nullptr, message, sizeof message) ==
        GOLDENRULE_GPU_INVALID_ARGUMENT);
  CHECK(std::string(message) == "args: e");
  CHECK(goldenrule_gpu_recurrent_validate(nullptr, nullptr, 0) == GOLDENRULE_GPU_INVALID_ARGUMENT);
  CHECK(goldenrule_gpu_recurrent_check(nullptr, nullptr, nullptr, 0) ==
        GOLDENRULE_GPU_INVALID_ARGUMENT);
  CHECK(goldenrule_gpu_dispatch_name(-1) == nullptr);
  CHECK(goldenrule_gpu_dispatch_name(goldenrule_gpu_dispatch_size()) == nullptr);
}

}  // namespace
}  // namespace goldenrule::test
