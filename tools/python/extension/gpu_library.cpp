// SPDX-License-Identifier: Apache-2.0
#include "tools/python/extension/gpu_library.hpp"

#include <dlfcn.h>

#include "tools/python/extension/gpu_tensor.hpp"

namespace goldenrule::python::gpu {
namespace {

template <class F>
void find(void* library, const std::string& name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(library, ("goldenrule_gpu_" + name).c_str()));
  if (function == nullptr) refuse(PyExc_OSError, dlerror());
}

template <class Args>
void find_all(void* library, const std::string& name, Functions<Args>& functions) {
  find(library, name, functions.run);
  find(library, name + "_validate", functions.validate);
  void (*set_defaults)(Args*, std::size_t) = nullptr;
  find(library, name + "_defaults", set_defaults);
  set_defaults(&functions.defaults, sizeof functions.defaults);
}

}  // namespace

Library::Library(const std::string& path) {
  // Never closed: a process has its kernels until it ends.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) refuse(PyExc_OSError, dlerror());
  find(library, "initialize", initialize);
  find(library, "prefill_workspace_size", prefill_workspace_size);
  wait = reinterpret_cast<int (*)()>(dlsym(library, "cudaDeviceSynchronize"));
  find_all(library, "recurrent", recurrent);
  find_all(library, "prefill", prefill);
  find_all(library, "attention", attention);
}

void expect_ok(goldenrule_gpu_status status, const char* message) {
  switch (status) {
    case GOLDENRULE_GPU_OK:
      return;
    case GOLDENRULE_GPU_INVALID_ARGUMENT:
      refuse(PyExc_ValueError, message);
    case GOLDENRULE_GPU_UNSUPPORTED:
      refuse(PyExc_NotImplementedError, message);
    case GOLDENRULE_GPU_UNSUPPORTED_ARCHITECTURE:
    case GOLDENRULE_GPU_CUDA_ERROR:
    case GOLDENRULE_GPU_NO_DEVICE:
      break;
  }
  refuse(PyExc_RuntimeError, message);
}

}  // namespace goldenrule::python::gpu
