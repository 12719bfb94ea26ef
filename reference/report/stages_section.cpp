// SPDX-License-Identifier: Apache-2.0
//
// Intermediate results of the kernel, which are no part of the verdict.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fixtures/call/text.hpp"
#include "reference/report/json_parts.hpp"
#include "reference/report/page_parts.hpp"
#include "reference/report/sections.hpp"
#include "reference/report/text_parts.hpp"
#include "reference/verdict/coordinates.hpp"

namespace goldenrule::report {
namespace {

using nlohmann::ordered_json;
using verdict::TensorReport;
using verdict::Verdict;

// One stage as one line, and why there is no verdict on it.
std::string stage_line(const verdict::StageReport& stage) {
  const TensorReport& t = stage.tensor;
  const std::string name =
      t.name + (stage.form.empty() ? "" : " (" + stage.form + ")") + (stage.saved ? ", saved" : "");
  std::string text =
      fmt::format("  {:<20} {:<14} {:>5} {:>11} {:>10.3g} {:>10.3g} {:>10} {:>10}\n", name,
                  verdict::name_of(t.verdict), call::info(t.dtype).name, t.compared, t.rms_rel,
                  t.max_abs, ratio_text(t.max_ratio), ratio_text(t.median_ratio));
  if (!t.reason.empty()) text += fmt::format("      {}\n", t.reason);
  return text;
}

// The first stage that differs, what the table says that it is, and what that means.
std::string first_bad_lines(const verdict::StagesReport& stages, Verdict outputs) {
  const verdict::BadStage& bad = *stages.first_bad;
  const verdict::Worst& w = bad.worst;
  const auto row = std::ranges::find(stages.stages, bad.name,
                                     [](const verdict::StageReport& s) { return s.tensor.name; });
  std::string text = fmt::format(
      "  first bad stage: {} at {}: value {}, exact {}, error {}, budget {}\n"
      "      {} of its elements in that chunk {} out of budget, {} in all\n"
      "      the table means: {}{}\n",
      bad.name, verdict::to_string(w.coordinates), value_text(w.value), value_text(w.golden),
      error_text(w.error), ratio_text(w.budget), bad.elements,
      call::agreeing(bad.elements, "is", "are"), row->tensor.out_of_budget, row->formula,
      row->form.empty() ? "" : fmt::format(" (form '{}')", row->form));
  const std::vector<std::string> before = verdict::absent_before(stages, bad.name);
  if (!before.empty()) {
    text += fmt::format("      not given, and before it: {}\n", fmt::join(before, ", "));
  }
  if (verdict::is_pass(outputs)) {
    text +=
        "      the outputs are right all the same: either the kernel means something else by this "
        "stage,\n      or its error does not reach the outputs of this call\n";
  }
  return text;
}

std::string stages_text(const FileReport& file) {
  if (!file.stages) return "";
  const verdict::StagesReport& stages = *file.stages;
  const Verdict outputs = file.report.verdict;
  if (!stages.reason.empty()) {
    return fmt::format("  stages are not judged: {}\n", stages.reason);
  }
  const bool saved = std::ranges::any_of(stages.stages, &verdict::StageReport::saved);
  std::string text =
      fmt::format("  stages, in chunks of {} ({}): {}\n", stages.chunk, stages.chunk_origin,
                  saved ? "those that one kernel saved for another count to the verdict"
                        : "no part of the verdict");
  for (const verdict::StageReport& stage : stages.stages) text += stage_line(stage);
  if (stages.first_bad) return text + first_bad_lines(stages, outputs);
  text += fmt::format("  no stage that was judged is out of budget{}\n",
                      outputs == Verdict::kOutOfBudget
                          ? ": what is wrong begins behind them, or in one that was not given"
                          : "");
  if (outputs == Verdict::kOutOfBudget && !stages.absent.empty()) {
    text += fmt::format("      not given: {}\n", fmt::join(stages.absent, ", "));
  }
  return text;
}

void add_stages(const FileReport& file, ordered_json& item) {
  if (!file.stages) return;
  const verdict::StagesReport& stages = *file.stages;
  ordered_json judged = ordered_json::array();
  for (const verdict::StageReport& stage : stages.stages) {
    judged.push_back(tensor_json(stage.tensor));
    judged.back()["form"] = stage.form;
    judged.back()["formula"] = stage.formula;
    if (stage.saved) judged.back()["saved"] = true;
  }
  ordered_json first = nullptr;
  if (stages.first_bad) {
    const verdict::BadStage& bad = *stages.first_bad;
    first = {{"name", bad.name},
             {"elements", bad.elements},
             {"not_given_before", verdict::absent_before(stages, bad.name)},
             {"worst", worst_json(bad.worst)}};
  }
  item["stages"] = {{"chunk", stages.chunk},   {"chunk_origin", stages.chunk_origin},
                    {"reason", stages.reason}, {"first_bad", first},
                    {"judged", judged},        {"not_given", stages.absent}};
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
      "its elements in that chunk {} out of budget.</p>",
      escaped(text_of(bad, "name")), place(worst.at("coordinates")),
      shown(worst.at("value"), kValueDigits), shown(worst.at("golden"), kValueDigits),
      shown(worst.at("error")), shown(worst.at("budget")), counted(whole(bad.at("elements"))),
      call::agreeing(whole(bad.at("elements")), "is", "are"));
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

std::string stages_html(const ordered_json& item) {
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
      "soft",
      fmt::format("In chunks of {} ({}); {}.", whole(found->at("chunk")),
                  escaped(text_of(*found, "chunk_origin")),
                  std::ranges::any_of(found->at("judged"),
                                      [](const ordered_json& s) { return s.contains("saved"); })
                      ? "those that one kernel saved for another count to the verdict"
                      : "no part of the verdict"));
  return html + stage_rows(found->at("judged")) + "</div>";
}

}  // namespace

constinit const Section kStages{stages_text, add_stages, stages_html};

}  // namespace goldenrule::report
