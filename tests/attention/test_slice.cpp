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

using namespace goldenrule;
using verdict::Verdict;

namespace {

call::Record record_of(const std::string& line) { return cases::make_record(cases::parse(line)); }

const contract::Contract& flash() { return contract::find_contract("flash_bf16"); }

bool is_pass(Verdict v) { return v == Verdict::kExact || v == Verdict::kWithinBudget; }

verdict::CaseReport judged(const call::Record& record, const contract::Contract& contract) {
  return verdict::judge_record(attention::slice(), record, {.contract = contract});
}

// As an emulated kernel stores them.
call::TensorMap outputs_of(const call::Record& record, const contract::Contract& contract,
                           std::uint64_t seed) {
  return calls::stored(record, contract, attention::slice().emulate(record, contract, seed));
}

constexpr const char* kLines[] = {
    "op=attention mode=decode lens=4,4 ctx=33,70 H=2 HV=4 K=32 V=16 lse_base=2",
    "op=attention mode=decode lens=8,3 ctx=61,40 H=1 HV=3 K=32 V=32 page=4 table=csr_last "
    "mask=block_causal block=4 lse_layout=ht kv_layout=hnd",
    "op=attention mode=decode lens=6,6 ctx=40,7 H=2 HV=4 K=32 V=16 block_kv=in_cache "
    "mask=causal valid=mixed family=P",
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
      record_of("op=attention mode=decode lens=4,4 keys=0,0 ctx=40,0 H=1 HV=2 K=16 V=16 family=A");
  record.outputs = outputs_of(record, flash(), 3);
  CHECK(is_pass(judged(record, flash()).verdict));
  call::Tensor& lse = record.outputs.at("lse");
  const std::int64_t empty = lse.size() - 1;  // of the second request
  REQUIRE(lse[empty] == -INFINITY);
  for (const double wrong : {std::numeric_limits<double>::quiet_NaN(), double{INFINITY}, 0.0}) {
    lse.set(empty, wrong);
    const auto report = judged(record, flash());
    CHECK(report.verdict == Verdict::kOutOfBudget);
    CHECK(report.tensors[0].out_of_budget == 1);
  }
}

TEST_CASE("attention: contracts of the other family are refused") {
  call::Record record = record_of(kLines[0]);
  record.outputs = outputs_of(record, flash(), 3);
  CHECK_THROWS_WITH_AS((void)judged(record, contract::find_contract("recurrent_f32")),
                       doctest::Contains("flash_bf16_rounded_sum"), Error);
  const call::Record delta = record_of("op=gdn mode=decode B=1 H=1 HV=1 K=4 V=4");
  CHECK_THROWS_WITH_AS((void)verdict::judge_record(delta::slice(), delta, {.contract = flash()}),
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
  record.outputs = outputs_of(record, flash(), 1);
  const auto blind = explain::find_blindness(
      verdict::judgement(attention::slice(), record, {.contract = flash()}));
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
      const calls::Kernel kernel = verdict::emulated_kernel(slice, flash(), 5);
      record.outputs = calls::stored(record, flash(), mistake.commit(honest, kernel));
      const auto judgement = verdict::judgement(slice, record, {.contract = flash()});
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
  CHECK(named.size() == 44);  // window_off_by_one has two rows
}
