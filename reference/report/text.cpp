// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "fixtures/call/text.hpp"
#include "reference/report/explanation.hpp"
#include "reference/report/report.hpp"
#include "reference/report/words.hpp"
#include "reference/verdict/coordinates.hpp"

namespace goldenrule::report {
namespace {

using verdict::TensorReport;
using verdict::Verdict;

// Numbers that need a budget; there is none where no verdict is given.
std::string ratio(double x) { return std::isnan(x) ? "-" : fmt::format("{:.3g}", x); }

// Whatever its sign bit.
std::string value(double x) { return std::isnan(x) ? "nan" : fmt::format("{:.9g}", x); }

// Leading indices that fail, as a person would say them: the first few with their counts.
std::string rows_line(const TensorReport& t) {
  constexpr std::size_t kShown = 4;
  std::string text;
  for (std::size_t i = 0; i < t.failing_rows.size() && i < kShown; ++i) {
    const verdict::RowFindings& row = t.failing_rows[i];
    text +=
        fmt::format("{}{} {} ({} of {} elements{})", i == 0 ? "" : ", ", t.row_word, row.row,
                    row.out_of_budget, row.elements, row.nan == row.elements ? ", all NaN" : "");
  }
  if (t.failing_rows.size() > kShown) {
    text += fmt::format(" and {} more", t.failing_rows.size() - kShown);
  }
  return fmt::format("      where: {} of {}: {}\n", t.failing_rows.size(), t.shape.front(), text);
}

std::string worst_line(const TensorReport& t) {
  const verdict::Worst& w = *t.worst;
  return fmt::format("      worst: {}: value {}, exact {}, error {}, budget {}, {:.3g} ulp\n",
                     verdict::to_string(w.coordinates), value(w.value), value(w.golden),
                     std::isnan(w.error) ? "nan" : fmt::format("{:.3g}", w.error), ratio(w.budget),
                     w.ulps);
}

std::string tensor_lines(const TensorReport& t) {
  std::string text = fmt::format(
      "  {:<20} {:<14} {:>5} {:>11} {:>10.3g} {:>10.3g} {:>10} {:>10} {:>8} {:>6} {:>10}\n", t.name,
      verdict::name_of(t.verdict), call::info(t.dtype).name, t.compared, t.rms_rel, t.max_abs,
      ratio(t.max_ratio), ratio(t.median_ratio), t.nan, t.inf, t.unwritten);
  if (!t.reason.empty()) text += fmt::format("      {}\n", t.reason);
  if (t.undefined > 0) {
    text += fmt::format("      {} elements {}\n", t.undefined, kNoRightValue);
  }
  if (t.worst && t.verdict != Verdict::kExact) text += worst_line(t);
  if (t.out_of_budget > 0) {
    text += fmt::format("      {} of {} elements are out of budget\n", t.out_of_budget, t.compared);
  }
  if (!t.failing_rows.empty()) text += rows_line(t);
  if (t.nonfinite > 0) {
    text += fmt::format(
        "      {} elements have no finite exact result (the inputs are not): they are not finite "
        "here either, and count for nothing\n",
        t.nonfinite);
  }
  if (!t.first_unjudged.empty()) {
    text += fmt::format("      first there: {}\n", verdict::to_string(t.first_unjudged_at));
  }
  return text;
}

// One stage as one line, and why there is no verdict on it.
std::string stage_line(const verdict::StageReport& stage) {
  const TensorReport& t = stage.tensor;
  const std::string name = t.name + (stage.form.empty() ? "" : " (" + stage.form + ")");
  std::string text =
      fmt::format("  {:<20} {:<14} {:>5} {:>11} {:>10.3g} {:>10.3g} {:>10} {:>10}\n", name,
                  verdict::name_of(t.verdict), call::info(t.dtype).name, t.compared, t.rms_rel,
                  t.max_abs, ratio(t.max_ratio), ratio(t.median_ratio));
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
      "      {} of its elements in that chunk are out of budget, {} in all\n"
      "      the table means: {}{}\n",
      bad.name, verdict::to_string(w.coordinates), value(w.value), value(w.golden),
      std::isnan(w.error) ? "nan" : fmt::format("{:.3g}", w.error), ratio(w.budget), bad.elements,
      row->tensor.out_of_budget, row->formula,
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

std::string stage_lines(const verdict::StagesReport& stages, Verdict outputs) {
  if (!stages.reason.empty()) {
    return fmt::format("  stages are not judged: {}\n", stages.reason);
  }
  std::string text = fmt::format("  stages, in chunks of {} ({}): no part of the verdict\n",
                                 stages.chunk, stages.chunk_origin);
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

std::string blind_lines(const explain::Blindness& b) {
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

// What a refused kernel may be, or how little a pass says.
std::string permit_lines(const FileReport& file) {
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

// The sum that an element is compared with, a line per term.
std::string terms_lines(const ShownTerms& shown, const verdict::CaseReport& report) {
  if (!shown.terms) return fmt::format("  budget of {}: {}\n", shown.element, shown.refusal);
  const verdict::Terms& t = *shown.terms;
  std::string text =
      fmt::format("  budget of {}: {}\n", shown.element, verdict::to_string(t.coordinates));
  const auto line = [&](const char* name, double x, const std::string& what) {
    text += fmt::format("      {:<10} {:>16.9g}  {}\n", name, x, what);
  };
  line("value", t.value, "");
  line("exact", t.golden,
       fmt::format("+- {:.3g}, certified with {} bits", t.radius, report.precision_bits));
  line("error", std::fabs(t.value - t.golden), t.passes ? "passes" : "out of budget");
  if (t.kept) {
    line("budget", t.budget, "no sequence writes it: it must be what it was");
    return text;
  }
  line("roundings", t.multiple * t.sigma,
       fmt::format("{:.4g} standard deviations of {:.3g}", t.multiple, t.sigma));
  line("functions", t.bias, "systematic errors, added up");
  line("storage", t.half_ulp, "half an ulp where the value may lie");
  line("flushing", t.flushed, "subnormal fp32 numbers that count as 0");
  line("budget", t.budget, "their sum, by contract " + report.contract);
  return text;
}

}  // namespace

std::string text_report(const FileReport& file) {
  const verdict::CaseReport& report = file.report;
  std::string text =
      fmt::format("{}: {}\n", call::printable(file.file), verdict::name_of(report.verdict));
  const bool whole = report.verdict == Verdict::kSkipped && !report.reason.empty();
  if (report.tensors.empty()) return text + fmt::format("  {}\n", report.reason);
  text += fmt::format("  {} {}{}\n", report.op, report.mode,
                      report.source.empty() ? "" : ": " + report.source);
  if (whole) text += fmt::format("  {}\n", report.reason);
  if (!whole && !report.absent.empty()) {
    text += fmt::format("  not among the outputs: {}\n", fmt::join(report.absent, ", "));
  }
  text += fmt::format("  contract {} ({}), oracle {} bits\n", report.contract, file.contract_origin,
                      report.precision_bits);
  if (report.nonfinite_inputs > 0) {
    text += fmt::format(
        "  the inputs hold {} NaN or Inf: where they reach an output it must not be "
        "finite, elsewhere it must\n",
        report.nonfinite_inputs);
  }
  text +=
      fmt::format("  {:<20} {:<14} {:>5} {:>11} {:>10} {:>10} {:>10} {:>10} {:>8} {:>6} {:>10}\n",
                  "tensor", "verdict", "type", "compared", "rms rel", "max abs", "err/budget",
                  "median", "NaN", "Inf", "unwritten");
  for (const TensorReport& t : report.tensors) text += tensor_lines(t);
  if (file.stages) text += stage_lines(*file.stages, report.verdict);
  for (const ShownTerms& shown : file.terms) text += terms_lines(shown, report);
  if (file.diagnosis) text += explanation_text(*file.diagnosis);
  if (file.permit) text += permit_lines(file);
  if (file.blindness) text += blind_lines(*file.blindness);
  return text;
}

std::string text_summary(const std::vector<FileReport>& files) {
  std::map<Verdict, int> counts;
  for (const FileReport& file : files) ++counts[file.report.verdict];
  std::string text;
  for (const auto& [v, count] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, verdict::name_of(v));
  }
  return fmt::format("{} file{}: {}\n", files.size(), files.size() == 1 ? "" : "s", text);
}

int exit_code(const std::vector<FileReport>& files) {
  std::vector<Verdict> verdicts;
  for (const FileReport& file : files) {
    // A file that gives no verdict must not hide behind one that does.
    verdicts.push_back(file.report.verdict == Verdict::kSkipped ? Verdict::kError
                                                                : file.report.verdict);
  }
  switch (verdict::combine(verdicts)) {
    case Verdict::kExact:
    case Verdict::kWithinBudget:
      return 0;
    case Verdict::kOutOfBudget:
      return 1;
    case Verdict::kMistrusted:
    case Verdict::kSkipped:
    case Verdict::kError:
      return 2;
  }
  return 2;
}

}  // namespace goldenrule::report
