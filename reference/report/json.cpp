// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>

#include "fixtures/call/text.hpp"
#include "reference/report/explanation.hpp"
#include "reference/report/report.hpp"
#include "reference/report/runs.hpp"
#include "reference/verdict/coordinates.hpp"

namespace goldenrule::report {
namespace {

using nlohmann::ordered_json;
using verdict::TensorReport;

// JSON has no NaN and no infinity: they are written as the strings "nan", "inf" and "-inf", which
// Python's float() takes, rather than dropped.
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

ordered_json worst_json(const verdict::Worst& w) {
  return {{"index", w.index},
          {"coordinates", named(w.coordinates)},
          {"value", json_number(w.value)},
          {"golden", json_number(w.golden)},
          {"error", json_number(w.error)},
          {"budget", json_number(w.budget)},
          {"ulp", json_number(w.ulps)}};
}

ordered_json axis_json(const verdict::MapAxis& axis) {
  return {{"axis", axis.word},   {"first", axis.first},         {"extent", axis.extent},
          {"cells", axis.cells}, {"sequences", axis.sequences}, {"chunks", axis.chunks},
          {"worst", axis.worst}};
}

ordered_json map_json(const verdict::ErrorMap& map) {
  return {{"where", map.where},
          {"down", axis_json(map.down)},
          {"across", axis_json(map.across)},
          {"levels", map.levels}};
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

ordered_json blind_json(const explain::Blindness& blindness) {
  ordered_json conventions = ordered_json::object();
  for (const auto& c : blindness.conventions) conventions[c.attribute] = c.values;
  return {{"mistakes", blindness.mistakes},
          {"mistakes_tried", blindness.mistakes_tried},
          {"conventions", conventions},
          {"values_tried", blindness.values_tried}};
}

ordered_json stages_json(const verdict::StagesReport& stages) {
  ordered_json judged = ordered_json::array();
  for (const verdict::StageReport& stage : stages.stages) {
    judged.push_back(tensor_json(stage.tensor));
    judged.back()["form"] = stage.form;
    judged.back()["formula"] = stage.formula;
  }
  ordered_json first = nullptr;
  if (stages.first_bad) {
    const verdict::BadStage& bad = *stages.first_bad;
    first = {{"name", bad.name},
             {"elements", bad.elements},
             {"not_given_before", verdict::absent_before(stages, bad.name)},
             {"worst", worst_json(bad.worst)}};
  }
  return {{"chunk", stages.chunk},   {"chunk_origin", stages.chunk_origin},
          {"reason", stages.reason}, {"first_bad", first},
          {"judged", judged},        {"not_given", stages.absent}};
}

ordered_json case_json(const FileReport& file) {
  const verdict::CaseReport& report = file.report;
  ordered_json tensors = ordered_json::array();
  for (const TensorReport& t : report.tensors) {
    tensors.push_back(tensor_json(t));
    const auto maps = file.maps.find(t.name);
    if (maps == file.maps.end()) continue;
    for (const verdict::ErrorMap& map : maps->second) {
      tensors.back()["maps"].push_back(map_json(map));
    }
  }
  ordered_json json{{"file", call::printable(file.file)},
                    {"verdict", verdict::name_of(report.verdict)},
                    {"reason", report.reason},
                    {"op", report.op},
                    {"mode", report.mode},
                    {"source", call::printable(report.source)},
                    {"case", call::printable(report.case_line)},
                    {"replay", call::printable(file.replay)},
                    {"contract", report.contract},
                    {"contract_origin", file.contract_origin},
                    {"precision_bits", report.precision_bits},
                    {"nonfinite_inputs", report.nonfinite_inputs},
                    {"absent", report.absent},
                    {"tensors", tensors}};
  if (file.stages) json["stages"] = stages_json(*file.stages);
  if (file.diagnosis) add_explanation(*file.diagnosis, json);
  if (file.blindness) json["blind"] = blind_json(*file.blindness);
  for (const ShownTerms& shown : file.terms) json["terms"][shown.element] = terms_json(shown);
  if (file.permit) {
    json["permit"] = {{"contract", file.permit->contract},
                      {"meaning", file.permit->meaning},
                      {"difference", file.permit->difference}};
  }
  return json;
}

}  // namespace

std::string json_report(const std::vector<FileReport>& files, const Run& run) {
  ordered_json cases = ordered_json::array();
  for (const FileReport& file : files) cases.push_back(case_json(file));
  return ordered_json{{"runs", ordered_json::array({run_json(run)})}, {"cases", cases}}.dump(1) +
         "\n";
}

}  // namespace goldenrule::report
