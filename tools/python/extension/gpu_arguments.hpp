// SPDX-License-Identifier: Apache-2.0
//
// The arguments of an operator and where they go in an aggregate of gpu/goldenrule_gpu.h: one table
// for each aggregate. An argument is a tensor, a name of an enumeration, a number, or a flag.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/goldenrule_gpu.h"

namespace goldenrule::python::gpu {

enum class Kind {
  kTensor,
  kChoice,  // i32 by its name
  kI32,
  kI64,
  kF64,
  kFlag,  // a bit of `flags`
};

struct Argument {
  const char* name;
  Kind kind;
  std::size_t offset;
  std::uint32_t flag = 0;
};

inline constexpr std::size_t kMostArguments = 56;
inline constexpr std::size_t kMostTensors = 28;  // which stand in front

/// The arguments of a call in the order of its table; a null pointer where there is none, or None.
using Given = std::array<PyObject*, kMostArguments>;

/// The place of an argument in its table; a name that is not there does not compile.
consteval std::size_t place_of(std::span<const Argument> arguments, std::string_view name) {
  for (std::size_t place = 0; place < arguments.size(); ++place) {
    if (arguments[place].name == name) return place;
  }
  throw "no argument of that name";
}

/// Enumeration -> its names in the order of the header.
using Names = std::map<std::string, std::vector<std::string>>;

/// A table, and the objects of Python by which its names are known again.
class Arguments {
 public:
  Arguments(std::span<const Argument> table, const Names& names);

  [[nodiscard]] std::span<const Argument> table() const { return table_; }

  /// The arguments of a vector call; `positional`: places of those in front.
  void read(const char* function, std::span<const std::size_t> positional,
            std::span<PyObject* const> values, PyObject* keywords, Given& given) const;

  /// Writes everything but tensors; an argument that is absent leaves the default.
  void write_options(const Given& given, std::byte* args, std::uint32_t& flags) const;

 private:
  [[nodiscard]] std::size_t find(const char* function, PyObject* name) const;
  [[nodiscard]] std::int32_t chosen(std::size_t place, nanobind::handle value) const;

  std::span<const Argument> table_;
  std::vector<nanobind::object> keys_;
  std::vector<std::vector<nanobind::object>> choices_;
};

}  // namespace goldenrule::python::gpu
