// SPDX-License-Identifier: Apache-2.0
#include "reference/report/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "fixtures/call/error.hpp"
#include "reference/report/page_parts.hpp"
#include "reference/report/runs.hpp"

namespace goldenrule::report {
namespace {

// What the sections of files may take of 2 MB: beyond the first, error maps are left out; beyond
// the second, whole sections are. Rows of the matrix take the rest.
constexpr std::size_t kMapsUpTo = 1'300'000;
constexpr std::size_t kSectionsUpTo = 1'700'000;

// File by tensor: the verdict, and by how much.
std::string matrix(const std::vector<const ordered_json*>& items, std::size_t sections) {
  std::vector<std::string> names;
  for (const ordered_json* item : items) {
    for (const ordered_json& tensor : item->at("tensors")) {
      const auto name = tensor.at("name").get<std::string>();
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  std::string html = "<div class=\"scroll\"><table><tr><th>file</th><th>verdict</th>";
  for (const std::string& name : names) html += fmt::format("<th>{}</th>", escaped(name));
  html += "</tr>";
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string file = escaped(items[i]->at("file").get<std::string>());
    html += fmt::format("<tr><td>{}</td><td>{}</td>",
                        i < sections ? fmt::format("<a href=\"#f{}\">{}</a>", i, file) : file,
                        badge(items[i]->at("verdict").get<std::string>()));
    std::map<std::string, std::string> cells;
    for (const ordered_json& tensor : items[i]->at("tensors")) {
      cells[tensor.at("name").get<std::string>()] = fmt::format(
          "{}<br><span class=\"soft\">{} of budget</span>",
          badge(tensor.at("verdict").get<std::string>()), shown(tensor.at("max_ratio")));
    }
    for (const std::string& name : names) html += fmt::format("<td>{}</td>", cells[name]);
    html += "</tr>";
  }
  return html + "</table></div>";
}

std::string summary(const ordered_json& report, const std::vector<const ordered_json*>& items) {
  std::map<std::string, std::int64_t> counts;
  for (const ordered_json* item : items) ++counts[item->at("verdict").get<std::string>()];
  std::string html =
      fmt::format("<p>{} file{}: ", counted(std::ssize(items)), items.size() == 1 ? "" : "s");
  for (const auto& [verdict, count] : counts) html += counted(count) + " " + badge(verdict) + " ";
  html += "</p>";
  std::vector<std::string> problems = missing_shares(report.at("runs"));
  if (report.contains("problems")) problems = report.at("problems").get<std::vector<std::string>>();
  for (const std::string& problem : problems) {
    html += fmt::format("<p class=\"card problem\">{}</p>", escaped(problem));
  }
  if (report.contains("notes")) html += paragraph("soft", joined(report.at("notes")));
  return html;
}

std::string page_of(const ordered_json& report) {
  const std::vector<const ordered_json*> items = ranked(report.at("cases"));
  std::string sections;
  std::size_t count = 0;
  std::size_t without_maps = 0;
  for (const ordered_json* item : items) {
    std::string next = section(*item, count, true);
    if (sections.size() + next.size() > kMapsUpTo) {
      next = section(*item, count, false);
      ++without_maps;
    }
    if (sections.size() + next.size() > kSectionsUpTo) break;
    sections += next;
    ++count;
  }
  std::string left_out;
  if (without_maps > 0) left_out += "Error maps of later files are left out. ";
  if (count < items.size()) {
    left_out += fmt::format("{} files have no section here. ", items.size() - count);
  }
  if (!left_out.empty()) left_out += "A page of those files alone has them.";
  const bool one = items.size() == 1;
  const auto version = report.at("runs").front().at("version").get<std::string>();
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<title>goldenrule: {}</title><style>{}</style></head>\n<body id=\"top\"><h1>goldenrule</h1>"
      "{}{}{}\n{}\n<p class=\"soft\">goldenrule {}. An element passes when its error is at most "
      "its budget: what the roundings that its contract declares can do to it.</p></body></html>\n",
      one ? escaped(items.front()->at("file").get<std::string>())
          : counted(std::ssize(items)) + " files",
      kPageStyle, summary(report, items), one ? "" : matrix(items, count),
      paragraph("soft", left_out), sections, escaped(version));
}

}  // namespace

std::string page(const std::string& json) {
  const ordered_json report = parse_report("", json);
  try {
    return page_of(report);
  } catch (const ordered_json::exception& error) {
    throw Error(ErrorKind::kSchema, "cases", "a JSON report of check or diff", error.what());
  }
}

}  // namespace goldenrule::report
