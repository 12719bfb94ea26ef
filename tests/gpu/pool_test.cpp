// SPDX-License-Identifier: Apache-2.0
//
// Slots, padding, MTP: who reads and writes which state, and what stays untouched bit for bit.
#include <algorithm>

#include "tests/gpu/gpu_test.hpp"

namespace goldenrule::test {
namespace {

/// All combinations that the pool knows, on a fast and on a general shape.
std::vector<Case> pool_cases(std::int64_t T) {
  std::vector<Case> cases;
  for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
    for (const DType state : {DType::kF32, DType::kBF16}) {
      for (const std::int64_t K : {128, 96}) {
        for (const Slots slots : {Slots::kIdentity, Slots::kPermuted, Slots::kPadded, Slots::kStray,
                                  Slots::kOutput, Slots::kOutputPadded, Slots::kScatter}) {
          if (slots == Slots::kScatter && T == 0) continue;
          for (const bool wide : {false, true}) {
            for (const std::int64_t pad : {-1, 0}) {
              Case c;
              c.layout = layout;
              c.state = state;
              c.K = K;
              c.V = 64;
              c.H = 1;
              c.HV = 2;
              c.B = 5;
              c.T = T;
              c.slots = slots;
              c.wide_indices = wide;
              c.pad_slot = pad;
              cases.push_back(c);
            }
          }
        }
      }
    }
  }
  return cases;
}

TEST_CASE("decode: indices, padding and strays") {
  REQUIRE_GPU();
  std::vector<Case> cases = pool_cases(1);
  for (Case c : pool_cases(1)) {
    if (c.K != 128 || c.wide_indices) continue;
    c.B = 600;  // two tiles and more a block of the streaming kernel
    c.H = c.HV = 1;
    c.kda = c.pad_slot == 0;
    cases.push_back(c);
    c.separate_final = true;
    c.accepted = c.slots != Slots::kScatter;
    cases.push_back(c);
  }
  check_cases(cases);
}

TEST_CASE("MTP: indices, padding, intermediate states, accepted counts, disabled updates") {
  REQUIRE_GPU();
  std::vector<Case> cases;
  for (const std::int64_t T : {0, 1, 4, 9}) {
    for (const Case& base : pool_cases(T)) {
      for (int variant = 0; variant < 5; ++variant) {
        Case c = base;
        if (c.wide_indices && variant > 0) continue;
        c.intermediates = variant == 1 || variant == 4;
        c.extra_rows = variant == 4 ? 2 : 0;
        c.accepted = variant == 2 && c.slots != Slots::kScatter;
        c.disable_update = variant == 3 || variant == 4;
        c.separate_final = variant == 2;
        cases.push_back(c);
      }
    }
  }
  check_cases(cases);
}

TEST_CASE("the checking kernel reports what only the device can see") {
  REQUIRE_GPU();
  Case c;
  c.B = 6;
  c.slots = Slots::kOutput;
  c.accepted = true;
  Scenario s(c);
  s.state_indices.set(2, 1000);
  s.output_state_indices.set(4, -9);
  s.output_state_indices.set(5, s.output_state_indices.get(1));
  s.output_state_indices.set(0, s.state_indices.get(3));
  s.accepted.set(3, 7);
  s.accepted.set(0, 1);
  s.accepted.set(1, 1);
  s.accepted.set(5, 1);
  LiveCall live(s);
  GuardedBuffer report("report", sizeof(goldenrule_gpu_index_report), 3);
  REQUIRE(goldenrule_gpu_recurrent_check(&live.args(),
                                         static_cast<goldenrule_gpu_index_report*>(report.data()),
                                         nullptr, 0) == GOLDENRULE_GPU_OK);
  live.synchronize();
  goldenrule_gpu_index_report r;
  const Bytes bytes = report.download();
  std::copy_n(bytes.data(), sizeof r, reinterpret_cast<std::byte*>(&r));
  CHECK(r.start_out_of_range == 1);
  CHECK(r.first_start_out_of_range == 2);
  CHECK(r.output_out_of_range == 1);
  CHECK(r.first_output_out_of_range == 4);
  CHECK(r.written_twice == 1);
  CHECK(r.first_written_twice == 5);
  CHECK(r.read_after_write == 1);
  CHECK(r.first_read_after_write == 3);
  CHECK(r.count_out_of_range == 1);
  CHECK(r.first_count_out_of_range == 3);
  CHECK(report.violation().empty());
}

}  // namespace
}  // namespace goldenrule::test
