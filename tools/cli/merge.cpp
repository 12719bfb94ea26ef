// SPDX-License-Identifier: Apache-2.0
//
// `goldenrule merge`: the reports of many machines as one.
#include "reference/report/merge.hpp"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "fixtures/call/error.hpp"
#include "reference/report/page.hpp"
#include "reference/report/runs.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/judging.hpp"
#include "tools/cli/matrix.hpp"

namespace goldenrule::tools {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) throw Error(ErrorKind::kFile, path, "report", "a readable file", "a failed read");
  return text.str();
}

void say(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) fmt::print("{}\n", line);
}

void refuse_page(const std::string& command, const std::string& html) {
  if (html.empty() || command == "check" || command == "diff") return;
  throw Error(ErrorKind::kArgument, "--html", "reports of check or diff", "reports of " + command);
}

int merge_of_mutate(const std::vector<report::ReportText>& reports, const MergeOptions& options) {
  const MergedMatrix merged = merge_matrices(reports);
  if (!options.json.empty()) write_text(options.json, merged.json);
  const int code = show_matrix(merged.given, merged.problems.empty());
  say(merged.problems);
  return code == 0 && !merged.problems.empty() ? 2 : code;
}

}  // namespace

int merge(const MergeOptions& options) {
  refuse_overwriting(options.files, {.json = options.json, .junit = {}, .html = options.html});
  std::vector<report::ReportText> reports;
  for (const std::string& file : options.files) {
    reports.push_back({.file = file, .text = read_text(file)});
  }
  const std::string command = report::command_of(
      reports.front().file, report::parse_report(reports.front().file, reports.front().text));
  refuse_page(command, options.html);
  if (command == "mutate") return merge_of_mutate(reports, options);
  const report::Merged merged = report::merge(reports);
  say(merged.notes);
  say(merged.problems);
  fmt::print("{}\n", merged.summary);
  if (!options.json.empty()) write_text(options.json, merged.json);
  if (!options.html.empty()) write_text(options.html, report::page(merged.json));
  return merged.exit_code;
}

}  // namespace goldenrule::tools
