// SPDX-License-Identifier: Apache-2.0
//
// The sections of a file's report beside its tensors. Each says the same thing three times: as text
// for a person, as JSON for a script and, made from that JSON, as HTML for the page; what a file
// does not have is said in none of them.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "reference/report/report.hpp"

namespace goldenrule::report {

struct Section {
  std::string (*text)(const FileReport& file);
  /// Adds its keys to the JSON of the file.
  void (*add_json)(const FileReport& file, nlohmann::ordered_json& item);
  /// From the JSON of a file; nlohmann's exceptions where that is no report.
  std::string (*html)(const nlohmann::ordered_json& item);
};

extern const Section kExplanation;  ///< mistakes of the capture and the kernel, the pattern
extern const Section kPermit;       ///< another contract that would permit it, or a tighter one
extern const Section kStages;       ///< intermediate results of the kernel
extern const Section kTerms;        ///< the budgets of the elements that were asked for
extern const Section kBlindness;    ///< what the file cannot see

/// In the order of the text and of the page.
inline constexpr std::array kSections{&kExplanation, &kPermit, &kStages, &kTerms, &kBlindness};

}  // namespace goldenrule::report
