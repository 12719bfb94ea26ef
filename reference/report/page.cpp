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

// What the sections of files may take of 2 MB: beyond the first, error maps are left out; beyond
// the second, whole sections are. Rows of the matrix take the rest.
constexpr std::size_t kMapsUpTo = 1'300'000;
constexpr std::size_t kSectionsUpTo = 1'700'000;

std::string text_of(const ordered_json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || !found->is_string() ? "" : found->get<std::string>();
}

std::string paragraph(const char* css, const std::string& html) {
  return html.empty() ? "" : fmt::format("<p class=\"{}\">{}</p>", css, html);
}

// The worst first: what fails, what was not judged, what passes.
int rank(const ordered_json& item) {
  const std::string verdict = item.at("verdict").get<std::string>();
  if (verdict == "OUT_OF_BUDGET") return 0;
  return verdict == "EXACT" || verdict == "WITHIN_BUDGET" ? 2 : 1;
}

std::string worst_line(const ordered_json& tensor) {
  const ordered_json& worst = tensor.at("worst");
  if (worst.is_null()) return "";
  return fmt::format(
      "worst element: <b>{}</b>: value {}, exact {}, error {}, budget {}: <b>{}</b> times the "
      "budget",
      place(worst.at("coordinates")), shown(worst.at("value")), shown(worst.at("golden")),
      shown(worst.at("error")), shown(worst.at("budget")), shown(tensor.at("max_ratio")));
}

std::string failing_rows(const ordered_json& tensor) {
  constexpr std::size_t kShown = 6;
  const ordered_json& rows = tensor.at("failing_rows");
  if (rows.empty()) return "";
  std::string text = fmt::format("where: {} of {}: ", rows.size(),
                                 counted(tensor.at("shape").at(0).get<std::int64_t>()));
  for (std::size_t i = 0; i < std::min(rows.size(), kShown); ++i) {
    const ordered_json& row = rows[i];
    text += fmt::format("{}{} {} ({} of {} elements)", i == 0 ? "" : ", ",
                        escaped(text_of(tensor, "row_word")), row.at("row").get<std::int64_t>(),
                        counted(row.at("out_of_budget").get<std::int64_t>()),
                        counted(row.at("elements").get<std::int64_t>()));
  }
  return rows.size() > kShown ? text + fmt::format(" and {} more", rows.size() - kShown) : text;
}

// What is said of elements that were not compared, or not finite.
std::string remarks(const ordered_json& tensor) {
  std::string text;
  const auto add = [&](const char* key, const char* words) {
    const auto count = tensor.at(key).get<std::int64_t>();
    if (count == 0) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", counted(count), words);
  };
  add("nan", "are NaN");
  add("unwritten", "of them in rows that are NaN throughout, as if never written");
  add("inf", "are infinite");
  add("undefined", "belong to padded requests and are not compared");
  add("nonfinite", "have no finite exact result, since inputs are not finite");
  if (!tensor.at("first_unjudged").is_null()) {
    text += fmt::format("{}first there: {}", text.empty() ? "" : "; ",
                        place(tensor.at("first_unjudged")));
  }
  return text;
}

std::string tensor_card(const ordered_json& tensor, bool maps) {
  const std::int64_t out = tensor.at("out_of_budget").get<std::int64_t>();
  const std::int64_t compared = tensor.at("compared").get<std::int64_t>();
  std::string html = fmt::format(
      "<div class=\"card\"><h3>{} {}</h3><p class=\"soft\">{} {}, {} elements compared</p>",
      escaped(tensor.at("name").get<std::string>()), badge(tensor.at("verdict").get<std::string>()),
      escaped(text_of(tensor, "dtype")), escaped(tensor.at("shape").dump()), counted(compared));
  html += paragraph("", escaped(text_of(tensor, "reason")));
  html += "<div class=\"tensor\"><div>";
  if (out > 0) {
    html += fmt::format("<p><b class=\"bad\">{} of {} elements are out of budget</b></p>",
                        counted(out), counted(compared));
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

std::string joined(const ordered_json& texts) {
  std::string html;
  for (const ordered_json& text : texts) {
    html += (html.empty() ? "" : "; ") + escaped(text.get<std::string>());
  }
  return html;
}

std::string explanation(const ordered_json& e, bool first) {
  const std::string name = escaped(e.at("mistake").get<std::string>());
  std::string html =
      e.at("explains").get<bool>()
          ? fmt::format("<p>{} <b>{}</b>: {}</p>", first ? "Explained by" : "Or by", name,
                        joined(e.at("meaning")))
          : fmt::format(
                "<p class=\"soft\">Nearest: {} accounts for {:.0f} % of the error, and leaves "
                "{} elements out of budget ({})</p>",
                name, 100.0 * e.at("accounted").get<double>(),
                counted(e.at("failing").get<std::int64_t>()), joined(e.at("meaning")));
  const auto also = [&](const char* key, const char* words) {
    if (e.at(key).empty() || !e.at("explains").get<bool>()) return;
    html += fmt::format("<p class=\"soft\">{}: {}</p>", words, joined(e.at(key)));
  };
  also("reported", "In public");
  also("meant", "If your kernel means it");
  also("same", "The same outputs in this call");
  return html;
}

// Why a file fails: the mistake of the capture or of the kernel, and the pattern of what is wrong.
std::string why(const ordered_json& item) {
  if (!item.contains("pattern")) return "";
  std::string html;
  bool of_capture = false;
  for (const ordered_json& m : item.at("of_capture")) {
    const bool accounts = m.at("accounts").get<bool>();
    of_capture = of_capture || accounts;
    html += fmt::format("<p>{} <b>{}</b>: {}</p>", accounts ? "A mistake of the capture," : "Note,",
                        escaped(m.at("name").get<std::string>()),
                        escaped(m.at("meaning").get<std::string>()));
  }
  bool explained = false;
  std::string explanations;
  for (const ordered_json& e : item.at("explanation")) {
    explanations += explanation(e, !explained);
    explained = explained || e.at("explains").get<bool>();
  }
  if (!explained && !of_capture) {
    html += fmt::format(
        "<p>None of {} known mistakes explains it ({} can be made in this call{}).</p>",
        item.at("mistakes_known").get<std::int64_t>(),
        item.at("mistakes_tried").get<std::int64_t>(),
        item.at("stopped_after").is_null() ? ""
                                           : ", and the time was up before all pairs were tried");
  }
  if (!of_capture) html += explanations;
  html += fmt::format("<p>Pattern: {}</p>", escaped(item.at("pattern").get<std::string>()));
  return fmt::format("<div class=\"card why\">{}</div>", html);
}

std::string permit(const ordered_json& item) {
  if (!item.contains("permit")) return "";
  const ordered_json& p = item.at("permit");
  const std::string name = escaped(p.at("contract").get<std::string>());
  std::string html =
      rank(item) == 0
          ? fmt::format("Contract <b>{}</b> permits it: {}", name, escaped(text_of(p, "meaning")))
          : fmt::format(
                "Contract {} grants more than 100 times the error everywhere: the tightest "
                "that is kept is <b>{}</b>",
                escaped(text_of(item, "contract")), name);
  const std::string difference = text_of(p, "difference");
  if (!difference.empty()) html += ". The difference: " + escaped(difference);
  return paragraph("", html);
}

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
  if (!item.at("absent").empty()) {
    html += paragraph("", "not among the outputs: " + joined(item.at("absent")));
  }
  if (!text_of(item, "contract").empty()) {
    html +=
        fmt::format("<p class=\"soft\">contract {} ({}), oracle {} bits</p>",
                    escaped(text_of(item, "contract")), escaped(text_of(item, "contract_origin")),
                    item.at("precision_bits").get<std::int64_t>());
  }
  const auto nonfinite = item.at("nonfinite_inputs").get<std::int64_t>();
  if (nonfinite > 0) {
    html += fmt::format(
        "<p>The inputs hold {} NaN or Inf: where they reach an output it must not "
        "be finite, elsewhere it must.</p>",
        counted(nonfinite));
  }
  html += why(item) + permit(item);
  for (const ordered_json& tensor : item.at("tensors")) html += tensor_card(tensor, maps);
  if (!text_of(item, "replay").empty()) {
    html += fmt::format("<p class=\"soft\">To judge it again:</p><pre>{}</pre>",
                        escaped(text_of(item, "replay")));
  }
  return html + "<p class=\"soft\"><a href=\"#top\">all files</a></p></section>";
}

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
  std::vector<const ordered_json*> items;
  for (const ordered_json& item : report.at("cases")) items.push_back(&item);
  std::ranges::stable_sort(items, {}, [](const ordered_json* item) { return rank(*item); });
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

std::string escaped(const std::string& text) {
  std::string html;
  for (const char c : call::printable(text)) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::string shown(const ordered_json& value) {
  if (value.is_number()) return fmt::format("{:.3g}", value.get<double>());
  if (!value.is_string() || value == "nan") return "-";
  return escaped(value.get<std::string>());
}

std::string counted(std::int64_t n) {
  const std::string digits = std::to_string(n);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && digits[i - 1] != '-' && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string place(const ordered_json& coordinates) {
  std::string text;
  for (const auto& [name, value] : coordinates.items()) {
    text += (text.empty() ? "" : ", ") + name + " " + value.dump();
    if (name == "after") text += value == 1 ? " token" : " tokens";
  }
  return escaped(text);
}

std::string badge(const std::string& verdict) {
  const char* css = verdict == "OUT_OF_BUDGET"                         ? "bad"
                    : verdict == "EXACT" || verdict == "WITHIN_BUDGET" ? "good"
                                                                       : "weak";
  return fmt::format("<span class=\"badge {}\">{}</span>", css, escaped(verdict));
}

std::string page(const std::string& json) {
  const ordered_json report = parse_report("", json);
  try {
    return page_of(report);
  } catch (const ordered_json::exception& error) {
    throw Error(ErrorKind::kSchema, "cases", "a JSON report of check or diff", error.what());
  }
}

}  // namespace goldenrule::report
