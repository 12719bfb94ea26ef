// SPDX-License-Identifier: Apache-2.0
//
// The matrix that compute-sanitizer runs over (tools/sanitize): every family and kernel of the
// dispatch table, tails of K and V, slots of every kind; small, because a sanitized kernel is a
// hundred times slower.
#include "tests/gpu/gpu_test.hpp"

namespace goldenrule::test {
namespace {

TEST_CASE("sanitizer matrix") {
  REQUIRE_GPU();
  std::vector<Case> cases;
  for (const bool kda : {false, true}) {
    for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
      for (const DType state : {DType::kF32, DType::kBF16}) {
        Case c;
        c.kda = kda;
        c.layout = layout;
        c.state = state;
        c.H = 1;
        c.HV = 2;
        for (const std::int64_t K : {128, 60, 100, 136}) {
          for (const std::int64_t T : {1, 3, 10}) {
            c.K = K;
            c.T = T;
            c.V = K == 128 ? 128 : 37;
            c.slots = T == 3 ? Slots::kScatter : Slots::kPadded;
            c.intermediates = T == 10;
            c.gap = K == 100 ? 3 : 0;
            cases.push_back(c);
          }
        }
        c.gap = 0;
        c.K = c.V = 128;
        c.B = 70;  // tall tiles
        c.slots = Slots::kOutputPadded;
        c.intermediates = false;
        for (const std::int64_t T : {1, 2}) {
          c.T = T;
          c.HV = 2;
          cases.push_back(c);
        }
      }
    }
  }
  check_cases(cases);
}

}  // namespace
}  // namespace goldenrule::test
