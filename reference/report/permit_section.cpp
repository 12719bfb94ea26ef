// SPDX-License-Identifier: Apache-2.0
//
// What a refused kernel may be, or how little a pass says.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "reference/report/page_parts.hpp"
#include "reference/report/sections.hpp"

namespace goldenrule::report {
namespace {

using nlohmann::ordered_json;
using verdict::Verdict;

std::string permit_text(const FileReport& file) {
  if (!file.permit) return "";
  const explain::Permit& p = *file.permit;
  const bool refused = file.report.verdict == Verdict::kOutOfBudget;
  std::string text =
      refused ? fmt::format("  a right kernel of another contract, {}, could return this: {}\n",
                            p.contract, p.meaning)
              : fmt::format(
                    "  contract {} grants more than 100 times the error wherever there is one: the "
                    "tightest that is kept is {}\n",
                    file.report.contract, p.contract);
  if (!p.difference.empty()) text += fmt::format("      the difference: {}\n", p.difference);
  return text;
}

void add_permit(const FileReport& file, ordered_json& item) {
  if (!file.permit) return;
  item["permit"] = {{"contract", file.permit->contract},
                    {"meaning", file.permit->meaning},
                    {"difference", file.permit->difference}};
}

std::string permit_html(const ordered_json& item) {
  if (!item.contains("permit")) return "";
  const ordered_json& p = item.at("permit");
  const std::string name = escaped(p.at("contract").get<std::string>());
  std::string html =
      rank(item) == 0
          ? fmt::format("A right kernel of another contract, <b>{}</b>, could return this: {}",
                        name, escaped(text_of(p, "meaning")))
          : fmt::format(
                "Contract {} grants more than 100 times the error wherever there is one: the "
                "tightest "
                "that is kept is <b>{}</b>",
                escaped(text_of(item, "contract")), name);
  const std::string difference = text_of(p, "difference");
  if (!difference.empty()) html += ". The difference: " + escaped(difference);
  return paragraph("", html);
}

}  // namespace

constinit const Section kPermit{permit_text, add_permit, permit_html};

}  // namespace goldenrule::report
