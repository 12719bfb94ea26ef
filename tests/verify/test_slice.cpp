// SPDX-License-Identifier: Apache-2.0
//
// Verification as the neutral parts see it: verdicts on integers, which mistakes there are, and
// that they are named in the captures of emulated kernels that make them.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/suite.hpp"
#include "reference/explain/diagnose.hpp"
#include "reference/verdict/kernels.hpp"
#include "reference/verify/slice.hpp"
#include "tests/verify/calls.hpp"

using namespace goldenrule;
using verdict::Verdict;

namespace {

const contract::Contract& ideal() { return contract::find_contract("ideal"); }

call::Record record_of(const std::string& line) { return cases::make_record(cases::parse(line)); }

call::TensorMap outputs_of(const call::Record& record, std::uint64_t seed) {
  return calls::stored(record, ideal(), verify::slice().emulate(record, ideal(), seed));
}

verdict::CaseReport judged(const call::Record& record) {
  return verdict::judge_record(verify::slice(), record);
}

}  // namespace

TEST_CASE("verify: the right numbers are EXACT, any other number is none") {
  for (const char* line :
       {"op=verify mode=greedy B=6 S=7 Z=7 stops=mixed padding=mixed page_size=4",
        "op=verify mode=rejection B=4 S=3 Z=1025 io=f32 page_size=4"}) {
    CAPTURE(line);
    call::Record record = record_of(line);
    record.outputs = outputs_of(record, 3);
    CHECK(judged(record).verdict == Verdict::kExact);
    for (auto& [name, tensor] : record.outputs) {
      CAPTURE(name);
      CHECK(tensor.dtype() == call::DType::kI64);
      for (std::int64_t i = 0; i < tensor.size(); i += 3) {
        const double right = tensor[i];
        for (const double by : {1.0, -1.0, 1000.0}) {
          tensor.set(i, right + by);
          const auto report = judged(record);
          CHECK(report.verdict == Verdict::kOutOfBudget);
          for (const auto& t : report.tensors) CHECK(t.out_of_budget == (t.name == name ? 1 : 0));
        }
        tensor.set(i, right);
      }
    }
  }
}

TEST_CASE("verify: zeros are numbers, and what is open is counted") {
  // Nothing is accepted, token 0 is emitted, nothing is kept but the anchor.
  call::Record record = verify::test::greedy({0, 6, 7, 8});
  record.inputs["start"] = call::integer_tensor({0});
  record.outputs = outputs_of(record, 1);
  CHECK(record.outputs.at("accepted")[0] == 0.0);
  CHECK(judged(record).verdict == Verdict::kExact);

  call::Record open =
      verify::test::rejection({0.5, 0.25, 0.125, 0.125}, {0.25, 0.25, 0.25, 0.25}, 1.0, 0.5);
  open.convention.accept_rule = call::AcceptRule::kLt;
  open.inputs["target_probs"] = verify::test::f32({0.25, 0.25, 0.25, 0.25, 1, 0, 0, 0}, {1, 2, 4});
  open.outputs = outputs_of(open, 1);  // p = q: r is 0 everywhere
  const auto report = judged(open);
  std::int64_t undefined = 0;
  for (const auto& t : report.tensors) undefined += t.undefined;
  CHECK(undefined == 2);  // the token and the next anchor
}

TEST_CASE("verify: a call of padding says nothing, and neither does one without tokens") {
  call::Record record = verify::test::greedy({-1, -1, -1, -1});
  record.inputs["start"] = call::integer_tensor({-1});
  record.outputs = outputs_of(record, 1);
  CHECK(judged(record).verdict == Verdict::kSkipped);
  call::Record some = verify::test::greedy({5, 6, 7, 8});
  some.outputs = outputs_of(some, 1);
  some.outputs.erase("tokens");
  CHECK(judged(some).verdict == Verdict::kSkipped);
  some.outputs = outputs_of(some, 1);
  some.outputs.erase("keep");
  CHECK(judged(some).verdict == Verdict::kExact);
}

TEST_CASE("verify: contracts of other families are refused") {
  call::Record record = verify::test::greedy({5, 6, 7, 8});
  record.outputs = outputs_of(record, 1);
  for (const char* name : {"flash_bf16", "recurrent_f32"}) {
    record.contract = name;
    CHECK_THROWS_WITH_AS((void)judged(record), doctest::Contains("ideal"), Error);
  }
}

// A mistake is named first, alone or among those with the same outputs, in each of the first cases
// in which an emulated kernel that makes it is refused.
TEST_CASE("verify: mistakes of emulated kernels are named first") {
  constexpr int kCases = 4;
  std::vector<call::Record> records;
  for (const cases::Case& c : cases::load_suite("verify").cases) {
    if (cases::step_count(c) < 200'000) records.push_back(cases::make_record(c));
  }
  const verdict::Slice& slice = verify::slice();
  std::map<std::string, int> refused;
  std::map<std::string, int> first;
  for (const calls::Mistake& mistake : slice.mistakes()) {
    const std::string name(mistake.name);
    for (const call::Record& honest : records) {
      if (refused[name] >= kCases) break;
      if (!mistake.applies(honest)) continue;
      call::Record record = honest;
      const calls::Kernel kernel = verdict::emulated_kernel(slice, ideal(), 5);
      record.outputs = calls::stored(record, ideal(), mistake.commit(honest, kernel));
      const auto judgement = verdict::judgement(slice, record);
      CHECK(judgement.report.verdict == Verdict::kOutOfBudget);
      ++refused[name];
      const explain::Diagnosis d = explain::diagnose(judgement, slice.mistakes(), {.seconds = 2.0});
      REQUIRE(!d.explanations.empty());
      const explain::Explanation& e = d.explanations.front();
      const bool named =
          e.explains && (e.name() == name || std::ranges::find(e.same, name) != e.same.end());
      CHECK_MESSAGE(named, name << " in " << honest.case_line << " is called " << e.name());
      first[name] += named ? 1 : 0;
    }
  }
  int all = 0;
  for (const auto& [name, count] : first) all += count;
  MESSAGE(all << " refused captures of " << first.size() << " mistakes named first");
  CHECK(first.size() == 23);  // rows_mixed has two rows
}
