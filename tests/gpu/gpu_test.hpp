// SPDX-License-Identifier: Apache-2.0
//
// What every GPU test needs: a way to say that there is no GPU, and a loop over cases that counts.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "tests/gpu/live_call.hpp"

// CTest reads the line and reports the test as skipped.
#define REQUIRE_GPU()                         \
  if (goldenrule::gpu::device_count() == 0) { \
    std::puts("SKIPPED: no CUDA device");     \
    return;                                   \
  }

namespace goldenrule::test {

/// Calls f for both operations, layouts and state types.
template <class F>
void for_each_family(F&& f) {
  for (const bool kda : {false, true}) {
    for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
      for (const DType state : {DType::kF32, DType::kBF16}) {
        Case c;
        c.kda = kda;
        c.layout = layout;
        c.state = state;
        f(c);
      }
    }
  }
}

/// How often each kernel has been launched: entries of one name are one kernel.
inline std::map<std::string, std::uint64_t> hits_by_name() {
  std::map<std::string, std::uint64_t> hits;
  for (std::int32_t i = 0; i < goldenrule_gpu_dispatch_size(); ++i) {
    hits[goldenrule_gpu_dispatch_name(i)] += goldenrule_gpu_dispatch_entry_hits(i);
  }
  return hits;
}

/// Runs all cases; the first complaints are printed, and an empty list fails.
inline void check_cases(const std::vector<Case>& cases) {
  REQUIRE(!cases.empty());
  int failures = 0;
  for (const Case& c : cases) {
    const std::string complaint = run_case(c);
    if (!complaint.empty() && ++failures <= 5) MESSAGE(complaint);
  }
  std::printf("%zu cases, %d failed\n", cases.size(), failures);
  CHECK(failures == 0);
}

}  // namespace goldenrule::test
