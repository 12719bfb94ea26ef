// SPDX-License-Identifier: Apache-2.0
//
// Budgets of states on the way. Kernels that end a chunk at a checkpoint and kernels that do not
// are both honest: emulated ones of either kind pass under every contract, and what a contract
// grants is no less than it grants either of them.
#include <doctest/doctest.h>

#include <cmath>

#include "fixtures/call/plan.hpp"
#include "fixtures/cases/case.hpp"
#include "reference/delta/budget/lane_spread.hpp"
#include "reference/delta/emulation/emulate.hpp"
#include "reference/delta/emulation/kernel_choices.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/verdict.hpp"
#include "tests/delta/emulation/support.hpp"

using namespace goldenrule;
using namespace goldenrule::test;
using verdict::Verdict;

namespace {

constexpr const char* kLines[] = {
    "op=gdn mode=prefill lens=70,0,130,33 H=1 HV=2 K=32 V=16 gate=log slots=padded "
    "checkpoints=listed",
    "op=kda mode=prefill lens=70,0,130 H=1 HV=2 K=32 V=16 gate=bounded h0=1 checkpoints=before "
    "every=48",
    "op=gdn mode=prefill lens=100,64 H=1 HV=1 K=32 V=16 gate=log state=bf16 slots=separate "
    "checkpoints=continued pattern=B95"};

double sum(const verdict::Grant& grant) {
  double total = 0.0;
  for (const float x : grant.spread) total += static_cast<double>(x);
  return total;
}

verdict::Expectations expected(const std::string& line, const char* contract) {
  return verdict::expect(delta::slice(), record_of(line), contract::find_contract(contract),
                         scalar::Precision::kDouble);
}

}  // namespace

TEST_CASE("checkpoints: emulated kernels of both kinds pass under every contract") {
  bool kinds[2] = {};
  for (const char* line : kLines) {
    CAPTURE(line);
    call::Record record = record_of(line);
    for (const contract::Contract& contract : contract::contracts_of(call::Family::kDelta)) {
      CAPTURE(contract.name);
      for (const std::uint64_t seed : {3U, 4U, 5U, 6U}) {
        CAPTURE(seed);
        kinds[static_cast<int>(delta::KernelChoices(seed).ends)] = true;
        record.outputs = delta::emulate(record, contract, seed);
        const auto report = verdict::judge_record(delta::slice(), record, {.contract = contract});
        CHECK_MESSAGE(is_pass(report.verdict), report.reason);
        REQUIRE(report.tensors.size() == 3);
        CHECK(report.tensors.front().name == "checkpoints");
        CHECK(report.tensors.front().compared > 0);
        // One number of one state is off by all of its size.
        call::Tensor& kept = record.outputs.at("checkpoints");
        std::int64_t at = -1;
        for (std::int64_t i = 0; i < kept.size(); ++i) {
          if (std::isfinite(kept[i]) && (at < 0 || std::fabs(kept[i]) > std::fabs(kept[at])))
            at = i;
        }
        kept.set(at, 2.0 * kept[at]);
        CHECK(verdict::judge_record(delta::slice(), record, {.contract = contract}).verdict ==
              Verdict::kOutOfBudget);
      }
    }
  }
  CHECK(kinds[0]);
  CHECK(kinds[1]);
}

TEST_CASE(
    "checkpoints: an absent one is named, and the states that are asked for are judged alone") {
  call::Record record = record_of(kLines[0]);
  const contract::Contract& contract = contract::find_contract("chunk64_bf16");
  record.outputs = delta::emulate(record, contract, 1);
  const call::Tensor kept = record.outputs.at("checkpoints");
  record.outputs.erase("checkpoints");
  const auto absent = verdict::judge_record(delta::slice(), record, {.contract = contract});
  CHECK(absent.verdict == Verdict::kSkipped);
  CHECK(absent.absent == std::vector<std::string>{"checkpoints"});
  CHECK(is_pass(verdict::judge_record(delta::slice(), record,
                                      {.contract = contract, .only = {"o", "final_state"}})
                    .verdict));
  record.outputs["checkpoints"] = kept;
  CHECK(is_pass(
      verdict::judge_record(delta::slice(), record, {.contract = contract, .only = {"checkpoints"}})
          .verdict));
}

TEST_CASE("checkpoints: a buffer of bf16 beside a pool of f32, and of f32 beside a pool of bf16") {
  for (const char* line : {kLines[0], kLines[2]}) {
    CAPTURE(line);
    call::Record record = record_of(line);
    for (const char* name : {"chunk64_bf16", "chunk16_bf16_state", "recurrent_f32"}) {
      CAPTURE(name);
      const contract::Contract& contract = contract::find_contract(name);
      const call::TensorMap unstored = delta::emulate_unstored(record, contract, 5);
      record.outputs = calls::stored(record, contract, unstored);
      for (const call::DType type : {call::DType::kBF16, call::DType::kF16, call::DType::kF32}) {
        const call::Tensor& kept = unstored.at("checkpoints");
        record.outputs["checkpoints"] = call::Tensor(type, kept.shape(), kept.to_doubles());
        const auto report = verdict::judge_record(delta::slice(), record, {.contract = contract});
        CHECK_MESSAGE(is_pass(report.verdict), report.reason);
      }
      // Bits that the buffer could have held are not lost for nothing.
      if (std::string(name) != "recurrent_f32") continue;
      for (const call::DType type : {call::DType::kBF16, call::DType::kF16}) {
        call::Tensor& kept = record.outputs.at("checkpoints");
        for (std::int64_t i = 0; i < kept.size(); ++i) {
          kept.set(i, call::round_to(type, unstored.at("checkpoints")[i]));
        }
        CHECK(verdict::judge_record(delta::slice(), record, {.contract = contract}).verdict ==
              Verdict::kOutOfBudget);
      }
    }
  }
}

TEST_CASE("checkpoints: who is asked for none is granted what it was") {
  const std::string line = "op=gdn mode=prefill lens=130,65 H=1 HV=2 K=32 V=16 gate=log h0=1";
  for (const char* contract : {"chunk64_bf16", "chunk64_f32", "recurrent_f32"}) {
    CAPTURE(contract);
    const auto plain = expected(line, contract);
    // At the ends of chunks a kernel need not move any: nothing is added but other random numbers.
    const auto even = expected(line + " checkpoints=after", contract);
    CHECK(sum(even.outputs.at("o").grant) / sum(plain.outputs.at("o").grant) ==
          doctest::Approx(1.0).epsilon(0.05));
    // Elsewhere it may: what o and final_state are granted is the larger of both, and it does not
    // depend on whether the states are judged.
    const auto odd = expected(line + " checkpoints=after every=40", contract);
    double wider = 0.0;
    for (std::size_t i = 0; i < plain.outputs.at("o").grant.spread.size(); ++i) {
      const float before = plain.outputs.at("o").grant.spread[i];
      const float after = odd.outputs.at("o").grant.spread[i];
      if (std::string(contract) == "recurrent_f32") REQUIRE(after == before);
      wider += after > before ? 1.0 : 0.0;
    }
    CHECK((wider > 0.0) == (std::string(contract) != "recurrent_f32"));
    const call::Record record = record_of(line + " checkpoints=after every=40");
    const auto alone = verdict::expect(delta::slice(), record, contract::find_contract(contract),
                                       scalar::Precision::kDouble, {.kept_states = false});
    CHECK(alone.outputs.at("o").grant.spread == odd.outputs.at("o").grant.spread);
  }
}

TEST_CASE("checkpoints: a chunk that ends early is a short chunk, split or aside") {
  // In exact arithmetic both ways give the states of the recurrence.
  const call::Record record = record_of("op=kda mode=prefill lens=50 H=1 HV=1 K=16 V=8 h0=1");
  const call::Plan plan = call::make_plan(record, false);
  const delta::CallInputs inputs(record);
  const delta::OutputIndex index(record, plan.dims);
  const call::Sequence& s = plan.sequences.front();
  const auto lane = delta::prepare_lane<double>(record, plan.dims, inputs, 0, 50, 0);
  const auto v = delta::lane_values(inputs, plan.dims, index, s, 0);
  const auto start = delta::lane_start(inputs, plan.dims, index, s, 0);
  const std::vector<std::int64_t> positions{1, 16, 17, 40, 47, 50};
  CHECK(delta::splits_chunks(positions, 50, 16));
  CHECK_FALSE(delta::splits_chunks(std::vector<std::int64_t>{16, 48, 50}, 50, 16));
  for (const auto ends : {delta::ChunkEnds::kKeep, delta::ChunkEnds::kSplit}) {
    std::vector<std::int64_t> pieces;
    const auto kept = delta::run_in_pieces<double>(
        lane, v, start, positions, 16, ends,
        [&](const delta::Lane<double>& piece, const auto& values, const auto& from) {
          pieces.push_back(piece.tokens);
          return delta::recurrent_form<double>(piece, values, from);
        });
    CHECK(pieces == (ends == delta::ChunkEnds::kSplit
                         ? std::vector<std::int64_t>{1, 15, 1, 23, 7, 3}
                         : std::vector<std::int64_t>{1, 16, 1, 16, 8, 15, 18}));
    const auto whole = delta::recurrent_form<double>(lane, v, start);
    CHECK((kept.o - whole.o).cwiseAbs().maxCoeff() == 0.0);
    REQUIRE(kept.states.size() == positions.size());
    CHECK((kept.states.back() - whole.state).cwiseAbs().maxCoeff() == 0.0);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const auto prefix = delta::recurrent_form<double>(delta::slice(lane, 0, positions[i]),
                                                        v.topRows(positions[i]), start);
      CHECK((kept.states[i] - prefix.state).cwiseAbs().maxCoeff() == 0.0);
    }
  }
}
