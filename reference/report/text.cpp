// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "fixtures/call/text.hpp"
#include "reference/report/report.hpp"
#include "reference/report/sections.hpp"
#include "reference/report/text_parts.hpp"
#include "reference/verdict/coordinates.hpp"

namespace goldenrule::report {
namespace {

using verdict::TensorReport;
using verdict::Verdict;

// Leading indices that fail, as a person would say them: the first few with their counts.
std::string rows_line(const TensorReport& t) {
  constexpr std::size_t kShown = 4;
  std::string text;
  for (std::size_t i = 0; i < t.failing_rows.size() && i < kShown; ++i) {
    const verdict::RowFindings& row = t.failing_rows[i];
    text += fmt::format("{}{} {} ({} of {}{})", i == 0 ? "" : ", ", t.row_word, row.row,
                        row.out_of_budget, call::numbered(row.elements, "element"),
                        row.nan == row.elements ? ", all NaN" : "");
  }
  if (t.failing_rows.size() > kShown) {
    text += fmt::format(" and {} more", t.failing_rows.size() - kShown);
  }
  return fmt::format("      where: {} of {}: {}\n", t.failing_rows.size(), t.shape.front(), text);
}

std::string worst_line(const TensorReport& t) {
  const verdict::Worst& w = *t.worst;
  return fmt::format("      worst: {}: value {}, exact {}, error {}, budget {}, {:.3g} ulp\n",
                     verdict::to_string(w.coordinates), value_text(w.value), value_text(w.golden),
                     error_text(w.error), ratio_text(w.budget), w.ulps);
}

std::string tensor_lines(const TensorReport& t) {
  std::string text = fmt::format(
      "  {:<20} {:<14} {:>5} {:>11} {:>10.3g} {:>10.3g} {:>10} {:>12} {:>8} {:>6} {:>10}\n", t.name,
      verdict::name_of(t.verdict), call::info(t.dtype).name, t.compared, t.rms_rel, t.max_abs,
      ratio_text(t.max_ratio), ratio_text(t.median_ratio), t.nan, t.inf, t.unwritten);
  if (!t.reason.empty()) text += fmt::format("      {}\n", t.reason);
  if (t.undefined > 0) {
    text += fmt::format("      {} {}\n", call::numbered(t.undefined, "element"),
                        no_right_value(t.undefined));
  }
  if (t.worst && t.verdict != Verdict::kExact) text += worst_line(t);
  if (t.out_of_budget > 0) {
    text += fmt::format("      {} of {} {} out of budget\n", t.out_of_budget,
                        call::numbered(t.compared + t.nonfinite, "element"),
                        call::agreeing(t.out_of_budget, "is", "are"));
  }
  if (!t.failing_rows.empty()) text += rows_line(t);
  if (t.nonfinite > 0) {
    text += fmt::format(
        "      {} no finite exact result (the inputs are not): a finite value there is out of "
        "budget, "
        "any other counts for nothing\n",
        call::numbered(t.nonfinite, "element") + (t.nonfinite == 1 ? " has" : " have"));
  }
  if (!t.first_unjudged.empty()) {
    text += fmt::format("      first there: {}\n", verdict::to_string(t.first_unjudged_at));
  }
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
      fmt::format("  {:<20} {:<14} {:>5} {:>11} {:>10} {:>10} {:>10} {:>12} {:>8} {:>6} {:>10}\n",
                  "tensor", "verdict", "type", "compared", "rms_rel", "max_abs", "max_ratio",
                  "median_ratio", "NaN", "Inf", "unwritten");
  for (const TensorReport& t : report.tensors) text += tensor_lines(t);
  if (!report.likely_cause.empty()) {
    text += fmt::format("  likely cause: {}\n", report.likely_cause);
  }
  for (const Section* section : kSections) text += section->text(file);
  return text;
}

std::string text_summary(const std::vector<FileReport>& files) {
  std::map<Verdict, int> counts;
  for (const FileReport& file : files) ++counts[file.report.verdict];
  std::string text;
  for (const auto& [v, count] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, verdict::name_of(v));
  }
  return fmt::format("{}: {}\n", call::numbered(files.size(), "file"), text);
}

int exit_code(const std::vector<FileReport>& files) {
  std::vector<Verdict> verdicts;
  verdicts.reserve(files.size());
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
