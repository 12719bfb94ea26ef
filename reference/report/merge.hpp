// SPDX-License-Identifier: Apache-2.0
//
// One report from those of many machines. Each machine judges a share of the items (`--shard I/N`)
// or items of its own, and writes JSON; the whole is the union of their items. What must not pass
// unsaid when it is put together:
//
//   a problem: shares of a run that nobody brought; one item with two answers, both of which stay;
//   a note:    one item with one answer in several reports, which counts once.
//
// Merging is associative and takes what it made, so reports can be merged as they arrive.
#pragma once

#include <string>
#include <vector>

namespace goldenrule::report {

struct ReportText {
  std::string file;  ///< where it was read, for messages
  std::string text;  ///< JSON
};

struct Merged {
  std::string command;  ///< "check", "diff", "generate" or "recompute"
  std::string json;     ///< a report as each of them, with "problems" and "notes"
  std::vector<std::string> problems, notes;
  std::string summary;  ///< "12 items: 11 EXACT, 1 OUT_OF_BUDGET"
  /// As for one machine, and 2 where there is a problem and nothing is known to be wrong (1).
  int exit_code = 0;
};

/// Throws Error(kSchema), with the file, for texts that are no reports or reports of several
/// commands, and Error(kArgument) for reports of a command that has no list of items.
[[nodiscard]] Merged merge(const std::vector<ReportText>& reports);

}  // namespace goldenrule::report
