// SPDX-License-Identifier: Apache-2.0
//
// The first complaint about a call. Checks run one after the other and the first failure wins, so a
// message always names one argument, what was expected and what is there.
#pragma once

#include <cstdint>
#include <string>

#include "gpu/goldenrule_gpu.h"

namespace goldenrule::gpu {

struct Problem {
  goldenrule_gpu_status status = GOLDENRULE_GPU_OK;
  std::string text;

  [[nodiscard]] bool ok() const { return status == GOLDENRULE_GPU_OK; }

  void report(goldenrule_gpu_status kind, const std::string& argument, const std::string& expected,
              const std::string& actual) {
    if (!ok()) return;
    status = kind;
    text = argument + ": expected " + expected + ", actual " + actual;
  }
  void invalid(const std::string& argument, const std::string& expected,
               const std::string& actual) {
    report(GOLDENRULE_GPU_INVALID_ARGUMENT, argument, expected, actual);
  }
  void invalid(const std::string& argument, const std::string& expected, std::int64_t actual) {
    invalid(argument, expected, std::to_string(actual));
  }
};

}  // namespace goldenrule::gpu
