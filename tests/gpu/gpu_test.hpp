// SPDX-License-Identifier: Apache-2.0
//
// What every GPU test needs: a way to say that there is no GPU, and loops over lines.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

#include "tests/gpu/live_call.hpp"

// CTest reads the line and reports the test as skipped.
#define REQUIRE_GPU()                         \
  if (goldenrule::gpu::device_count() == 0) { \
    std::puts("SKIPPED: no CUDA device");     \
    return;                                   \
  }

namespace goldenrule::test {

/// Both operations, layouts and state types.
inline const std::string kFamilies = "op={gdn,kda} state_layout={vk,kv} state={f32,bf16} ";

/// Calls f(case, its record) for every case of a line with braces.
template <class F>
void for_each_case(const std::string& line, F&& f) {
  for (const LiveCase& c : parse_list(line)) {
    CAPTURE(canonical(c));
    f(c, make_record(c));
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

}  // namespace goldenrule::test
