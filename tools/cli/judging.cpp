// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/judging.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>

#include "fixtures/call/chain_rows.hpp"
#include "fixtures/call/text.hpp"
#include "fixtures/schema/atomic_file.hpp"
#include "reference/contract/contract_json.hpp"
#include "reference/report/page.hpp"
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

ExplainEffort::Clock::time_point ExplainEffort::program_start() {
  static const Clock::time_point start = Clock::now();
  return start;
}

namespace {
// Before main, so that every verdict is later.
[[maybe_unused]] const auto kProgramStart = ExplainEffort::program_start();
}  // namespace

double ExplainEffort::limit() const {
  constexpr double kTimesVerdict = 10.0;
  constexpr double kAtLeast = 5.0;
  if (seconds) return *seconds;
  const std::chrono::duration<double> verdict = judged - judging_since;
  return std::min(std::max(kTimesVerdict * verdict.count(), kAtLeast), most_seconds);
}

std::optional<explain::Diagnosis> explain_failure(const verdict::Judgement& judgement,
                                                  const ExplainEffort& effort) {
  if (judgement.report.verdict != verdict::Verdict::kOutOfBudget) return std::nullopt;
  return explain::diagnose(judgement, judgement.slice->mistakes(), {.seconds = effort.limit()});
}

std::optional<explain::Permit> find_permit(const verdict::Judgement& judgement,
                                           const ExplainEffort& effort) {
  const bool refused = judgement.report.verdict == verdict::Verdict::kOutOfBudget;
  if (!refused && !explain::is_far_within(judgement.report)) return std::nullopt;
  const double limit = effort.limit();
  return explain::tightest_permit(
      judgement, limit > 0.0 ? std::min(limit, explain::kPermitSeconds) : explain::kPermitSeconds);
}

namespace {

void add_error_maps(const verdict::Judgement& judgement, report::FileReport& file) {
  for (const verdict::TensorReport& tensor : judgement.report.tensors) {
    std::vector<verdict::ErrorMap> maps = verdict::error_maps(judgement, tensor);
    if (!maps.empty()) file.maps[tensor.name] = std::move(maps);
  }
}

// What an element lacks in one file is no reason to lose the file's verdict.
report::ShownTerms terms_of(const verdict::Judgement& judgement, const std::string& element) {
  try {
    return {.element = element,
            .terms = verdict::terms_of(judgement, verdict::parse_element(element)),
            .refusal = {}};
  } catch (const Error& error) {
    return {.element = element, .terms = {}, .refusal = "expected " + error.expected()};
  }
}

}  // namespace

report::FileReport examine(call::Record record, const Examination& asked) {
  call::remove_chain_rows(record);
  const verdict::Slice& slice = suites::slice_of(record.op);
  report::FileReport result;
  const verdict::Judgement judgement = [&] {
    std::optional<verdict::WorkLimited> limited;
    if (asked.work) limited.emplace(*asked.work);
    verdict::Judgement judged = verdict::judgement(slice, std::move(record), asked.question);
    if (asked.stages) {
      result.stages = verdict::judge_stages(slice, judged.record, judged.contract, *asked.stages);
    }
    return judged;
  }();
  if (asked.explain) {
    const ExplainEffort effort{.seconds = asked.explain_seconds,
                               .most_seconds = asked.most_explain_seconds,
                               .judging_since = asked.since};
    result.diagnosis = explain_failure(judgement, effort);
    result.permit = find_permit(judgement, effort);
  }
  if (asked.maps) add_error_maps(judgement, result);
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

void refuse_overwriting(const std::vector<std::string>& inputs, const ReportFiles& reports) {
  const auto same = [](const std::string& a, const std::string& b) {
    std::error_code code;
    return !a.empty() && !b.empty() && (a == b || std::filesystem::equivalent(a, b, code));
  };
  const std::vector<std::pair<std::string, std::string>> written{
      {"--json", reports.json}, {"--junit", reports.junit}, {"--html", reports.html}};
  for (std::size_t i = 0; i < written.size(); ++i) {
    const auto& [option, path] = written[i];
    for (const std::string& input : inputs) {
      if (!same(path, input)) continue;
      throw Error(ErrorKind::kArgument, option, "a report beside the input files",
                  "'" + path + "', which is one of them");
    }
    for (std::size_t other = 0; other < i; ++other) {
      if (!same(path, written[other].second)) continue;
      throw Error(ErrorKind::kArgument, option, "another file than " + written[other].first,
                  "'" + path + "'");
    }
  }
}

int finish(const std::vector<report::FileReport>& files, const report::Run& run,
           const ReportFiles& wanted) {
  if (files.size() > 1) fmt::print("{}", report::text_summary(files));
  if (wanted.show_maps()) {
    const std::string json = report::json_report(files, run);
    if (!wanted.json.empty()) write_text(wanted.json, json);
    if (!wanted.html.empty()) write_text(wanted.html, report::page(json));
  }
  if (!wanted.junit.empty()) write_text(wanted.junit, report::junit_report(files));
  return report::exit_code(files);
}

namespace {

// A device, a pipe or a link is what the user means, and so is a file in a directory that nothing
// can be added to.
bool can_be_replaced(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::file_type type = fs::symlink_status(path, code).type();
  if (type == fs::file_type::not_found) return true;
  const fs::path directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  return type == fs::file_type::regular && ::access(directory.c_str(), W_OK) == 0;
}

}  // namespace

void write_text(const std::string& path, const std::string& text) {
  if (can_be_replaced(path)) {
    return schema::write_file_atomically(path, std::as_bytes(std::span(text)));
  }
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw Error(ErrorKind::kFile, path, "report", "a writable file", "a failed write");
}

std::string judged_by(const std::string& contract, const std::vector<std::string>& only) {
  std::string options;
  if (!contract.empty()) options += " --contract " + shell_word(contract);
  if (!only.empty()) options += " --only " + shell_word(fmt::format("{}", fmt::join(only, ",")));
  return options;
}

std::string shell_word(const std::string& word) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-./,=+:@%").find(c) != std::string_view::npos;
  };
  std::string path = word.starts_with('-') ? "./" + word : word;
  if (!path.empty() && std::ranges::all_of(path, plain)) return path;
  const bool printable = call::is_printable_utf8(path);
  std::string quoted = printable ? "'" : "$'";
  for (const char c : printable ? path : call::printable(path)) {
    // The backslashes of printable() are those that $'..' reads.
    quoted += c != '\'' ? std::string(1, c) : printable ? "'\\''" : "\\'";
  }
  return quoted + "'";
}

}  // namespace goldenrule::tools
