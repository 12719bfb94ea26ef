// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "reference/contract/contract_draft.hpp"
#include "reference/contract/contract_json.hpp"

namespace goldenrule::contract {

std::string to_json(const Contract& c) {
  using nlohmann::ordered_json;
  ordered_json root{{"name", c.name}, {"meaning", c.meaning}, {"kind", c.model_name()}};
  root["state"] = c.state_dtype ? ordered_json(call::info(*c.state_dtype).name) : nullptr;
  if (const Chunked* chunked = c.chunked()) {
    root["chunk"] = chunked->chunk;
    if (chunked->segment > 0) root["segment"] = chunked->segment;
    root["form"] = name_of(chunked->form);
  }
  if (const Softmax* softmax = c.softmax()) {
    root["unit_roundoff"] = softmax->unit_roundoff;
    ordered_json round = ordered_json::object();
    for (std::size_t i = 0; i < kSoftmaxPoints; ++i) {
      if (softmax->rounds[i]) round[std::string(name_of(static_cast<SoftmaxPoint>(i)))] = kTypeOfQ;
    }
    root["round"] = round;
    root["functions"] = {{"exp2", softmax->exp2_error}, {"tanh", softmax->tanh_error}};
  } else if (!c.is_ideal()) {
    root["unit_roundoff"] = c.unit_roundoff();
    ordered_json round = ordered_json::object();
    const auto roundings = c.roundings();
    for (std::size_t i = 0; i < roundings.size(); ++i) {
      if (roundings[i]) round[std::string(point_name(i))] = info(*roundings[i]).name;
    }
    root["round"] = round;
    if (const ChunkedAdjoint* adjoint = c.adjoint()) {
      root["chunk"] = adjoint->chunk;
      root.erase("round");
      for (std::size_t i = 0; i < kAdjointPoints; ++i) {
        const std::string name(name_of(static_cast<AdjointPoint>(i)));
        if (adjoint->points[i] == AdjointRounding::kTypeOfQ) root["adjoint"][name] = kTypeOfQ;
        if (adjoint->points[i] == AdjointRounding::kTF32) root["adjoint"][name] = "tf32";
        if (adjoint->points[i] == AdjointRounding::kTwoBF16) root["adjoint"][name] = "bf16x2";
      }
    }
    for_each_function(c.functions, [&](std::string_view name, double error) {
      root["functions"][std::string(name)] = error;
    });
  }
  return root.dump(1) + "\n";
}

}  // namespace goldenrule::contract
