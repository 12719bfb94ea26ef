// SPDX-License-Identifier: Apache-2.0
#include "reference/report/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/call/text.hpp"
#include "reference/report/page_parts.hpp"
#include "reference/report/runs.hpp"

namespace goldenrule::report {
namespace {

// A page stays below 2 MB, so that a telephone opens it: what its parts may take, in bytes. The
// sections take what the others leave.
constexpr std::size_t kPage = 1'900'000;
constexpr std::size_t kProblems = 60'000;
constexpr std::size_t kColumns = 32;    // there are four outputs
constexpr std::size_t kCounts = 5'000;  // of verdicts
constexpr std::size_t kRows = 500'000;
constexpr std::size_t kSectionsWithMaps = 1'350'000;

// Appends the pieces 0 to n - 1 while `html` stays below `most`: how many did.
template <class Piece>
std::size_t fill(std::string& html, std::size_t n, std::size_t most, const Piece& piece) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::string next = piece(i);
    if (html.size() + next.size() > most) return i;
    html += next;
  }
  return n;
}

using Items = std::vector<const ordered_json*>;

std::string cell(const ordered_json& tensor) {
  return fmt::format("{}<br><span class=\"soft\">{}</span>",
                     badge(tensor.at("verdict").get<std::string>()),
                     in_budgets(tensor.at("max_ratio")));
}

// The first mistake that explains what is wrong.
std::string named(const ordered_json& item) {
  if (!item.contains("explanation")) return "";
  for (const ordered_json& e : item.at("explanation")) {
    if (!e.at("explains").get<bool>()) continue;
    return "<br><b>" + escaped(e.at("mistake").get<std::string>()) + "</b>";
  }
  return "";
}

std::string row(const ordered_json& item, const std::string& link,
                const std::vector<std::string>& names) {
  const std::string file = escaped(item.at("file").get<std::string>());
  std::string html =
      fmt::format("<tr><td>{}</td><td>{}{}</td>",
                  link.empty() ? file : fmt::format("<a href=\"{}\">{}</a>", link, file),
                  badge(item.at("verdict").get<std::string>()), named(item));
  std::map<std::string, const ordered_json*> tensors;
  for (const ordered_json& t : item.at("tensors")) tensors[t.at("name").get<std::string>()] = &t;
  for (const std::string& name : names) {
    const auto tensor = tensors.find(name);
    html += fmt::format("<td>{}</td>", tensor == tensors.end() ? "" : cell(*tensor->second));
  }
  return html + "</tr>";
}

struct Matrix {
  std::string html;
  std::size_t rows = 0;
};

// File by tensor: the verdict, and by how much. The first `linked` rows lead to sections.
Matrix matrix(const Items& items, std::size_t linked) {
  std::vector<std::string> names;
  for (const ordered_json* item : items) {
    for (const ordered_json& tensor : item->at("tensors")) {
      const auto name = tensor.at("name").get<std::string>();
      const bool known = std::ranges::find(names, name) != names.end();
      if (!known && names.size() < kColumns) names.push_back(name);
    }
  }
  Matrix matrix{.html = "<div class=\"scroll\"><table><tr><th>file</th><th>verdict</th>"};
  for (const std::string& name : names) matrix.html += fmt::format("<th>{}</th>", escaped(name));
  matrix.html += "</tr>";
  matrix.rows = fill(matrix.html, items.size(), kRows, [&](std::size_t i) {
    return row(*items[i], i < linked ? fmt::format("#f{}", i) : "", names);
  });
  matrix.html += "</table></div>";
  return matrix;
}

// "12 EXACT 1 OUT_OF_BUDGET" of the items from the first on.
std::string counts_from(const Items& items, std::size_t first) {
  std::map<std::string, std::int64_t> counts;
  for (std::size_t i = first; i < items.size(); ++i) {
    ++counts[items[i]->at("verdict").get<std::string>()];
  }
  std::string html;
  auto next = counts.begin();
  (void)fill(html, counts.size(), kCounts, [&](std::size_t) {
    const auto& [verdict, count] = *next++;
    return counted(count) + " " + badge(verdict) + " ";
  });
  return html;
}

std::string files_in_words(std::size_t count) {
  return counted(static_cast<std::int64_t>(count)) + " " + call::plural(count, "file");
}

std::string summary(const ordered_json& report, const Items& items) {
  std::string html = fmt::format("<p>{}: {}</p>", files_in_words(items.size()),
                                 items.empty() ? "nothing was judged" : counts_from(items, 0));
  std::vector<std::string> problems = missing_shares(report.at("runs"));
  if (report.contains("problems")) problems = report.at("problems").get<std::vector<std::string>>();
  const std::size_t said = fill(html, problems.size(), kProblems, [&](std::size_t i) {
    return fmt::format("<p class=\"card problem\">{}</p>", escaped(problems[i]));
  });
  if (said < problems.size()) {
    html += fmt::format("<p class=\"card problem\">and {} more, all in the JSON report</p>",
                        problems.size() - said);
  }
  const auto notes = report.value("notes", std::vector<std::string>());
  (void)fill(html, notes.size(), 2 * kProblems,
             [&](std::size_t i) { return paragraph("soft", escaped(notes[i])); });
  return html;
}

struct Sections {
  std::string html;
  std::size_t count = 0;
  std::size_t with_maps = 0;
};

// Of the first files, as many as `most` bytes hold: with error maps while these have room.
Sections sections_of(const Items& items, std::size_t most) {
  Sections sections;
  const auto take = [&](bool maps, std::size_t bytes) {
    const std::size_t before = sections.count;
    sections.count += fill(sections.html, items.size() - before, bytes, [&](std::size_t i) {
      return section(*items[before + i], before + i, maps);
    });
  };
  take(true, std::min(most, kSectionsWithMaps));
  sections.with_maps = sections.count;
  take(false, most);
  return sections;
}

// What the page leaves out, and where it is.
std::string left_out(const Items& items, const Sections& sections, std::size_t rows) {
  std::string html;
  if (sections.with_maps < sections.count) {
    html += fmt::format("Error maps of {} are left out. ",
                        files_in_words(sections.count - sections.with_maps));
  }
  if (sections.count < items.size()) {
    html +=
        fmt::format("{} have no section here: {}. ", files_in_words(items.size() - sections.count),
                    counts_from(items, sections.count));
  }
  if (rows < items.size()) {
    html += fmt::format("{} have no row: {}. ", files_in_words(items.size() - rows),
                        counts_from(items, rows));
  }
  if (html.empty()) return "";
  return paragraph("soft", html +
                               "The JSON report has all of them (--json); a page of fewer files "
                               "shows more: those of one share (--shard I/N --html), or single "
                               "files judged again.");
}

std::string page_of(const ordered_json& report) {
  const Items items = ranked(report.at("cases"));
  const bool one = items.size() == 1;
  const std::string head = summary(report, items);
  const bool has_matrix = items.size() > 1;
  const Sections sections = sections_of(items, kPage - head.size() - (has_matrix ? kRows : 0));
  const Matrix table =
      has_matrix ? matrix(items, sections.count) : Matrix{.html = {}, .rows = items.size()};
  const auto version = report.at("runs").front().at("version").get<std::string>();
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<title>goldenrule: {}</title><style>{}</style></head>\n<body id=\"top\"><h1>goldenrule</h1>"
      "{}<p class=\"soft\">An element passes when its error is at most its budget: what the "
      "roundings "
      "that its contract declares can do to it.</p>{}{}\n{}\n<p class=\"soft\">goldenrule {}</p>"
      "</body></html>\n",
      one ? escaped(items.front()->at("file").get<std::string>()) : files_in_words(items.size()),
      kPageStyle, head, table.html, left_out(items, sections, table.rows), sections.html,
      escaped(version));
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
