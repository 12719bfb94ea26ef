// SPDX-License-Identifier: Apache-2.0
//
// goldenrule_stage_alarms SEEDS STRIDE [I N]: every STRIDE-th prefill case of the suites stress
// (all patterns) and boundary (all shapes) is run by SEEDS emulated honest kernels of each chunked
// contract, whose stages are judged as those of a capture are: in f32 for odd seeds, and for even
// ones in the type in which each is an operand. Prints per contract and stage the largest error
// over budget (above 1 would be a false alarm) and the median over runs of each run's largest. Exit
// 1 on any false alarm.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "fixtures/cases/suite.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/delta/emulation/emulate.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/stages.hpp"

namespace {

using namespace goldenrule;

constexpr std::int64_t kFewTokens = 1000;

struct Cell {
  std::vector<double> ratios;
  double largest = -1.0;
  std::string worst;
  int alarms = 0;
  int mistrusted = 0;
};
using Cells = std::map<std::pair<std::string, std::string>, Cell>;

std::vector<std::string> contracts_for(const cases::Case& c) {
  const bool kda = c.op == call::Op::kKda;
  return {"chunk64_f32",        "chunk64_tf32",
          "chunk64_bf16",       "chunk64_16bit",
          "chunk16_bf16_state", kda ? "chunk32_bf16_direct" : "chunk64_bf16_direct"};
}

// The type in which an even seed stores a stage: that of the operand where it is one of 16 bits.
call::DType stored_type(const contract::Contract& contract, const std::string& stage, int seed) {
  const bool is_16bit = contract.name.find("16") != std::string::npos;
  const bool is_operand = stage != "G" && stage != "beta" && stage != "A";
  return seed % 2 == 0 && is_16bit && is_operand ? call::DType::kBF16 : call::DType::kF32;
}

struct Run {
  std::string contract, line;
  int seed;
  verdict::StagesReport report;
};

std::vector<Run> run_case(const cases::Case& c, int seeds) {
  std::vector<Run> runs;
  const call::Record record = cases::make_record(c);
  for (const std::string& name : contracts_for(c)) {
    const contract::Contract& contract = contract::find_contract(name);
    for (int seed = 1; seed <= seeds; ++seed) {
      verdict::KernelStages kernel;
      for (const auto& [stage, exact] :
           delta::emulate_stages(record, contract, static_cast<std::uint64_t>(seed))) {
        kernel.tensors.emplace(stage, call::Tensor(stored_type(contract, stage, seed),
                                                   exact.shape(), exact.to_doubles()));
      }
      runs.push_back({name, cases::canonical(c), seed,
                      verdict::judge_stages(delta::slice(), record, contract, kernel)});
    }
  }
  return runs;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 5) return 2;
  const int seeds = std::max(1, std::atoi(argv[1]));
  const auto stride = static_cast<std::size_t>(std::max(1, std::atoi(argv[2])));
  const std::size_t part = argc == 5 ? std::strtoul(argv[3], nullptr, 10) : 1;
  const std::size_t parts = argc == 5 ? std::strtoul(argv[4], nullptr, 10) : 1;
  std::vector<cases::Case> chosen;
  for (const char* name : {"stress", "boundary"}) {
    std::size_t i = 0;
    for (const cases::Case& c : cases::load_suite(name).cases) {
      if (c.mode != call::Mode::kPrefill) continue;
      if (stride > 1 && cases::token_count(c) > kFewTokens) continue;
      if (i++ % stride == 0) chosen.push_back(c);
    }
  }
  Cells cells;
  int count = 0;
  int alarms = 0;
  for (std::size_t i = part - 1; i < chosen.size(); i += parts) {
    for (const Run& run : run_case(chosen[i], seeds)) {
      ++count;
      for (const verdict::StageReport& stage : run.report.stages) {
        const verdict::TensorReport& t = stage.tensor;
        if (t.compared == 0 || std::isnan(t.max_ratio)) continue;
        Cell& cell = cells[{run.contract, t.name}];
        cell.ratios.push_back(t.max_ratio);
        cell.mistrusted += t.verdict == verdict::Verdict::kMistrusted ? 1 : 0;
        if (t.verdict == verdict::Verdict::kOutOfBudget || t.verdict == verdict::Verdict::kError) {
          ++cell.alarms;
          ++alarms;
          fmt::print("FALSE ALARM: {} {} {:.3g} seed {}: {} ({})\n", run.contract, t.name,
                     t.max_ratio, run.seed, run.line,
                     t.worst ? verdict::to_string(t.worst->coordinates) : t.reason);
        }
        if (t.max_ratio > cell.largest) {
          cell.largest = t.max_ratio;
          cell.worst = fmt::format("seed {}: {}", run.seed, run.line);
        }
      }
    }
  }
  fmt::print("{:<26} {:<6} {:>6} {:>8} {:>8} {:>7}  {}\n", "contract", "stage", "runs", "largest",
             "median", "vacuous", "the largest in");
  for (auto& [key, cell] : cells) {
    std::ranges::sort(cell.ratios);
    fmt::print("{:<26} {:<6} {:>6} {:>8.3f} {:>8.3f} {:>7}  {}\n", key.first, key.second,
               cell.ratios.size(), cell.largest, cell.ratios[cell.ratios.size() / 2],
               cell.mistrusted, cell.worst);
  }
  fmt::print("{} cases, {} runs of emulated kernels, {} false alarms\n", chosen.size(), count,
             alarms);
  return alarms == 0 ? 0 : 1;
}
