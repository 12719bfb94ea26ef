// SPDX-License-Identifier: Apache-2.0
//
// The tables of the schema as they are in the library, operations with
// their tensors, conventions with their values and defaults, contracts. Where a tensor may be, and
// which gate or beta reads it, is asked of the same function that validation asks.
#include "reference/arbiter/tables.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "fixtures/call/operation.hpp"
#include "fixtures/schema/fixture.hpp"
#include "reference/contract/contract.hpp"

namespace goldenrule::arbiter {
namespace {

using Json = nlohmann::ordered_json;

std::string extents_text(const call::TensorRow& row) {
  std::string text;
  for (const call::Extent& extent : row.extents) {
    if (extent.words.empty()) continue;
    if (!text.empty()) text += ',';
    text += extent.words;
  }
  return text;
}

const char* storage_text(const call::TensorRow& row) {
  switch (row.storage) {
    case call::Storage::kFloat:
      return "float";
    case call::Storage::kInteger:
      return "integer";
    case call::Storage::kSlot:
      return "slot";
  }
  return "";  // unreachable: every value is handled above
}

// A record that has everything, so that only what is asked decides.
call::Record asking(const call::Operation& operation, call::Mode mode) {
  call::Record record;
  record.op = operation.op;
  record.mode = mode;
  for (const char* name :
       {"initial_state", "state_indices", "ssm_state_indices", "checkpoint_offsets",
        "initial_intermediate_states", "checkpoint_state_indices", "request_ids", "k",
        "visible_first", "A_log", "dt_bias"}) {
    record.inputs[name];
  }
  return record;
}

bool some_gate_has(const call::TensorRow& row, call::Record record) {
  for (std::size_t gate = 0; gate < call::EnumNames<call::Gate>::kNames.size(); ++gate) {
    for (std::size_t beta = 0; beta < call::EnumNames<call::BetaForm>::kNames.size(); ++beta) {
      record.convention.gate = static_cast<call::Gate>(gate);
      record.convention.beta = static_cast<call::BetaForm>(beta);
      if (row.presence(record) != call::Presence::kAbsent) return true;
    }
  }
  return false;
}

bool may_be(const call::TensorRow& row, call::Record record) {
  const bool with_slots = some_gate_has(row, record);
  record.inputs.erase("state_indices");  // which stands for another tensor
  const bool without_slots = some_gate_has(row, record);
  record.inputs["initial_ring_d"];  // which stands for states
  return row.spare || with_slots || without_slots || some_gate_has(row, record);
}

/// The values of a convention that read the tensor; for tensors that are there whatever it is,
/// none.
template <class E, class Attributes>
Json readers(const call::Operation& operation, const call::TensorRow& row, E Attributes::*field) {
  Json names = Json::array();
  call::Record record = asking(operation, call::Mode::kMtp);
  for (std::size_t i = 0; i < call::EnumNames<E>::kNames.size(); ++i) {
    record.convention.*field = static_cast<E>(i);
    if (row.presence(record) != call::Presence::kAbsent) {
      names.push_back(std::string(call::name_of(record.convention.*field)));
    }
  }
  return names.size() == call::EnumNames<E>::kNames.size() ? Json::array() : names;
}

Json tensor_json(const call::Operation& operation, const call::TensorRow& row) {
  Json modes = Json::array();
  for (const call::Mode mode : operation.modes) {
    if (may_be(row, asking(operation, mode))) modes.push_back(std::string(call::name_of(mode)));
  }
  return {{"name", std::string(row.name)},
          {"group", row.group == call::Group::kInput ? "inputs" : "outputs"},
          {"storage", storage_text(row)},
          {"extents", extents_text(row)},
          {"modes", modes},
          {"gates", readers(operation, row, &call::Convention::gate)},
          {"betas", readers(operation, row, &call::Convention::beta)},
          {"present", std::string(row.present)}};
}

Json operation_json(const call::Operation& operation) {
  Json tensors = Json::array();
  for (const call::TensorRow& row : operation.tensors) {
    tensors.push_back(tensor_json(operation, row));
  }
  Json modes = Json::array();
  for (const call::Mode mode : operation.modes) modes.push_back(std::string(call::name_of(mode)));
  return {{"name", std::string(call::name_of(operation.op))},
          {"family", std::string(call::name_of(call::family_of(operation.op)))},
          {"meaning", std::string(operation.meaning)},
          {"modes", modes},
          {"tensors", tensors}};
}

// The ends of a range that it has, as numbers of the attribute's type.
template <class Number>
Json range_json(const call::NumberRange& range) {
  Json ends{{"expected", std::string(range.words)}};
  if (std::isfinite(range.lowest)) {
    ends[range.open ? "above" : "at_least"] = static_cast<Number>(range.lowest);
  }
  if (std::isfinite(range.highest)) {
    ends[range.open ? "below" : "at_most"] = static_cast<Number>(range.highest);
  }
  return ends;
}

Json families_that_read(std::string_view attribute) {
  Json names = Json::array();
  for (const call::FamilyRow& row : call::kFamilyRows) {
    if (call::reads(row.family, attribute)) names.push_back(std::string(call::name_of(row.family)));
  }
  return names;
}

Json conventions_json() {
  Json list = Json::array();
  const call::Convention defaults;
  call::for_each_field(defaults, [&](const char* name, const auto& value) {
    using Field = std::decay_t<decltype(value)>;
    const call::AttributeRow& told = *call::find_attribute(name);
    Json row{{"name", name},
             {"readers", families_that_read(name)},
             {"meaning", std::string(told.meaning)}};
    if constexpr (std::is_enum_v<Field>) {
      row["values"] = Json::array();
      for (const std::string_view v : call::EnumNames<Field>::kNames) {
        row["values"].push_back(std::string(v));
      }
      row["default"] = std::string(call::name_of(value));
    } else if constexpr (std::is_same_v<Field, std::optional<double>>) {
      row["type"] = "float";  // its default, K^-0.5, depends on the call
    } else {
      row["type"] = std::is_same_v<Field, double> ? "float" : "int";
      row["default"] = value;
      if (!told.range.words.empty()) row["range"] = range_json<Field>(told.range);
    }
    list.push_back(std::move(row));
  });
  return list;
}

}  // namespace

Json schema_json() {
  Json operations = Json::array();
  for (const call::Operation& o : call::operations()) operations.push_back(operation_json(o));
  Json contracts = Json::array();
  Json families = Json::object();
  for (const contract::Contract& c : contract::contracts()) {
    contracts.push_back(c.name);
    for (const call::FamilyRow& row : call::kFamilyRows) {
      if (c.is_of(row.family)) families[std::string(call::name_of(row.family))].push_back(c.name);
    }
  }
  return {{"schema", std::string(schema::kSchema)},
          {"operations", operations},
          {"conventions", conventions_json()},
          {"contracts", contracts},
          {"contracts_of", families},
          {"stages", table_json("stages")}};
}

}  // namespace goldenrule::arbiter
