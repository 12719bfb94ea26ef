// SPDX-License-Identifier: Apache-2.0
#include "tools/python/extension/gpu_arguments.hpp"

#include <cstring>

#include "tools/python/extension/gpu_tensor.hpp"

namespace goldenrule::python::gpu {
namespace {

namespace nb = nanobind;

nb::object interned(const std::string& text) {
  return nb::steal(PyUnicode_InternFromString(text.c_str()));
}

[[noreturn]] void refuse_number(const Argument& argument, const char* kind, nb::handle value) {
  PyErr_Clear();
  refuse(PyExc_ValueError, std::string(argument.name) + ": expected a number of type " + kind +
                               ", actual " + shown(value));
}

std::int64_t integer(const Argument& argument, const char* kind, nb::handle value) {
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) refuse_number(argument, kind, value);
  const long long number = PyLong_AsLongLong(index.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) refuse_number(argument, kind, value);
  return number;
}

double real(const Argument& argument, nb::handle value) {
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1.0 && PyErr_Occurred() != nullptr) refuse_number(argument, "f64", value);
  return number;
}

bool truth(nb::handle value) {
  const int answer = PyObject_IsTrue(value.ptr());
  if (answer < 0) throw nb::python_error();
  return answer == 1;
}

template <class T>
void put(std::byte* args, std::size_t offset, T value) {
  std::memcpy(args + offset, &value, sizeof value);
}

}  // namespace

Arguments::Arguments(std::span<const Argument> table, const Names& names)
    : table_(table), choices_(table.size()) {
  for (std::size_t place = 0; place < table.size(); ++place) {
    keys_.push_back(interned(table[place].name));
    if (table[place].kind != Kind::kChoice) continue;
    const auto found = names.find(table[place].name);
    if (found == names.end()) {
      refuse(PyExc_ValueError, std::string(table[place].name) + ": expected its names");
    }
    for (const std::string& name : found->second) choices_[place].push_back(interned(name));
  }
}

std::size_t Arguments::find(const char* function, PyObject* name) const {
  for (std::size_t place = 0; place < keys_.size(); ++place) {
    if (keys_[place].ptr() == name) return place;
  }
  for (std::size_t place = 0; place < keys_.size(); ++place) {
    if (PyUnicode_Compare(keys_[place].ptr(), name) == 0) return place;
  }
  refuse(PyExc_TypeError,
         std::string(function) + ": got an unexpected keyword argument " + shown(name));
}

void Arguments::read(const char* function, std::span<const std::size_t> positional,
                     std::span<PyObject* const> values, PyObject* keywords, Given& given) const {
  const std::size_t named =
      keywords == nullptr ? 0 : static_cast<std::size_t>(PyTuple_Size(keywords));
  const std::size_t plain = values.size() - named;
  if (plain > positional.size()) {
    refuse(PyExc_TypeError, std::string(function) + ": expected " +
                                std::to_string(positional.size()) +
                                " positional arguments, actual " + std::to_string(plain));
  }
  std::array<bool, kMostArguments> seen{};
  const auto take = [&](std::size_t place, PyObject* value) {
    if (seen[place]) {
      refuse(PyExc_TypeError,
             std::string(function) + ": got multiple values for " + table_[place].name);
    }
    seen[place] = true;
    given[place] = value == Py_None ? nullptr : value;
  };
  for (std::size_t at = 0; at < plain; ++at) take(positional[at], values[at]);
  for (std::size_t at = 0; at < named; ++at) {
    take(find(function, PyTuple_GetItem(keywords, static_cast<Py_ssize_t>(at))),
         values[plain + at]);
  }
}

std::int32_t Arguments::chosen(std::size_t place, nb::handle value) const {
  const std::vector<nb::object>& names = choices_[place];
  for (std::size_t number = 0; number < names.size(); ++number) {
    if (names[number].ptr() == value.ptr()) return static_cast<std::int32_t>(number);
  }
  std::string all;
  for (std::size_t number = 0; number < names.size(); ++number) {
    if (nb::isinstance<nb::str>(value) &&
        PyUnicode_Compare(names[number].ptr(), value.ptr()) == 0) {
      return static_cast<std::int32_t>(number);
    }
    all += (number == 0 ? "" : ", ") + said(names[number]);
  }
  refuse(PyExc_ValueError,
         std::string(table_[place].name) + ": expected one of " + all + ", actual " + shown(value));
}

void Arguments::write_options(const Given& given, std::byte* args, std::uint32_t& flags) const {
  for (std::size_t place = 0; place < table_.size(); ++place) {
    const Argument& argument = table_[place];
    const nb::handle value = given[place];
    if (!value.is_valid()) continue;
    switch (argument.kind) {
      case Kind::kTensor:
        break;
      case Kind::kChoice:
        put(args, argument.offset, chosen(place, value));
        break;
      case Kind::kI32: {
        const std::int64_t number = integer(argument, "i32", value);
        if (number != static_cast<std::int32_t>(number)) refuse_number(argument, "i32", value);
        put(args, argument.offset, static_cast<std::int32_t>(number));
        break;
      }
      case Kind::kI64:
        put(args, argument.offset, integer(argument, "i64", value));
        break;
      case Kind::kF64:
        put(args, argument.offset, real(argument, value));
        break;
      case Kind::kFlag:
        if (truth(value)) flags |= argument.flag;
        break;
    }
  }
}

}  // namespace goldenrule::python::gpu
