// SPDX-License-Identifier: Apache-2.0
//
// Parts of the page (page.hpp): texts, numbers and plots as HTML, from pieces of the JSON report.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace goldenrule::report {

using nlohmann::ordered_json;

/// The style sheet: light or dark as the reader's system is.
extern const std::string_view kPageStyle;

/// Of a value and the exact one, which may differ in the last digit of fp32.
inline constexpr int kValueDigits = 9;

/// A text of a stranger as text of an HTML element or of a quoted attribute; a very long one is
/// shortened, and says so.
[[nodiscard]] std::string escaped(const std::string& text);
/// A number with so many digits; a word ("inf") as it stands, "-" for none.
[[nodiscard]] std::string shown(const ordered_json& value, int digits = 3);
/// An error over its budget in words: ".31 of its budget", "7,150 times its budget", "70 million
/// times ..".
[[nodiscard]] std::string in_budgets(const ordered_json& ratio);
/// A whole number of a report, no further from 0 than 2^53; of another value what nlohmann throws.
[[nodiscard]] std::int64_t whole(const ordered_json& value);
/// A whole number with its thousands set apart.
[[nodiscard]] std::string counted(std::int64_t n);
/// "sequence 2, token 17" of {"sequence": 2, "token": 17}.
[[nodiscard]] std::string place(const ordered_json& coordinates);
/// The verdict as a badge, in its colour.
[[nodiscard]] std::string badge(const std::string& verdict);

/// A text of an object; empty where it has none.
[[nodiscard]] std::string text_of(const ordered_json& json, const char* key);
/// Texts of a list, with semicolons between.
[[nodiscard]] std::string joined(const ordered_json& texts);
/// HTML as a paragraph; nothing where there is nothing to say.
[[nodiscard]] std::string paragraph(const char* css, const std::string& html);
/// The worst first: 0 what fails, 1 what was not judged, 2 what passes.
[[nodiscard]] int rank(const ordered_json& item);
/// The items of a list by rank, otherwise in their order.
[[nodiscard]] std::vector<const ordered_json*> ranked(const ordered_json& items);

/// The section of one file, with or without its error maps.
[[nodiscard]] std::string section(const ordered_json& item, std::size_t number, bool maps);

/// The distribution of error over budget of a tensor: both axes are logarithmic. Nothing where no
/// element was measured against a budget.
[[nodiscard]] std::string histogram(const ordered_json& tensor);
/// The error maps of a tensor, with their legend.
[[nodiscard]] std::string error_maps(const ordered_json& tensor);

}  // namespace goldenrule::report
