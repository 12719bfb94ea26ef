// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "fixtures/call/text.hpp"
#include "reference/report/json_parts.hpp"
#include "reference/report/report.hpp"
#include "reference/report/runs.hpp"
#include "reference/report/sections.hpp"

namespace goldenrule::report {
namespace {

using nlohmann::ordered_json;
using verdict::TensorReport;

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
                    {"likely_cause", report.likely_cause},
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
  for (const Section* section : kSections) section->add_json(file, json);
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
