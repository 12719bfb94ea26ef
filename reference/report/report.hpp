// SPDX-License-Identifier: Apache-2.0
//
// Reports of verdicts: the same findings as text for a person, as JSON for a script and as JUnit
// XML for a CI system. One file is one case, one tensor one line. The page for a reviewer
// (page.hpp) is made from the JSON, which therefore holds everything that it shows, and so is the
// report of many machines (merge.hpp). Reports show what verdicts and explanations say; they judge
// nothing.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reference/explain/blind.hpp"
#include "reference/explain/diagnose.hpp"
#include "reference/explain/permits.hpp"
#include "reference/verdict/error_map.hpp"
#include "reference/verdict/stages.hpp"
#include "reference/verdict/terms.hpp"

namespace goldenrule::report {

/// The budget of one element term by term, or why this file has none.
struct ShownTerms {
  std::string element;  ///< as it was asked for
  std::optional<verdict::Terms> terms{};
  std::string refusal;
};

/// One judged file. Where it could not be read report.verdict is kError with the reason.
struct FileReport {
  std::string file;
  verdict::CaseReport report;
  std::string contract_origin;  ///< how the contract was chosen, and what the file claims
  std::string replay;           ///< the command line that judges this file again
  std::optional<explain::Diagnosis> diagnosis{};  ///< of a file that is out of budget
  std::optional<explain::Blindness> blindness{};  ///< what the file cannot see, where it was asked
  std::vector<ShownTerms> terms{};                ///< of the elements that were asked for
  std::optional<explain::Permit> permit{};        ///< the tightest contract that the file keeps
  /// By tensor: where it is out of budget. For the JSON alone.
  std::map<std::string, std::vector<verdict::ErrorMap>> maps{};
  std::optional<verdict::StagesReport> stages{};  ///< where the kernel gave some
};

/// What a JSON report is the report of, so that those of many machines can be put together: share
/// `part` of `parts` of a run over `items` items.
struct Run {
  std::string command;  ///< "check"
  std::string version;  ///< of the program
  std::string digest;   ///< of all items of the run, in their order, and of the options: its name
  std::size_t items = 0;
  std::size_t part = 1, parts = 1;
};

[[nodiscard]] std::string text_report(const FileReport& file);
[[nodiscard]] std::string text_summary(const std::vector<FileReport>& files);
[[nodiscard]] std::string json_report(const std::vector<FileReport>& files, const Run& run);
[[nodiscard]] std::string junit_report(const std::vector<FileReport>& files);

/// 0: everything passed; 1: some output is out of budget; 2: something could not be judged.
[[nodiscard]] int exit_code(const std::vector<FileReport>& files);

}  // namespace goldenrule::report
