// SPDX-License-Identifier: Apache-2.0
//
// Attention as the neutral parts see it: verdicts on emulated kernels, one wrong element, the lse
// of a row that sees no key, contracts of the other family, and mistakes that are named in the
// captures of emulated kernels that make them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/suite.hpp"
#include "reference/attention/slice.hpp"
#include "reference/delta/slice.hpp"
#include "reference/explain/blind.hpp"
#include "reference/explain/diagnose.hpp"
#include "reference/verdict/kernels.hpp"
#include "tests/attention/support.hpp"

using namespace goldenrule;
using namespace goldenrule::test;
using cases::record_of;
using verdict::Verdict;

namespace {

constexpr const char* kLines[] = {
    "op=attention mode=decode lens=4,4 ctx=33,70 H=2 HV=4 K=32 V=16 lse_base=2",
    "op=attention mode=decode lens=8,3 ctx=61,40 H=1 HV=3 K=32 V=32 page=4 table=csr_last "
    "mask=block_causal block=4 lse_layout=ht kv_layout=hnd",
    "op=attention mode=decode lens=6,6 ctx=40,7 H=2 HV=4 K=32 V=16 block_kv=in_cache "
    "mask=causal valid=mixed pattern=P",
    "op=attention mode=prefill lens=40,9 H=1 HV=2 K=32 V=16 mask=causal window_left=8 io=f16",
};

}  // namespace

TEST_CASE("attention: emulated kernels pass under their contract, one wrong element does not") {
  for (const char* line : kLines) {
    CAPTURE(line);
    call::Record record = record_of(line);
    for (const contract::Contract& contract : contract::contracts_of(call::Family::kAttention)) {
      CAPTURE(contract.name);
      record.outputs = outputs_of(record, contract, 11);
      const Verdict honest = judged(record, contract).verdict;
      CHECK_MESSAGE(is_pass(honest), verdict::name_of(honest));
      if (contract.is_ideal()) CHECK(honest == Verdict::kExact);
      for (auto& [name, tensor] : record.outputs) {
        const std::int64_t at = 0;
        const double right = tensor[at];
        for (const double wrong : {std::numeric_limits<double>::quiet_NaN(), right + 1.0}) {
          tensor.set(at, wrong);
          CHECK(judged(record, contract).verdict == Verdict::kOutOfBudget);
        }
        tensor.set(at, right);
      }
    }
  }
}

TEST_CASE("attention: the lse of a row that sees no key is -inf and nothing else") {
  call::Record record =
      record_of("op=attention mode=decode lens=4,4 keys=0,0 ctx=40,0 H=1 HV=2 K=16 V=16 pattern=A");
  record.outputs = outputs_of(record, flash_contract(), 3);
  CHECK(is_pass(judged(record, flash_contract()).verdict));
  call::Tensor& lse = record.outputs.at("lse");
  const std::int64_t empty = lse.size() - 1;  // of the second request
  REQUIRE(lse[empty] == -INFINITY);
  for (const double wrong : {std::numeric_limits<double>::quiet_NaN(), HUGE_VAL, 0.0}) {
    lse.set(empty, wrong);
    const auto report = judged(record, flash_contract());
    CHECK(report.verdict == Verdict::kOutOfBudget);
    CHECK(report.tensors[0].out_of_budget == 1);
  }
}

// A weight that is flushed costs its own column what its own row holds there.
TEST_CASE("attention: one huge value is no budget for other requests and columns") {
  call::Record record =
      record_of("op=attention mode=prefill lens=3,3 H=1 HV=2 K=16 V=8 io=f32 pattern=A");
  call::Tensor& v = record.inputs.at("v");
  for (const double huge : {3e38, HUGE_VAL}) {
    v.set(0, huge);  // of the first request, column 0
    record.outputs = outputs_of(record, flash_contract(), 3);
    CHECK(is_pass(judged(record, flash_contract()).verdict));
    call::Tensor& o = record.outputs.at("o");
    for (const std::int64_t at : {std::int64_t{1}, o.size() - 1}) {
      const double right = o[at];
      o.set(at, right + 1.0);
      CHECK(judged(record, flash_contract()).verdict == Verdict::kOutOfBudget);
      o.set(at, right);
    }
  }
}

// Scores of 1255 in bf16 err by several units, so that eager_bf16 allows any weights; a column of
// equal large values is right all the same.
TEST_CASE("attention: a large column does not vouch for those that may be anything") {
  call::Record record = record_of("op=attention mode=prefill lens=4 keys=64 H=1 HV=1 K=16 V=8");
  for (const char* name : {"q", "k"}) {
    call::Tensor& x = record.inputs.at(name);
    for (std::int64_t i = 0; i < x.size(); i += 16) x.set(i, 72.0);
  }
  call::Tensor& v = record.inputs.at("v");
  for (std::int64_t i = 0; i < v.size(); i += 8) v.set(i, 1000.0);
  const contract::Contract& eager = contract::find_contract("eager_bf16");
  record.outputs = outputs_of(record, eager, 3);
  const verdict::CaseReport report = judged(record, eager);
  CHECK(report.verdict == Verdict::kMistrusted);
  // What errors of scores do to the logarithm of a sum is bounded by the largest of them.
  CHECK(report.tensors[0].name == "lse");
  CHECK(is_pass(report.tensors[0].verdict));
}

TEST_CASE("attention: the mean of equal values is that value, whatever the weights may be") {
  call::Record record = record_of("op=attention mode=prefill lens=4 keys=7 H=1 HV=2 K=16 V=8");
  for (const char* name : {"q", "k"}) {
    call::Tensor& x = record.inputs.at(name);
    for (std::int64_t i = 0; i < x.size(); i += 16) x.set(i, 72.0);
  }
  const contract::Contract& eager = contract::find_contract("eager_bf16");
  for (const double value : {1.0, 3.0, -6.0, 0.90234375, 2.40625, -5.03125}) {
    call::Tensor& v = record.inputs.at("v");
    for (std::int64_t i = 0; i < v.size(); ++i) v.set(i, value);
    record.outputs = outputs_of(record, eager, 3);
    CHECK(is_pass(judged(record, eager).verdict));
    v.set(0, value * 1.25);  // now the weights are all that o is made of
    record.outputs = outputs_of(record, eager, 3);
    CHECK(judged(record, eager).verdict == Verdict::kMistrusted);
  }
}

TEST_CASE("attention: a lse of 0 is a value like any other") {
  call::Record record =
      record_of("op=attention mode=prefill lens=6 H=1 HV=1 K=16 V=8 mask=causal pattern=A");
  call::Tensor& q = record.inputs.at("q");
  for (std::int64_t i = 0; i < q.size(); ++i) q.set(i, 0.0);
  record.outputs = outputs_of(record, flash_contract(), 3);
  CHECK(is_pass(judged(record, flash_contract()).verdict));
  record.outputs.at("lse").set(0, 1e-3);
  CHECK(judged(record, flash_contract()).verdict == Verdict::kOutOfBudget);
}

// 8 requests of 16384 keys, in pages of 256 and in pages of 1: 8 heads of keys, 32 of queries.
TEST_CASE("attention: pages are not taken for heads where memory is counted") {
  for (const std::int64_t page : {1, 256}) {
    const std::int64_t keys = std::int64_t{8} * 16384;
    verdict::Declared call{
        .op = call::Op::kAttention, .mode = call::Mode::kDecode, .inputs = {}, .outputs = {}};
    call.inputs["q"] = {8, 32, 128};
    call.inputs["cu_seqlens_q"] = call.inputs["kv_lens"] = {9};
    call.inputs["k_cache"] = call.inputs["v_cache"] = {keys / page, page, 8, 128};
    call.inputs["page_table"] = {8, 16384 / page};
    call.key_bytes = 2.0;
    const double all_heads = 32.0 * static_cast<double>(keys) * 256.0 * 2.0;
    const verdict::Need need = attention::slice().memory_needed(call, 2);
    CHECK(need.explanation > all_heads);
    CHECK(need.explanation < 2.1 * all_heads);
    call.kv_layout = call::KvLayout::kHnd;
    call.inputs["k_cache"] = call.inputs["v_cache"] = {keys / page, 8, page, 128};
    CHECK(attention::slice().memory_needed(call, 2).explanation == need.explanation);
  }
}

TEST_CASE("attention: contracts of the other family are refused") {
  call::Record record = record_of(kLines[0]);
  record.outputs = outputs_of(record, flash_contract(), 3);
  CHECK_THROWS_WITH_AS((void)judged(record, contract::find_contract("recurrent_f32")),
                       doctest::Contains("flash_bf16_rounded_sum"), Error);
  const call::Record delta = record_of("op=gdn mode=decode B=1 H=1 HV=1 K=4 V=4");
  CHECK_THROWS_WITH_AS(
      (void)verdict::judge_record(delta::slice(), delta, {.contract = flash_contract()}),
      doctest::Contains("recurrent_f32"), Error);
}

TEST_CASE("attention: what a file claims is followed where it is tighter") {
  call::Record record = record_of(kLines[0]);
  const auto implied = [&] { return attention::slice().default_contract(record).name; };
  CHECK(implied() == "flash_bf16");
  record.contract = "ideal";
  CHECK(implied() == "ideal");
  record.contract = "eager_bf16";
  CHECK(implied() == "flash_bf16");
  record.contract = "mine";
  CHECK_THROWS_AS((void)implied(), Error);
}

TEST_CASE("attention: without a window or a cap a capture cannot tell them, and says so") {
  call::Record record = record_of("op=attention mode=decode lens=1 ctx=20 H=1 HV=1 K=16 V=16");
  record.outputs = outputs_of(record, flash_contract(), 1);
  const auto blind = explain::find_blindness(
      verdict::judgement(attention::slice(), record, {.contract = flash_contract()}));
  std::set<std::string> attributes;
  for (const auto& convention : blind.conventions) attributes.insert(convention.attribute);
  CHECK(attributes.contains("mask"));  // one query that sees all
  CHECK(attributes.contains("head_map"));
  CHECK_FALSE(attributes.contains("scale"));
  CHECK_FALSE(attributes.contains("gate"));
}

// A mistake is named, alone or among those with the same outputs, in each of the first cases in
// which an emulated kernel that makes it is refused.
TEST_CASE("attention: mistakes of emulated kernels are named") {
  constexpr int kCases = 2;
  std::vector<call::Record> records;
  for (const cases::Case& c : cases::load_suite("attention_boundary").cases) {
    if (cases::step_count(c) < 6'000'000) records.push_back(cases::make_record(c));
  }
  const verdict::Slice& slice = attention::slice();
  std::map<std::string, int> refused;
  std::map<std::string, int> named;
  for (const calls::Mistake& mistake : slice.mistakes()) {
    const std::string name(mistake.name);
    for (const call::Record& honest : records) {
      if (refused[name] >= kCases) break;
      if (!mistake.applies(honest)) continue;
      call::Record record = honest;
      const calls::Kernel kernel = verdict::emulated_kernel(slice, flash_contract(), 5);
      record.outputs = calls::stored(record, flash_contract(), mistake.commit(honest, kernel));
      const auto judgement = verdict::judgement(slice, record, {.contract = flash_contract()});
      if (judgement.report.verdict != Verdict::kOutOfBudget) continue;
      ++refused[name];
      const explain::Diagnosis d = explain::diagnose(judgement, slice.mistakes(), {.seconds = 2.0});
      bool found = false;
      for (const explain::Explanation& e : d.explanations) {
        found = found || e.name() == name || std::ranges::find(e.same, name) != e.same.end();
      }
      CHECK_MESSAGE(found, name << " in " << honest.case_line);
      named[name] += found ? 1 : 0;
    }
  }
  int all = 0;
  for (const auto& [name, count] : named) all += count;
  MESSAGE(all << " refused captures of " << named.size() << " mistakes named");
  CHECK(named.size() == 53);  // some have two rows and more
}
