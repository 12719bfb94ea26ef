// SPDX-License-Identifier: Apache-2.0
//
// Rings of pending tokens instead of states. Honest kernels pass; a ring without pending tokens
// changes nothing; and a state that is folded from a ring is the one that would have been kept, as
// far as the budgets of both reach.
#include <doctest/doctest.h>

#include <cmath>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/cases/case.hpp"
#include "reference/calls/kernel.hpp"
#include "reference/delta/emulation/emulate.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/budget.hpp"
#include "reference/verdict/verdict.hpp"

using namespace goldenrule;
using verdict::Verdict;

namespace {

call::Record record_of(const std::string& line) { return cases::make_record(cases::parse(line)); }

bool is_pass(Verdict v) { return v == Verdict::kExact || v == Verdict::kWithinBudget; }

verdict::Expectations expected(const call::Record& record, const char* contract) {
  return verdict::expect(delta::slice(), record, contract::find_contract(contract),
                         scalar::Precision::kDouble);
}

// The call with empty rings, and the same one without any.
struct Pair {
  call::Record ringed, plain;
};
Pair pair_of(const char* line) {
  Pair pair{.ringed = record_of(line), .plain = {}};
  for (const char* name : {"ring_count", "ring_flush"}) {
    call::Tensor& t = pair.ringed.inputs.at(name);
    for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, 0.0);
  }
  pair.plain = pair.ringed;
  for (const char* name : {"initial_ring_d", "initial_ring_k", "initial_ring_g", "ring_indices",
                           "ring_start", "ring_count", "ring_flush"}) {
    pair.plain.inputs.erase(name);
  }
  return pair;
}

constexpr const char* kVerify[] = {
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
  for (const char* line : kVerify) {
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
  for (const char* line : kVerify) {
    CAPTURE(line);
    const Pair pair = pair_of(line);
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

namespace {

// What is wrong with the fold of a ring whose entries are right within their budgets:
//
//   S = A_n S_0 + sum_j (A_n / A_j) k_j d_j^T,    |A_n / A_j - exact| <= A_n / A_j (e^E_j - 1),
//
// with E_j the sum of the errors of the gates behind j, k and d by the product rule.
class FoldError {
 public:
  FoldError(const call::Record& record, const verdict::Expectations& e)
      : record_(record), expected_(e), d_(call::validate(record)), index_(record, d_) {}

  [[nodiscard]] double at(const call::Sequence& s, std::int64_t tokens, std::int64_t head,
                          std::int64_t i, std::int64_t v, double start) const {
    double error = 0.0;
    double log = 0.0;  // log A_n / A_j
    double of_log = 0.0;
    for (std::int64_t t = tokens - 1; t >= 0; --t) {
      const std::int64_t place = s.replay.place(t);
      const std::int64_t qk_head = d_.qk_head(record_.convention.head_map, head);
      const Entry k = entry("ring_k", index_.k(s.replay.ring, qk_head, place) + i);
      const Entry d = entry("ring_d", index_.d(s.replay.ring, head, place) + v);
      const Entry g =
          entry("ring_g", index_.g(s.replay.ring, head, place) + (index_.gates == 1 ? 0 : i));
      const double changed =
          std::fabs(k.value) * d.error + k.error * std::fabs(d.value) + k.error * d.error;
      error += std::exp(log + of_log) * changed +
               std::exp(log) * std::expm1(of_log) * std::fabs(k.value * d.value);
      log += g.value;
      of_log += g.error;
    }
    return error + std::exp(log) * std::expm1(of_log) * std::fabs(start);
  }

 private:
  struct Entry {
    double value, error;
  };
  [[nodiscard]] Entry entry(const std::string& name, std::int64_t at) const {
    const verdict::Expected& e = expected_.outputs.at(name);
    const auto i = static_cast<std::size_t>(at);
    const verdict::Budget budget(name, record_.inputs.at("initial_" + name).dtype(), e,
                                 contract::find_contract("recurrent_f32"));
    return {e.exact.golden[i], budget(i) + static_cast<double>(e.exact.radius[i])};
  }

  const call::Record& record_;
  const verdict::Expectations& expected_;
  const call::Dims d_;
  const delta::RingIndex index_;
};

// The next call: the rings that the first one left, of whose tokens `accepted` are pending in every
// row, to be flushed.
call::Record next_call(const call::Record& first, const call::TensorMap& rings,
                       std::int64_t accepted) {
  call::Record next = first;
  next.outputs.clear();
  for (const char* name : {"ring_d", "ring_k", "ring_g"}) {
    next.inputs["initial_" + std::string(name)] = rings.at(name);
  }
  const call::Plan plan = call::make_plan(first, false);
  for (std::size_t b = 0; b < plan.sequences.size(); ++b) {
    const auto row = static_cast<std::int64_t>(b);
    const std::int64_t most = std::min(plan.sequences[b].token_count,
                                       plan.dims.ring_places - plan.sequences[b].token_count);
    next.inputs.at("ring_count").set(row, static_cast<double>(std::min(accepted, most)));
    next.inputs.at("ring_flush").set(row, 1.0);
  }
  return next;
}

}  // namespace

TEST_CASE("rings: a folded state is the kept one within the budgets of both") {
  const contract::Contract& contract = contract::find_contract("recurrent_f32");
  double largest = 0.0;
  std::int64_t compared = 0;
  for (const char* line : kVerify) {
    const Pair pair = pair_of(line);
    const auto verify = expected(pair.ringed, "recurrent_f32");
    const auto kept = expected(pair.plain, "recurrent_f32");
    const FoldError fold_error(pair.ringed, verify);
    const call::Dims d = call::validate(pair.ringed);
    const delta::OutputIndex index(pair.ringed, d);
    for (const std::uint64_t seed : {3U, 4U}) {
      for (const std::int64_t accepted : {1, 2, 4}) {
        CAPTURE(line);
        CAPTURE(accepted);
        const call::TensorMap states = delta::emulate(pair.plain, contract, seed);
        const call::Record next =
            next_call(pair.ringed, delta::emulate(pair.ringed, contract, seed), accepted);
        const call::TensorMap folded = delta::emulate(next, contract, seed + 10);
        const auto fold = expected(next, "recurrent_f32");
        const verdict::Budget of_fold("final_state", call::DType::kF32,
                                      fold.outputs.at("final_state"), contract);
        const verdict::Budget of_kept("intermediate_states", call::DType::kF32,
                                      kept.outputs.at("intermediate_states"), contract);
        for (const call::Sequence& s : call::make_plan(next, false).sequences) {
          const std::int64_t n = s.replay.count;
          if (s.padded || n == 0) continue;
          for (std::int64_t head = 0; head < d.HV; ++head) {
            for (std::int64_t i = 0; i < d.K; ++i) {
              for (std::int64_t v = 0; v < d.V; ++v) {
                const std::size_t to = index(s.start_block, head, i, v);
                const std::size_t from = index(s.first_token + n - 1, head, i, v);
                const double start =
                    pair.ringed.inputs.at("initial_state")[static_cast<std::int64_t>(to)];
                const float radius = fold.outputs.at("final_state").exact.radius[to] +
                                     kept.outputs.at("intermediate_states").exact.radius[from];
                const double allowed = of_fold(to) + of_kept(from) + static_cast<double>(radius) +
                                       fold_error.at(s, n, head, i, v, start);
                const double error =
                    std::fabs(folded.at("final_state")[static_cast<std::int64_t>(to)] -
                              states.at("intermediate_states")[static_cast<std::int64_t>(from)]);
                REQUIRE(error <= allowed);
                largest = std::max(largest, error / allowed);
                ++compared;
              }
            }
          }
        }
      }
    }
  }
  CHECK(compared > 10000);
  CHECK(largest > 1e-3);  // the budgets are no excuse for anything
}
