// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/judging.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "reference/contract/contract_json.hpp"
#include "reference/suites/slices.hpp"

namespace goldenrule::tools {

std::optional<scalar::Precision> parse_precision(const std::string& name) {
  using scalar::Precision;
  if (name == "auto") return std::nullopt;
  for (const Precision p : {Precision::kDouble, Precision::kQuad, Precision::kMulti}) {
    if (scalar::name_of(p) == name) return p;
  }
  throw Error(ErrorKind::kArgument, "--precision", "auto, double, quad or multi", "'" + name + "'");
}

contract::Contract named_contract(const std::string& name) {
  const bool is_file = name.ends_with(".json") || name.find('/') != std::string::npos;
  return is_file ? contract::load_contract(name) : contract::find_contract(name);
}

bool is_built_in(const std::string& contract) {
  return std::ranges::find(contract::contracts(), contract, &contract::Contract::name) !=
         contract::contracts().end();
}

std::optional<explain::Permit> find_permit(const verdict::Judgement& judgement) {
  const bool refused = judgement.report.verdict == verdict::Verdict::kOutOfBudget;
  if (!refused && !explain::is_far_within(judgement.report)) return std::nullopt;
  return explain::tightest_permit(judgement);
}

ExplainEffort::Clock::time_point ExplainEffort::program_start() {
  static const Clock::time_point start = Clock::now();
  return start;
}

namespace {
// Before main, so that every verdict is later.
[[maybe_unused]] const auto kProgramStart = ExplainEffort::program_start();
}  // namespace

std::optional<explain::Diagnosis> explain_failure(const verdict::Judgement& judgement,
                                                  const ExplainEffort& effort) {
  if (judgement.report.verdict != verdict::Verdict::kOutOfBudget) return std::nullopt;
  constexpr double kTimesVerdict = 10.0;
  constexpr double kAtLeast = 5.0;
  const std::chrono::duration<double> verdict = effort.judged - effort.judging_since;
  const double usual = std::max(kTimesVerdict * verdict.count(), kAtLeast);
  return explain::diagnose(judgement, judgement.slice->mistakes(),
                           {.seconds = effort.seconds.value_or(usual)});
}

namespace {

// What an element lacks in one file is no reason to lose the file's verdict.
ShownTerms terms_of(const verdict::Judgement& judgement, const std::string& element) {
  try {
    return {.element = element,
            .terms = verdict::terms_of(judgement, verdict::parse_element(element)),
            .refusal = {}};
  } catch (const Error& error) {
    return {.element = element, .terms = {}, .refusal = "expected " + error.expected()};
  }
}

}  // namespace

FileReport examine(call::Record record, const Examination& asked) {
  const verdict::Slice& slice = suites::slice_of(record.op);
  const verdict::Judgement judgement = verdict::judgement(slice, std::move(record), asked.question);
  FileReport result;
  if (asked.explain) {
    result.diagnosis = explain_failure(
        judgement, {.seconds = asked.explain_seconds, .judging_since = asked.since});
    result.permit = find_permit(judgement);
  }
  if (asked.blind) result.blindness = explain::find_blindness(judgement);
  for (const std::string& element : asked.terms) {
    result.terms.push_back(terms_of(judgement, element));
  }
  result.contract_origin = judgement.contract_origin;
  result.report = judgement.report;
  return result;
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

int finish(const std::vector<FileReport>& reports, const std::string& json,
           const std::string& junit) {
  if (reports.size() > 1) fmt::print("{}", text_summary(reports));
  if (!json.empty()) write_text(json, json_report(reports));
  if (!junit.empty()) write_text(junit, junit_report(reports));
  return exit_code(reports);
}

}  // namespace goldenrule::tools
