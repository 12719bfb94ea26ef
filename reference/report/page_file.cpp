// SPDX-License-Identifier: Apache-2.0
//
// The section of one file.
#include <fmt/format.h>

#include <algorithm>

#include "fixtures/call/text.hpp"
#include "reference/report/page_parts.hpp"
#include "reference/report/sections.hpp"
#include "reference/report/text_parts.hpp"

namespace goldenrule::report {
namespace {

std::string worst_line(const ordered_json& tensor) {
  const ordered_json& worst = tensor.at("worst");
  if (worst.is_null()) return "";
  return fmt::format("worst element: <b>{}</b>: value {}, exact {}, error {}, budget {}: <b>{}</b>",
                     place(worst.at("coordinates")), shown(worst.at("value"), kValueDigits),
                     shown(worst.at("golden"), kValueDigits), shown(worst.at("error")),
                     shown(worst.at("budget")), in_budgets(tensor.at("max_ratio")));
}

std::string failing_rows(const ordered_json& tensor) {
  constexpr std::size_t kShown = 6;
  const ordered_json& rows = tensor.at("failing_rows");
  if (rows.empty()) return "";
  std::string text =
      fmt::format("where: {} of {}: ", rows.size(), counted(whole(tensor.at("shape").at(0))));
  for (std::size_t i = 0; i < std::min(rows.size(), kShown); ++i) {
    const ordered_json& row = rows[i];
    text += fmt::format("{}{} {} ({} of {} {})", i == 0 ? "" : ", ",
                        escaped(text_of(tensor, "row_word")), whole(row.at("row")),
                        counted(whole(row.at("out_of_budget"))), counted(whole(row.at("elements"))),
                        call::plural(whole(row.at("elements")), "element"));
  }
  return rows.size() > kShown ? text + fmt::format(" and {} more", rows.size() - kShown) : text;
}

// What is said of elements that were not compared, or not finite.
std::string remarks(const ordered_json& tensor) {
  std::string text;
  const auto add = [&](const char* key, std::string_view of_one, std::string_view of_many) {
    const auto count = whole(tensor.at(key));
    if (count == 0) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", counted(count),
                        call::agreeing(count, of_one, of_many));
  };
  constexpr const char* kUnwritten = "of them in rows that are NaN throughout, as if never written";
  add("nan", "is NaN", "are NaN");
  add("unwritten", kUnwritten, kUnwritten);
  add("inf", "is infinite", "are infinite");
  add("undefined", no_right_value(1), no_right_value(2));
  add("nonfinite", "has no finite exact result, since inputs are not finite",
      "have no finite exact result, since inputs are not finite");
  if (!tensor.at("first_unjudged").is_null()) {
    text += fmt::format("{}first there: {}", text.empty() ? "" : "; ",
                        place(tensor.at("first_unjudged")));
  }
  return text;
}

std::string tensor_card(const ordered_json& tensor, bool maps) {
  const std::int64_t out = whole(tensor.at("out_of_budget"));
  const std::int64_t compared = whole(tensor.at("compared"));
  const std::int64_t asked = compared + whole(tensor.at("nonfinite"));
  std::string html = fmt::format(
      "<div class=\"card\"><h3>{} {}</h3><p class=\"soft\">{} {}, {} {} compared</p>",
      escaped(tensor.at("name").get<std::string>()), badge(tensor.at("verdict").get<std::string>()),
      escaped(text_of(tensor, "dtype")), escaped(tensor.at("shape").dump()), counted(compared),
      call::plural(compared, "element"));
  html += paragraph("", escaped(text_of(tensor, "reason")));
  html += "<div class=\"tensor\"><div>";
  if (out > 0) {
    html += fmt::format("<p><b class=\"bad\">{} of {} {} {} out of budget</b></p>", counted(out),
                        counted(asked), call::plural(asked, "element"),
                        call::agreeing(out, "is", "are"));
  }
  html += paragraph("", worst_line(tensor));
  html += paragraph("", failing_rows(tensor));
  html += paragraph("soft", remarks(tensor));
  html += fmt::format(
      "<p class=\"soft\">largest error {}, rms relative to the output {}, median "
      "error over budget {}</p></div><div>{}</div></div>",
      shown(tensor.at("max_abs")), shown(tensor.at("rms_rel")), shown(tensor.at("median_ratio")),
      histogram(tensor));
  return html + (maps ? error_maps(tensor) : "") + "</div>";
}

}  // namespace

std::string section(const ordered_json& item, std::size_t number, bool maps) {
  std::string html = fmt::format("<section id=\"f{}\"><h2>{} {}</h2>", number,
                                 escaped(item.at("file").get<std::string>()),
                                 badge(item.at("verdict").get<std::string>()));
  const std::string source = text_of(item, "source");
  if (!text_of(item, "op").empty()) {
    html +=
        fmt::format("<p>{} {}{}</p>", escaped(text_of(item, "op")), escaped(text_of(item, "mode")),
                    source.empty() ? "" : ": " + escaped(source));
  }
  if (!text_of(item, "case").empty()) {
    html +=
        fmt::format("<p class=\"soft\">case <code>{}</code></p>", escaped(text_of(item, "case")));
  }
  html += paragraph("", escaped(text_of(item, "reason")));
  const std::string cause = text_of(item, "likely_cause");
  if (!cause.empty()) html += paragraph("", "Likely cause: " + escaped(cause));
  if (!item.at("absent").empty()) {
    html += paragraph("", "not among the outputs: " + joined(item.at("absent")));
  }
  if (!text_of(item, "contract").empty()) {
    html +=
        fmt::format("<p class=\"soft\">contract {} ({}), oracle {} bits</p>",
                    escaped(text_of(item, "contract")), escaped(text_of(item, "contract_origin")),
                    whole(item.at("precision_bits")));
  }
  const auto nonfinite = whole(item.at("nonfinite_inputs"));
  if (nonfinite > 0) {
    html += fmt::format(
        "<p>The inputs hold {} NaN or Inf: where they reach an output it must not "
        "be finite, elsewhere it must.</p>",
        counted(nonfinite));
  }
  for (const Section* part : kSections) html += part->html(item);
  for (const ordered_json* tensor : ranked(item.at("tensors"))) html += tensor_card(*tensor, maps);
  if (!text_of(item, "replay").empty()) {
    html += fmt::format("<p class=\"soft\">To judge it again:</p><pre>{}</pre>",
                        escaped(text_of(item, "replay")));
  }
  return html + "<p class=\"soft\"><a href=\"#top\">all files</a></p></section>";
}

}  // namespace goldenrule::report
