// SPDX-License-Identifier: Apache-2.0
//
// The sum that an element is compared with, a line per term.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "reference/report/json_parts.hpp"
#include "reference/report/sections.hpp"
#include "reference/verdict/coordinates.hpp"

namespace goldenrule::report {
namespace {

using nlohmann::ordered_json;

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

ordered_json terms_json(const ShownTerms& shown) {
  if (!shown.terms) return {{"refused", shown.refusal}};
  const verdict::Terms& t = *shown.terms;
  return {{"coordinates", named(t.coordinates)},
          {"value", json_number(t.value)},
          {"golden", json_number(t.golden)},
          {"radius", json_number(t.radius)},
          {"kept", t.kept},
          {"multiple", json_number(t.multiple)},
          {"sigma", json_number(t.sigma)},
          {"bias", json_number(t.bias)},
          {"half_ulp", json_number(t.half_ulp)},
          {"flushed", json_number(t.flushed)},
          {"budget", json_number(t.budget)},
          {"passes", t.passes}};
}

std::string terms_text(const FileReport& file) {
  std::string text;
  for (const ShownTerms& shown : file.terms) text += terms_lines(shown, file.report);
  return text;
}

void add_terms(const FileReport& file, ordered_json& item) {
  for (const ShownTerms& shown : file.terms) item["terms"][shown.element] = terms_json(shown);
}

// Asked for on a command line, by one person.
std::string terms_html(const ordered_json& /*item*/) { return ""; }

}  // namespace

constinit const Section kTerms{terms_text, add_terms, terms_html};

}  // namespace goldenrule::report
