// SPDX-License-Identifier: Apache-2.0
//
// Rings of pending tokens instead of states. Honest kernels pass; a ring without pending tokens
// changes nothing; and a state that is folded from a ring is the one that would have been kept, as
// far as the budgets of both reach.
#include <doctest/doctest.h>

#include <algorithm>

#include "fixtures/cases/case.hpp"
#include "reference/delta/emulation/emulate.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/verdict.hpp"
#include "tests/delta/emulation/folded_states.hpp"
#include "tests/delta/emulation/support.hpp"

using namespace goldenrule;
using namespace goldenrule::test;
using verdict::Verdict;

namespace {

verdict::Expectations expected(const call::Record& record, const char* contract) {
  return verdict::expect(delta::slice(), record, contract::find_contract(contract),
                         scalar::Precision::kDouble);
}

constexpr const char* kMtp[] = {
    "op=gdn mode=mtp B=4 T=5 H=1 HV=2 K=32 V=16 slots=padded ring=f32 io=f32 window=9",
    "op=kda mode=mtp lens=5,0,7,2 H=1 HV=2 K=32 V=16 gate=bounded ring=f32 io=f32 window=9 "
    "state_layout=kv"};

}  // namespace

TEST_CASE("rings: emulated kernels pass under their contracts") {
  for (const char* line :
       {"op=gdn mode=mtp B=5 T=4 H=1 HV=2 K=64 V=32 slots=padded ring=io",
        "op=kda mode=mtp lens=3,0,1,8 H=1 HV=2 K=32 V=16 slots=separate ring=f32 window=11 "
        "gate=bounded",
        "op=gdn mode=mtp B=3 T=3 H=2 HV=4 K=32 V=16 ring=io window=8 state=bf16 io=f16 "
        "head_map=tiled gate=linear"}) {
    CAPTURE(line);
    call::Record record = record_of(line);
    for (const char* name :
         {"recurrent_f32", "recurrent_f32_bf16_activations", "chunk64_f32", "replay_bf16"}) {
      CAPTURE(name);
      const contract::Contract& contract = contract::find_contract(name);
      for (const std::uint64_t seed : {3U, 4U, 5U, 6U, 7U, 8U}) {
        CAPTURE(seed);
        record.outputs = delta::emulate(record, contract, seed);
        const auto report = verdict::judge_record(delta::slice(), record, {.contract = contract});
        CHECK(is_pass(report.verdict));
        CHECK(report.tensors.size() == 5);
        for (const auto& tensor : report.tensors) {
          CAPTURE(tensor.name);
          CHECK(is_pass(tensor.verdict));
        }
      }
    }
  }
}

// A chunk of all tokens in fp32 is another honest kernel of the contract that counts token by
// token.
TEST_CASE("rings: a kernel of one chunk in fp32 passes as one that goes token by token") {
  for (const char* line : kMtp) {
    CAPTURE(line);
    call::Record record = record_of(line);
    for (const std::uint64_t seed : {3U, 4U, 5U, 6U}) {
      CAPTURE(seed);
      record.outputs = delta::emulate(record, contract::find_contract("chunk64_f32"), seed);
      CHECK(is_pass(verdict::judge_record(delta::slice(), record,
                                          {.contract = contract::find_contract("recurrent_f32")})
                        .verdict));
    }
  }
}

TEST_CASE("rings: without pending tokens a call is what it is without rings") {
  for (const char* line : kMtp) {
    CAPTURE(line);
    const test::RingPair pair = test::pair_of(line);
    const auto a = delta::slice().evaluate(pair.ringed, scalar::Precision::kDouble, {});
    const auto b = delta::slice().evaluate(pair.plain, scalar::Precision::kDouble, {});
    CHECK(a.outputs.at("o").exact.golden == b.outputs.at("o").exact.golden);
    CHECK(a.outputs.at("o").exact.radius == b.outputs.at("o").exact.radius);
    CHECK(a.outputs.at("final_state").exact.golden ==
          pair.ringed.inputs.at("initial_state").to_doubles());
    const auto first = expected(pair.ringed, "recurrent_f32");
    const auto second = expected(pair.plain, "recurrent_f32");
    CHECK(first.outputs.at("o").grant.spread == second.outputs.at("o").grant.spread);
  }
}

TEST_CASE("rings: a folded state is the kept one within the budgets of both") {
  const contract::Contract& contract = contract::find_contract("recurrent_f32");
  double largest = 0.0;
  std::int64_t compared = 0;
  for (const char* line : kMtp) {
    const test::RingPair pair = test::pair_of(line);
    for (const std::uint64_t seed : {3U, 4U}) {
      for (const std::int64_t accepted : {1, 2, 4}) {
        CAPTURE(line);
        CAPTURE(accepted);
        const auto kernel = [&](const call::Record& record, std::uint64_t run) {
          return delta::emulate(record, contract, run);
        };
        const test::FoldComparison c = test::compare_folded(pair, contract, accepted, seed, kernel);
        CHECK(c.largest <= 1.0);
        largest = std::max(largest, c.largest);
        compared += c.compared;
      }
    }
  }
  CHECK(compared > 10000);
  CHECK(largest > 1e-3);  // the budgets are no excuse for anything
}
