// SPDX-License-Identifier: Apache-2.0
//
// The section of one file.
#include <fmt/format.h>

#include <algorithm>

#include "reference/report/page_parts.hpp"
#include "reference/report/words.hpp"

namespace goldenrule::report {
namespace {

constexpr int kValueDigits = 9;  // a value and the exact one may differ in the last of fp32

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
    text +=
        fmt::format("{}{} {} ({} of {} elements)", i == 0 ? "" : ", ",
                    escaped(text_of(tensor, "row_word")), whole(row.at("row")),
                    counted(whole(row.at("out_of_budget"))), counted(whole(row.at("elements"))));
  }
  return rows.size() > kShown ? text + fmt::format(" and {} more", rows.size() - kShown) : text;
}

// What is said of elements that were not compared, or not finite.
std::string remarks(const ordered_json& tensor) {
  std::string text;
  const auto add = [&](const char* key, const char* words) {
    const auto count = whole(tensor.at(key));
    if (count == 0) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", counted(count), words);
  };
  add("nan", "are NaN");
  add("unwritten", "of them in rows that are NaN throughout, as if never written");
  add("inf", "are infinite");
  add("undefined", kNoRightValue);
  add("nonfinite", "have no finite exact result, since inputs are not finite");
  if (!tensor.at("first_unjudged").is_null()) {
    text += fmt::format("{}first there: {}", text.empty() ? "" : "; ",
                        place(tensor.at("first_unjudged")));
  }
  return text;
}

std::string tensor_card(const ordered_json& tensor, bool maps) {
  const std::int64_t out = whole(tensor.at("out_of_budget"));
  const std::int64_t compared = whole(tensor.at("compared"));
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

std::string explanation(const ordered_json& e, bool first) {
  const std::string name = escaped(e.at("mistake").get<std::string>());
  std::string html =
      e.at("explains").get<bool>()
          ? fmt::format("<p>{} <b>{}</b>: {}</p>", first ? "Explained by" : "Or by", name,
                        joined(e.at("meaning")))
          : fmt::format(
                "<p class=\"soft\">Nearest: {} accounts for {:.0f} % of the error, and leaves "
                "{} elements out of budget ({})</p>",
                name, 100.0 * e.at("accounted").get<double>(), counted(whole(e.at("failing"))),
                joined(e.at("meaning")));
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
        whole(item.at("mistakes_known")), whole(item.at("mistakes_possible")),
        item.at("stopped_after").is_null() ? "" : ", and the time was up before all were tried");
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

std::string stage_rows(const ordered_json& judged) {
  std::string html =
      "<div class=\"scroll\"><table><tr><th>stage</th><th>verdict</th><th>error over "
      "budget</th><th>median</th><th>what it is</th></tr>";
  for (const ordered_json& stage : judged) {
    const std::string form = text_of(stage, "form");
    const std::string reason = text_of(stage, "reason");
    html +=
        fmt::format("<tr><td>{}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}{}</td></tr>",
                    escaped(text_of(stage, "name")), form.empty() ? "" : " (" + escaped(form) + ")",
                    badge(stage.at("verdict").get<std::string>()), shown(stage.at("max_ratio")),
                    shown(stage.at("median_ratio")), escaped(text_of(stage, "formula")),
                    reason.empty() ? "" : "<br>" + escaped(reason));
  }
  return html + "</table></div>";
}

std::string first_bad_stage(const ordered_json& item, const ordered_json& bad) {
  const ordered_json& worst = bad.at("worst");
  std::string html = fmt::format(
      "<p>First bad stage: <b>{}</b> at <b>{}</b>: value {}, exact {}, error {}, budget {}; {} of "
      "its elements in that chunk are out of budget.</p>",
      escaped(text_of(bad, "name")), place(worst.at("coordinates")),
      shown(worst.at("value"), kValueDigits), shown(worst.at("golden"), kValueDigits),
      shown(worst.at("error")), shown(worst.at("budget")), counted(whole(bad.at("elements"))));
  if (!bad.at("not_given_before").empty()) {
    html += paragraph("soft", "Not given, and before it: " + joined(bad.at("not_given_before")));
  }
  if (rank(item) == 2) {
    html += paragraph("soft",
                      "The outputs are right all the same: either the kernel means something else "
                      "by this stage, or its error does not reach the outputs of this call.");
  }
  return html;
}

// Stages of the kernel, which are no part of the verdict.
std::string stages(const ordered_json& item) {
  const auto found = item.find("stages");
  if (found == item.end()) return "";
  const std::string reason = text_of(*found, "reason");
  std::string html = "<div class=\"card\"><h3>Stages of the kernel</h3>";
  if (!reason.empty()) return html + paragraph("", "Not judged: " + escaped(reason)) + "</div>";
  const ordered_json& bad = found->at("first_bad");
  if (!bad.is_null()) {
    html += first_bad_stage(item, bad);
  } else {
    html += paragraph("", rank(item) == 0 ? "No stage that was judged is out of budget: what is "
                                            "wrong begins behind them, or in one not given."
                                          : "No stage that was judged is out of budget.");
  }
  html += paragraph(
      "soft", fmt::format("In chunks of {} ({}); no part of the verdict.",
                          whole(found->at("chunk")), escaped(text_of(*found, "chunk_origin"))));
  return html + stage_rows(found->at("judged")) + "</div>";
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
  html += why(item) + permit(item) + stages(item);
  for (const ordered_json* tensor : ranked(item.at("tensors"))) html += tensor_card(*tensor, maps);
  if (!text_of(item, "replay").empty()) {
    html += fmt::format("<p class=\"soft\">To judge it again:</p><pre>{}</pre>",
                        escaped(text_of(item, "replay")));
  }
  return html + "<p class=\"soft\"><a href=\"#top\">all files</a></p></section>";
}

}  // namespace goldenrule::report
