// SPDX-License-Identifier: Apache-2.0
//
// The end of a failing file's report: what is wrong with the capture itself, where it fails and
// which known mistake reproduces it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "reference/explain/diagnose.hpp"

namespace goldenrule::report {

[[nodiscard]] std::string explanation_text(const explain::Diagnosis& diagnosis);

/// Adds "of_capture", "pattern", "explanation" (the best first), and what was tried, to the JSON of
/// a case. Numbers are numbers; null where there is none (a NaN that is left, no limit reached).
void add_explanation(const explain::Diagnosis& diagnosis, nlohmann::ordered_json& json);

}  // namespace goldenrule::report
