// SPDX-License-Identifier: Apache-2.0
//
// `goldenrule merge`: the reports of many machines as one.
#include "reference/report/merge.hpp"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "fixtures/call/error.hpp"
#include "reference/report/page.hpp"
#include "reference/report/runs.hpp"
#include "tools/cli/chain_table.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/judging.hpp"
#include "tools/cli/matrix.hpp"
#include "tools/cli/merge_shares.hpp"
#include "tools/cli/peer_table.hpp"

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

// A part of the whole that fails fails the whole; one that passes says nothing of what is missing.
int end_of_shares(int code, const std::vector<std::string>& problems) {
  say(problems);
  return code == 0 && !problems.empty() ? 2 : code;
}

int merge_of_mutate(const std::vector<report::ReportText>& reports, const MergeOptions& options) {
  const MergedMatrix merged = merge_matrices(reports);
  if (!options.json.empty()) write_text(options.json, merged.json);
  const int code = show_matrix(merged.given, merged.problems.empty());
  return end_of_shares(code, merged.problems);
}

// A report that is its own table.
struct Table {
  const char* command;
  void (*join)(nlohmann::ordered_json& to, const nlohmann::ordered_json& from);
  int (*show)(const nlohmann::ordered_json& table, bool whole);
};
constexpr std::array kTables{Table{kMutateChains, join_chain_tables, show_chain_table},
                             Table{kMutatePeers, join_peer_tables, show_peer_table}};

int merge_of_table(const std::vector<report::ReportText>& reports, const MergeOptions& options,
                   const Table& table) {
  const nlohmann::ordered_json merged = merge_tables(reports, table.command, table.join);
  const std::vector<std::string> problems = report::missing_shares(merged.at("runs"));
  int code = 0;
  try {
    code = table.show(merged, problems.empty());
  } catch (const nlohmann::ordered_json::exception& error) {
    throw Error(ErrorKind::kSchema, options.files.front(), "",
                std::string("a JSON report of ") + table.command, error.what());
  }
  if (!options.json.empty()) write_text(options.json, merged.dump(1) + "\n");
  return end_of_shares(code, problems);
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
  if (command == kMutate) return merge_of_mutate(reports, options);
  for (const Table& table : kTables) {
    if (command == table.command) return merge_of_table(reports, options, table);
  }
  const report::Merged merged = report::merge(reports);
  say(merged.notes);
  say(merged.problems);
  fmt::print("{}\n", merged.summary);
  if (!options.json.empty()) write_text(options.json, merged.json);
  if (!options.html.empty()) write_text(options.html, report::page(merged.json));
  return merged.exit_code;
}

}  // namespace goldenrule::tools
