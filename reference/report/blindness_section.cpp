// SPDX-License-Identifier: Apache-2.0
//
// Known mistakes and conventions that a capture cannot tell apart.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "reference/report/sections.hpp"

namespace goldenrule::report {
namespace {

using nlohmann::ordered_json;

std::string blindness_text(const FileReport& file) {
  if (!file.blindness) return "";
  const explain::Blindness& b = *file.blindness;
  std::string text = fmt::format("  cannot be seen in this capture: {} of {} known mistakes{}{}\n",
                                 b.mistakes.size(), b.mistakes_tried,
                                 b.mistakes.empty() ? "" : ": ", fmt::join(b.mistakes, ", "));
  if (b.conventions.empty()) {
    return text + fmt::format("  every other convention would show ({} tried)\n", b.values_tried);
  }
  text += fmt::format("  conventions that it cannot tell from the declared ones ({} tried):\n",
                      b.values_tried);
  for (const explain::UnseenConvention& c : b.conventions) {
    text += fmt::format("      {} = {}\n", c.attribute, fmt::join(c.values, ", "));
  }
  return text;
}

void add_blindness(const FileReport& file, ordered_json& item) {
  if (!file.blindness) return;
  const explain::Blindness& blindness = *file.blindness;
  ordered_json conventions = ordered_json::object();
  for (const auto& c : blindness.conventions) conventions[c.attribute] = c.values;
  item["blind"] = {{"mistakes", blindness.mistakes},
                   {"mistakes_tried", blindness.mistakes_tried},
                   {"conventions", conventions},
                   {"values_tried", blindness.values_tried}};
}

// Asked for on a command line, by one person.
std::string blindness_html(const ordered_json& /*item*/) { return ""; }

}  // namespace

constinit const Section kBlindness{blindness_text, add_blindness, blindness_html};

}  // namespace goldenrule::report
