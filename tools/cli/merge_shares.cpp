// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/merge_shares.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "fixtures/call/error.hpp"
#include "reference/report/runs.hpp"

namespace goldenrule::tools {
namespace {

using nlohmann::ordered_json;

// Shares of one run count its cases once: a report brings shares that are all new, or none.
bool is_new(const std::string& file, const ordered_json& runs, const ordered_json& own) {
  if (own.size() != 1 || own.front().at("digest") != runs.front().at("digest") ||
      own.front().at("shards") != runs.front().at("shards")) {
    throw Error(ErrorKind::kSchema, file, "runs", "a share of the run of the other reports",
                "another run: other suites, options or version");
  }
  const auto have = runs.front().at("have").get<std::set<std::int64_t>>();
  const auto more = own.front().at("have").get<std::set<std::int64_t>>();
  const auto known =
      std::ranges::count_if(more, [&](std::int64_t share) { return have.contains(share); });
  if (known != 0 && known != std::ssize(more)) {
    throw Error(ErrorKind::kSchema, file, "runs/have", "shares that no other report has",
                "some that another has and some that none has");
  }
  return known == 0;
}

}  // namespace

ordered_json merge_shares(const std::vector<report::ReportText>& reports,
                          const std::string& command,
                          const std::function<void(const ordered_json& report)>& take) {
  if (reports.empty()) throw Error(ErrorKind::kArgument, "merge", "reports", "none");
  ordered_json runs;
  for (const report::ReportText& report : reports) {
    const ordered_json json = report::parse_report(report.file, report.text);
    const std::string own = report::command_of(report.file, json);
    if (own != command) {
      throw Error(ErrorKind::kSchema, report.file, "runs", "reports of " + command, "of " + own);
    }
    try {
      if (runs.empty()) {
        runs = json.at("runs");
        (void)is_new(report.file, runs, runs);
        take(json);
      } else if (is_new(report.file, runs, json.at("runs"))) {
        report::join_runs(runs, json.at("runs"));
        take(json);
      }
    } catch (const ordered_json::exception& error) {
      throw Error(ErrorKind::kSchema, report.file, "", "a JSON report of " + command, error.what());
    }
  }
  return runs;
}

ordered_json merge_tables(const std::vector<report::ReportText>& reports,
                          const std::string& command,
                          void (*join)(ordered_json& to, const ordered_json& from)) {
  ordered_json merged;
  ordered_json runs = merge_shares(reports, command, [&](const ordered_json& report) {
    if (merged.is_null()) {
      merged = report;
    } else {
      join(merged, report);
    }
  });
  merged["runs"] = std::move(runs);
  return merged;
}

}  // namespace goldenrule::tools
