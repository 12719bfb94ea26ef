// SPDX-License-Identifier: Apache-2.0
//
// Draft acceptance as the neutral parts see it: verdicts on integers, which mistakes there are, and
// that they are named in the captures of emulated kernels that make them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/suite.hpp"
#include "reference/drafts/slice.hpp"
#include "reference/explain/diagnose.hpp"
#include "reference/verdict/kernels.hpp"
#include "tests/drafts/calls.hpp"
#include "tests/record_of.hpp"

using namespace goldenrule;
using verdict::Verdict;

namespace {

const contract::Contract& ideal_contract() { return contract::find_contract("ideal"); }

using goldenrule::cases::record_of;

call::TensorMap outputs_of(const call::Record& record, std::uint64_t seed) {
  return calls::stored(record, ideal_contract(),
                       drafts::slice().emulate(record, ideal_contract(), seed));
}

verdict::CaseReport judged(const call::Record& record) {
  return verdict::judge_record(drafts::slice(), record);
}

}  // namespace

TEST_CASE("draft acceptance: the right numbers are EXACT, any other number is none") {
  for (const char* line :
       {"op=draft_acceptance mode=greedy B=6 S=7 Z=7 stops=mixed padding=mixed page_size=4",
        "op=draft_acceptance mode=rejection B=4 S=3 Z=1025 io=f32 page_size=4"}) {
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

TEST_CASE("draft acceptance: zeros are numbers, and what is open is counted") {
  // Nothing is accepted, token 0 is emitted, nothing is kept but the anchor.
  call::Record record = drafts::test::greedy({0, 6, 7, 8});
  record.inputs["start"] = call::integer_tensor({0});
  record.outputs = outputs_of(record, 1);
  CHECK(record.outputs.at("accepted")[0] == 0.0);
  CHECK(judged(record).verdict == Verdict::kExact);

  const std::vector<double> same{0.5, 0.0, 0.25, 0.25};  // neither has the draft
  call::Record open = drafts::test::rejection(same, same, 0.5, 0.5);
  open.outputs = outputs_of(open, 1);  // p = q: r is 0 everywhere
  const auto report = judged(open);
  std::int64_t undefined = 0;
  for (const auto& t : report.tensors) undefined += t.undefined;
  CHECK(undefined == 2);  // the token and the next anchor
}

// Whether the numbers of an open row, by output, are those of an outcome; `wrong` says how many of
// them are not.
TEST_CASE("draft acceptance: an open row is one of its outcomes, as a whole") {
  using Row = std::map<std::string, std::vector<double>>;
  // u q = p up to an ulp. Accepted: draft 1 and a token that 0.9 of the bonus chooses, 3; refused:
  // 3 of r = (1/4, 0, 0, 0), 0.
  const std::vector<double> q{0.25, 0.25, 0.25, 0.25};
  const std::vector<double> p{0.5, 0.125, 0.25, 0.125};
  call::Record open =
      drafts::test::rejection(p, q, static_cast<double>(std::nextafterf(0.5F, 1.0F)), 0.9);
  const auto outcome = [](double accepted, std::vector<double> tokens, double keep) {
    const double last = accepted == 0.0 ? tokens[0] : tokens[1];
    return Row{
        {"accepted", {accepted}}, {"committed", {accepted + 1}}, {"target_len", {11 + accepted}},
        {"draft_len", {10}},      {"next_anchor", {last}},       {"release_from", {11 + accepted}},
        {"keep", {1, keep}},      {"tokens", std::move(tokens)}};
  };
  const auto wrong = [&open](const Row& row) {
    open.outputs = outputs_of(open, 1);
    for (auto& [name, tensor] : open.outputs) {
      for (std::int64_t i = 0; i < tensor.size(); ++i) {
        tensor.set(i, row.at(name)[static_cast<std::size_t>(i)]);
      }
    }
    std::int64_t count = 0;
    std::int64_t undefined = 0;
    const auto report = judged(open);
    for (const auto& t : report.tensors) {
      count += t.out_of_budget;
      undefined += t.undefined;
    }
    CHECK((count != 0) == (report.verdict == Verdict::kOutOfBudget));
    CHECK((count == 0) == (undefined > 0));
    return count;
  };
  const Row accepted = outcome(1, {1, 3}, 1);
  const Row refused = outcome(0, {0, -1}, 0);
  CHECK(wrong(accepted) == 0);
  CHECK(wrong(refused) == 0);
  Row mixed = accepted;  // the tokens of one, the counts of the other
  mixed["tokens"] = refused.at("tokens");
  CHECK(wrong(mixed) == 2);
  mixed = accepted;
  mixed["keep"] = refused.at("keep");
  CHECK(wrong(mixed) == 1);
  for (const double token : {-77.0, 1.0, 2.0, 4.0, 1e9}) {
    mixed = refused;
    mixed["tokens"][0] = mixed["next_anchor"][0] = token;
    CHECK(wrong(mixed) == 2);
  }
  mixed = refused;
  mixed["accepted"][0] = 99;
  CHECK(wrong(mixed) == 1);

  // A token on the edge between 0 and 3 is one of them, and the anchor is it.
  open = drafts::test::rejection({0.375, 0.0, 0.25, 0.375}, q, 0.5, 0.5);
  for (const double token : {0.0, 3.0}) CHECK(wrong(outcome(0, {token, -1}, 0)) == 0);
  for (const double token : {1.0, 2.0, 4.0}) CHECK(wrong(outcome(0, {token, -1}, 0)) == 2);
  mixed = outcome(0, {0, -1}, 0);
  mixed["next_anchor"][0] = 3;
  CHECK(wrong(mixed) == 1);
  // What is not among the outputs is not asked.
  open.outputs = outputs_of(open, 1);
  open.outputs.erase("tokens");
  for (const double token : {0.0, 1.0, 3.0}) {
    open.outputs.at("next_anchor").set(0, token);
    const auto report = verdict::judge_record(drafts::slice(), open, {.only = {"next_anchor"}});
    CHECK((report.verdict == Verdict::kOutOfBudget) == (token == 1.0));
  }

  // r = 0 everywhere: any token of the vocabulary.
  open = drafts::test::rejection(q, q, 1.0, 0.5);
  open.convention.accept_rule = call::AcceptRule::kLt;
  for (const double token : {0.0, 1.0, 2.0, 3.0}) CHECK(wrong(outcome(0, {token, -1}, 0)) == 0);
  for (const double token : {-1.0, 4.0}) CHECK(wrong(outcome(0, {token, -1}, 0)) == 2);
}

TEST_CASE("draft acceptance: a call of padding says nothing, and neither does one without tokens") {
  call::Record record = drafts::test::greedy({-1, -1, -1, -1});
  record.inputs["start"] = call::integer_tensor({-1});
  record.outputs = outputs_of(record, 1);
  CHECK(judged(record).verdict == Verdict::kSkipped);
  call::Record some = drafts::test::greedy({5, 6, 7, 8});
  some.outputs = outputs_of(some, 1);
  some.outputs.erase("tokens");
  CHECK(judged(some).verdict == Verdict::kSkipped);
  some.outputs = outputs_of(some, 1);
  some.outputs.erase("keep");
  CHECK(judged(some).verdict == Verdict::kExact);
}

TEST_CASE("draft acceptance: contracts of other families are refused") {
  call::Record record = drafts::test::greedy({5, 6, 7, 8});
  record.outputs = outputs_of(record, 1);
  for (const char* name : {"flash_bf16", "recurrent_f32"}) {
    record.contract = name;
    CHECK_THROWS_WITH_AS((void)judged(record), doctest::Contains("ideal"), Error);
  }
}

// A mistake is named first, alone or among those with the same outputs, in each of the first cases
// in which an emulated kernel that makes it is refused.
TEST_CASE("draft acceptance: mistakes of emulated kernels are named first") {
  constexpr int kCases = 4;
  std::vector<call::Record> records;
  for (const cases::Case& c : cases::load_suite("draft_acceptance").cases) {
    if (cases::step_count(c) < 200'000) records.push_back(cases::make_record(c));
  }
  const verdict::Slice& slice = drafts::slice();
  std::map<std::string, int> refused;
  std::map<std::string, int> first;
  for (const calls::Mistake& mistake : slice.mistakes()) {
    const std::string name(mistake.name);
    for (const call::Record& honest : records) {
      if (refused[name] >= kCases) break;
      if (!mistake.applies(honest)) continue;
      call::Record record = honest;
      const calls::Kernel kernel = verdict::emulated_kernel(slice, ideal_contract(), 5);
      record.outputs = calls::stored(record, ideal_contract(), mistake.commit(honest, kernel));
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
  CHECK(first.size() == 25);  // rows_mixed has two rows
}
