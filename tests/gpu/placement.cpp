// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/placement.hpp"

#include <algorithm>
#include <sstream>

#include "fixtures/call/error.hpp"
#include "fixtures/call/take.hpp"
#include "fixtures/cases/case_text.hpp"
#include "fixtures/cases/suite.hpp"
#include "fixtures/random/philox.hpp"

namespace goldenrule::test {
namespace {

using call::Record;
using call::Tensor;

constexpr const char* kGateInputs[] = {"a", "g", "A_log", "dt_bias", "b", "beta"};

template <call::DType type>
void store_gates_as(Record& record) {
  for (const char* name : kGateInputs) {
    const auto it = record.inputs.find(name);
    if (it == record.inputs.end()) continue;
    it->second = Tensor(type, it->second.shape(), it->second.to_doubles());
  }
}

/// Other numbers: those of the case have only the digits of its own type.
template <call::DType type>
void store_corrections_as(Record& record) {
  constexpr double kAllDigits = 1.2345678;
  Tensor& ring = record.inputs.at("initial_ring_d");
  std::vector<double> values = ring.to_doubles();
  for (double& x : values) x *= kAllDigits;
  ring = Tensor(type, ring.shape(), values);
}

void draw(Record& record, const char* name, const std::vector<double>& values) {
  const auto it = record.inputs.find(name);
  if (it == record.inputs.end()) return;
  const random::Stream stream(1, name);
  for (std::int64_t i = 0; i < it->second.size(); ++i) {
    it->second.set(i, values[stream.bits(i) % values.size()]);
  }
}

/// Side by side in one call: what a gate does to its limits. Rates up to e^5 make the far tail of
/// softplus visible: at -10 it is 4.5e-5.
void take_extreme_gates(Record& record) {
  draw(record, "a", {-100, -17, -10, 0, 20.5, 100});
  draw(record, "A_log", {-3, 0, 5});
  draw(record, "b", {-100, -20, 0, 30});
  draw(record, "g",
       record.convention.gate == call::Gate::kLinear
           ? std::vector<double>{0, 1, 0.5, 1e-20}
           : std::vector<double>{-2661, -88, -1e-4, 0, -1});
}

void drop_tokens(Record& record) {
  take_inputs(record, call::axis::kToken, {});
  const auto accepted = record.inputs.find("accepted_tokens");
  if (accepted == record.inputs.end()) return;
  for (std::int64_t b = 0; b < accepted->second.size(); ++b) accepted->second.set(b, 0);
}

const Change& find_change(const std::string& name) {
  const auto it = std::ranges::find(changes(), name, &Change::name);
  if (it != changes().end()) return *it;
  throw Error(ErrorKind::kValue, "change", "a name of the table", "'" + name + "'");
}

}  // namespace

const std::vector<Change>& changes() {
  static const std::vector<Change> all = {
      {"no_tokens", "T = 0", drop_tokens},
      {"extreme_gates", "gate logits, log gates and rates at their limits", take_extreme_gates},
      {"gates_f32", "gate and beta inputs in f32", store_gates_as<call::DType::kF32>},
      {"gates_f16", "gate and beta inputs in f16", store_gates_as<call::DType::kF16>},
      {"gates_bf16", "gate and beta inputs in bf16", store_gates_as<call::DType::kBF16>},
      {"corrections_f32", "corrections of rings in f32", store_corrections_as<call::DType::kF32>},
      {"corrections_f16", "corrections of rings in f16", store_corrections_as<call::DType::kF16>},
  };
  return all;
}

LiveCase parse_live(std::string_view line) {
  LiveCase c;
  std::string rest;
  std::istringstream words{std::string(line)};
  for (std::string word; words >> word;) {
    const std::size_t equals = std::min(word.find('='), word.size() - 1);
    const std::string key = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    bool taken = key == "change";
    if (taken) c.change = value;
    for_each_field(c.placement, [&](std::string_view name, std::int64_t& field) {
      if (key != name) return;
      taken = true;
      cases::from_text(key, value, field);
    });
    if (taken) continue;
    rest += word;
    rest += ' ';
  }
  c.call = cases::parse(rest);
  if (!c.change.empty()) static_cast<void>(find_change(c.change));
  return c;
}

std::string canonical(const LiveCase& c) {
  std::string line = cases::canonical(c.call);
  if (!c.change.empty()) line += " change=" + c.change;
  std::vector<std::int64_t> standard;
  const Placement usual;
  for_each_field(usual, [&](std::string_view, const std::int64_t& x) { standard.push_back(x); });
  std::size_t i = 0;
  for_each_field(c.placement, [&](std::string_view name, const std::int64_t& x) {
    if (x == standard[i++]) return;
    line += ' ';
    line += name;
    line += '=';
    line += std::to_string(x);
  });
  return line;
}

std::vector<LiveCase> parse_list(std::string_view text) {
  std::vector<LiveCase> list;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    for (const std::string& one : cases::expand(line)) list.push_back(parse_live(one));
  }
  return list;
}

Record make_record(const LiveCase& c) {
  Record record = cases::make_record(c.call);
  if (!c.change.empty()) find_change(c.change).apply(record);
  record.case_line = canonical(c);
  return record;
}

void take_inputs(Record& record, call::Axis axis, const std::vector<std::int64_t>& indices) {
  const call::Dims dims = call::validate(record);
  call::for_each_input(record, dims, [&](const auto&, const auto& axes, Tensor& tensor) {
    if (const auto at = call::find_axis(axes, axis)) tensor = call::take(tensor, *at, indices);
  });
}

}  // namespace goldenrule::test
