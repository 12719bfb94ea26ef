// SPDX-License-Identifier: Apache-2.0
//
// goldenrule_attention_alarms PROBLEMS KERNELS [SUITE ...]: are the budgets of attention right? For
// each pattern of tests/attention/problems.hpp and each of bf16 and fp16, PROBLEMS random calls, a
// third of them with contexts of 60 to 960 keys, and all cases of the suites; in each KERNELS
// emulated honest kernels of every contract, judged as `check` judges. Exit 1 on any false alarm.
//
// Per contract and output two figures say how tight it is, both before the result is stored, which
// adds half an ulp to error and budget alike:
//
//   worst / grant    the largest of |error| / (lambda sigma + bias) over the elements of a run
//   rms / model      sqrt(mean error^2) / sqrt(mean (sigma^2 + bias^2)) of a run
//
// and their 10th, 50th and 90th percentile and largest value over the runs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "fixtures/cases/suite.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/attention/emulation/emulate.hpp"
#include "reference/attention/slice.hpp"
#include "reference/calls/kernel.hpp"
#include "reference/verdict/verdict.hpp"
#include "tests/attention/problems.hpp"

namespace {

using namespace goldenrule;

// One call, by what recreates it.
struct Problem {
  std::string line = {}, pattern = {};
  attention::Pattern kind{};
  call::DType type{};
  std::uint64_t seed = 0;
  attention::Size size{};
  bool is_case = false;

  [[nodiscard]] call::Record record() const {
    if (is_case) return cases::make_record(cases::parse(line));
    return attention::random_problem(kind, type, seed, size);
  }
};

// One output of one kernel.
struct Judged {
  std::string contract, output, kernel;
  std::int64_t compared = 0, unbounded = 0, out = 0;
  double stored = 0.0;            // largest error over budget, as a verdict says it
  double worst = 0.0, rms = 0.0;  // before storage
  bool has_grant = false;         // the grant is above 0 somewhere
};

std::vector<Problem> choose(std::uint64_t problems, const std::vector<std::string>& suites) {
  std::vector<Problem> all;
  for (int f = 0; f < attention::kPatterns; ++f) {
    for (const call::DType type : {call::DType::kBF16, call::DType::kF16}) {
      for (std::uint64_t seed = 0; seed < problems; ++seed) {
        Problem p{.pattern = attention::name_of(static_cast<attention::Pattern>(f)),
                  .kind = static_cast<attention::Pattern>(f),
                  .type = type,
                  .seed = seed};
        p.line = attention::line_of(p.kind, type, seed);
        if (seed % 3 == 2) {
          p.size = {.context = std::int64_t{60} << seed / 3 % 5,
                    .queries = 2,
                    .key_dim = 80,
                    .plain = true};
        }
        all.push_back(std::move(p));
      }
    }
  }
  for (const std::string& suite : suites) {
    for (const cases::Case& c : cases::load_suite(suite).cases) {
      all.push_back(
          {.line = cases::canonical(c), .pattern = "suite " + c.pattern, .is_case = true});
    }
  }
  return all;
}

void measure(const call::Tensor& y, const verdict::Expected& e, Judged& judged) {
  double error2 = 0.0;
  double model2 = 0.0;
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double error = std::fabs(y[i] - e.exact.golden[at]);
    if (!std::isfinite(error) || e.grant.spread.empty()) continue;
    const auto granted = static_cast<double>(e.grant.spread[at]);
    if (!std::isfinite(granted) || granted <= 0.0) continue;
    judged.has_grant = true;
    judged.worst = std::max(judged.worst, error / granted);
    error2 += error * error;
    const auto sigma = static_cast<double>(e.grant.sigma[at]);
    const auto bias = static_cast<double>(e.grant.bias[at]);
    model2 += sigma * sigma + bias * bias;
  }
  if (model2 > 0.0) judged.rms = std::sqrt(error2 / model2);
}

std::vector<Judged> run(const Problem& problem, std::uint64_t kernels) {
  std::vector<Judged> all;
  const call::Record record = problem.record();
  const verdict::Slice& slice = attention::slice();
  verdict::Expectations expected = slice.evaluate(record, scalar::Precision::kDouble, {});
  for (const contract::Contract& contract : contract::contracts_of(call::Family::kAttention)) {
    slice.grant(record, contract, verdict::GrantDetail::kTerms, expected);
    for (std::uint64_t k = 0; k < kernels; ++k) {
      const std::uint64_t choice = problem.seed * 1000 + k + 1;
      const call::TensorMap outputs = slice.emulate(record, contract, choice);
      for (const auto& [name, tensor] : calls::stored(record, contract, outputs)) {
        const verdict::Expected& e = expected.outputs.at(name);
        const verdict::TensorReport report = verdict::judge(name, tensor, e, contract);
        Judged judged{.contract = contract.name,
                      .output = name,
                      .kernel = attention::KernelChoices(choice).words(),
                      .compared = report.compared,
                      .unbounded = report.unbounded,
                      .out = report.out_of_budget,
                      .stored = report.max_ratio};
        measure(outputs.at(name), e, judged);
        all.push_back(std::move(judged));
      }
    }
  }
  return all;
}

struct Cell {
  std::int64_t kernels = 0, elements = 0, unbounded = 0, alarms = 0;
  double stored = 0.0;
  std::vector<double> worst, rms;

  void add(const Judged& j) {
    ++kernels;
    elements += j.compared;
    unbounded += j.unbounded;
    alarms += j.out > 0 ? 1 : 0;
    if (j.stored > stored) stored = j.stored;
    if (!j.has_grant) return;
    worst.push_back(j.worst);
    rms.push_back(j.rms);
  }
};

std::string quantiles(std::vector<double> values) {
  if (values.empty()) return fmt::format("{:>27}", "-");
  std::ranges::sort(values);
  const auto at = [&](double q) {
    return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
  };
  return fmt::format("{:>6.3f} {:>6.3f} {:>6.3f} {:>6.3f}", at(0.1), at(0.5), at(0.9), at(1.0));
}

void print(const std::map<std::string, Cell>& table, const char* heading) {
  fmt::print("\n{:<38} {:>7} {:>11} {:>9} {:>6} {:>7}  {:<27}  {}\n", heading, "kernels",
             "elements", "unbounded", "alarms", "stored", "worst / grant 10 50 90 100%",
             "rms / model 10 50 90 100%");
  for (const auto& [name, cell] : table) {
    fmt::print("{:<38} {:>7} {:>11} {:>9} {:>6} {:>7.3f}  {}  {}\n", name, cell.kernels,
               cell.elements, cell.unbounded, cell.alarms, cell.stored, quantiles(cell.worst),
               quantiles(cell.rms));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print("usage: goldenrule_attention_alarms PROBLEMS KERNELS [SUITE ...]\n");
    return 2;
  }
  const std::uint64_t kernels = std::strtoull(argv[2], nullptr, 10);
  const std::vector<Problem> problems =
      choose(std::strtoull(argv[1], nullptr, 10), {argv + 3, argv + argc});
  std::vector<std::vector<Judged>> judged(problems.size());
  parallel::for_each_index(std::ssize(problems), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    judged[at] = run(problems[at], kernels);
  });

  std::map<std::string, Cell> by_pattern;
  std::map<std::string, Cell> by_contract;
  std::int64_t runs = 0;
  std::int64_t alarms = 0;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    for (const Judged& j : judged[i]) {
      by_pattern[fmt::format("{} {} {}", j.contract, j.output, problems[i].pattern)].add(j);
      by_contract[fmt::format("{} {}", j.contract, j.output)].add(j);
      runs += j.output == "o" ? 1 : 0;
      if (j.out == 0) continue;
      ++alarms;
      fmt::print("FALSE ALARM {} {}: {:.3g} times the budget, {}, {}\n", j.contract, j.output,
                 j.stored, problems[i].line, j.kernel);
    }
  }
  print(by_pattern, "contract, output, pattern");
  print(by_contract, "contract, output");
  fmt::print("{} kernel runs on {} calls, {} false alarms\n", runs, problems.size(), alarms);
  return alarms == 0 && runs > 0 ? 0 : 1;
}
