// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fixtures/call/error.hpp"
#include "fixtures/call/text.hpp"
#include "reference/verdict/coordinates.hpp"
#include "tools/cli/report.hpp"
#include "tools/cli/report_explanation.hpp"

namespace goldenrule::tools {
namespace {

using nlohmann::ordered_json;
using verdict::TensorReport;
using verdict::Verdict;

// JSON has no NaN and no infinity: they are written as the strings "nan", "inf" and "-inf", which
// Python's float() takes, rather than dropped.
ordered_json number(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return x;
}

ordered_json named(const verdict::Coordinates& coordinates) {
  ordered_json names = ordered_json::object();
  for (const auto& [name, value] : coordinates) names[name] = value;
  return names;
}

ordered_json terms_json(const ShownTerms& shown) {
  if (!shown.terms) return {{"refused", shown.refusal}};
  const verdict::Terms& t = *shown.terms;
  return {{"coordinates", named(t.coordinates)},
          {"value", number(t.value)},
          {"golden", number(t.golden)},
          {"radius", number(t.radius)},
          {"kept", t.kept},
          {"multiple", number(t.multiple)},
          {"sigma", number(t.sigma)},
          {"bias", number(t.bias)},
          {"half_ulp", number(t.half_ulp)},
          {"flushed", number(t.flushed)},
          {"budget", number(t.budget)},
          {"passes", t.passes}};
}

ordered_json worst_json(const TensorReport& t) {
  if (!t.worst) return nullptr;
  return {{"index", t.worst->index},         {"coordinates", named(t.worst->coordinates)},
          {"value", number(t.worst->value)}, {"golden", number(t.worst->golden)},
          {"error", number(t.worst->error)}, {"budget", number(t.worst->budget)},
          {"ulp", number(t.worst->ulps)}};
}

ordered_json tensor_json(const TensorReport& t) {
  ordered_json rows = ordered_json::array();
  for (const verdict::RowFindings& row : t.failing_rows) {
    rows.push_back({{"row", row.row},
                    {"out_of_budget", row.out_of_budget},
                    {"nan", row.nan},
                    {"elements", row.elements}});
  }
  ordered_json first = nullptr;
  if (!t.first_unjudged.empty()) first = named(t.first_unjudged_at);
  return {{"name", t.name},
          {"verdict", verdict::name_of(t.verdict)},
          {"reason", t.reason},
          {"dtype", call::info(t.dtype).name},
          {"shape", t.shape},
          {"max_abs", number(t.max_abs)},
          {"rms_rel", number(t.rms_rel)},
          {"bias", number(t.bias)},
          {"max_ratio", number(t.max_ratio)},
          {"median_ratio", number(t.median_ratio)},
          {"worst", worst_json(t)},
          {"nan", t.nan},
          {"inf", t.inf},
          {"unwritten", t.unwritten},
          {"out_of_budget", t.out_of_budget},
          {"undecided", t.undecided},
          {"unbounded", t.unbounded},
          {"vacuous", t.vacuous},
          {"first_unjudged", first},
          {"nonfinite", t.nonfinite},
          {"undefined", t.undefined},
          {"compared", t.compared},
          {"ulp_histogram", t.ulp_histogram},
          {"failing_rows", rows}};
}

std::string xml(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        // XML 1.0 has no other control characters.
        escaped += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? '?' : c;
    }
  }
  return escaped;
}

std::string junit_case(const std::string& file, const std::string& name, Verdict v,
                       const std::string& message) {
  std::string text = fmt::format("    <testcase classname=\"{}\" name=\"{}\"",
                                 xml(call::printable(file)), xml(name));
  switch (v) {
    case Verdict::kExact:
    case Verdict::kWithinBudget:
      return text + "/>\n";
    case Verdict::kSkipped:
      return text + fmt::format("><skipped message=\"{}\"/></testcase>\n", xml(message));
    case Verdict::kError:
      return text + fmt::format("><error message=\"{}\"/></testcase>\n", xml(message));
    case Verdict::kOutOfBudget:
    case Verdict::kMistrusted:
      return text + fmt::format("><failure message=\"{}: {}\"/></testcase>\n", verdict::name_of(v),
                                xml(message));
  }
  return text;
}

std::string junit_message(const TensorReport& t) {
  if (!t.reason.empty()) return t.reason;
  if (!t.worst) return "";
  return fmt::format("{} of {} elements, worst {:.3g} times the budget at {}", t.out_of_budget,
                     t.compared, t.max_ratio, verdict::to_string(t.worst->coordinates));
}

}  // namespace

std::string json_report(const std::vector<FileReport>& files) {
  ordered_json cases = ordered_json::array();
  for (const FileReport& file : files) {
    ordered_json tensors = ordered_json::array();
    for (const TensorReport& t : file.report.tensors) {
      tensors.push_back(tensor_json(t));
    }
    cases.push_back({{"file", call::printable(file.file)},
                     {"verdict", verdict::name_of(file.report.verdict)},
                     {"reason", file.report.reason},
                     {"contract", file.report.contract},
                     {"contract_origin", file.contract_origin},
                     {"precision_bits", file.report.precision_bits},
                     {"nonfinite_inputs", file.report.nonfinite_inputs},
                     {"absent", file.report.absent},
                     {"tensors", tensors}});
    if (file.diagnosis) add_explanation(*file.diagnosis, cases.back());
    if (file.blindness) {
      ordered_json conventions = ordered_json::object();
      for (const auto& c : file.blindness->conventions) conventions[c.attribute] = c.values;
      cases.back()["blind"] = {{"mistakes", file.blindness->mistakes},
                               {"mistakes_tried", file.blindness->mistakes_tried},
                               {"conventions", conventions},
                               {"values_tried", file.blindness->values_tried}};
    }
    for (const ShownTerms& shown : file.terms) {
      cases.back()["terms"][shown.element] = terms_json(shown);
    }
    if (file.permit) {
      cases.back()["permit"] = {{"contract", file.permit->contract},
                                {"difference", file.permit->difference}};
    }
  }
  return ordered_json{{"cases", cases}}.dump(1) + "\n";
}

std::string junit_report(const std::vector<FileReport>& files) {
  std::string cases;
  int tests = 0;
  int failures = 0;
  int errors = 0;
  int skipped = 0;
  const auto add = [&](const std::string& file, const std::string& name, Verdict v,
                       const std::string& message) {
    ++tests;
    failures += v == Verdict::kOutOfBudget || v == Verdict::kMistrusted ? 1 : 0;
    errors += v == Verdict::kError ? 1 : 0;
    skipped += v == Verdict::kSkipped ? 1 : 0;
    cases += junit_case(file, name, v, message);
  };
  for (const FileReport& file : files) {
    if (file.report.tensors.empty()) {
      add(file.file, "file", file.report.verdict, file.report.reason);
    }
    for (const TensorReport& t : file.report.tensors) {
      add(file.file, t.name, t.verdict, junit_message(t));
    }
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"goldenrule\" "
      "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\">\n{}  "
      "</testsuite>\n</testsuites>\n",
      tests, failures, errors, skipped, cases);
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw Error(ErrorKind::kFile, path, "report", "a writable file", "a failed write");
}

}  // namespace goldenrule::tools
