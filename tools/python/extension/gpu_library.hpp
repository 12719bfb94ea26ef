// SPDX-License-Identifier: Apache-2.0
//
// The GPU library, opened while the process runs: the package works without one.
#pragma once

#include <cstddef>
#include <string>

#include "gpu/goldenrule_gpu.h"

namespace goldenrule::python::gpu {

/// A kind of call.
template <class Args>
struct Functions {
  goldenrule_gpu_status (*run)(const Args*, char*, std::size_t) = nullptr;
  goldenrule_gpu_status (*validate)(const Args*, char*, std::size_t) = nullptr;
  Args defaults{};
};

class Library {
 public:
  /// Throws OSError of Python with the line of the loader.
  explicit Library(const std::string& path);

  goldenrule_gpu_status (*initialize)(char*, std::size_t) = nullptr;
  /// Of the kernels on the CPU, which run when somebody waits for them; null elsewhere.
  int (*wait)() = nullptr;
  std::size_t (*prefill_workspace_size)(const goldenrule_gpu_prefill_args*) = nullptr;
  Functions<goldenrule_gpu_recurrent_args> recurrent;
  Functions<goldenrule_gpu_prefill_args> prefill;
  Functions<goldenrule_gpu_attention_args> attention;
};

/// Throws the Python error of a refusal, with the line of the library.
void expect_ok(goldenrule_gpu_status status, const char* message);

}  // namespace goldenrule::python::gpu
