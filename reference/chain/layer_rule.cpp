// SPDX-License-Identifier: Apache-2.0
#include "reference/chain/layer_rule.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <type_traits>

#include "fixtures/call/plan.hpp"
#include "reference/chain/walk.hpp"

namespace goldenrule::chain {
namespace {

using verdict::Verdict;

constexpr bool every_attribute_has_its_row() {
  constexpr call::Convention kDefaults;
  std::size_t row = 0;
  bool same = true;
  call::for_each_field_of(call::Family::kDelta, kDefaults, [&](std::string_view name, const auto&) {
    same = same && row < kLayerRules.size() && kLayerRules[row].attribute == name;
    ++row;
  });
  return same && row == kLayerRules.size();
}
static_assert(every_attribute_has_its_row(), "kLayerRules: in the order of for_each_field_of");

constexpr double kOfF32 = 0x1p-23;  // a constant may have been an fp32 number on its way
constexpr double kOfUnit = 0x1p-6;  // what 16 bits make of the length of a row

std::string shortest(double x) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), x);
  return {text.data(), end.ptr};
}

template <class T>
LayerValue value_of(const T& field) {
  LayerValue value;
  if constexpr (std::is_enum_v<T>) {
    value.number = static_cast<double>(field);
    value.text = call::name_of(field);
  } else if constexpr (std::is_same_v<T, std::optional<double>>) {
    value = value_of(field.value_or(0.0));  // it is resolved
  } else {
    value.number = static_cast<double>(field);
    value.text = shortest(value.number);
  }
  return value;
}

bool is_same(const LayerValue& a, const LayerValue& b) {
  const double size = std::max(std::fabs(a.number), std::fabs(b.number));
  return std::fabs(a.number - b.number) <= kOfF32 * size;
}

// What two values of two calls are of one layer; kExact: the same.
Verdict beside(const LayerRule& rule, const LayerValue& a, const LayerValue& b) {
  if (is_same(a, b)) return Verdict::kExact;
  const bool computed = !a.given && !b.given;
  if (rule.between != Between::kForm || (computed && !rule.is_norm)) return Verdict::kOutOfBudget;
  if (a.given == b.given) return Verdict::kExact;
  return a.given ? a.beside : b.beside;
}

// What the rows of q and k that requests have say of a norm before the kernel.
Verdict by_length(const call::Record& record, const call::Dims& dims,
                  const std::vector<RowWalk>& rows) {
  const std::vector<std::int64_t> bounds = call::token_bounds(record, dims);
  std::vector<double> x(static_cast<std::size_t>(dims.K));
  Verdict said = Verdict::kExact;
  for (const char* name : {"q", "k"}) {
    const call::Tensor& tensor = record.inputs.at(name);
    for (const RowWalk& row : rows) {
      const auto i = static_cast<std::size_t>(row.row);
      for (std::int64_t at = bounds[i] * dims.H; at < bounds[i + 1] * dims.H; ++at) {
        tensor.read(at * dims.K, dims.K, x.data());
        double square = 0.0;
        for (const double y : x) square += y * y;
        const double length = std::sqrt(square);
        if (length > 1.0 + kOfUnit) return Verdict::kOutOfBudget;
        // An eps makes a small row shorter than 1; a row of zeros has no length.
        if (!(length >= 1.0 - kOfUnit) && length != 0.0) said = Verdict::kMistrusted;
      }
    }
  }
  return said;
}

}  // namespace

// Each value is said once, beside the first that it contradicts.
void CallWalk::judge_rule() {
  const call::Convention convention = call::resolved(record_.convention, dims_.K);
  std::size_t index = 0;
  call::for_each_field_of(
      call::family_of(record_.op), convention, [&](const char* name, const auto& field) {
        const LayerRule& rule = kLayerRules[index++];
        const bool reads = rule.reads == nullptr || rule.reads(convention, dims_);
        if (rule.between == Between::kFree || !reads) return;
        LayerValue now = value_of(field);
        now.call = call_.index;
        now.given = std::ranges::find(rule.given, now.text) != rule.given.end();
        if (now.given && rule.is_norm) now.beside = by_length(record_, dims_, rows_);
        std::vector<LayerValue>& seen = memory_.rule[name];
        const bool known = std::ranges::any_of(
            seen, [&](const LayerValue& v) { return is_same(v, now) && v.beside == now.beside; });
        if (known) return;
        report_change(rule, seen, now);
        seen.push_back(std::move(now));
      });
}

void CallWalk::report_change(const LayerRule& rule, const std::vector<LayerValue>& seen,
                             const LayerValue& now) {
  for (const Verdict worst : {Verdict::kOutOfBudget, Verdict::kMistrusted}) {
    const auto other = std::ranges::find_if(
        seen, [&](const LayerValue& v) { return beside(rule, v, now) == worst; });
    if (other == seen.end()) continue;
    RowWalk none;
    none.row = -1;
    none.id.request = call::kNoRequest;
    const std::string name(rule.attribute);
    Finding& finding = report(Check::kParameters, none,
                              "call " + std::to_string(now.call) + " has " + name + " " + now.text +
                                  " where call " + std::to_string(other->call) + " had " +
                                  other->text + ": expected one for all calls of a layer");
    finding.verdict = worst;
    finding.mistake = Mistake::kRuleChanged;
    if (worst == Verdict::kMistrusted) {
      finding.text += ", and the rows of q and k do not say that they were normalised";
    }
    return;
  }
}

}  // namespace goldenrule::chain
