// SPDX-License-Identifier: Apache-2.0
//
// The shares of one run of `mutate`, in any of its forms, put together. What a form adds up is its
// own; which reports belong together, which of them bring something new, and what nobody brought
// is one rule for all.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reference/report/merge.hpp"

namespace goldenrule::tools {

/// What a report says that it is of, one for each form of the command.
constexpr const char* kMutate = "mutate";
constexpr const char* kMutateChains = "mutate --chains";
constexpr const char* kMutatePeers = "mutate --peers";

/// Hands every report that brings new shares to `take`, and returns the runs of all. A share that
/// is there twice counts once. Throws Error(kSchema) for reports of another command or run, and
/// where `take` finds something else than it expects.
[[nodiscard]] nlohmann::ordered_json merge_shares(
    const std::vector<report::ReportText>& reports, const std::string& command,
    const std::function<void(const nlohmann::ordered_json& report)>& take);

/// A report that is its own table: that of the first with the others joined to it.
[[nodiscard]] nlohmann::ordered_json merge_tables(const std::vector<report::ReportText>& reports,
                                                  const std::string& command,
                                                  void (*join)(nlohmann::ordered_json& to,
                                                               const nlohmann::ordered_json& from));

}  // namespace goldenrule::tools
