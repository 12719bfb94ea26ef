// SPDX-License-Identifier: Apache-2.0
//
// What may stand in a wrong place: what is right of the outputs of a call, and its inputs, as
// lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/explain/line_view.hpp"
#include "reference/verdict/budget.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::explain {

/// A tensor whose lines may stand in the wrong place.
struct LineSource {
  std::string words;  ///< "what is right", "initial_state"
  LineView view;
  const call::Tensor* input = nullptr;  ///< else what is right of an output:
  const verdict::Expected* expected = nullptr;
  std::optional<verdict::Budget> budget{};

  [[nodiscard]] std::int64_t element(std::int64_t line, std::size_t channel) const {
    return view.base(line) + view.within[channel];
  }
  [[nodiscard]] double value(std::int64_t i) const {
    return input != nullptr ? (*input)[i] : expected->exact.golden[static_cast<std::size_t>(i)];
  }
  /// Whether `y`, of an output of type `type`, is element `i`.
  [[nodiscard]] bool holds(std::int64_t i, double y, call::DType type) const;
  /// How far from element `i` that may be; infinite where nothing is known.
  [[nodiscard]] double reach(std::int64_t i, call::DType type) const;
};

/// Those of `length` numbers each that may stand in lines of this kind of `output`. They refer to
/// the judgement.
[[nodiscard]] std::vector<LineSource> line_sources(const verdict::Judgement& judgement,
                                                   const std::string& output, LineKind kind,
                                                   std::size_t length);

}  // namespace goldenrule::explain
