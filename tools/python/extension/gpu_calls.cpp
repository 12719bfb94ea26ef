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
#include "tools/python/extension/gpu_operators.hpp"

namespace goldenrule::python::gpu {
namespace {

namespace nb = nanobind;

constexpr std::size_t kMessage = 512;

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
  nb::object run(const Operator& asked, std::span<PyObject* const> values, PyObject* keywords) {
    const Arguments& arguments = arguments_of(static_cast<Args*>(nullptr));
    Given given{};
    read<Args>(asked, arguments, values, keywords, given);
    Args args;
    Tensors tensors(arguments, given, reinterpret_cast<std::byte*>(&args),
                    nb::cast<bool>(device_.graded()));
    tensors.set_anchor(asked.anchor);
    const int index =
        prepared(arguments.table()[asked.anchor].name, given[asked.anchor], tensors.device());
    const Functions<Args>& functions = functions_of(static_cast<Args*>(nullptr));
    args = functions.defaults;
    complete(asked, arguments, given, tensors, args);
    launch(functions, args, index, given[asked.anchor]);
    return nb::none();
  }

 private:
  const Library& opened() const {
    if (!library_) refuse(PyExc_RuntimeError, "goldenrule: the GPU library is not open");
    return *library_;
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

}  // namespace

void add_calls(nb::module_& m) {
  nb::class_<Calls>(m, "GpuCalls")
      .def(nb::init<const Names&, nb::handle>())
      .def("open", &Calls::open)
      .def("initialize", &Calls::initialize)
      .def("functions", functions_of<Calls>);
}

}  // namespace goldenrule::python::gpu
