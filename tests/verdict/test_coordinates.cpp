// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "reference/verdict/coordinates.hpp"
#include "tests/verdict/support.hpp"

using namespace goldenrule;
using namespace goldenrule::verdict;
using test::record_of;

namespace {

std::string named(const call::Record& record, const char* output, const call::Shape& index) {
  return to_string(coordinates(record, output, index));
}

}  // namespace

TEST_CASE("coordinates: decode and MTP") {
  const call::Record vk = record_of("op=gdn mode=mtp B=3 T=2 H=1 HV=2 K=8 V=6");
  CHECK(named(vk, "o", {2, 1, 0, 5}) == "sequence 2, token 1, head 0, value 5");
  CHECK(named(vk, "final_state", {1, 0, 5, 7}) == "slot 1, head 0, key 7, value 5");
  CHECK(named(vk, "intermediate_states", {2, 1, 0, 5, 7}) ==
        "sequence 2, token 1, head 0, key 7, value 5");
  const call::Record kv = record_of("op=gdn mode=mtp B=3 T=2 H=1 HV=2 K=8 V=6 state_layout=kv");
  CHECK(named(kv, "final_state", {1, 0, 7, 5}) == "slot 1, head 0, key 7, value 5");
  CHECK(named(kv, "intermediate_states", {2, 1, 0, 7, 5}) ==
        "sequence 2, token 1, head 0, key 7, value 5");
}

TEST_CASE("coordinates: checkpoints, and the slots of a prefill on a pool") {
  const call::Record r = record_of(
      "op=gdn mode=prefill lens=5,0,3 H=1 HV=2 K=8 V=6 slots=permuted checkpoints=before every=2");
  CHECK(named(r, "checkpoints", {0, 1, 2, 3}) ==
        "checkpoint 0, sequence 0, after 0 tokens, head 1, key 3, value 2");
  CHECK(named(r, "checkpoints", {4, 1, 2, 3}) ==
        "checkpoint 4, sequence 2, after 2 tokens, head 1, key 3, value 2");
  CHECK(named(r, "final_state", {4, 1, 2, 3}) == "slot 4, head 1, key 3, value 2");
}

TEST_CASE("coordinates: packed sequences, empty ones among them") {
  const call::Record r =
      record_of("op=gdn mode=prefill lens=0,3,0,0,2,0 H=1 HV=2 K=8 V=6 index=i32");
  CHECK(named(r, "o", {0, 1, 4}) == "sequence 1, token 0, head 1, value 4");
  CHECK(named(r, "o", {2, 1, 4}) == "sequence 1, token 2, head 1, value 4");
  CHECK(named(r, "o", {3, 0, 0}) == "sequence 4, token 0, head 0, value 0");
  CHECK(named(r, "o", {4, 0, 0}) == "sequence 4, token 1, head 0, value 0");
  CHECK(named(r, "final_state", {4, 1, 2, 3}) == "sequence 4, head 1, key 3, value 2");
}
