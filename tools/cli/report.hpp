// SPDX-License-Identifier: Apache-2.0
//
// Reports of `check` and `diff`: the same findings as text for a person, as JSON for a script and
// as JUnit XML for a CI system. One file is one case, one tensor one line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reference/explain/blind.hpp"
#include "reference/explain/diagnose.hpp"
#include "reference/explain/permits.hpp"
#include "reference/verdict/terms.hpp"

namespace goldenrule::tools {

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
  std::optional<explain::Diagnosis> diagnosis{};  ///< of a file that is out of budget
  std::optional<explain::Blindness> blindness{};  ///< what the file cannot see, where it was asked
  std::vector<ShownTerms> terms{};                ///< of the elements that were asked for
  std::optional<explain::Permit> permit{};        ///< the tightest contract that the file keeps
};

[[nodiscard]] std::string text_report(const FileReport& file);
[[nodiscard]] std::string text_summary(const std::vector<FileReport>& files);
[[nodiscard]] std::string json_report(const std::vector<FileReport>& files);
[[nodiscard]] std::string junit_report(const std::vector<FileReport>& files);

/// 0: everything passed; 1: some output is out of budget; 2: something could not be judged.
[[nodiscard]] int exit_code(const std::vector<FileReport>& files);

/// Replaces `path` by `text`. Throws Error(kFile).
void write_text(const std::string& path, const std::string& text);

}  // namespace goldenrule::tools
