// SPDX-License-Identifier: Apache-2.0
//
// The matrix that compute-sanitizer runs over (tools/sanitize), in bare memory, so that no redzone
// hides an access from it; what the same list computes is judged in golden_test.cpp. And a pool
// beyond 2^31 elements.
#include "tests/gpu/case_lists.hpp"
#include "tests/gpu/gpu_test.hpp"
#include "tests/gpu/high_slot.hpp"

namespace goldenrule::test {
namespace {

void run_matrix(const char* list) {
  REQUIRE_GPU();
  const std::vector<LiveCase> cases = parse_list(case_list(list).lines);
  for (const LiveCase& c : cases) {
    LiveCall live(make_record(c), c.placement, Memory::kBare);
    live.launch();
    live.synchronize();
  }
  std::printf("%zu cases, run in bare memory\n", cases.size());
}

TEST_CASE("sanitizer matrix") { run_matrix("sanitizer"); }
TEST_CASE("sanitizer matrix of attention") { run_matrix("attention sanitizer"); }

TEST_CASE("slots beyond 2^31 elements") {
  REQUIRE_GPU();
  if (!has_room_for_high_slot()) {
    std::puts("SKIPPED: less than 11 GiB of device memory free");
    return;
  }
  // shift=1: the general kernels.
  for (const LiveCase& c : parse_list("op={gdn,kda} mode=mtp T={1,2} state_layout={vk,kv} keeps=0 "
                                      "shift={0,1} " +
                                      kHighSlotShape)) {
    CHECK_MESSAGE(high_slot_complaint(c, goldenrule_gpu_recurrent) == "", canonical(c));
  }
}

}  // namespace
}  // namespace goldenrule::test
