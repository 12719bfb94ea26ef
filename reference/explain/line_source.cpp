// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/line_source.hpp"

#include <cmath>
#include <utility>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"

namespace goldenrule::explain {
namespace {

std::vector<LineKind> kinds_for(LineKind kind) {
  using enum LineKind;
  switch (kind) {
    case kState:
      return {kState, kExchanged};
    case kStateRow:
      return {kStateRow, kStateColumn, kChannels};
    default:
      return {kind};
  }
}

}  // namespace

bool LineSource::holds(std::int64_t i, double y, call::DType type) const {
  if (input != nullptr) return y == call::round_to(type, (*input)[i]);
  const auto at = static_cast<std::size_t>(i);
  if (!expected->exact.is_defined(at) || !std::isfinite(expected->exact.golden[at])) return false;
  return std::isfinite(y) && verdict::passes(y, *expected, at, (*budget)(at));
}

double LineSource::reach(std::int64_t i, call::DType type) const {
  if (input != nullptr) return call::ulp(type, (*input)[i]);
  const auto at = static_cast<std::size_t>(i);
  return (*budget)(at) + static_cast<double>(expected->exact.radius[at]);
}

std::vector<LineSource> line_sources(const verdict::Judgement& judgement, const std::string& output,
                                     LineKind kind, std::size_t length) {
  const call::Record& call = judgement.record;
  std::vector<LineSource> sources;
  const auto add = [&](const LineSource& source, const call::Shape& shape,
                       const std::vector<call::Axis>& axes) {
    for (const LineKind k : kinds_for(kind)) {
      auto view = line_view(call, shape, axes, k);
      if (!view || view->within.size() != length) continue;
      sources.push_back(source);
      LineSource& added = sources.back();
      added.view = std::move(*view);
      if (k == LineKind::kExchanged) {
        added.words += ", with the two axes of a state exchanged,";
      } else if (k == LineKind::kStateColumn) {
        added.words += ", along the other axis of a state,";
      }
    }
  };
  for (const auto& [name, expected] : judgement.expected.outputs) {
    const auto captured = call.outputs.find(name);
    if (captured == call.outputs.end()) continue;
    LineSource source;
    source.words = name == output ? "what is right" : "what is right of " + name;
    source.expected = &expected;
    source.budget.emplace(name, captured->second.dtype(), expected, judgement.contract);
    if (!source.budget->given()) continue;
    add(source, expected.exact.shape,
        call::axes_of(call, *call::find_row(call, call::Group::kOutput, name)));
  }
  if (length == 1) return sources;  // numbers of inputs are equal to others by chance
  call::for_each_input(call, call::validate(call),
                       [&](const call::TensorRow& row, const std::vector<call::Axis>& axes,
                           const call::Tensor& tensor) {
                         if (row.storage != call::Storage::kFloat) return;
                         LineSource source;
                         source.words = std::string(row.name);
                         source.input = &tensor;
                         add(source, tensor.shape(), axes);
                       });
  return sources;
}

}  // namespace goldenrule::explain
