// SPDX-License-Identifier: Apache-2.0
//
// goldenrule_backward_alarms PROBLEMS KERNELS [SUITE ...]: are the budgets of gradients right?
// PROBLEMS random calls, over all conventions, patterns and types, and all cases of the suites; in
// each KERNELS emulated honest kernels of every contract that kernels of the call may declare,
// judged as `check` judges. Exit 1 on any false alarm.
//
// Per contract and output: the 10th, 50th and 90th percentile and the largest value over the runs
// of the largest |error| / budget, the share of the runs that are refused when each of their errors
// is kTimes as large, and how many runs a verdict does not trust. At the end how many kernels have
// a gradient that is then refused. A SUITE may be a case line.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/suite.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "fixtures/random/philox.hpp"
#include "reference/backward/emulation/emulate.hpp"
#include "reference/backward/slice.hpp"
#include "reference/calls/kernel.hpp"
#include "reference/verdict/grants.hpp"
#include "reference/verdict/stages.hpp"
#include "reference/verdict/verdict.hpp"

namespace {

using namespace goldenrule;

constexpr double kTimes = 3.0;

struct Judged {
  std::string line, contract, output;
  std::uint64_t kernel = 0;
  double ratio = 0.0;
  bool refused = false, refused_times = false, mistrusted = false;
};

bool is_refused(const verdict::TensorReport& report) {
  return report.out_of_budget > 0 || report.unbounded > 0;
}

// What a kernel leaves before it stores it, judged as it stores it, and with its errors kTimes as
// large.
Judged judged_in(call::DType type, const call::Tensor& unrounded, const verdict::Expected& e,
                 const std::string& output, const std::string& line,
                 const contract::Contract& contract) {
  const std::vector<double> honest = unrounded.to_doubles();
  std::vector<double> noisy = honest;
  for (std::size_t i = 0; i < noisy.size(); ++i) {
    const double golden = e.exact.golden[i];
    if (std::isfinite(golden)) noisy[i] = golden + kTimes * (honest[i] - golden);
  }
  const auto judge = [&](const std::vector<double>& values) {
    return verdict::judge(output, call::Tensor(type, unrounded.shape(), values), e, contract);
  };
  const verdict::TensorReport report = judge(honest);
  return {.line = line,
          .contract = contract.name,
          .output = output,
          .kernel = 0,
          .ratio = report.max_ratio,
          .refused = is_refused(report),
          .refused_times = is_refused(judge(noisy)),
          .mistrusted = report.vacuous > 0};
}

// A case line by its number. Not every one is a case: patterns ask for conventions.
std::string random_line(std::uint64_t number) {
  const random::Stream stream(number, "backward alarms");
  std::int64_t next = 0;
  std::string line = "mode=prefill";
  const auto add = [&](const char* key, std::initializer_list<const char*> from) {
    line.append(" ").append(key).append(from.begin()[stream.bits(next++) % from.size()]);
  };
  add("op=", {"gdn_backward", "kda_backward"});
  add("lens=", {"1", "17", "64", "63,64,65,1,0,30", "70,64", "2,129", "200"});
  add("", {"H=1 HV=1", "H=1 HV=2", "H=2 HV=4", "H=1 HV=3"});
  add("", {"K=16 V=16", "K=32 V=24", "K=64 V=64", "K=128 V=32", "K=60 V=100"});
  add("io=", {"bf16", "bf16", "f16", "f32"});
  add("gate=", {"softplus", "softplus", "bounded", "log", "log2", "none"});
  add("beta=", {"sigmoid", "sigmoid2", "direct"});
  add("qk_l2norm=", {"rsqrt_sum_eps", "rsqrt_sum_eps", "max_norm_eps", "norm_plus_eps", "none"});
  add("head_map=", {"grouped", "tiled"});
  add("gate_head=", {"v", "qk"});
  add("state_layout=", {"vk", "kv"});
  add("h0=", {"0", "1"});
  add("dstate=", {"0", "1"});
  add("grad=", {"normal", "normal", "last", "early", "channel", "ones"});
  add("pattern=", {"A",    "A",     "B75",    "B95",   "B999",   "B16",   "C000",    "C050",
                   "C100", "Dslow", "Dbound", "Dzero", "Dmixed", "Dhard", "Dinside", "Derase",
                   "E",    "F",     "G",      "I",     "J17",    "J20p",  "J20m",    "production"});
  return line.append(" seed=").append(std::to_string(number));
}

std::vector<std::string> choose(std::uint64_t problems, const std::vector<std::string>& suites) {
  std::vector<std::string> lines;
  for (std::uint64_t number = 0; lines.size() < problems; ++number) {
    const std::string line = random_line(number);
    if (line.find("io=f16") != std::string::npos && line.find("pattern=I") != std::string::npos) {
      continue;  // gradients by keys of 1e-3 are beyond fp16
    }
    try {
      lines.push_back(cases::canonical(cases::parse(line)));
    } catch (const Error&) {
      continue;
    }
  }
  for (const std::string& suite : suites) {
    if (suite.find('=') != std::string::npos) {
      lines.push_back(cases::canonical(cases::parse(suite)));
      continue;
    }
    for (const cases::Case& c : cases::load_suite(suite).cases) {
      lines.push_back(cases::canonical(c));
    }
  }
  return lines;
}

// A contract of 16-bit operands says nothing of fp32 inputs, and that of fp32 nothing of others.
bool fits(const contract::Contract& contract, const call::Record& record) {
  if (contract.is_ideal()) return false;
  const bool is_short = call::info(record.inputs.at("q").dtype()).bytes < sizeof(float);
  return is_short == (contract.name != "adjoint_f32");
}

// The stages of the same kernels, which store them in the type of q and in fp32 in turn.
void run_stages(const call::Record& record, const contract::Contract& contract,
                const std::string& line, std::uint64_t kernels, std::vector<Judged>& to) {
  const verdict::StageSlice& slice = *backward::slice().stages;
  std::vector<std::string> names;
  for (const verdict::StageRow& row : slice.table()) names.emplace_back(row.name);
  verdict::ExpectedStages expected =
      slice.evaluate(record, contract.adjoint()->chunk, names, scalar::Precision::kDouble);
  for (std::uint64_t k = 0; k < kernels; ++k) {
    const call::DType type = k % 2 == 0 ? record.inputs.at("q").dtype() : call::DType::kF32;
    std::map<std::string, call::DType> stored;
    for (const std::string& name : names) stored[name] = type;
    slice.grant(record, contract, stored, expected);
    const call::TensorMap stages = backward::emulate_stages(record, contract, 1000 * k + 17);
    for (const auto& [name, stage] : stages) {
      Judged judged = judged_in(type, stage, expected.at(name).expected, name, line, contract);
      judged.output = "stage " + name;
      to.push_back(std::move(judged));
    }
  }
}

std::vector<Judged> run(const std::string& line, std::uint64_t kernels) {
  call::Record record = cases::make_record(cases::parse(line));
  const verdict::Slice& slice = backward::slice();
  verdict::Expectations expected = slice.evaluate(record, scalar::Precision::kDouble, {});
  std::vector<Judged> all;
  for (const contract::Contract& contract : contract::contracts_of(call::Family::kBackward)) {
    if (!fits(contract, record)) continue;
    slice.grant(record, contract, verdict::GrantDetail::kSpread, expected);
    for (std::uint64_t k = 0; k < kernels; ++k) {
      const call::TensorMap outputs = slice.emulate(record, contract, 1000 * k + 17);
      record.outputs = calls::stored(record, contract, outputs);
      verdict::admit_infinities(record, contract, expected);
      for (const auto& [name, tensor] : record.outputs) {
        all.push_back(judged_in(tensor.dtype(), outputs.at(name), expected.outputs.at(name), name,
                                line, contract));
        all.back().kernel = k;
      }
    }
    run_stages(record, contract, line, kernels, all);
  }
  return all;
}

int report(const std::vector<std::vector<Judged>>& runs) {
  std::map<std::pair<std::string, std::string>, std::vector<Judged>> cells;
  int alarms = 0;
  for (const std::vector<Judged>& of_call : runs) {
    for (const Judged& judged : of_call) {
      cells[{judged.contract, judged.output}].push_back(judged);
      if (!judged.refused) continue;
      ++alarms;
      fmt::print("false alarm: {} {} {:.3g}: {}\n", judged.contract, judged.output, judged.ratio,
                 judged.line);
    }
  }
  fmt::print("{:24} {:16} {:>6} {:>7} {:>7} {:>7} {:>7} {:>9} {:>10}\n", "contract", "output",
             "runs", "10 %", "50 %", "90 %", "most", fmt::format("{}x, out", kTimes), "mistrusted");
  for (auto& [cell, judged] : cells) {
    std::vector<double> ratios;
    for (const Judged& j : judged) ratios.push_back(j.ratio);
    std::ranges::sort(ratios);
    const auto at = [&](double share) {
      return ratios[static_cast<std::size_t>(share * static_cast<double>(ratios.size() - 1))];
    };
    const auto refused = std::ranges::count_if(judged, &Judged::refused_times);
    fmt::print("{:24} {:16} {:6} {:7.3f} {:7.3f} {:7.3f} {:7.3f} {:7.0f} % {:10}\n", cell.first,
               cell.second, ratios.size(), at(0.1), at(0.5), at(0.9), ratios.back(),
               100.0 * static_cast<double>(refused) / static_cast<double>(judged.size()),
               std::ranges::count_if(judged, &Judged::mistrusted));
  }
  std::vector<double> all;
  std::size_t kernels = 0;
  std::size_t refused_times = 0;  // kernels one of whose gradients is
  for (const std::vector<Judged>& of_call : runs) {
    std::map<std::pair<std::string, std::uint64_t>, bool> of_kernel;
    for (const Judged& judged : of_call) {
      all.push_back(judged.ratio);
      if (judged.output.starts_with("stage ")) continue;
      of_kernel[{judged.contract, judged.kernel}] |= judged.refused_times;
    }
    kernels += of_kernel.size();
    for (const auto& [kernel, refused] : of_kernel) refused_times += refused ? 1 : 0;
  }
  std::ranges::sort(all);
  fmt::print(
      "{} calls, {} emulated kernels, {} tensors, median of the largest |error| / budget "
      "{:.3f}, {} false alarms; with {} times their errors {} kernels are refused\n",
      runs.size(), kernels, all.size(), all.empty() ? 0.0 : all[all.size() / 2], alarms, kTimes,
      refused_times);
  return alarms == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: {} PROBLEMS KERNELS [SUITE ...]\n", argv[0]);
    return 2;
  }
  const std::vector<std::string> lines =
      choose(std::strtoull(argv[1], nullptr, 10), {argv + 3, argv + argc});
  std::vector<std::vector<Judged>> runs(lines.size());
  parallel::for_each_index(std::ssize(lines), [&](std::int64_t i) {
    runs[static_cast<std::size_t>(i)] =
        run(lines[static_cast<std::size_t>(i)], std::strtoull(argv[2], nullptr, 10));
  });
  return report(runs);
}
