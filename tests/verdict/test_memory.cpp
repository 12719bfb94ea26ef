// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "reference/delta/oracle/memory.hpp"
#include "tests/verdict/support.hpp"

using namespace goldenrule;
using namespace goldenrule::verdict;

namespace {

Declared declared(const std::string& line) {
  const call::Record record = test::record_of(line);
  const call::Dims dims = call::validate(record);
  Declared call{.op = record.op, .mode = record.mode, .inputs = {}, .outputs = {}};
  for (const auto& [name, tensor] : record.inputs) {
    call.inputs[name] = tensor.shape();
    call.tensor_bytes += static_cast<double>(tensor.bytes().size());
  }
  for (const char* name : {"o", "final_state", "checkpoints"}) {
    const bool asked = record.find_input("checkpoint_offsets") != nullptr;
    if (name == std::string("checkpoints") && !asked) continue;
    call.outputs[name] = call::output_shape(record, dims, name);
  }
  return call;
}

constexpr std::initializer_list<const char*> kLines{
    "op=gdn mode=decode B=64 H=4 HV=8 K=128 V=128", "op=kda mode=mtp B=8 T=4 H=2 HV=2 K=128 V=64",
    "op=gdn mode=prefill lens=900,0,100 H=2 HV=4 K=128 V=128 gate=log",
    "op=kda mode=prefill lens=1000 H=4 HV=4 K=128 V=128 gate=bounded h0=1"};

}  // namespace

TEST_CASE("memory: every tensor, output and thread counts") {
  for (const char* line : kLines) {
    INFO(line);
    const Declared call = declared(line);
    const Need need = delta::memory_needed(call, 1);
    CHECK(need.verdict > call.tensor_bytes);
    CHECK(need.explanation > 0.0);
    CHECK(delta::memory_needed(call, 16).verdict > need.verdict);

    Declared without_state = call;
    without_state.outputs.erase("final_state");
    CHECK(delta::memory_needed(without_state, 1).verdict < need.verdict);

    Declared with_rows = call;
    with_rows.outputs["intermediate_states"] = {1 << 10, 1, 1, 128, 128};
    CHECK(delta::memory_needed(with_rows, 1).verdict > need.verdict + 16.0 * (1 << 24));

    Declared larger = call;  // read, it stands in memory twice
    larger.tensor_bytes += 1e9;
    CHECK(delta::memory_needed(larger, 1).verdict > need.verdict + 1e9);
    CHECK(delta::memory_needed(larger, 1).verdict < need.verdict + 2.1e9);
    Declared packed = call;
    packed.file_bytes = 1e12;
    CHECK(delta::memory_needed(packed, 1).verdict > 1e12);
  }
}

TEST_CASE("memory: checkpoints are held in the expectation and by every lane that is emulated") {
  const std::string line = "op=gdn mode=prefill lens=1000 H=1 HV=4 K=64 V=64 gate=log";
  const double without = delta::memory_needed(declared(line), 4).verdict;
  Declared call = declared(line + " checkpoints=after every=8");
  const double states = 125.0 * 4 * 64 * 64 * 8;
  const double with = delta::memory_needed(call, 4).verdict;
  CHECK(with > without + 8 * states);
  CHECK(with < without + 20 * states);
  // Asked for and not captured: the lanes hold them all the same.
  call.outputs.erase("checkpoints");
  CHECK(delta::memory_needed(call, 4).verdict > without + 6 * states);
  CHECK(delta::memory_needed(call, 4).verdict < with);
}

TEST_CASE("memory: a lane may have as many tokens as a ring has places") {
  const std::string line = "op=gdn mode=mtp B=1 T=1 H=1 HV=1 K=128 V=1 ring=f32 window=";
  const double few = delta::memory_needed(declared(line + "100"), 1).verdict;
  const Declared call = declared(line + "20100");
  // q and k of every token, in double.
  CHECK(delta::memory_needed(call, 1).verdict >
        few + call.tensor_bytes + 20000.0 * 2 * 128 * sizeof(double));
}

TEST_CASE("memory: shapes that no integer counts, and calls that are none") {
  constexpr std::int64_t kHuge = INT64_MAX;
  Declared call{.op = call::Op::kKda, .mode = call::Mode::kPrefill, .inputs = {}, .outputs = {}};
  CHECK(std::isfinite(delta::memory_needed(call, 1).verdict));
  call.inputs = {{"q", {kHuge, kHuge, kHuge}}, {"v", {kHuge, kHuge, kHuge}}};
  call.outputs = {{"final_state", {kHuge, kHuge, kHuge, kHuge}}};
  CHECK(delta::memory_needed(call, 4).verdict > 1e60);
  CHECK_FALSE(std::isnan(delta::memory_needed(call, 4).verdict));
  for (const call::Mode mode : {call::Mode::kDecode, call::Mode::kMtp, call::Mode::kPrefill}) {
    call.mode = mode;
    for (const call::Shape& shape : {call::Shape{}, call::Shape{0}, call::Shape{0, 0, 0},
                                     call::Shape{0, 0, 0, 0}, call::Shape{1, 1, 1, 1, 1}}) {
      call.inputs = {{"q", shape}, {"v", shape}, {"cu_seqlens", shape}, {"initial_ring_d", shape}};
      call.outputs = {{"final_state", shape}, {"ring_d", shape}};
      const Need need = delta::memory_needed(call, 4);
      CHECK(std::isfinite(need.verdict));
      CHECK(need.verdict > 0.0);
    }
  }
}
