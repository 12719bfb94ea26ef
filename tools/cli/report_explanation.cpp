// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/report_explanation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace goldenrule::tools {
namespace {

using explain::Diagnosis;
using explain::Explanation;
using nlohmann::ordered_json;

std::string number(double x) { return std::isfinite(x) ? fmt::format("{:.3g}", x) : "inf"; }

std::string scatter_lines(const Explanation& e, bool first) {
  return fmt::format(
      "  {} {}: it amplifies roundings, so that no element can be predicted; the emulated mistake\n"
      "      errs in the same places and as widely (rms error {} times its own, the worst element\n"
      "      {} of the bound)\n      {}\n",
      first ? "explained by" : "or by", e.name(), number(*e.width), number(e.residual_ratio),
      fmt::join(e.meanings, "\n      "));
}

std::string explaining_lines(const Explanation& e, bool first) {
  if (e.width) return scatter_lines(e, first);
  std::string text =
      fmt::format("  {} {}: every element is reproduced, the worst to {} of its budget\n",
                  first ? "explained by" : "or by", e.name(), number(e.residual_ratio));
  for (const std::string& meaning : e.meanings) text += fmt::format("      {}\n", meaning);
  if (!e.same.empty()) {
    text += fmt::format("      the same outputs in this call: {}\n", fmt::join(e.same, ", "));
  }
  return text;
}

std::string near_miss_line(const Explanation& e) {
  return fmt::format(
      "      nearest: {} leaves {} elements out of budget (worst {} times) and "
      "accounts for {:.0f} % of the error\n",
      e.name(), e.failing, number(e.residual_ratio), 100.0 * std::max(e.accounted, 0.0));
}

}  // namespace

std::string explanation_text(const Diagnosis& diagnosis) {
  std::string text = fmt::format("  pattern: {}\n", diagnosis.pattern);
  bool explained = false;
  for (const Explanation& e : diagnosis.explanations) {
    if (!e.explains) continue;
    text += explaining_lines(e, !explained);
    explained = true;
  }
  if (explained) return text;
  text += fmt::format("  none of {} known mistakes explains it", diagnosis.known);
  text += fmt::format(" ({} can be made in this call{})\n", diagnosis.tried,
                      diagnosis.pairs > 0 ? fmt::format(", {} pairs tried", diagnosis.pairs) : "");
  for (const Explanation& e : diagnosis.explanations) text += near_miss_line(e);
  return text;
}

void add_explanation(const Diagnosis& diagnosis, ordered_json& json) {
  ordered_json explanations = ordered_json::array();
  for (const Explanation& e : diagnosis.explanations) {
    explanations.push_back(
        {{"mistake", e.name()},
         {"residual_ratio",
          std::isfinite(e.residual_ratio) ? ordered_json(e.residual_ratio) : ordered_json("inf")},
         {"explains", e.explains},
         {"failing", e.failing},
         {"accounted", e.accounted},
         {"meaning", e.meanings},
         {"same", e.same}});
    if (e.width) explanations.back()["width"] = *e.width;
  }
  json["pattern"] = diagnosis.pattern;
  json["explanation"] = std::move(explanations);
  json["mistakes_tried"] = diagnosis.tried;
}

}  // namespace goldenrule::tools
