// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "fixtures/call/text.hpp"
#include "reference/report/report.hpp"
#include "reference/verdict/coordinates.hpp"

namespace goldenrule::report {
namespace {

using verdict::TensorReport;
using verdict::Verdict;

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
  return fmt::format("{} of {}, worst {:.3g} times the budget at {}", t.out_of_budget,
                     call::numbered(t.compared + t.nonfinite, "element"), t.max_ratio,
                     verdict::to_string(t.worst->coordinates));
}

}  // namespace

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

}  // namespace goldenrule::report
