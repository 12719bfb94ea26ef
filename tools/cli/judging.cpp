// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/judging.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "reference/bounds/contract_json.hpp"
#include "reference/mistakes/mistake.hpp"
#include "reference/oracle/evaluate.hpp"

namespace goldenrule::tools {

std::optional<scalar::Precision> parse_precision(const std::string& name) {
  using scalar::Precision;
  if (name == "auto") return std::nullopt;
  for (const Precision p : {Precision::kDouble, Precision::kQuad, Precision::kMulti}) {
    if (oracle::name_of(p) == name) return p;
  }
  throw Error(ErrorKind::kArgument, "--precision", "auto, double, quad or multi", "'" + name + "'");
}

bounds::Contract named_contract(const std::string& name) {
  return name.ends_with(".json") ? bounds::load_contract(name) : bounds::find_contract(name);
}

bool is_built_in(const std::string& contract) {
  return std::ranges::find(bounds::contracts(), contract, &bounds::Contract::name) !=
         bounds::contracts().end();
}

bounds::Contract choose_contract(const std::string& name, const call::Record& record,
                                 std::string& origin) {
  if (!name.empty()) {
    origin = "given";
    return named_contract(name);
  }
  const bounds::Contract& chosen = bounds::default_contract(record);
  origin = "by mode and types";
  if (record.contract == chosen.name) {
    origin = "claimed by the file";
  } else if (!record.contract.empty()) {
    origin += "; the file claims " + record.contract + ", which is not tighter";
  }
  return chosen;
}

void keep_only(const std::vector<std::string>& only, call::Record& record) {
  constexpr std::array<std::string_view, 3> kOutputs{"o", "final_state", "intermediate_states"};
  for (const std::string& name : only) {
    if (std::ranges::find(kOutputs, name) == kOutputs.end()) {
      throw Error(ErrorKind::kArgument, "--only", "o, final_state or intermediate_states",
                  "'" + name + "'");
    }
  }
  if (only.empty()) return;
  std::erase_if(record.outputs, [&](const auto& item) {
    return std::ranges::find(only, item.first) == only.end();
  });
}

std::optional<explain::Permit> find_permit(const call::Record& record,
                                           const bounds::Contract& contract,
                                           const verdict::CaseReport& report) {
  const bool refused = report.verdict == verdict::Verdict::kOutOfBudget;
  if (!refused && !explain::is_far_within(report)) return std::nullopt;
  return explain::tightest_permit(record, contract);
}

ExplainEffort::Clock::time_point ExplainEffort::program_start() {
  static const Clock::time_point start = Clock::now();
  return start;
}

namespace {
// Before main, so that every verdict is later.
[[maybe_unused]] const auto kProgramStart = ExplainEffort::program_start();
}  // namespace

std::optional<explain::Diagnosis> explain_failure(const call::Record& record,
                                                  const bounds::Contract& contract,
                                                  const verdict::Judgement& judgement,
                                                  const ExplainEffort& effort) {
  if (judgement.report.verdict != verdict::Verdict::kOutOfBudget) return std::nullopt;
  constexpr double kTimesVerdict = 10.0;
  constexpr double kAtLeast = 5.0;
  const std::chrono::duration<double> verdict = effort.judged - effort.judging_since;
  const double usual = std::max(kTimesVerdict * verdict.count(), kAtLeast);
  return explain::diagnose(record, contract, judgement.evaluation, mistakes::table(),
                           {.seconds = effort.seconds.value_or(usual)});
}

verdict::CaseReport error_report(const Error& error) {
  verdict::CaseReport report;
  report.verdict = verdict::Verdict::kError;
  report.reason = error.what();
  return report;
}

void refuse_overwriting(const std::vector<std::string>& inputs, const std::string& json,
                        const std::string& junit) {
  const auto same = [](const std::string& a, const std::string& b) {
    std::error_code code;
    return !a.empty() && !b.empty() && (a == b || std::filesystem::equivalent(a, b, code));
  };
  for (const auto& [option, report] : {std::pair("--json", &json), std::pair("--junit", &junit)}) {
    for (const std::string& input : inputs) {
      if (!same(*report, input)) continue;
      throw Error(ErrorKind::kArgument, option, "a report beside the input files",
                  "'" + *report + "', which is one of them");
    }
  }
  if (same(json, junit)) {
    throw Error(ErrorKind::kArgument, "--junit", "another file than --json", "'" + junit + "'");
  }
}

void drop_tensors(call::Record& record) {
  std::erase_if(record.inputs, [](const auto& item) { return item.first != "cu_seqlens"; });
  record.outputs.clear();
}

int finish(const std::vector<FileReport>& reports, const std::string& json,
           const std::string& junit) {
  if (reports.size() > 1) fmt::print("{}", text_summary(reports));
  if (!json.empty()) write_text(json, json_report(reports));
  if (!junit.empty()) write_text(junit, junit_report(reports));
  return exit_code(reports);
}

}  // namespace goldenrule::tools
