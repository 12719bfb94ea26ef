// SPDX-License-Identifier: Apache-2.0
//
// The running budgets against kernels that keep their contract (fp32_kernel.hpp): over every case
// of the stress suite no element may leave radius + budget, and for the budget to be worth
// something the largest error must come near it. Outputs are judged in f32, so that the rounding
// of o to bf16 does not hide what the budget is about. The table that is printed has one row per
// pattern: the largest and the median (over runs) of max(error / budget).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "fixtures/cases/suite.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/delta/budget/running.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/budget.hpp"
#include "reference/verdict/expectation.hpp"
#include "reference/verdict/grants.hpp"
#include "tests/delta/budget/fp32_kernel.hpp"

using namespace goldenrule;

namespace {

struct Run {
  std::string pattern, tensor;
  double ratio = 0.0;        // max (|y - golden| - radius) / budget
  std::int64_t outside = 0;  // elements beyond radius + budget
  std::int64_t elements = 0;
};

// Judges one output; elements that nobody computes say nothing about the budget.
Run judge(const std::string& name, const call::Tensor& y, const verdict::Expected& expected,
          const contract::Contract& contract) {
  const verdict::Budget budget(name, y.dtype(), expected, contract);
  Run run{.pattern = "", .tensor = name};
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (!expected.exact.undefined.empty() && expected.exact.undefined[at]) continue;
    if (expected.grant.spread[at] == 0.0F) continue;
    const double allowed = budget(at);
    const double error = std::fabs(y[i] - expected.exact.golden[at]) -
                         static_cast<double>(expected.exact.radius[at]);
    ++run.elements;
    if (!(error <= allowed)) ++run.outside;
    if (!(error / allowed <= run.ratio)) run.ratio = error / allowed;
  }
  return run;
}

std::vector<Run> run_case(const cases::Case& c, const std::string& contract_name,
                          std::uint64_t seed) {
  const contract::Contract& contract = contract::find_contract(contract_name);
  const call::Record record = cases::make_record(c);
  const verdict::Expectations expected =
      verdict::expect(delta::slice(), record, contract, scalar::Precision::kDouble);
  std::vector<Run> runs;
  for (const auto& [name, tensor] : delta::test::run_fp32_kernel(
           record, contract.functions, contract.state_dtype.value(), seed)) {
    runs.push_back(judge(name, tensor, expected.outputs.at(name), contract));
    runs.back().pattern = c.pattern;
    if (runs.back().elements == 0) runs.pop_back();
  }
  return runs;
}

// Seeds count through the cases, so every case meets other choices than its neighbours.
std::vector<std::vector<Run>> run_suite(const std::vector<cases::Case>& suite,
                                        const std::string& contract, std::uint64_t seeds) {
  std::vector<std::vector<Run>> results(suite.size());
  parallel::for_each_index(std::ssize(suite), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    for (std::uint64_t n = 0; n < seeds; ++n) {
      for (Run& run : run_case(suite[at], contract, at * seeds + n)) {
        results[at].push_back(std::move(run));
      }
    }
  });
  return results;
}

struct Spread {
  std::vector<double> ratios;
  void add(double x) { ratios.push_back(x); }
  [[nodiscard]] std::string text() {
    if (ratios.empty()) return "-";
    std::ranges::sort(ratios);
    char buffer[48];
    std::snprintf(buffer, sizeof buffer, "%.3f / %.3f", ratios.back(), ratios[ratios.size() / 2]);
    return buffer;
  }
};

void report(const std::vector<cases::Case>& suite, const std::vector<std::vector<Run>>& results,
            const std::string& contract) {
  std::map<std::string, std::map<std::string, Spread>> table;
  std::int64_t outside = 0;
  std::int64_t elements = 0;
  std::int64_t runs = 0;
  double largest = 0.0;
  std::string loose;
  for (std::size_t i = 0; i < suite.size(); ++i) {
    const std::string line = cases::canonical(suite[i]);
    CAPTURE(line);
    std::map<std::string, double> of_case;
    for (const Run& run : results[i]) {
      CAPTURE(run.tensor);
      CHECK(run.outside == 0);
      outside += run.outside;
      elements += run.elements;
      ++runs;
      largest = std::fmax(largest, run.ratio);
      table[run.pattern][run.tensor].add(run.ratio);
      double& of_tensor = of_case[run.tensor];
      of_tensor = std::fmax(of_tensor, run.ratio);
    }
    for (const auto& [tensor, ratio] : of_case) {
      // Pattern K is exact in fp32: there is no error to compare with the budget.
      if (ratio < 0.02 && suite[i].pattern != "K") {
        loose += "\n  " + tensor + " " + std::to_string(ratio) + "  " + line;
      }
    }
  }
  for (auto& [pattern, tensors] : table) {
    MESSAGE(contract, " ", pattern, ": o ", tensors["o"].text(), ", final_state ",
            tensors["final_state"].text(), ", intermediate_states ",
            tensors["intermediate_states"].text(), "   (largest / median)");
  }
  MESSAGE(contract, ": ", runs, " tensors, ", elements, " elements, ", outside,
          " beyond radius + budget, largest error / budget ", largest);
  if (!loose.empty()) MESSAGE("largest error below 0.02 of the budget:", loose);
  CHECK(largest > 0.1);
}

std::vector<cases::Case> stress(bool with_prefill) {
  std::vector<cases::Case> kept;
  for (const cases::Case& c : cases::load_suite("stress").cases) {
    if (with_prefill || c.mode != call::Mode::kPrefill) kept.push_back(c);
  }
  return kept;
}

}  // namespace

TEST_CASE("running budget: no honest fp32 kernel leaves recurrent_f32") {
  const std::vector<cases::Case> suite = stress(true);
  report(suite, run_suite(suite, "recurrent_f32", 2), "recurrent_f32");
}

TEST_CASE("running budget: nor recurrent_bf16_state with states stored in bf16") {
  const std::vector<cases::Case> suite = stress(false);
  report(suite, run_suite(suite, "recurrent_bf16_state", 2), "recurrent_bf16_state");
}

TEST_CASE("running budget: a kernel with worse functions than declared leaves it") {
  // One thousandfold errors in one function at a time, in calls where that function matters.
  const struct {
    std::string line;
    double contract::FunctionErrors::*function;
  } rows[] = {
      {"op=gdn mode=decode B=4 H=1 HV=2 K=64 V=32 gate=log pattern=E",
       &contract::FunctionErrors::exp},
      {"op=kda mode=mtp B=2 T=4 H=1 HV=2 K=64 V=32 gate=log pattern=A",
       &contract::FunctionErrors::log_alpha},
      {"op=gdn mode=decode B=4 H=1 HV=2 K=64 V=32 gate=softplus pattern=Dslow",
       &contract::FunctionErrors::softplus},
      {"op=gdn mode=mtp B=2 T=4 H=1 HV=2 K=64 V=32 gate=softplus pattern=A",
       &contract::FunctionErrors::sigmoid},
      {"op=gdn mode=decode B=4 H=1 HV=2 K=64 V=32 gate=log pattern=A",
       &contract::FunctionErrors::norm},
  };
  const contract::Contract& contract = contract::find_contract("recurrent_f32");
  for (const auto& row : rows) {
    CAPTURE(row.line);
    const call::Record record = cases::make_record(cases::parse(row.line));
    const auto expected =
        verdict::expect(delta::slice(), record, contract, scalar::Precision::kDouble);
    contract::FunctionErrors worse = contract.functions;
    worse.*row.function *= 1000;
    const auto outputs = delta::test::run_fp32_kernel(record, worse, call::DType::kF32, 1);
    std::int64_t outside = 0;
    for (const auto& [name, tensor] : outputs) {
      outside += judge(name, tensor, expected.outputs.at(name), contract).outside;
    }
    CHECK(outside > 0);
  }
}

TEST_CASE("running budget: an error of softplus that multiplies alpha") {
  // softplus(-14.5) = 5e-7 is hardly more than what fp32 loses in log(1 + e^x); times exp(A_log) of
  // 10^7 the error is one of 5 in log alpha, far from what a first-order sensitivity describes.
  call::Record record = cases::make_record(
      cases::parse("op=gdn mode=decode B=4 H=1 HV=2 K=64 V=32 gate=softplus pattern=E"));
  for (const auto& [name, value] : {std::pair{"a", -14.5}, {"dt_bias", 0.0}, {"A_log", 16.0}}) {
    call::Tensor& t = record.inputs.at(name);
    for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, value);
  }
  const contract::Contract& contract = contract::find_contract("recurrent_f32");
  const auto expected =
      verdict::expect(delta::slice(), record, contract, scalar::Precision::kDouble);
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    for (const auto& [name, tensor] :
         delta::test::run_fp32_kernel(record, contract.functions, call::DType::kF32, seed)) {
      CAPTURE(name);
      CHECK(judge(name, tensor, expected.outputs.at(name), contract).outside == 0);
    }
  }
}

TEST_CASE("running budget: the multiple is that of the stated false-alarm probability") {
  // n exp(-m^2 / 2) 2 = p, the union bound over n elements.
  for (const std::int64_t n : {1, 1000, 1000000}) {
    const double m = verdict::deviation_multiple(n);
    CHECK(2.0 * static_cast<double>(n) * std::exp(-m * m / 2) ==
          doctest::Approx(verdict::kFalseAlarm).epsilon(1e-9));
  }
  CHECK(verdict::deviation_multiple(0) == verdict::deviation_multiple(1));
}
