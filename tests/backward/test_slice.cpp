// SPDX-License-Identifier: Apache-2.0
//
// Length: a case per property of a verdict on gradients.
//
// Gradients as the neutral parts see them: honest kernels pass, noise in one channel, token or head
// does not, whatever the others are, and mistakes of emulated kernels are named.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/suite.hpp"
#include "reference/backward/slice.hpp"
#include "reference/calls/kernel.hpp"
#include "reference/explain/diagnose.hpp"
#include "reference/verdict/kernels.hpp"
#include "tests/record_of.hpp"

using namespace goldenrule;
using cases::record_of;
using verdict::Verdict;

namespace {

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

constexpr const char* kGdn =
    "op=gdn_backward mode=prefill lens=70,64 H=1 HV=2 K=32 V=24 h0=1 dstate=1 pattern=A";
constexpr const char* kKda =
    "op=kda_backward mode=prefill lens=70,64 H=1 HV=2 K=32 V=24 h0=1 dstate=1 pattern=A";
constexpr const char* kNearBound =
    "op=kda_backward mode=prefill lens=64 H=1 HV=1 K=32 V=16 gate=log beta=direct pattern=Dbound";

call::Record honest(const std::string& line, std::uint64_t seed = 3) {
  call::Record record = record_of(line);
  const verdict::Slice& slice = backward::slice();
  const contract::Contract& contract = slice.default_contract(record);
  record.outputs = calls::stored(record, contract, slice.emulate(record, contract, seed));
  return record;
}

verdict::CaseReport judged(const call::Record& record) {
  return verdict::judge_record(backward::slice(), record);
}

const verdict::TensorReport& tensor(const verdict::CaseReport& report, const std::string& name) {
  return *std::ranges::find(report.tensors, name, &verdict::TensorReport::name);
}

// Root mean square of the elements that `takes`.
template <class F>
double rms(const call::Tensor& t, F&& takes) {
  double sum = 0.0;
  double count = 0.0;
  for (std::int64_t i = 0; i < t.size(); ++i) {
    if (!takes(call::unravel(t.shape(), i))) continue;
    sum += t[i] * t[i];
    count += 1.0;
  }
  return std::sqrt(sum / count);
}

// Noise of `share` of the rms of the elements that `takes`, alternating in sign.
template <class F>
void disturb(call::Record& record, const std::string& name, double share, F&& takes) {
  call::Tensor& t = record.outputs.at(name);
  const double size = share * rms(t, takes);
  for (std::int64_t i = 0; i < t.size(); ++i) {
    if (takes(call::unravel(t.shape(), i))) t.set(i, t[i] + (i % 2 == 0 ? size : -size));
  }
}

}  // namespace

TEST_CASE("backward: emulated kernels pass under their contract, and their types say which") {
  for (const std::string line : {kGdn, kKda}) {
    for (const char* io : {"", " io=f16", " io=f32"}) {
      const call::Record record = honest(line + io);
      const verdict::CaseReport report = judged(record);
      CAPTURE(record.case_line);
      CHECK(report.verdict == Verdict::kWithinBudget);
      CHECK(report.tensors.size() == 8);
    }
  }
  CHECK(judged(honest(kGdn)).contract == "adjoint64_16bit_pairs");
  CHECK(judged(honest(kKda)).contract == "adjoint64_fp32_pairs");
  CHECK(judged(honest(std::string(kKda) + " io=f32")).contract == "adjoint_f32");
}

TEST_CASE("backward: noise in a part is refused, whatever the rest is") {
  for (const std::string line : {kGdn, kKda}) {
    const std::string large = line + " grad=channel";
    for (const char* name : {"dq", "dk", "dv", "dinitial_state", "da", "db"}) {
      CAPTURE(line);
      CAPTURE(std::string(name));
      call::Record record = honest(line);
      const bool is_scalar = record.outputs.at(name).shape().size() == 2;
      disturb(record, name, 0.5,
              [&](const call::Shape& i) { return i[1] == 0 && (is_scalar || i[0] == 1); });
      CHECK(tensor(judged(record), name).verdict == Verdict::kOutOfBudget);
    }
    // The first value channel of do is 100 times as large: the others keep their budgets.
    call::Record record = honest(large);
    REQUIRE(judged(record).verdict == Verdict::kWithinBudget);
    disturb(record, "dv", 0.3, [](const call::Shape& i) { return i[2] == 5; });
    CHECK(tensor(judged(record), "dv").verdict == Verdict::kOutOfBudget);
  }
}

TEST_CASE("backward: large numbers of one head pay for no other") {
  constexpr std::int64_t kLarge = 0;
  for (const std::string op : {"op=gdn_backward", "op=kda_backward"}) {
    call::Record record = record_of(op + " mode=prefill lens=20 H=2 HV=2 K=16 V=8 io=f32 h0=1");
    for (const char* name : {"v", "initial_state", "do"}) {
      call::Tensor& t = record.inputs.at(name);
      for (std::int64_t i = 0; i < t.size(); ++i) {
        if (call::unravel(t.shape(), i)[1] == kLarge) t.set(i, std::ldexp(t[i], 58));
      }
    }
    const verdict::Slice& slice = backward::slice();
    const contract::Contract& contract = slice.default_contract(record);
    const call::TensorMap right =
        calls::stored(record, contract, slice.emulate(record, contract, 3));
    record.outputs = right;
    CHECK(judged(record).verdict == Verdict::kWithinBudget);
    for (const auto& [name, of] : right) {
      record.outputs = right;
      call::Tensor& t = record.outputs.at(name);
      const std::size_t axis = name == "dA_log" || name == "ddt_bias" ? 0 : 1;
      for (std::int64_t i = 0; i < t.size(); ++i) {
        if (call::unravel(t.shape(), i)[axis] != kLarge) t.set(i, 0.0);
      }
      CAPTURE(op);
      CAPTURE(name);
      CHECK(tensor(judged(record), name).verdict == Verdict::kOutOfBudget);
    }
  }
}

// Head 0 has keys that are nearly one direction, so that its gradients of gates lose most digits.
TEST_CASE("backward: a head of large relative errors pays for no other in sums over tokens") {
  for (const std::string op : {"op=gdn_backward", "op=kda_backward"}) {
    const std::string line =
        op + " mode=prefill lens=130,70 H=4 HV=4 K=32 V=24 h0=1 dstate=1 gate_head=v pattern=";
    const auto budgets = [&](const call::Record& record, const std::string& name) {
      const auto of = verdict::judgement(backward::slice(), record).expected.outputs.at(name);
      return of.grant.spread;
    };
    const call::Record alone = honest(line + "A");
    call::Record mixed = alone;
    const call::Record other = record_of(line + "L");
    for (auto& [name, to] : mixed.inputs) {
      if (to.shape().size() < 2) continue;
      for (std::int64_t i = 0; i < to.size(); ++i) {
        if (call::unravel(to.shape(), i)[1] == 0) to.set(i, other.inputs.at(name)[i]);
      }
    }
    const verdict::Slice& slice = backward::slice();
    const contract::Contract& contract = slice.default_contract(mixed);
    mixed.outputs = calls::stored(mixed, contract, slice.emulate(mixed, contract, 3));
    CHECK(judged(mixed).verdict == Verdict::kWithinBudget);
    for (const char* name : {"dA_log", "ddt_bias"}) {
      const std::vector<float> before = budgets(alone, name);
      const std::vector<float> after = budgets(mixed, name);
      const std::size_t width = before.size() / 4;
      for (std::size_t i = width; i < before.size(); ++i) {
        CAPTURE(op);
        CAPTURE(std::string(name));
        CAPTURE(i);
        CHECK(after[i] <= 2.0F * before[i]);
      }
    }
  }
}

TEST_CASE("backward: zeros, NaN and what is not there are no gradients") {
  call::Record record = honest(kKda);
  SUBCASE("zeros") {
    for (const auto& output : record.outputs) {
      const std::string& name = output.first;
      CAPTURE(name);
      call::Record zeros = record;
      zeros.outputs[name] = call::Tensor(output.second.dtype(), output.second.shape());
      CHECK(tensor(judged(zeros), name).verdict == Verdict::kOutOfBudget);
    }
  }
  SUBCASE("NaN") {
    record.outputs.at("dk").set(77, kNoNumber);
    const verdict::CaseReport report = judged(record);
    CHECK(tensor(report, "dk").verdict == Verdict::kOutOfBudget);
    CHECK(tensor(report, "dk").nan == 1);
  }
  SUBCASE("without dk the call is not judged as passed") {
    record.outputs.erase("dk");
    const verdict::CaseReport report = judged(record);
    CHECK(report.verdict == Verdict::kSkipped);
    CHECK(report.absent == std::vector<std::string>{"dk"});
  }
  SUBCASE("those of parameters and of the initial state may be absent") {
    for (const char* name : {"dA_log", "ddt_bias", "dinitial_state"}) record.outputs.erase(name);
    CHECK(judged(record).verdict == Verdict::kWithinBudget);
  }
}

// A NaN in v reaches dv of no token, and in a kernel that multiplies masked rows the whole chunk.
TEST_CASE("backward: what no honest kernel need have computed is not held against one") {
  call::Record record = record_of(kKda);
  constexpr std::int64_t kLost = 4800;  // token 100, head 0, value 0
  record.inputs.at("v").set(kLost, kNoNumber);
  const verdict::Slice& slice = backward::slice();
  const contract::Contract& contract = slice.default_contract(record);
  for (const bool emulated : {true, false}) {
    call::Record call = record;
    call.outputs = calls::stored(
        call, contract,
        emulated ? slice.emulate(record, contract, 3) : verdict::exact_outputs(slice, record));
    if (!emulated) {  // a kernel token by token, whose dq is off by an ulp of bf16
      call::Tensor& dq = call.outputs.at("dq");
      for (std::int64_t i = 0; i < dq.size(); ++i) dq.set(i, dq[i] * (1.0 + 0x1p-7));
    }
    for (const verdict::TensorReport& t : judged(call).tensors) {
      CAPTURE(t.name);
      CHECK(t.out_of_budget == 0);
      CHECK(t.unbounded == 0);
    }
    // The first sequence is judged as ever.
    call.outputs.at("dq").set(5, 10.0);
    CHECK(tensor(judged(call), "dq").verdict == Verdict::kOutOfBudget);
  }
}

TEST_CASE("backward: contracts of other families are refused, tighter claims are followed") {
  call::Record record = honest(kKda);
  record.contract = "chunk64_bf16";
  CHECK_THROWS_WITH_AS((void)judged(record), doctest::Contains("adjoint64_fp32_pairs"), Error);
  record.contract = "adjoint_f32";  // claims too much
  CHECK(judged(record).verdict == Verdict::kOutOfBudget);
  record.contract = "adjoint64_16bit_pairs";  // wider than what the operation implies
  CHECK(judged(record).contract == "adjoint64_fp32_pairs");
}

TEST_CASE("backward: repeated heads round each value head's gradient, and a claim says so") {
  call::Record record = honest(kGdn);
  const contract::Contract& repeated = contract::find_contract("adjoint_f32_repeated_heads");
  record.outputs = calls::stored(record, repeated, backward::slice().emulate(record, repeated, 3));
  record.contract = repeated.name;
  CHECK(judged(record).contract == repeated.name);
  CHECK(judged(record).verdict == Verdict::kWithinBudget);
  record.contract = "adjoint_f32";
  CHECK(tensor(judged(record), "dq").verdict == Verdict::kOutOfBudget);
  CHECK(tensor(judged(record), "dk").verdict == Verdict::kOutOfBudget);
  CHECK(tensor(judged(record), "dv").verdict == Verdict::kWithinBudget);
}

// Two roundings of each pair, near the bound of the gate: nobody gets them by claiming them.
TEST_CASE("backward: two 16-bit factors are out of the budget of kernels with one") {
  call::Record record = honest(kNearBound);
  const contract::Contract& two = contract::find_contract("adjoint16_two_factors");
  record.outputs = calls::stored(record, two, backward::slice().emulate(record, two, 3));
  record.contract = two.name;
  const verdict::CaseReport report = judged(record);
  CHECK(report.contract == "adjoint64_fp32_pairs");
  CHECK(tensor(report, "dg").verdict == Verdict::kOutOfBudget);
  CHECK(tensor(report, "dq").verdict == Verdict::kWithinBudget);
}

// An element's budget is about 10 times an honest error, so what is refused depends on how many
// elements a tensor has (reference/README.md): of 65,536 the largest triples beyond its budget, of
// dv, whose storage takes more of it, the largest of four times as large ones.
TEST_CASE("backward: a kernel that errs by three times as much as it may is refused") {
  for (const char* op : {"op=gdn_backward", "op=kda_backward"}) {
    const call::Record record = record_of(
        std::string(op) + " mode=prefill lens=512 H=1 HV=2 K=128 V=128 h0=1 dstate=1 pattern=A");
    const verdict::Slice& slice = backward::slice();
    const contract::Contract& contract = slice.default_contract(record);
    verdict::Expectations expected = slice.evaluate(record, scalar::Precision::kDouble, {});
    slice.grant(record, contract, verdict::GrantDetail::kSpread, expected);
    for (const std::uint64_t seed : {11, 12, 13, 14, 15}) {
      const call::TensorMap honest = slice.emulate(record, contract, seed);
      const auto failing = [&](const std::string& name, double times) {
        const verdict::Expected& e = expected.outputs.at(name);
        call::TensorMap outputs{{name, honest.at(name)}};
        call::Tensor& t = outputs.at(name);
        for (std::int64_t i = 0; i < t.size(); ++i) {
          const double golden = e.exact.golden[static_cast<std::size_t>(i)];
          t.set(i, golden + times * (t[i] - golden));
        }
        const call::TensorMap stored = calls::stored(record, contract, outputs);
        return verdict::judge(name, stored.at(name), e, contract).out_of_budget;
      };
      for (const auto& [name, times] : {std::pair("dq", 3.0), {"dk", 3.0}, {"dv", 4.0}}) {
        CAPTURE(op);
        CAPTURE(seed);
        CAPTURE(std::string(name));
        CHECK(failing(name, 1.0) == 0);
        CHECK(failing(name, times) > 0);
      }
    }
  }
}

// Inputs that both types hold, and a kernel that hands tensor cores the digits of the wrong one:
// its errors are 8 times those of a kernel that keeps the contract.
TEST_CASE("backward: a bf16 kernel is out of the budget of fp16 inputs") {
  for (const std::string line : {kGdn, kKda}) {
    const call::Record coarse = record_of(line);
    call::Record record = coarse;
    for (auto& [name, tensor] : record.inputs) {
      if (tensor.dtype() != call::DType::kBF16) continue;
      tensor = call::Tensor(call::DType::kF16, tensor.shape(), tensor.to_doubles());
      REQUIRE(tensor.to_doubles() == coarse.inputs.at(name).to_doubles());
    }
    const verdict::Slice& slice = backward::slice();
    const contract::Contract& contract = slice.default_contract(record);
    record.outputs = calls::stored(record, contract, slice.emulate(record, contract, 3));
    CHECK(judged(record).verdict == Verdict::kWithinBudget);
    record.outputs = calls::stored(record, contract, slice.emulate(coarse, contract, 3));
    const verdict::CaseReport report = judged(record);
    for (const char* name : {"dq", "dk", "dv", "dinitial_state", "da", "db"}) {
      CAPTURE(line);
      CAPTURE(std::string(name));
      CHECK(tensor(report, name).verdict == Verdict::kOutOfBudget);
    }
  }
}

// In the first cases in which an emulated kernel that makes a mistake is refused it is named, alone
// or among those with the same outputs.
TEST_CASE("backward: mistakes of emulated kernels are named") {
  constexpr int kCases = 1;
  std::vector<call::Record> records;
  for (const char* suite : {"backward_smoke", "backward_stress"}) {
    for (const cases::Case& c : cases::load_suite(suite).cases) {
      if (cases::step_count(c) < 2'500'000) records.push_back(cases::make_record(c));
    }
  }
  const verdict::Slice& slice = backward::slice();
  std::map<std::string, int> refused;
  std::map<std::string, int> named;
  std::string others;
  for (const calls::Mistake& mistake : slice.mistakes()) {
    const std::string name(mistake.name);
    for (const call::Record& call : records) {
      if (refused[name] >= kCases) break;
      if (!mistake.applies(call)) continue;
      const contract::Contract& contract = slice.default_contract(call);
      call::Record record = call;
      const calls::Kernel kernel = verdict::emulated_kernel(slice, contract, 5);
      record.outputs = calls::stored(record, contract, mistake.commit(call, kernel));
      const auto judgement = verdict::judgement(slice, record);
      if (judgement.report.verdict != Verdict::kOutOfBudget) continue;
      ++refused[name];
      const explain::Diagnosis d = explain::diagnose(judgement, slice.mistakes(), {.seconds = 1e6});
      const bool found = std::ranges::any_of(d.explanations, [&](const explain::Explanation& e) {
        return e.explains && (e.name() == name || std::ranges::find(e.same, name) != e.same.end());
      });
      named[name] += found ? 1 : 0;
      if (!found) others += name + " in " + call.case_line + "\n";
    }
  }
  int all = 0;
  int right = 0;
  for (const auto& [name, count] : refused) all += count;
  for (const auto& [name, count] : named) right += count;
  MESSAGE(right << " of " << all << " refused captures are named right; others:\n" << others);
  CHECK(right >= all * 9 / 10);
}
