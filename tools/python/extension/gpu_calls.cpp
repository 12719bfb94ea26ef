// SPDX-License-Identifier: Apache-2.0
#include "tools/python/extension/gpu_calls.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/python/extension/gpu_library.hpp"
#include "tools/python/extension/gpu_tables.hpp"
#include "tools/python/extension/gpu_tensors.hpp"

namespace goldenrule::python::gpu {
namespace {

namespace nb = nanobind;

constexpr std::size_t kMessage = 512;

// An operator: its tensors that stand in front, and the one that says where the call runs.
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

constexpr auto kRows = places<Recurrent>("q", "k", "v", "gate", "beta", "state", "o");
constexpr auto kCommitted = places<Recurrent>("k", "v", "gate", "beta", "state");
constexpr auto kPacked = places<Prefill>("q", "k", "v", "gate", "beta", "cu_seqlens", "o");
constexpr auto kQueries = places<Attention>("q", "k", "v", "k_cache", "v_cache", "o");

constexpr Operator kDecode{.name = "decode", .positional = kRows, .anchor = 1, .one_token = true};
constexpr Operator kMtp{.name = "mtp", .positional = kRows, .anchor = 1};
constexpr Operator kReplay{.name = "replay", .positional = kRows, .anchor = 1};
constexpr Operator kCommit{
    .name = "commit", .positional = kCommitted, .anchor = 1, .commits = true};
constexpr Operator kPrefill{.name = "prefill", .positional = kPacked, .anchor = 1};
constexpr Operator kAttention{.name = "attention", .positional = kQueries, .anchor = 0};

// What a framework knows of its devices (class Device of goldenrule/_gpu.py), in C as far as it has
// them there.
struct Device {
  explicit Device(nb::handle device)
      : type(nb::cast<std::string>(device.attr("type"))),
        prepare(device.attr("prepare")),
        current(device.attr("current")),
        exchange(device.attr("exchange")),
        stream(device.attr("stream")),
        empty(device.attr("empty")),
        graded(device.attr("graded")) {}

  std::string type;
  nb::object prepare, current, exchange, stream, empty, graded;
  std::vector<bool> ready;
};

// Makes a device the current one, as long as this lives.
class Current {
 public:
  Current(const Device& device, int index) : device_(device) {
    if (nb::cast<int>(device.current()) != index) before_ = device.exchange(index);
  }
  ~Current() {
    if (!before_.is_valid()) return;
    nb::error_scope kept;
    try {
      device_.exchange(before_);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("goldenrule.ops");
    }
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Device& device_;
  nb::object before_;
};

class Calls {
 public:
  Calls(const Names& names, nb::handle device)
      : device_(device),
        recurrent_(kRecurrentArguments, names),
        prefill_(kPrefillArguments, names),
        attention_(kAttentionArguments, names) {}

  void open(const std::string& path) { library_.emplace(path); }

  void initialize() {
    char message[kMessage] = "";
    expect_ok(opened().initialize(message, kMessage), message);
  }

  template <class Args>
  void run(const Operator& asked, std::span<PyObject* const> values, PyObject* keywords) {
    const Arguments& arguments = arguments_of(static_cast<Args*>(nullptr));
    Given given{};
    arguments.read(asked.name, asked.positional, values, keywords, given);
    if constexpr (std::is_same_v<Args, Recurrent>) {
      if (asked.commits) given[0] = given[1];
    }
    Args args;
    Tensors tensors(arguments, given, reinterpret_cast<std::byte*>(&args),
                    nb::cast<bool>(device_.graded()));
    tensors.set_anchor(asked.anchor);
    const int index =
        prepared(arguments.table()[asked.anchor].name, given[asked.anchor], tensors.device());
    const Functions<Args>& functions = functions_of(static_cast<Args*>(nullptr));
    args = functions.defaults;
    arguments.write_options(given, reinterpret_cast<std::byte*>(&args), args.flags);
    if (asked.one_token) expect_one_token(tensors.at(asked.anchor));
    if (asked.commits) args.flags |= GOLDENRULE_GPU_FLAG_NO_OUTPUT;
    fill(tensors, args);
    launch(functions, args, index, given[asked.anchor]);
  }

 private:
  const Library& opened() const {
    if (!library_) refuse(PyExc_RuntimeError, "goldenrule: the GPU library is not open");
    return *library_;
  }

  static void expect_one_token(const Seen& keys) {
    if (keys.shape().size() > 1 && keys.shape()[1] != 1) {
      refuse(PyExc_ValueError,
             "k: expected one token per row (T = 1), actual the shape " + listed(keys.shape()));
    }
  }

  // The index of a device that can run kernels.
  int prepared(const char* name, nb::handle anchor, int device) {
    if ((device == kHost) != (device_.type == "cpu")) {
      refuse(PyExc_ValueError, std::string(name) + ": expected a tensor of a CUDA device, actual " +
                                   said(anchor.attr("device")));
    }
    const auto index = static_cast<std::size_t>(std::max(device, 0));
    if (device_.ready.size() <= index) device_.ready.resize(index + 1);
    if (!device_.ready[index]) device_.ready[index] = nb::cast<bool>(device_.prepare(index));
    opened();
    return static_cast<int>(index);
  }

  template <class Args>
  void launch(const Functions<Args>& functions, Args& args, int index, nb::handle anchor) {
    const Current current(device_, index);
    nb::object workspace;
    if constexpr (std::is_same_v<Args, Prefill>) workspace = allocated(args, anchor);
    args.stream = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(device_.stream(index)));
    char message[kMessage];
    message[0] = '\0';
    goldenrule_gpu_status status = GOLDENRULE_GPU_OK;
    {
      const nb::gil_scoped_release unlocked;
      status = functions.run(&args, message, kMessage);
    }
    expect_ok(status, message);
  }

  // A tensor of bytes, which lives until the call is launched.
  nb::object allocated(Prefill& args, nb::handle anchor) {
    constexpr std::uintptr_t kAlignment = 256;
    const std::size_t size = opened().prefill_workspace_size(&args);
    if (size == 0) return {};
    nb::object tensor = device_.empty(size + kAlignment, anchor);
    Seen seen;
    seen.read("workspace", tensor);
    args.workspace_size = size;
    args.workspace = reinterpret_cast<void*>(
        (reinterpret_cast<std::uintptr_t>(seen.data()) + kAlignment - 1) & ~(kAlignment - 1));
    return tensor;
  }

  const Arguments& arguments_of(const Recurrent*) const { return recurrent_; }
  const Arguments& arguments_of(const Prefill*) const { return prefill_; }
  const Arguments& arguments_of(const Attention*) const { return attention_; }
  const Functions<Recurrent>& functions_of(const Recurrent*) const { return opened().recurrent; }
  const Functions<Prefill>& functions_of(const Prefill*) const { return opened().prefill; }
  const Functions<Attention>& functions_of(const Attention*) const { return opened().attention; }

  Device device_;
  Arguments recurrent_, prefill_, attention_;
  std::optional<Library> library_;
};

// As a vector call of Python enters it.
template <class Args, const Operator& kOperator>
PyObject* called(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* keywords) {
  try {
    const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_Size(keywords);
    nb::inst_ptr<Calls>(self)->run<Args>(
        kOperator, {values, static_cast<std::size_t>(count + named)}, keywords);
    return nb::none().release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

template <class Args, const Operator& kOperator>
void add_function(nb::dict& functions, nb::handle self) {
  using Pointer = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
  static constexpr Pointer kEntry = called<Args, kOperator>;
  static PyMethodDef definition{kOperator.name,
                                reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(kEntry)),
                                METH_FASTCALL | METH_KEYWORDS, nullptr};
  functions[kOperator.name] = nb::steal(PyCFunction_NewEx(&definition, self.ptr(), nullptr));
}

// Operator -> function. Each holds `self`.
nb::dict functions_of(nb::handle self) {
  nb::dict functions;
  add_function<Recurrent, kDecode>(functions, self);
  add_function<Recurrent, kMtp>(functions, self);
  add_function<Recurrent, kReplay>(functions, self);
  add_function<Recurrent, kCommit>(functions, self);
  add_function<Prefill, kPrefill>(functions, self);
  add_function<Attention, kAttention>(functions, self);
  return functions;
}

}  // namespace

void add_calls(nb::module_& m) {
  nb::class_<Calls>(m, "GpuCalls")
      .def(nb::init<const Names&, nb::handle>())
      .def("open", &Calls::open)
      .def("initialize", &Calls::initialize)
      .def("functions", functions_of);
}

}  // namespace goldenrule::python::gpu
