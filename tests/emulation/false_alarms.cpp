// SPDX-License-Identifier: Apache-2.0
//
// goldenrule_false_alarms SEEDS STRIDE: every STRIDE-th case of the stress suite (all families,
// both operations, all modes) is run by SEEDS emulated honest kernels of each contract that fits
// its mode and judged as `check` judges. Prints per contract and family the largest error over
// budget (above 1 would be a false alarm) and the median over runs of each run's largest (below 0.1
// would be a budget that no honest kernel comes near). Exit 1 on any false alarm.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "fixtures/cases/suite.hpp"
#include "reference/oracle/emulate.hpp"
#include "reference/oracle/evaluate.hpp"
#include "reference/verdict/verdict.hpp"

namespace {

using namespace goldenrule;

struct Cell {
  std::vector<double> ratios;  // largest error over budget of each run
  std::string worst;
  int alarms = 0;
};

using Table = std::map<std::pair<std::string, std::string>, Cell>;

std::vector<std::string> contracts_for(call::Mode mode) {
  if (mode == call::Mode::kPrefill) {
    return {"recurrent_f32", "chunk64_bf16", "chunk16_bf16_state"};
  }
  return {"recurrent_f32", "recurrent_bf16_state"};
}

void run_case(const cases::Case& c, int seeds, Table& table) {
  const call::Record record = cases::make_record(c);
  for (const std::string& name : contracts_for(c.mode)) {
    const bounds::Contract& contract = bounds::find_contract(name);
    const oracle::Evaluation expected =
        oracle::evaluate(record, scalar::Precision::kDouble,
                         {.certify = true, .contract = &contract, .intermediate_states = true});
    for (int seed = 1; seed <= seeds; ++seed) {
      const call::TensorMap outputs =
          oracle::emulate(record, contract, static_cast<std::uint64_t>(seed));
      for (const auto& [tensor, values] : outputs) {
        const verdict::TensorReport report =
            verdict::judge(tensor, values, expected.outputs.at(tensor), contract);
        if (report.compared == 0 || std::isnan(report.max_ratio)) continue;
        Cell& cell = table[{name + " " + tensor, c.family}];
        if (cell.ratios.empty() || report.max_ratio > *std::ranges::max_element(cell.ratios)) {
          cell.worst = fmt::format("seed {} {}", seed, cases::canonical(c));
        }
        cell.ratios.push_back(report.max_ratio);
        if (report.out_of_budget > 0) {
          ++cell.alarms;
          fmt::print("FALSE ALARM {} {}: {:.3g} times the budget, seed {}: {}\n", name, tensor,
                     report.max_ratio, seed, cases::canonical(c));
        }
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print("usage: goldenrule_false_alarms SEEDS STRIDE\n");
    return 2;
  }
  const int seeds = std::atoi(argv[1]);
  const auto stride = static_cast<std::size_t>(std::max(1, std::atoi(argv[2])));
  const cases::Suite suite = cases::load_suite("stress");
  Table table;
  std::size_t runs = 0;
  for (std::size_t i = 0; i < suite.cases.size(); i += stride) {
    run_case(suite.cases[i], seeds, table);
  }
  int alarms = 0;
  fmt::print("{:<40} {:<10} {:>5} {:>10} {:>10}  largest at\n", "contract, tensor", "family",
             "runs", "largest", "median");
  for (auto& [key, cell] : table) {
    std::ranges::sort(cell.ratios);
    fmt::print("{:<40} {:<10} {:>5} {:>10.3g} {:>10.3g}  {}\n", key.first, key.second,
               cell.ratios.size(), cell.ratios.back(), cell.ratios[cell.ratios.size() / 2],
               cell.worst);
    runs += cell.ratios.size();
    alarms += cell.alarms;
  }
  fmt::print("{} tensors judged, {} false alarms\n", runs, alarms);
  return alarms == 0 && runs > 0 ? 0 : 1;
}
