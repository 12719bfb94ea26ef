// SPDX-License-Identifier: Apache-2.0
//
// The harness sees what it is there to see. Needs no GPU: the oracle stands in for the kernels
// (host_kernel.hpp), in the host's memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "fixtures/call/error.hpp"
#include "tests/gpu/case_lists.hpp"
#include "tests/gpu/host_kernel.hpp"
#include "tests/gpu/judge.hpp"

namespace goldenrule::test {
namespace {

/// "" or what the harness says of the stand-in on this line.
std::string complaint_on_host(const LiveCase& c, HostMistake mistake = HostMistake::kNone) {
  Tallies tallies;
  return run_case(c, tallies, Memory::kHost, host_kernel(make_record(c), mistake));
}

TEST_CASE("a line with a placement is a fixed point, and wrong words are refused") {
  const char* const line =
      "op=kda mode=mtp B=5 T=4 H=1 HV=2 K=128 V=64 slots=padded change=gates_f16 gap=3 stray=1";
  CHECK(canonical(parse_live(line)) == line);
  CHECK(canonical(parse_live("stray=1 gap=3 slots=padded separate=0 V=64 K=128 HV=2 H=1 T=4 B=5 "
                             "mode=mtp op=kda change=gates_f16 keeps=1")) == line);
  CHECK_THROWS_AS(static_cast<void>(parse_live(std::string(line) + " gap=x")), Error);
  CHECK_THROWS_AS(static_cast<void>(parse_live(std::string(line) + " change=x")), Error);
  CHECK_THROWS_AS(static_cast<void>(parse_live(std::string(line) + " gaps=1")), Error);
}

/// The arguments that a line leads to, seen by a kernel that does nothing else.
template <class F>
void look_at_arguments(const std::string& words, F&& look) {
  const LiveCase c =
      parse_live("op=gdn mode=mtp B=3 T=2 H=1 HV=2 K=16 V=12 slots=padded index=i32 " + words);
  LiveCall live(make_record(c), c.placement, Memory::kHost);
  live.launch(nullptr, [&](const goldenrule_gpu_recurrent_args* args, char*, std::size_t) {
    look(*args);
    return GOLDENRULE_GPU_OK;
  });
}

TEST_CASE("each word of a placement reaches the kernel") {
  using Args = goldenrule_gpu_recurrent_args;
  const auto padded_row = [](const Args& a) {
    return static_cast<const std::int32_t*>(a.state_indices.data)[2];
  };
  const auto address = [](const goldenrule_gpu_tensor& t) {
    return reinterpret_cast<std::uintptr_t>(t.data) % 16;
  };
  look_at_arguments("", [&](const Args& a) {
    CHECK(padded_row(a) == -1);
    CHECK(a.q.stride[2] == 16);
    CHECK(a.beta.stride[1] == 2);
    CHECK(a.state.stride[1] == 12 * 16);
    CHECK(a.intermediate_rows == 2);
    CHECK(a.intermediate_states.data != nullptr);
    CHECK(a.final_state.data == nullptr);
    CHECK(a.flags == 0);
    CHECK(address(a.state) == 0);
  });
  look_at_arguments(
      "gap=3 shift=1 spare=2 stray=1 separate=1 dependent=1 trigger=1 ready=1", [&](const Args& a) {
        CHECK(padded_row(a) >= a.slots);
        CHECK(a.q.stride[2] == 19);
        CHECK(a.beta.stride[2] == 4);
        CHECK(a.beta.stride[1] == 2 * 4 + 3);
        CHECK(a.state.stride[2] == 19);
        CHECK(a.intermediate_rows == 4);
        CHECK(a.intermediate_states.stride[0] == 4 * a.intermediate_states.stride[1] + 3);
        CHECK(a.final_state.data != nullptr);
        CHECK(a.flags == (GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH | GOLDENRULE_GPU_FLAG_TRIGGER_EARLY |
                          GOLDENRULE_GPU_FLAG_STATE_READY));
        CHECK(address(a.state) == 4);
        CHECK(address(a.q) == 2);
      });
  look_at_arguments("columns=3 output=0", [&](const Args& a) {
    CHECK(a.state_indices.stride[0] == 3);
    CHECK(static_cast<const std::int32_t*>(a.state_indices.data)[6] == -1);
    CHECK(a.o.data == nullptr);
    CHECK(a.flags == GOLDENRULE_GPU_FLAG_NO_OUTPUT);
  });
  look_at_arguments("gap=8 keeps=0", [&](const Args& a) {
    CHECK(a.state.stride[2] == 16);  // gaps of whole vectors lie between heads
    CHECK(a.state.stride[1] == 12 * 16 + 8);
    CHECK(a.intermediate_states.data == nullptr);
  });
}

TEST_CASE("each change of a record changes what it says") {
  const std::string line = "op=gdn mode=mtp B=3 T=2 H=1 HV=2 K=16 V=12 accepted=mixed change=";
  const call::Record none = record_of(line + "no_tokens");
  CHECK(none.inputs.at("q").shape() == call::Shape{3, 0, 1, 16});
  CHECK(none.inputs.at("accepted_tokens").to_integers() == std::vector<std::int64_t>{0, 0, 0});
  const call::Record extreme = record_of(line + "extreme_gates io=f32");
  const std::vector<double> a = extreme.inputs.at("a").to_doubles();
  CHECK(std::ranges::find(a, -100) != a.end());
  CHECK(record_of(line + "gates_f16").inputs.at("A_log").dtype() == call::DType::kF16);
  CHECK(record_of(line + "gates_f32").inputs.at("b").dtype() == call::DType::kF32);
  CHECK(record_of(line + "gates_bf16").inputs.at("dt_bias").dtype() == call::DType::kBF16);
}

/// "" or why the host refuses a case of attention; its kernels are judged in tests/gpu_host.
std::string refusal_on_host(const LiveCase& c) {
  LiveCall live(make_record(c), c.placement, Memory::kHost);
  char message[256] = "";
  const goldenrule_gpu_status status =
      goldenrule_gpu_attention_validate(&live.attention_args(), message, sizeof message);
  const bool right = status == GOLDENRULE_GPU_OK || status == GOLDENRULE_GPU_NO_DEVICE;
  return right ? "" : message;
}

// Every case is a case, and shares of all lists can be judged: right outputs pass, none is left
// without a verdict.
TEST_CASE("cases of every list are placed, run and judged") {
  constexpr std::size_t kEvery = 67, kMostElements = 1 << 20;
  for (const CaseList& list : case_lists()) {
    const std::vector<LiveCase> cases = parse_list(list.lines);
    CHECK(cases.size() > 10);
    std::size_t judged = 0;
    for (std::size_t i = 0; i < cases.size(); i += kEvery) {
      const bool attention = cases[i].call.op == call::Op::kAttention;
      const bool large =
          cases::step_count(cases[i].call) > static_cast<std::int64_t>(kMostElements);
      if (large && !attention) continue;
      CHECK_MESSAGE((attention ? refusal_on_host(cases[i]) : complaint_on_host(cases[i])) == "",
                    canonical(cases[i]));
      ++judged;
    }
    std::printf("%s: %zu cases, %zu judged\n", std::string(list.name).c_str(), cases.size(),
                judged);
    CHECK(judged > 0);
  }
}

// Where slot 0 is somebody's, a kernel that takes a pad for slot 0 changes nothing that is not its.
TEST_CASE("no row of the planted cases with a pool of its own names slot 0") {
  for (const LiveCase& c : parse_list(case_list("planted").lines)) {
    const call::Record record = make_record(c);
    if (c.call.slots == cases::SlotPattern::kNone) continue;
    const std::vector<std::int64_t> slots = record.inputs.at("state_indices").to_integers();
    CHECK(std::ranges::find(slots, 0) == slots.end());
  }
}

TEST_CASE("each mistake of the stand-in is seen, by the look that is there for it") {
  const std::string line =
      "op=gdn mode=mtp B=5 T=3 H=1 HV=2 K=16 V=12 io=f32 slots=padded gap=3 shift=1";
  CHECK(complaint_on_host(parse_live(line)) == "");
  const auto says = [&](HostMistake mistake, const std::string& words) {
    const std::string complaint = complaint_on_host(parse_live(line), mistake);
    CHECK_MESSAGE(complaint.find(words) != std::string::npos, complaint);
  };
  says(HostMistake::kIgnoresStrides, "OUT_OF_BUDGET");
  says(HostMistake::kWritesGaps, "o (unwritten): byte ");
  says(HostMistake::kWritesLastSlot, "initial_state (unwritten): byte ");
  says(HostMistake::kKeyInBf16, "OUT_OF_BUDGET");
  says(HostMistake::kLeavesLastToken, "o: OUT_OF_BUDGET");
}

TEST_CASE("each mistake of the stand-in for prefill is seen") {
  for (const char* line :
       {"op=gdn mode=prefill lens=5,0,9 H=1 HV=2 K=16 V=12 io=f32 h0=1 gap=3 shift=1",
        "op=kda mode=prefill lens=5,0,9 H=1 HV=2 K=16 V=12 io=f32 gap=3 shift=1 separate=1"}) {
    CHECK(complaint_on_host(parse_live(line)) == "");
    const auto says = [&](HostMistake mistake, const std::string& words) {
      const std::string complaint = complaint_on_host(parse_live(line), mistake);
      CHECK_MESSAGE(complaint.find(words) != std::string::npos, complaint);
    };
    says(HostMistake::kIgnoresStrides, "OUT_OF_BUDGET");
    says(HostMistake::kWritesGaps, "o (unwritten): byte ");
    says(HostMistake::kKeyInBf16, "OUT_OF_BUDGET");
    says(HostMistake::kLeavesLastToken, "o: OUT_OF_BUDGET");
  }
}

TEST_CASE("each word of a placement reaches a prefill kernel") {
  using Args = goldenrule_gpu_prefill_args;
  const auto look = [](const std::string& words, const std::function<void(const Args&)>& f) {
    const LiveCase c =
        parse_live("op=gdn mode=prefill lens=5,0,9 H=1 HV=2 K=16 V=12 index=i32 " + words);
    LiveCall live(make_record(c), c.placement, Memory::kHost);
    live.launch(nullptr, [&](const Args* args, char*, std::size_t) {
      f(*args);
      return GOLDENRULE_GPU_OK;
    });
  };
  look("h0=1", [](const Args& a) {
    CHECK(a.total == 14);
    CHECK(a.N == 3);
    CHECK(a.slots == 3);
    CHECK(static_cast<const std::int32_t*>(a.cu_seqlens.data)[3] == 14);
    CHECK(a.q.stride[0] == 16);
    CHECK(a.beta.stride[0] == 2);
    CHECK(a.state.stride[1] == 12 * 16);
    CHECK(a.final_state.data == nullptr);
    CHECK(a.flags == 0);
  });
  look("gap=3 dependent=1 precise=1", [](const Args& a) {
    CHECK(a.q.stride[1] == 19);
    CHECK(a.state.data == nullptr);
    CHECK(a.final_state.data != nullptr);
    CHECK(a.flags == (GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH | GOLDENRULE_GPU_FLAG_PRECISE));
  });
  look("h0=1 separate=1 never_split=1", [](const Args& a) {
    CHECK(a.final_state.data != nullptr);
    CHECK(a.flags == GOLDENRULE_GPU_FLAG_NEVER_SPLIT);
  });
}

TEST_CASE("a changed input is seen, and a refusal is an error with its message") {
  const call::Record record = record_of("op=gdn mode=decode B=2 H=1 HV=2 K=8 V=4");
  const Kernel changes_k = [&](const goldenrule_gpu_recurrent_args* a, char* text, std::size_t n) {
    static_cast<char*>(a->k.data)[5] ^= 1;
    return host_kernel(record).recurrent(a, text, n);
  };
  CHECK_THROWS_WITH_AS(static_cast<void>(outputs_of(record, {}, Memory::kHost, changes_k)),
                       doctest::Contains("k (input): byte 5: expected 0x"), Error);
  const Kernel refuses = [](const goldenrule_gpu_recurrent_args*, char* text, std::size_t n) {
    std::snprintf(text, n, "K: expected 1");
    return GOLDENRULE_GPU_INVALID_ARGUMENT;
  };
  CHECK_THROWS_WITH_AS(static_cast<void>(outputs_of(record, {}, Memory::kHost, refuses)),
                       doctest::Contains("actual invalid argument: K: expected 1"), Error);
}

TEST_CASE("poison is NaN in every float type and out of range as an index") {
  const Bytes poison = make_poison(4096, 9);
  for (std::size_t i = 0; i < poison.size(); i += 8) {
    CHECK(std::isnan(call::decode(call::DType::kF32, &poison[i])));
    CHECK(std::isnan(call::decode(call::DType::kF16, &poison[i])));
    CHECK(std::isnan(call::decode(call::DType::kBF16, &poison[i + 2])));
    CHECK(call::decode(call::DType::kI32, &poison[i]) > 1e9);
  }
  CHECK(make_poison(64, 1) == make_poison(64, 1));
  CHECK(make_poison(64, 1) != make_poison(64, 2));
}

TEST_CASE("a touched redzone is named with side, byte, expected and actual") {
  GuardedBuffer buffer("state", 100, 1, 4, Memory::kHost);
  CHECK(buffer.violation() == "");
  auto* data = static_cast<char*>(buffer.data());
  std::fill_n(data, 100, '\0');
  CHECK(buffer.violation() == "");
  data[102] = 0;
  CHECK(buffer.violation().rfind("state: byte 3 after its end: expected 0x", 0) == 0);
  data[-5] = 0;
  CHECK(buffer.violation().rfind("state: byte 5 before its start: expected 0x", 0) == 0);
  CHECK(buffer.violation().ends_with("actual 0x00"));
}

}  // namespace
}  // namespace goldenrule::test
