// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>

#include "tools/python/extension/gpu_operators.hpp"
#include "tools/python/extension/gpu_xla.hpp"

namespace goldenrule::python::gpu {
namespace {

namespace nb = nanobind;

// Where an aggregate has its workspace, which is a tensor of the caller's as all others are.
constexpr const char* kWorkspace = "workspace";
constexpr std::uintptr_t kNoWorkspaceYet = std::uintptr_t{1} << 52;

// The operators as functions that return what a program of XLA needs to call them later: number and
// bytes of the aggregate, and name -> offset of the tensors in it. What the library refuses is
// refused here. Tensors are known by shape, type, and an address of their own.
class XlaCalls {
 public:
  explicit XlaCalls(const Names& names)
      : recurrent_(kRecurrentArguments, names),
        prefill_(kPrefillArguments, names),
        attention_(kAttentionArguments, names) {}

  void open(const std::string& path) { library_.emplace(path); }

  nb::dict handlers(bool on_host) const {
    if constexpr (GOLDENRULE_HAS_XLA) return xla_handlers(opened(), on_host);
    refuse(PyExc_ImportError,
           "goldenrule.jax: this build holds no handlers for XLA; build it with "
           "cmake.define.GOLDENRULE_XLA_HEADERS=$(python -c 'import jax; "
           "print(jax.ffi.include_dir())')");
  }

  template <class Args>
  nb::object run(const Operator& asked, std::span<PyObject* const> values,
                 PyObject* keywords) const {
    const Arguments& arguments = std::get<const Arguments&>(parts_of<Args>());
    const Functions<Args>& functions = std::get<const Functions<Args>&>(parts_of<Args>());
    Given given{};
    read<Args>(asked, arguments, values, keywords, given);
    Args args = functions.defaults;
    Tensors tensors(arguments, given, reinterpret_cast<std::byte*>(&args), false);
    tensors.set_anchor(asked.anchor);
    complete(asked, arguments, given, tensors, args);
    nb::dict places = places_in(arguments, args);
    if constexpr (std::is_same_v<Args, Prefill>) {
      args.workspace_size = opened().prefill_workspace_size(&args);
      if (args.workspace_size > 0) {
        args.workspace = reinterpret_cast<void*>(kNoWorkspaceYet);
        places[kWorkspace] = offsetof(Prefill, workspace);
      }
    }
    std::array<char, 512> message{};
    const goldenrule_gpu_status status = functions.validate(&args, message.data(), message.size());
    if (status != GOLDENRULE_GPU_NO_DEVICE) expect_ok(status, message.data());
    std::size_t workspace = 0;
    if constexpr (std::is_same_v<Args, Prefill>) workspace = args.workspace_size;
    return nb::make_tuple(static_cast<int>(std::get<Aggregate>(parts_of<Args>())),
                          nb::bytes(reinterpret_cast<const char*>(&args), sizeof args), places,
                          workspace);
  }

 private:
  const Library& opened() const {
    if (!library_) refuse(PyExc_RuntimeError, "goldenrule: the GPU library is not open");
    return *library_;
  }

  template <class Args>
  [[nodiscard]] auto parts_of() const {
    using Parts = std::tuple<Aggregate, const Arguments&, const Functions<Args>&>;
    if constexpr (std::is_same_v<Args, Recurrent>) {
      return Parts{Aggregate::kRecurrentCall, recurrent_, opened().recurrent};
    } else if constexpr (std::is_same_v<Args, Prefill>) {
      return Parts{Aggregate::kPrefillCall, prefill_, opened().prefill};
    } else {
      return Parts{Aggregate::kAttentionCall, attention_, opened().attention};
    }
  }

  // Those that were written.
  template <class Args>
  static nb::dict places_in(const Arguments& arguments, const Args& args) {
    nb::dict places;
    for (const Argument& argument : arguments.table()) {
      if (argument.kind != Kind::kTensor) continue;
      goldenrule_gpu_tensor tensor;
      std::memcpy(&tensor, reinterpret_cast<const std::byte*>(&args) + argument.offset,
                  sizeof tensor);
      if (tensor.data != nullptr) {
        places[argument.name] = argument.offset + offsetof(goldenrule_gpu_tensor, data);
      }
    }
    return places;
  }

  Arguments recurrent_, prefill_, attention_;
  std::optional<Library> library_;
};

}  // namespace

void add_xla_calls(nb::module_& m) {
  nb::class_<XlaCalls>(m, "XlaCalls")
      .def(nb::init<const Names&>())
      .def("open", &XlaCalls::open)
      .def("handlers", &XlaCalls::handlers)
      .def("functions", functions_of<XlaCalls>);
}

}  // namespace goldenrule::python::gpu
