// SPDX-License-Identifier: Apache-2.0
//
// The operators: which aggregate of gpu/goldenrule_gpu.h each fills, and how a function of Python
// enters it. What is done with a full aggregate is the matter of a class: GpuCalls launches it,
// XlaCalls hands it to the compiler of JAX.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <exception>
#include <span>
#include <string>
#include <type_traits>

#include "gpu/goldenrule_gpu.h"
#include "tools/python/extension/gpu_tables.hpp"
#include "tools/python/extension/gpu_tensors.hpp"

namespace goldenrule::python::gpu {

/// An operator: its tensors that stand in front, and the one that says where the call runs.
struct Operator {
  const char* name;
  std::span<const std::size_t> positional;
  std::size_t anchor;
  bool one_token = false;
  bool commits = false;
};

template <class Args>
consteval auto places(auto... names) {
  return std::array{place_of(kArgumentsOf<Args>, names)...};
}

inline constexpr auto kRows = places<Recurrent>("q", "k", "v", "gate", "beta", "state", "o");
inline constexpr auto kCommitted = places<Recurrent>("k", "v", "gate", "beta", "state");
inline constexpr auto kPacked = places<Prefill>("q", "k", "v", "gate", "beta", "cu_seqlens", "o");
inline constexpr auto kQueries = places<Attention>("q", "k", "v", "k_cache", "v_cache", "o");

inline constexpr Operator kDecode{
    .name = "decode", .positional = kRows, .anchor = 1, .one_token = true};
inline constexpr Operator kMtp{.name = "mtp", .positional = kRows, .anchor = 1};
inline constexpr Operator kReplay{.name = "replay", .positional = kRows, .anchor = 1};
inline constexpr Operator kCommit{
    .name = "commit", .positional = kCommitted, .anchor = 1, .commits = true};
inline constexpr Operator kPrefill{.name = "prefill", .positional = kPacked, .anchor = 1};
inline constexpr Operator kAttention{.name = "attention", .positional = kQueries, .anchor = 0};

/// The arguments of a vector call.
template <class Args>
void read(const Operator& asked, const Arguments& arguments, std::span<PyObject* const> values,
          PyObject* keywords, Given& given) {
  arguments.read(asked.name, asked.positional, values, keywords, given);
  if constexpr (std::is_same_v<Args, Recurrent>) {
    if (asked.commits) given[0] = given[1];
  }
}

/// Fills an aggregate that holds the defaults.
template <class Args>
void complete(const Operator& asked, const Arguments& arguments, const Given& given,
              Tensors& tensors, Args& args) {
  arguments.write_options(given, reinterpret_cast<std::byte*>(&args), args.flags);
  if (asked.one_token) {
    const auto keys = tensors.at(asked.anchor).shape();
    if (keys.size() > 1 && keys[1] != 1) {
      refuse(PyExc_ValueError,
             "k: expected one token per row (T = 1), actual the shape " + listed(keys));
    }
  }
  if (asked.commits) args.flags |= GOLDENRULE_GPU_FLAG_NO_OUTPUT;
  fill(tensors, args);
}

/// As a vector call of Python enters `Calls::run`.
template <class Calls, class Args, const Operator& kOperator>
PyObject* called(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* keywords) {
  try {
    const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_Size(keywords);
    return nanobind::inst_ptr<Calls>(self)
        ->template run<Args>(kOperator, {values, static_cast<std::size_t>(count + named)}, keywords)
        .release()
        .ptr();
  } catch (nanobind::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

template <class Calls, class Args, const Operator& kOperator>
void add_function(nanobind::dict& functions, nanobind::handle self) {
  using Pointer = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
  static constexpr Pointer kEntry = called<Calls, Args, kOperator>;
  static PyMethodDef definition{kOperator.name,
                                reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(kEntry)),
                                METH_FASTCALL | METH_KEYWORDS, nullptr};
  functions[kOperator.name] = nanobind::steal(PyCFunction_NewEx(&definition, self.ptr(), nullptr));
}

/// Operator -> function. Each holds `self`.
template <class Calls>
nanobind::dict functions_of(nanobind::handle self) {
  nanobind::dict functions;
  add_function<Calls, Recurrent, kDecode>(functions, self);
  add_function<Calls, Recurrent, kMtp>(functions, self);
  add_function<Calls, Recurrent, kReplay>(functions, self);
  add_function<Calls, Recurrent, kCommit>(functions, self);
  add_function<Calls, Prefill, kPrefill>(functions, self);
  add_function<Calls, Attention, kAttention>(functions, self);
  return functions;
}

}  // namespace goldenrule::python::gpu
