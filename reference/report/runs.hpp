// SPDX-License-Identifier: Apache-2.0
//
// What a JSON report covers, under its key "runs": one entry for each run of a command that it
// holds a part of,
//
//   {"command": "check", "version": "0.1.0", "digest": "9f..", "items": 12, "shards": 4, "have":
//   [2]}
//
// The digest names the run: shares of one run have it in common, since every machine is given all
// items and options. A report of all shares has them all under "have".
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reference/report/report.hpp"

namespace goldenrule::report {

using nlohmann::ordered_json;

/// A whole run of this version: `items` are those of the run, and `options` whatever else the
/// answers depend on.
[[nodiscard]] Run run_of(const std::string& command, const std::vector<std::string>& items,
                         const std::vector<std::string>& options);

[[nodiscard]] ordered_json run_json(const Run& run);

/// The JSON of a report, whose "runs" are as above. Throws Error(kSchema) for other texts, which
/// name `file`; nothing is asked of the rest.
[[nodiscard]] ordered_json parse_report(const std::string& file, const std::string& text);

/// The command that all runs of a report are of. Throws Error(kSchema) where they differ.
[[nodiscard]] std::string command_of(const std::string& file, const ordered_json& report);

/// Adds the runs of one report to those of another; a run that is in both has the shares of both.
void join_runs(ordered_json& to, const ordered_json& from);

/// "shares 3 and 5 of 8 of the run 9f03aa21 are missing", a line for each run that lacks any.
[[nodiscard]] std::vector<std::string> missing_shares(const ordered_json& runs);

}  // namespace goldenrule::report
