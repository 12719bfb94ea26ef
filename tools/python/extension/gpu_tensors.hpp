// SPDX-License-Identifier: Apache-2.0
//
// The tensors of one call on their way into an aggregate: the library sees addresses, strides and
// extents, and no shapes, so what shapes must be is checked here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "gpu/goldenrule_gpu.h"
#include "tools/python/extension/gpu_arguments.hpp"
#include "tools/python/extension/gpu_tensor.hpp"

namespace goldenrule::python::gpu {

/// A shape that a tensor should have.
class Shape {
 public:
  Shape(std::initializer_list<std::int64_t> extents) {
    for (const std::int64_t extent : extents) extents_[axes_++] = extent;
  }
  /// This one and further axes.
  [[nodiscard]] Shape with(std::initializer_list<std::int64_t> extents) const {
    Shape longer = *this;
    for (const std::int64_t extent : extents) longer.extents_[longer.axes_++] = extent;
    return longer;
  }
  [[nodiscard]] Shape with(const Shape& other) const {
    Shape longer = *this;
    for (const std::int64_t extent : other.list()) longer.extents_[longer.axes_++] = extent;
    return longer;
  }
  [[nodiscard]] std::span<const std::int64_t> list() const { return {extents_.data(), axes_}; }

 private:
  std::array<std::int64_t, kMostAxes> extents_{};
  std::size_t axes_ = 0;
};

class Tensors {
 public:
  /// Reads all that are given. `graded`: a tensor that asks for a gradient is refused.
  Tensors(const Arguments& arguments, const Given& given, std::byte* args, bool graded);

  [[nodiscard]] bool has(std::size_t place) const { return given_[place] != nullptr; }

  /// Refuses a call without it.
  [[nodiscard]] const Seen& at(std::size_t place) const;

  /// The first extent of a tensor; 0 of one without axes.
  [[nodiscard]] std::int64_t rows(std::size_t place) const;

  /// The extents of a tensor whose axes have these names.
  [[nodiscard]] std::span<const std::int64_t> extents(std::size_t place, const char* axes,
                                                      std::size_t count) const;

  /// Writes a tensor of this shape, if it is there. `strided`: so many axes have a stride in the
  /// aggregate; the others are without a gap. All are on the device of `anchor`.
  void put(std::size_t place, const Shape& shape, std::size_t strided);

  /// The same for a tensor of tokens, whose `lead` outer axes may come folded into one or more.
  void put_tokens(std::size_t place, const Shape& shape, std::size_t lead, std::size_t strided);

  /// The same for parameters, as checkpoints have them: [1,1,HV,1] for [HV], [HV*K] for [HV,K].
  void put_parameter(std::size_t place, const Shape& shape);

  /// The tensor that says on which device the call is.
  void set_anchor(std::size_t place) { device_ = at(place).device(); }
  [[nodiscard]] int device() const { return device_; }

 private:
  [[nodiscard]] const char* name(std::size_t place) const { return arguments_.table()[place].name; }
  void check(std::size_t place, std::span<const std::int64_t> shape) const;

  const Arguments& arguments_;
  const Given& given_;
  std::byte* args_;
  int device_ = kHost;
  std::array<Seen, kMostTensors> seen_;
};

}  // namespace goldenrule::python::gpu
