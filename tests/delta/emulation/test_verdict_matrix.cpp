// SPDX-License-Identifier: Apache-2.0
//
// Every verdict under every built-in contract. The calls are a slice of the boundary suite, all
// modes and both operations. (`diff` gives the same verdicts: it asks the same function.)
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/suite.hpp"
#include "reference/delta/emulation/emulate.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/kernels.hpp"
#include "reference/verdict/verdict.hpp"
#include "tests/delta/emulation/support.hpp"

using namespace goldenrule;
using namespace goldenrule::test;
using verdict::Verdict;

namespace {

// Every 23rd case that is small; 23 divides no repetition of the suite's lines.
std::vector<call::Record> slice() {
  std::vector<call::Record> records;
  const cases::Suite suite = cases::load_suite("boundary");
  for (std::size_t i = 0; i < suite.cases.size(); i += 23) {
    const cases::Case& c = suite.cases[i];
    if (cases::step_count(c) > 0 && cases::step_count(c) <= (1 << 21))
      records.push_back(cases::make_record(c));
  }
  return records;
}

struct Subject {
  call::Record record;

  [[nodiscard]] Verdict judged(const contract::Contract& contract) const {
    return verdict::judge_record(delta::slice(), record, {.contract = contract}).verdict;
  }
};

Subject subject_of(const std::string& line) { return {cases::make_record(cases::parse(line))}; }

}  // namespace

TEST_CASE("an emulated kernel passes under its contract, one wrong element of it does not") {
  std::map<call::Mode, int> modes;
  for (call::Record& record : slice()) {
    CAPTURE(record.case_line);
    ++modes[record.mode];
    Subject subject{std::move(record)};
    for (const contract::Contract& contract : contract::contracts_of(call::Family::kDelta)) {
      CAPTURE(contract.name);
      subject.record.outputs = delta::emulate(subject.record, contract, 11);
      const Verdict honest = subject.judged(contract);
      CHECK_MESSAGE(is_pass(honest), verdict::name_of(honest));
      // The ideal kernel is the exact result, rounded once, and nothing else.
      if (contract.name == "ideal") CHECK(honest == Verdict::kExact);
      // One element is not a number; one is off by all of the tensor's largest value.
      for (auto& [name, tensor] : subject.record.outputs) {
        if (name == "intermediate_states" || tensor.size() == 0) continue;
        const std::int64_t at = tensor.size() / 2;
        const double right = tensor[at];
        double largest = 1e-3;
        for (std::int64_t i = 0; i < tensor.size(); ++i) {
          largest = std::fmax(largest, std::fabs(tensor[i]));
        }
        for (const double wrong : {std::numeric_limits<double>::quiet_NaN(), right + largest}) {
          tensor.set(at, wrong);
          CHECK(subject.judged(contract) == Verdict::kOutOfBudget);
        }
        tensor.set(at, right);
      }
    }
  }
  CHECK(modes.size() == 3);
  for (const auto& [mode, count] : modes) CHECK(count >= 4);
}

TEST_CASE("the exact result rounded to the types of a contract is EXACT, a rounding more is not") {
  constexpr const char* kLines[] = {
      "op=gdn mode=decode B=3 H=1 HV=2 K=32 V=16 slots=padded io=f32",
      "op=kda mode=mtp B=3 T=4 H=1 HV=2 K=32 V=16 slots=permuted io=f32",
      "op=gdn mode=prefill lens=70,0,5 H=1 HV=2 K=32 V=16 gate=log h0=1 io=f32"};
  for (const char* line : kLines) {
    CAPTURE(line);
    Subject subject = subject_of(line);
    for (const contract::Contract& contract : contract::contracts_of(call::Family::kDelta)) {
      CAPTURE(contract.name);
      subject.record.outputs = calls::stored(
          subject.record, contract, verdict::exact_outputs(delta::slice(), subject.record));
      if (contract.chunked() != nullptr) subject.record.outputs.erase("intermediate_states");
      CHECK(subject.judged(contract) == Verdict::kExact);
      call::Tensor& o = subject.record.outputs.at("o");
      o.set(0, o[0] + call::ulp(call::DType::kF32, o[0]));
      CHECK(subject.judged(contract) ==
            (contract.name == "ideal" ? Verdict::kOutOfBudget : Verdict::kWithinBudget));
    }
  }
}

TEST_CASE("outputs that underflow to zero are MISTRUSTED under every contract") {
  for (const char* mode : {"decode B=3", "mtp B=3 T=2", "prefill lens=9,20"}) {
    Subject subject =
        subject_of(std::string("op=gdn mode=") + mode + " H=1 HV=2 K=32 V=16 io=f16 scale=1e-09");
    for (const contract::Contract& contract : contract::contracts_of(call::Family::kDelta)) {
      CAPTURE(contract.name);
      subject.record.outputs = delta::emulate(subject.record, contract, 1);
      CHECK(subject.judged(contract) == Verdict::kMistrusted);
    }
  }
}

TEST_CASE("a budget as large as the signal is MISTRUSTED: softplus of -20 in fp32") {
  // softplus(-20) is 2e-9, its error in a fast fp32 function 5e-7, and A_log makes log alpha of it.
  Subject subject = subject_of("op=gdn mode=mtp B=3 T=8 H=1 HV=2 K=32 V=16 pattern=J20m");
  for (const contract::Contract& contract : contract::contracts_of(call::Family::kDelta)) {
    CAPTURE(contract.name);
    subject.record.outputs = delta::emulate(subject.record, contract, 1);
    const bool fast_functions = contract.functions.softplus > 0.0;
    const Verdict verdict = subject.judged(contract);
    CHECK((verdict == Verdict::kMistrusted) == fast_functions);
    CHECK(is_pass(verdict) != fast_functions);
  }
}

TEST_CASE("nothing to judge is SKIPPED, and what cannot be judged an error") {
  Subject subject = subject_of("op=gdn mode=mtp B=2 T=3 H=1 HV=2 K=16 V=8");
  for (const contract::Contract& contract : contract::contracts_of(call::Family::kDelta)) {
    CAPTURE(contract.name);
    subject.record.outputs.clear();
    CHECK(subject.judged(contract) == Verdict::kSkipped);
    const call::TensorMap exact = calls::stored(
        subject.record, contract, verdict::exact_outputs(delta::slice(), subject.record));
    // The chunk form has no states between tokens.
    subject.record.outputs["intermediate_states"] = exact.at("intermediate_states");
    CHECK(subject.judged(contract) == Verdict::kSkipped);  // o and final_state are absent
    CHECK(verdict::judgement(delta::slice(), subject.record,
                             {.contract = contract, .wanted = {"intermediate_states"}})
              .report.verdict ==
          (contract.chunked() != nullptr ? Verdict::kSkipped : Verdict::kExact));
    subject.record.outputs["o"] = call::Tensor(call::DType::kF32, {2, 3, 2, 7});
    CHECK_THROWS_AS(
        (void)verdict::judge_record(delta::slice(), subject.record, {.contract = contract}), Error);
  }
}
