// SPDX-License-Identifier: Apache-2.0
//
// The end of a failing file's report: where it fails and which known mistake reproduces it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "reference/explain/diagnose.hpp"

namespace goldenrule::tools {

[[nodiscard]] std::string explanation_text(const explain::Diagnosis& diagnosis);

/// Adds "pattern", "explanation" (the best first) and "mistakes_tried" to the JSON of a case.
void add_explanation(const explain::Diagnosis& diagnosis, nlohmann::ordered_json& json);

}  // namespace goldenrule::tools
