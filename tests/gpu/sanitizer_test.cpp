// SPDX-License-Identifier: Apache-2.0
//
// The matrix that compute-sanitizer runs over (tools/sanitize): every family and kernel of the
// dispatch table, tails of K and V, slots of every kind; small, because a sanitized kernel is a
// hundred times slower. Memory is bare, so that no redzone hides an access from the sanitizer; what
// the cases compute is judged by the same list in guarded memory.
#include "tests/gpu/gpu_test.hpp"

namespace goldenrule::test {
namespace {

std::vector<Case> sanitizer_cases() {
  std::vector<Case> cases;
  for_each_family([&](Case c) {
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
    c.B = 3;
    c.T = 8;
    c.intermediates = true;
    c.slots = Slots::kPadded;
    cases.push_back(c);
  });
  return cases;
}

TEST_CASE("sanitizer matrix") {
  REQUIRE_GPU();
  const std::vector<Case> cases = sanitizer_cases();
  for (const Case& c : cases) {
    LiveCall live(Scenario(c), Memory::kBare);
    live.launch();
    live.synchronize();
  }
  std::printf("%zu cases, run in bare memory\n", cases.size());
}

TEST_CASE("the sanitizer matrix, judged") {
  REQUIRE_GPU();
  check_cases(sanitizer_cases());
}

}  // namespace
}  // namespace goldenrule::test
