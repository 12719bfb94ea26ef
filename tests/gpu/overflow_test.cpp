// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/gpu_test.hpp"
#include "tests/gpu/high_slot.hpp"

namespace goldenrule::test {
namespace {

TEST_CASE("slots beyond 2^31 elements") {
  REQUIRE_GPU();
  if (!has_room_for_high_slot()) {
    std::puts("SKIPPED: less than 11 GiB of device memory free");
    return;
  }
  for (const bool kda : {false, true}) {
    for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
      for (const std::int64_t T : {1, 2}) {
        for (const std::int64_t shift : {0, 1}) {  // 1: the general kernels
          Case c;
          c.kda = kda;
          c.layout = layout;
          c.T = T;
          c.shift = shift;
          CHECK_MESSAGE(high_slot_complaint(c, goldenrule_gpu_recurrent) == "", c.name());
        }
      }
    }
  }
}

}  // namespace
}  // namespace goldenrule::test
