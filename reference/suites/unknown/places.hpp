// SPDX-License-Identifier: Apache-2.0
//
// Right numbers in wrong places, put there by index arithmetic apart from that of explanations.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "fixtures/call/tensor.hpp"
#include "reference/suites/unknown/draws.hpp"

namespace goldenrule::suites {

/// Lines that follow each other in a tensor: of each line the one that stands there, or -1: 0 does.
using LineMap = std::function<std::int64_t(std::int64_t)>;

/// Lines of `length` elements.
void place_lines(call::Tensor& tensor, std::int64_t length, const call::Tensor& from,
                 const LineMap& map);
/// A state [rows,columns] of each chosen line becomes one of [columns,rows] in the same memory.
void exchange_axes(call::Tensor& tensor, std::int64_t rows, std::int64_t columns,
                   const std::function<bool(std::int64_t)>& chosen);

/// i -> step i + offset
struct DrawnMap {
  std::int64_t step = 0, offset = 0, extent = 0;

  /// Nothing stands where the map leaves the tensor: -1.
  [[nodiscard]] std::int64_t operator()(std::int64_t i) const {
    const std::int64_t from = step * i + offset;
    return from < 0 || from >= extent ? -1 : from;
  }
  [[nodiscard]] std::int64_t moved() const;
  /// "2 t - 3"
  [[nodiscard]] std::string words(const char* letter) const;
};

/// A map of at least three places that is not the identity.
[[nodiscard]] DrawnMap drawn_map(Draws& draws, std::int64_t extent);

}  // namespace goldenrule::suites
