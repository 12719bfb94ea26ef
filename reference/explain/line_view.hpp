// SPDX-License-Identifier: Apache-2.0
//
// A tensor seen as lines that are moved as a whole: the value channels of a token and head, the
// state of a slot and head, a channel of a state, a number. A place is an index of the axes that
// are no part of a line. A state may be read as it lies or as if its two axes were exchanged in
// memory: element m of a state written with R rows of C stands where m % R * C + m / R does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/record.hpp"

namespace goldenrule::explain {

struct LineAxis {
  std::string word;  ///< "head"
  std::string letter;
  std::int64_t extent = 1, stride = 0;  ///< elements
  /// Of packed tokens the first of each sequence, and the end: a place has a sequence and a token.
  std::vector<std::int64_t> bounds{};
};

/// What of a tensor is a line.
enum class LineKind : std::uint8_t {
  kChannels,     ///< the last axis, or one number
  kState,        ///< both channels
  kExchanged,    ///< the same, its axes exchanged in memory
  kStateRow,     ///< the last axis of a state
  kStateColumn,  ///< the axis before it
};

struct LineView {
  std::vector<LineAxis> axes;
  std::vector<std::int64_t> within;  ///< of each element of a line, from its first

  [[nodiscard]] std::int64_t count() const;
  /// The first element of line `i`.
  [[nodiscard]] std::int64_t base(std::int64_t i) const;
  /// One index of each axis, of packed tokens two: sequence and token in it.
  [[nodiscard]] std::vector<std::int64_t> place(std::int64_t i) const;
  /// Words and letters of these.
  [[nodiscard]] std::vector<std::string> words() const;
  [[nodiscard]] std::vector<std::string> letters() const;
  /// One index of each axis.
  [[nodiscard]] std::vector<std::int64_t> indices(std::int64_t i) const;
};

/// All axes of a tensor.
[[nodiscard]] std::vector<LineAxis> line_axes(const call::Record& call, const call::Shape& shape,
                                              const std::vector<call::Axis>& axes);

/// Nothing where the tensor has no such lines.
[[nodiscard]] std::optional<LineView> line_view(const call::Record& call, const call::Shape& shape,
                                                const std::vector<call::Axis>& axes, LineKind kind);

}  // namespace goldenrule::explain
