// SPDX-License-Identifier: Apache-2.0
#include "reference/report/json_parts.hpp"

#include <cmath>

namespace goldenrule::report {

using nlohmann::ordered_json;
using verdict::TensorReport;

ordered_json json_number(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return x;
}

ordered_json named(const verdict::Coordinates& coordinates) {
  ordered_json names = ordered_json::object();
  for (const auto& [name, value] : coordinates) names[name] = value;
  return names;
}

ordered_json worst_json(const verdict::Worst& w) {
  return {{"index", w.index},
          {"coordinates", named(w.coordinates)},
          {"value", json_number(w.value)},
          {"golden", json_number(w.golden)},
          {"error", json_number(w.error)},
          {"budget", json_number(w.budget)},
          {"ulp", json_number(w.ulps)}};
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
          {"max_abs", json_number(t.max_abs)},
          {"rms_rel", json_number(t.rms_rel)},
          {"bias", json_number(t.bias)},
          {"max_ratio", json_number(t.max_ratio)},
          {"median_ratio", json_number(t.median_ratio)},
          {"worst", t.worst ? worst_json(*t.worst) : ordered_json()},
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
          {"ratio_histogram", t.ratio_histogram},
          {"row_word", t.row_word},
          {"failing_rows", rows}};
}

}  // namespace goldenrule::report
