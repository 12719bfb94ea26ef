// SPDX-License-Identifier: Apache-2.0
//
// The matrix that compute-sanitizer runs over (tools/sanitize), in bare memory, so that no redzone
// hides an access from it; what the same list computes is judged in golden_test.cpp. Lines in the
// variable GOLDENRULE_CASES run in place of the list. And a pool beyond 2^31 elements, and stored
// states as far apart.
#include <cstdlib>

#include "tests/gpu/case_lists.hpp"
#include "tests/gpu/gpu_test.hpp"
#include "tests/gpu/high_slot.hpp"

namespace goldenrule::test {
namespace {

void run_matrix(const char* list) {
  REQUIRE_GPU();
  const char* const lines = std::getenv("GOLDENRULE_CASES");
  const std::vector<LiveCase> cases = parse_list(lines != nullptr ? lines : case_list(list).lines);
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

// Rows, and then tokens, of the stored states lie 2^31 elements apart.
TEST_CASE("stored states beyond 2^31 elements") {
  REQUIRE_GPU();
  constexpr std::int64_t kApart = (std::int64_t{1} << 31) + 4096;
  constexpr std::int64_t kK = 128, kV = 128, kHead = kK * kV;
  constexpr std::int64_t kElements = kApart + 2 * kHead;
  std::size_t free = 0, total = 0;
  gpu::check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  if (free < (static_cast<std::size_t>(kElements) * 4 + (std::size_t{1} << 30))) {
    std::puts("SKIPPED: less than 10 GiB of device memory free");
    return;
  }
  const gpu::DeviceMemory memory =
      gpu::allocate_device(static_cast<std::size_t>(kElements) * sizeof(float));
  for (const char* line :
       {"op=gdn mode=mtp B=2 T=2 H=1 HV=1 K=128 V=128 keeps=1",
        "op=kda mode=mtp B=2 T=2 H=1 HV=1 K=128 V=128 keeps=1",
        "op=gdn mode=mtp B=2 T=2 H=1 HV=1 K=128 V=128 keeps=1 gate=log io=f32"}) {
    const LiveCase c = parse_list(line).front();
    const call::Record record = make_record(c);
    const call::TensorMap expected = outputs_of(record, c.placement);
    const std::span<const std::byte> states = expected.at("intermediate_states").bytes();
    for (const bool rows_apart : {true, false}) {
      LiveCall live(record, c.placement);
      goldenrule_gpu_tensor& kept = live.args().intermediate_states;
      kept.data = memory.get();
      kept.dense = 0;
      const std::int64_t row = rows_apart ? kApart : kHead, token = rows_apart ? kHead : kApart;
      const std::int64_t strides[] = {row, token, kHead, kK};
      std::copy(std::begin(strides), std::end(strides), std::begin(kept.stride));
      live.launch();
      live.synchronize();
      for (const std::int64_t b : {0, 1}) {
        for (const std::int64_t t : {0, 1}) {
          Bytes got(kHead * sizeof(float));
          gpu::check_cuda(
              cudaMemcpy(got.data(), static_cast<float*>(memory.get()) + b * row + t * token,
                         got.size(), cudaMemcpyDefault),
              "state");
          const auto at = static_cast<std::size_t>(b * 2 + t) * got.size();
          CHECK_MESSAGE(std::ranges::equal(got, states.subspan(at, got.size())), line, " row ", b,
                        " token ", t);
        }
      }
    }
  }
}

}  // namespace
}  // namespace goldenrule::test
