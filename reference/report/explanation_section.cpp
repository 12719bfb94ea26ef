// SPDX-License-Identifier: Apache-2.0
//
// Why a file fails: what is wrong with the capture itself, which known mistake of kernels
// reproduces it, and the pattern of what is wrong. Numbers are numbers in JSON, null where there
// is none (a NaN that is left, no limit reached).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "fixtures/call/text.hpp"
#include "reference/report/page_parts.hpp"
#include "reference/report/sections.hpp"

namespace goldenrule::report {
namespace {

using explain::Diagnosis;
using explain::Explanation;
using nlohmann::ordered_json;

std::string number(double x) { return std::isfinite(x) ? fmt::format("{:.3g}", x) : "inf"; }

// JSON has no infinity, and a word is no number.
ordered_json number_or_null(double x) { return std::isfinite(x) ? ordered_json(x) : nullptr; }

// The name, and what would have to be declared for it to be none.
std::string meant_line(const Explanation& e) {
  if (e.meant.empty()) return "";
  return fmt::format("      if your kernel means it: {}\n", fmt::join(e.meant, ", "));
}

std::string scatter_lines(const Explanation& e, bool first) {
  return fmt::format(
      "  {} {}: it amplifies roundings, so that no element can be predicted; the emulated mistake\n"
      "      errs in the same places and as widely (rms error {} times its own, the worst element\n"
      "      {} of the bound)\n      {}\n",
      first ? "explained by" : "or by", e.name(), number(*e.width), number(e.residual_ratio),
      fmt::join(e.meanings, "\n      "));
}

std::string reproduced_words(const Explanation& e) {
  if (!e.where.empty()) {
    return fmt::format(
        "every element there is reproduced, the worst to {} of its budget; the others are right",
        number(e.residual_ratio));
  }
  if (e.flipped == 0) {
    return fmt::format("every element is reproduced, the worst to {} of its budget",
                       number(e.residual_ratio));
  }
  return fmt::format("all but {} are reproduced, no more than roundings near a tie carry elsewhere",
                     call::numbered(e.flipped, "element"));
}

std::string explaining_lines(const Explanation& e, bool first) {
  if (e.width) return scatter_lines(e, first);
  std::string text = fmt::format("  {} {}: {}\n", first ? "explained by" : "or by",
                                 e.name_and_place(), reproduced_words(e));
  for (const std::string& meaning : e.meanings) text += fmt::format("      {}\n", meaning);
  if (!e.reported.empty()) {
    text += fmt::format("      in public: {}\n", fmt::join(e.reported, "; "));
  }
  text += meant_line(e);
  if (!e.rival.empty()) {
    text +=
        fmt::format("      {} elements tell it from what comes nearest, {}\n", e.told_by, e.rival);
  }
  if (!e.same.empty()) {
    text += fmt::format("      the same outputs in this call: {}\n", fmt::join(e.same, ", "));
  }
  return text;
}

std::string near_miss_lines(const Explanation& e) {
  return fmt::format(
      "      nearest: {} leaves {} out of budget (worst {} times) and "
      "accounts for {:.0f} % of the error\n        ({})\n",
      e.name(), call::numbered(e.failing, "element"), number(e.residual_ratio), 100.0 * e.accounted,
      fmt::join(e.meanings, "; "));
}

std::string capture_lines(const Diagnosis& diagnosis) {
  std::string text;
  for (const calls::CaptureMistake& m : diagnosis.of_capture) {
    text += m.accounts
                ? fmt::format("  a mistake of the capture, {}:\n      {}\n", m.name, m.meaning)
                : fmt::format("  note, {}: {}\n", m.name, m.meaning);
  }
  return text;
}

std::string tried_words(const Diagnosis& d) {
  std::string text = fmt::format("{} can be made in this call", d.possible);
  if (d.stopped_after) {
    text += fmt::format("; stopped after about {} core-seconds (--explain-seconds): ",
                        number(*d.stopped_after));
    if (d.tried < d.possible) return text + fmt::format("{} of them tried", d.tried);
    return text + fmt::format("{} of {} tried", d.pairs, call::numbered(d.possible_pairs, "pair"));
  }
  return d.pairs > 0 ? text + fmt::format(", {} tried", call::numbered(d.pairs, "pair")) : text;
}

std::string explanation_text(const FileReport& file) {
  if (!file.diagnosis) return "";
  const Diagnosis& diagnosis = *file.diagnosis;
  std::string text = capture_lines(diagnosis);
  text += fmt::format("  pattern: {}\n", diagnosis.pattern);
  for (const std::string& found : diagnosis.found) text += fmt::format("  found: {}\n", found);
  if (std::ranges::any_of(diagnosis.of_capture, &calls::CaptureMistake::accounts)) return text;
  bool explained = false;
  for (const Explanation& e : diagnosis.explanations) {
    if (!e.explains) continue;
    text += explaining_lines(e, !explained);
    explained = true;
  }
  if (explained) return text;
  text += fmt::format("  none of {} known mistakes explains it ({})\n", diagnosis.known,
                      tried_words(diagnosis));
  for (const Explanation& e : diagnosis.explanations) text += near_miss_lines(e);
  return text;
}

void add_explanation(const FileReport& file, ordered_json& json) {
  if (!file.diagnosis) return;
  const Diagnosis& diagnosis = *file.diagnosis;
  ordered_json of_capture = ordered_json::array();
  for (const calls::CaptureMistake& m : diagnosis.of_capture) {
    of_capture.push_back({{"name", m.name}, {"meaning", m.meaning}, {"accounts", m.accounts}});
  }
  ordered_json explanations = ordered_json::array();
  for (const Explanation& e : diagnosis.explanations) {
    explanations.push_back({{"mistake", e.name()},
                            {"where", e.where},
                            {"residual_ratio", number_or_null(e.residual_ratio)},
                            {"explains", e.explains},
                            {"failing", e.failing},
                            {"flipped", e.flipped},
                            {"accounted", e.accounted},
                            {"meaning", e.meanings},
                            {"reported", e.reported},
                            {"rival", e.rival},
                            {"told_by", e.told_by},
                            {"meant", e.meant},
                            {"same", e.same}});
    if (e.width) explanations.back()["width"] = *e.width;
  }
  json["of_capture"] = std::move(of_capture);
  json["pattern"] = diagnosis.pattern;
  json["found"] = diagnosis.found;
  json["explanation"] = std::move(explanations);
  json["mistakes_known"] = diagnosis.known;
  json["mistakes_possible"] = diagnosis.possible;
  json["mistakes_tried"] = diagnosis.tried;
  json["pairs_tried"] = diagnosis.pairs;
  json["pairs_possible"] = diagnosis.possible_pairs;
  json["stopped_after"] =
      diagnosis.stopped_after ? ordered_json(*diagnosis.stopped_after) : ordered_json(nullptr);
}

std::string one_html(const ordered_json& e, bool first) {
  std::string name = escaped(e.at("mistake").get<std::string>());
  if (!e.at("where").empty()) name += " in " + joined(e.at("where"));
  std::string html =
      e.at("explains").get<bool>()
          ? fmt::format("<p>{} <b>{}</b>: {}</p>", first ? "Explained by" : "Or by", name,
                        joined(e.at("meaning")))
          : fmt::format(
                "<p class=\"soft\">Nearest: {} accounts for {:.0f} % of the error, and leaves "
                "{} {} out of budget ({})</p>",
                name, 100.0 * e.at("accounted").get<double>(), counted(whole(e.at("failing"))),
                call::plural(whole(e.at("failing")), "element"), joined(e.at("meaning")));
  if (e.contains("width")) {
    html += fmt::format(
        "<p class=\"soft\">It amplifies roundings, so that no element can be predicted: "
        "the emulated mistake errs in the same places and as widely (rms error {} times "
        "its own).</p>",
        shown(e.at("width")));
  }
  const auto also = [&](const char* key, const char* words) {
    if (e.at(key).empty() || !e.at("explains").get<bool>()) return;
    html += fmt::format("<p class=\"soft\">{}: {}</p>", words, joined(e.at(key)));
  };
  if (const auto rival = e.at("rival").get<std::string>(); !rival.empty()) {
    html += fmt::format("<p class=\"soft\">{} elements tell it from what comes nearest, {}</p>",
                        counted(whole(e.at("told_by"))), escaped(rival));
  }
  also("reported", "In public");
  also("meant", "If your kernel means it");
  also("same", "The same outputs in this call");
  return html;
}

std::string explanation_html(const ordered_json& item) {
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
    explanations += one_html(e, !explained);
    explained = explained || e.at("explains").get<bool>();
  }
  if (!explained && !of_capture) {
    html += fmt::format(
        "<p>None of {} known mistakes explains it ({} can be made in this call{}).</p>",
        whole(item.at("mistakes_known")), whole(item.at("mistakes_possible")),
        item.at("stopped_after").is_null() ? ""
                                           : ", and the limit was reached before all were tried");
  }
  if (!of_capture) html += explanations;
  html += fmt::format("<p>Pattern: {}</p>", escaped(item.at("pattern").get<std::string>()));
  for (const ordered_json& found : item.at("found")) {
    html += fmt::format("<p>Found: {}</p>", escaped(found.get<std::string>()));
  }
  return fmt::format("<div class=\"card why\">{}</div>", html);
}

}  // namespace

constinit const Section kExplanation{explanation_text, add_explanation, explanation_html};

}  // namespace goldenrule::report
