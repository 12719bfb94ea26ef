// SPDX-License-Identifier: Apache-2.0
//
// goldenrule_false_alarms SEEDS STRIDE [I N | SUITE]: every STRIDE-th case of the suites stress
// (all patterns) and boundary (all shapes), or of SUITE, is run by SEEDS emulated honest kernels of
// each contract that fits its mode and judged as `check` judges. Prints per contract and family the
// largest error over budget (above 1 would be a false alarm) and the median over runs of each run's
// largest (below 0.1 would be a budget that no honest kernel comes near). Exit 1 on any false
// alarm. With I and N it is the I-th of N machines: their exit codes together are that of the
// whole.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "fixtures/cases/suite.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/delta/emulation/emulate.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/expectation.hpp"
#include "reference/verdict/verdict.hpp"

namespace {

using namespace goldenrule;

// One tensor of one run.
struct Judged {
  std::string contract, tensor;
  int seed = 0;
  double ratio = 0.0;  // largest error over budget
  bool alarm = false;
};

struct Cell {
  std::vector<double> ratios;
  double largest = -1.0;
  std::string worst;
};

std::vector<std::string> contracts_for(const cases::Case& c) {
  if (c.ring != cases::RingPattern::kNone) return {"recurrent_f32", "chunk64_f32", "replay_bf16"};
  if (c.mode != call::Mode::kPrefill) {
    return {"recurrent_f32", "recurrent_bf16_state", "recurrent_f32_bf16_activations"};
  }
  const bool kda = c.op == call::Op::kKda;
  return {"recurrent_f32",
          "chunk64_f32",
          "chunk64_tf32",
          "chunk64_bf16",
          "chunk64_16bit",
          "chunk16_bf16_state",
          kda ? "chunk32_bf16_direct" : "chunk64_bf16_direct",
          "recurrent_f32_bf16_activations"};
}

std::vector<Judged> run_case(const cases::Case& c, int seeds) {
  std::vector<Judged> all;
  const call::Record record = cases::make_record(c);
  for (const std::string& name : contracts_for(c)) {
    const contract::Contract& contract = contract::find_contract(name);
    const verdict::Expectations expected =
        verdict::expect(delta::slice(), record, contract, scalar::Precision::kDouble);
    for (int seed = 1; seed <= seeds; ++seed) {
      const call::TensorMap outputs =
          delta::emulate(record, contract, static_cast<std::uint64_t>(seed));
      for (const auto& [tensor, values] : outputs) {
        const verdict::TensorReport report =
            verdict::judge(tensor, values, expected.outputs.at(tensor), contract);
        if (report.compared == 0 || std::isnan(report.max_ratio)) continue;
        all.push_back({.contract = name,
                       .tensor = tensor,
                       .seed = seed,
                       .ratio = report.max_ratio,
                       .alarm = report.out_of_budget > 0});
      }
    }
  }
  return all;
}

// The cases of the whole run, or the share of this machine.
cases::Suite choose(int argc, char** argv) {
  const auto stride = static_cast<std::size_t>(std::max(1, std::atoi(argv[2])));
  std::vector<std::string> suites{"stress", "boundary"};
  if (argc == 4) suites = {argv[3]};
  cases::Suite chosen;
  for (const std::string& name : suites) {
    const cases::Suite all = cases::load_suite(name);
    for (std::size_t i = 0; i < all.cases.size(); i += stride) chosen.cases.push_back(all.cases[i]);
  }
  if (argc < 5) return chosen;
  return cases::shard(chosen, std::strtoul(argv[3], nullptr, 10),
                      std::strtoul(argv[4], nullptr, 10));
}

double quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1))];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) {
    fmt::print("usage: goldenrule_false_alarms SEEDS STRIDE [I N | SUITE]\n");
    return 2;
  }
  const int seeds = std::atoi(argv[1]);
  const cases::Suite chosen = choose(argc, argv);
  const std::vector<cases::Case>& suite = chosen.cases;
  std::vector<std::vector<Judged>> judged(suite.size());
  parallel::for_each_index(std::ssize(suite), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    judged[at] = run_case(suite[at], seeds);
  });

  std::map<std::pair<std::string, std::string>, Cell> table;
  std::map<std::string, std::vector<double>> by_contract;
  std::set<std::tuple<std::size_t, std::string, int>> runs;
  std::size_t tensors = 0;
  int alarms = 0;
  for (std::size_t i = 0; i < suite.size(); ++i) {
    for (const Judged& j : judged[i]) {
      const std::string line = fmt::format("seed {} {}", j.seed, cases::canonical(suite[i]));
      Cell& cell = table[{j.contract + " " + j.tensor, suite[i].pattern}];
      cell.ratios.push_back(j.ratio);
      if (j.ratio > cell.largest) {
        cell.largest = j.ratio;
        cell.worst = line;
      }
      // Family K is exact: there is no error to compare with the budget.
      if (suite[i].pattern != "K") by_contract[j.contract + " " + j.tensor].push_back(j.ratio);
      runs.emplace(i, j.contract, j.seed);
      ++tensors;
      if (!j.alarm) continue;
      ++alarms;
      fmt::print("FALSE ALARM {} {}: {:.3g} times the budget, {}\n", j.contract, j.tensor, j.ratio,
                 line);
    }
  }
  fmt::print("{:<40} {:<10} {:>5} {:>10} {:>10}  largest at\n", "contract, tensor", "family",
             "runs", "largest", "median");
  for (auto& [key, cell] : table) {
    std::ranges::sort(cell.ratios);
    fmt::print("{:<40} {:<10} {:>5} {:>10.3g} {:>10.3g}  {}\n", key.first, key.second,
               cell.ratios.size(), cell.largest, quantile(cell.ratios, 0.5), cell.worst);
  }
  fmt::print("\n{:<40} {:>6} {:>9} {:>9} {:>9} {:>9}\n", "contract, tensor: max error / budget",
             "runs", "10 %", "median", "90 %", "largest");
  for (auto& [name, ratios] : by_contract) {
    std::ranges::sort(ratios);
    fmt::print("{:<40} {:>6} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f}\n", name, ratios.size(),
               quantile(ratios, 0.1), quantile(ratios, 0.5), quantile(ratios, 0.9), ratios.back());
  }
  fmt::print("{} kernel runs, {} tensors judged, {} false alarms\n", runs.size(), tensors, alarms);
  return alarms == 0 && tensors > 0 ? 0 : 1;
}
