// SPDX-License-Identifier: Apache-2.0
//
// What `check`, `diff` and others do around a report: where it is written, and the words of a
// command line.
#pragma once

#include <string>
#include <vector>

#include "reference/report/report.hpp"
#include "tools/cli/commands.hpp"

namespace goldenrule::tools {

/// A report must not replace what it reports on, nor another report. Throws Error(kArgument).
void refuse_overwriting(const std::vector<std::string>& inputs, const ReportFiles& reports);

/// Prints the summary of more than one file, writes the reports that are wanted and returns the
/// exit code.
[[nodiscard]] int finish(const std::vector<report::FileReport>& files, const report::Run& run,
                         const ReportFiles& wanted);

/// Replaces `path` by `text`; whoever reads it meanwhile has all of the old or all of the new text,
/// unless it is a link, a pipe or a device. Throws Error(kFile).
void write_text(const std::string& path, const std::string& text);

/// The options that name a contract and outputs, as the end of a command line.
[[nodiscard]] std::string judged_by(const std::string& contract,
                                    const std::vector<std::string>& only);

/// A word as a shell takes it back: quoted where it must be, and never an option.
[[nodiscard]] std::string shell_word(const std::string& word);

}  // namespace goldenrule::tools
