// SPDX-License-Identifier: Apache-2.0
//
// Everything about a prefill call that the host refuses, with the argument in the message, and the
// arithmetic on what only the device can see. Needs no GPU.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "fixtures/random/philox.hpp"
#include "gpu/delta/prefill/positions.hpp"
#include "gpu/goldenrule_gpu.h"
#include "tests/gpu/no_memory.hpp"

namespace goldenrule::test {
namespace {

using Args = goldenrule_gpu_prefill_args;
constexpr auto kInvalid = GOLDENRULE_GPU_INVALID_ARGUMENT;
constexpr auto kUnsupported = GOLDENRULE_GPU_UNSUPPORTED;

/// One that shares its memory with no other of this file.
goldenrule_gpu_tensor tensor_of(std::int32_t dtype) {
  static NoMemory memory;
  return memory.tensor(dtype);
}

/// Well-formed; the pointers are never followed.
Args good() {
  Args a;
  goldenrule_gpu_prefill_defaults(&a, sizeof a);
  a.total = 300;
  a.N = 3;
  a.H = 2;
  a.HV = 4;
  a.K = 128;
  a.V = 64;
  a.slots = 5;
  a.checkpoint_rows = 7;
  a.scale = 0.1;
  for (goldenrule_gpu_tensor* t :
       {&a.q, &a.k, &a.v, &a.gate, &a.A_log, &a.dt_bias, &a.beta, &a.o}) {
    *t = tensor_of(GOLDENRULE_GPU_BF16);
  }
  for (goldenrule_gpu_tensor* t : {&a.state, &a.checkpoints}) *t = tensor_of(GOLDENRULE_GPU_F32);
  a.cu_seqlens = a.cu_checkpoints = tensor_of(GOLDENRULE_GPU_I64);
  a.state_indices = a.checkpoint_offsets = tensor_of(GOLDENRULE_GPU_I32);
  a.workspace_size = goldenrule_gpu_prefill_workspace_size(&a);
  if (a.workspace_size > 0) a.workspace = tensor_of(GOLDENRULE_GPU_F32).data;
  return a;
}

bool passes(const Args& a) {
  char message[256] = "";
  const goldenrule_gpu_status status = goldenrule_gpu_prefill_validate(&a, message, sizeof message);
  // Arguments are checked before the device is asked for.
  const bool ok = status == GOLDENRULE_GPU_OK || status == GOLDENRULE_GPU_NO_DEVICE;
  CHECK_MESSAGE(ok, message);
  return ok;
}

TEST_CASE("prefill: well-formed calls pass, or only the device is missing") {
  Args a = good();
  CHECK(passes(a));
  a.checkpoint_offsets.data = nullptr;
  a.checkpoint_every = 64;
  CHECK(passes(a));
  a.start_positions = a.state_indices;
  CHECK(passes(a));
  a.checkpoint_rows = 0;  // all about checkpoints is ignored
  a.checkpoints.data = a.cu_checkpoints.data = nullptr;
  CHECK(passes(a));
  a.state.data = nullptr;
  a.final_state = tensor_of(GOLDENRULE_GPU_BF16);
  CHECK(passes(a));
  a.final_state.data = nullptr;
  a.disable_state_update = 1;
  a.slots = 0;
  a.state_indices.data = nullptr;
  CHECK(passes(a));
  a.flags = GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH | GOLDENRULE_GPU_FLAG_PRECISE |
            GOLDENRULE_GPU_FLAG_NEVER_SPLIT;
  CHECK(passes(a));
}

TEST_CASE("prefill: empty calls have no pointers") {
  Args a;
  goldenrule_gpu_prefill_defaults(&a, sizeof a);
  a.H = a.HV = a.K = a.V = 1;
  a.gate_kind = GOLDENRULE_GPU_GATE_LOG;
  a.cu_seqlens = tensor_of(GOLDENRULE_GPU_I32);  // [0] has one element
  CHECK(passes(a));
  a.N = a.slots = 4;  // sequences of no tokens
  a.state = tensor_of(GOLDENRULE_GPU_F32);
  CHECK(passes(a));
}

struct Refusal {
  const char* argument;
  goldenrule_gpu_status status;
  std::function<void(Args&)> spoil;
};

const std::vector<Refusal>& refusals() {
  static const std::vector<Refusal> all = {
      {"struct_size", kInvalid, [](Args& a) { a.struct_size -= 8; }},
      {"op", kInvalid, [](Args& a) { a.op = 2; }},
      {"checkpoint_form", kInvalid, [](Args& a) { a.checkpoint_form = 2; }},
      {"flags", kInvalid, [](Args& a) { a.flags = 8; }},
      {"total", kInvalid, [](Args& a) { a.total = -1; }},
      {"total", kInvalid, [](Args& a) { a.total = std::int64_t{1} << 31; }},
      {"N", kInvalid, [](Args& a) { a.N = -1; }},
      {"N", kInvalid, [](Args& a) { a.N = std::int64_t{1} << 29; }},
      {"HV", kInvalid, [](Args& a) { a.HV = 3; }},
      {"K", kInvalid, [](Args& a) { a.K = 257; }},
      {"V", kInvalid, [](Args& a) { a.V = 0; }},
      {"checkpoint_rows", kInvalid, [](Args& a) { a.checkpoint_rows = -1; }},
      {"checkpoint_every", kInvalid, [](Args& a) { a.checkpoint_every = -64; }},
      {"checkpoint_every", kInvalid, [](Args& a) { a.checkpoint_every = 64; }},
      {"checkpoint_every", kInvalid, [](Args& a) { a.checkpoint_offsets.data = nullptr; }},
      {"slots", kInvalid,
       [](Args& a) {
         a.state_indices.data = nullptr;
         a.slots = 2;
       }},
      {"scale", kInvalid, [](Args& a) { a.scale = std::numeric_limits<double>::infinity(); }},
      {"q.data", kInvalid, [](Args& a) { a.q.data = nullptr; }},
      {"k.dtype", kUnsupported, [](Args& a) { a.k.dtype = GOLDENRULE_GPU_F16; }},
      {"A_log.data", kInvalid, [](Args& a) { a.A_log.data = nullptr; }},
      {"o.stride[0]", kInvalid,
       [](Args& a) {
         set_strides(a.o, {255, 64});
       }},
      {"q.stride[0]", kUnsupported,
       [](Args& a) {
         set_strides(a.q, {std::int64_t{1} << 31, 128});
       }},
      {"state.dtype", kUnsupported, [](Args& a) { a.state.dtype = GOLDENRULE_GPU_F16; }},
      {"final_state.data", kInvalid, [](Args& a) { a.state.data = nullptr; }},
      {"final_state.dtype", kInvalid,
       [](Args& a) { a.final_state = tensor_of(GOLDENRULE_GPU_BF16); }},
      {"final_state.dtype", kUnsupported,
       [](Args& a) { a.final_state = tensor_of(GOLDENRULE_GPU_F16); }},
      {"checkpoints.data", kInvalid, [](Args& a) { a.checkpoints.data = nullptr; }},
      {"checkpoints.dtype", kInvalid, [](Args& a) { a.checkpoints.dtype = GOLDENRULE_GPU_BF16; }},
      {"cu_seqlens.data", kInvalid, [](Args& a) { a.cu_seqlens.data = nullptr; }},
      {"cu_seqlens.dtype", kUnsupported, [](Args& a) { a.cu_seqlens.dtype = GOLDENRULE_GPU_F32; }},
      {"cu_seqlens.stride[0]", kUnsupported, [](Args& a) { set_strides(a.cu_seqlens, {2}); }},
      {"cu_checkpoints.data", kInvalid, [](Args& a) { a.cu_checkpoints.data = nullptr; }},
      {"start_positions.data", kInvalid, [](Args& a) { a.start_positions = a.state_indices; }},
  };
  return all;
}

TEST_CASE("prefill: each refusal names its argument") {
  for (const Refusal& refusal : refusals()) {
    Args a = good();
    refusal.spoil(a);
    for (const bool launch : {false, true}) {
      char message[256] = "";
      const goldenrule_gpu_status status =
          launch ? goldenrule_gpu_prefill(&a, message, sizeof message)
                 : goldenrule_gpu_prefill_validate(&a, message, sizeof message);
      CHECK_MESSAGE(status == refusal.status, refusal.argument << ": " << message);
      const std::string text = message;
      CHECK_MESSAGE(text.rfind(std::string(refusal.argument) + ":", 0) == 0,
                    refusal.argument << ": " << message);
      CHECK(text.find("expected") != std::string::npos);
    }
  }
}

TEST_CASE("prefill: the workspace is asked for by sizes, and a smaller one refused") {
  Args a = good();
  const std::size_t size = goldenrule_gpu_prefill_workspace_size(&a);
  a.q.data = a.cu_seqlens.data = nullptr;
  CHECK(goldenrule_gpu_prefill_workspace_size(&a) == size);  // sizes alone
  a.K = 1000;
  CHECK(goldenrule_gpu_prefill_workspace_size(&a) == 0);
  CHECK(goldenrule_gpu_prefill_workspace_size(nullptr) == 0);
  if (size == 0) return;  // no kernel needs one
  char message[256] = "";
  const auto refused = [&](const Args& args, const char* start) {
    CHECK(goldenrule_gpu_prefill_validate(&args, message, sizeof message) == kInvalid);
    CHECK_MESSAGE(std::string(message).rfind(start, 0) == 0, message);
  };
  a = good();
  a.workspace = nullptr;
  refused(a, "workspace: expected a device pointer to ");
  a = good();
  a.workspace_size = size - 1;
  refused(a, "workspace_size: expected at least ");
  a = good();
  a.workspace = a.q.data;
  refused(a, "workspace.data: expected memory that nothing else of the call is in");
  a = good();
  a.workspace = static_cast<char*>(a.workspace) + 128;
  refused(a, "workspace: expected alignment to 256 bytes");
}

TEST_CASE("prefill: arguments of any value: an answer, never a crash") {
  using Wide = std::numeric_limits<std::int64_t>;
  const std::vector<std::int64_t> values{0,           1,
                                         -1,          2,
                                         3,           16,
                                         128,         256,
                                         257,         1 << 20,
                                         0x7fffffff,  -(1LL << 31),
                                         1LL << 31,   0x7ffffffeLL,
                                         Wide::max(), Wide::min()};
  constexpr std::size_t kWords = sizeof(Args) / sizeof(std::int64_t);
  int refused = 0;
  for (std::uint64_t run = 0; run < 100'000; ++run) {
    Args a = good();
    const random::Stream stream(run, "arguments");
    for (std::int64_t i = 0; i <= static_cast<std::int64_t>(run % 3); ++i) {
      const std::uint64_t bits = stream.bits(i);
      const std::size_t word = 1 + bits % (kWords - 1);  // struct_size stays
      const std::int64_t value = values[(bits >> 32) % values.size()];
      std::memcpy(reinterpret_cast<char*>(&a) + word * sizeof value, &value, sizeof value);
    }
    static_cast<void>(goldenrule_gpu_prefill_workspace_size(&a));
    char message[256] = "";
    const goldenrule_gpu_status status =
        goldenrule_gpu_prefill_validate(&a, message, sizeof message);
    if (status == GOLDENRULE_GPU_OK) continue;
    ++refused;
    if (std::string(message).find(": expected ") == std::string::npos) FAIL(message);
  }
  CHECK(refused > 40'000);
}

TEST_CASE("prefill: null pointers") {
  char message[64] = "";
  CHECK(goldenrule_gpu_prefill(nullptr, message, sizeof message) == kInvalid);
  CHECK(std::string(message) == "args: expected a pointer, actual NULL");
  CHECK(goldenrule_gpu_prefill_validate(nullptr, nullptr, 0) == kInvalid);
  CHECK(goldenrule_gpu_prefill_check(nullptr, nullptr, nullptr, 0) == kInvalid);
  goldenrule_gpu_prefill_defaults(nullptr, sizeof(Args));
}

TEST_CASE("prefill: bounds of any value name a part of the axis") {
  using gpu::span_between;
  using Wide = std::numeric_limits<std::int64_t>;
  const std::vector<std::int64_t> values{Wide::min(), -1, 0, 1, 5, 9, 10, 11, Wide::max()};
  for (const std::int64_t begin : values) {
    for (const std::int64_t end : values) {
      const gpu::Span span = span_between(begin, end, 10);
      CHECK(span.first >= 0);
      CHECK(span.count >= 0);
      CHECK(span.first + span.count <= 10);
      if (begin < 0 || end > 10 || begin > end) continue;
      CHECK(span.first == begin);
      CHECK(span.count == end - begin);
    }
  }
}

TEST_CASE("prefill: checkpoints at multiples, after and before, of a sequence that goes on") {
  using gpu::prefill::tokens_to_multiple;
  for (const std::int64_t every : {1, 3, 64}) {
    for (std::int64_t position = -130; position < 130; ++position) {
      for (const bool before : {false, true}) {
        std::vector<std::int64_t> expected;
        for (std::int64_t t = before ? 0 : 1; expected.size() < 3; ++t) {
          if ((position + t) % every == 0) expected.push_back(t);
        }
        for (std::int64_t i = 0; i < 3; ++i) {
          CHECK(tokens_to_multiple(position, every, before, i) ==
                expected[static_cast<std::size_t>(i)]);
        }
      }
    }
  }
  using Wide = std::numeric_limits<std::int64_t>;
  constexpr std::int64_t kMost = 0x7fffffff;
  CHECK(tokens_to_multiple(Wide::max(), kMost, false, kMost) > kMost);  // and nothing overflows
  CHECK(tokens_to_multiple(Wide::min(), kMost, true, 0) >= 0);
}

}  // namespace
}  // namespace goldenrule::test
