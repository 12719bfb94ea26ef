// SPDX-License-Identifier: Apache-2.0
//
// The harness sees what it is there to see.
#include <cmath>
#include <cstring>

#include "tests/gpu/gpu_test.hpp"

namespace goldenrule::test {
namespace {

TEST_CASE("poison is NaN in every float type and out of range as an index") {
  const Bytes poison = make_poison(4096, 9);
  for (std::size_t i = 0; i < poison.size(); i += 8) {
    CHECK(std::isnan(call::decode(DType::kF32, &poison[i])));
    CHECK(std::isnan(call::decode(DType::kF16, &poison[i])));
    CHECK(std::isnan(call::decode(DType::kBF16, &poison[i + 2])));
    CHECK(call::decode(DType::kI32, &poison[i]) > 1e9);
  }
  CHECK(make_poison(64, 1) == make_poison(64, 1));
  CHECK(make_poison(64, 1) != make_poison(64, 2));
}

TEST_CASE("a touched redzone is named with side, byte, expected and actual") {
  REQUIRE_GPU();
  GuardedBuffer buffer("state", 100, 1);
  CHECK(buffer.violation() == "");
  auto* data = static_cast<char*>(buffer.data());
  gpu::check_cuda(cudaMemset(data, 0, 100), "cudaMemset");
  CHECK(buffer.violation() == "");
  gpu::check_cuda(cudaMemset(data + 102, 0, 1), "cudaMemset");
  CHECK(buffer.violation().rfind("state: byte 3 after its end: expected 0x", 0) == 0);
  gpu::check_cuda(cudaMemset(data - 5, 0, 1), "cudaMemset");
  CHECK(buffer.violation().rfind("state: byte 5 before its start: expected 0x", 0) == 0);
  CHECK(buffer.violation().ends_with("actual 0x00"));
}

TEST_CASE("the judge sees a wrong element, an unwritten one and one that nobody should write") {
  REQUIRE_GPU();
  Case c;
  c.slots = Slots::kPermuted;
  const Scenario s(c);
  LiveCall live(s);
  const Expected expected = expect(s);
  live.synchronize();
  CHECK(live.judge(expected).rfind("o: element 0: expected", 0) == 0);
  live.launch();
  live.synchronize();
  CHECK(live.judge(expected) == "");
  CHECK(live.worst() > 0.0);

  Expected moved = expected;
  moved.o.value[7] += 2 * moved.o.tolerance[7] + 1e-3;
  CHECK(live.judge(moved).rfind("o: element 7", 0) == 0);
  Expected fewer = expected;
  for (std::size_t i = 0; i < fewer.final_state.written.size(); ++i) {
    if (fewer.final_state.written[i] != 0) {
      fewer.final_state.written[i] = 0;
      break;
    }
  }
  CHECK(live.judge(fewer).rfind("state (unwritten): byte", 0) == 0);
}

TEST_CASE("the tolerance is tight: a bf16 rounding of one operand is seen") {
  REQUIRE_GPU();
  // q rounded to bf16 where it is given in fp32: the smallest mistake of the field.
  Case c;
  c.io = DType::kF32;
  Scenario s(c);
  const Expected expected = expect(s);
  for (std::int64_t i = 0; i < s.k.count(); ++i)
    s.k.set(i, call::round_to(DType::kBF16, s.k.get(i)));
  LiveCall live(s);
  live.launch();
  live.synchronize();
  CHECK(live.judge(expected) != "");
}

}  // namespace
}  // namespace goldenrule::test
