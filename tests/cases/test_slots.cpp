// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "fixtures/call/plan.hpp"
#include "fixtures/cases/delta_case.hpp"
#include "tests/cases/measure.hpp"

namespace call = goldenrule::call;
using namespace goldenrule::cases;
using namespace goldenrule::cases::test;

namespace {

std::vector<std::int64_t> integers(const call::Record& record, const char* name) {
  return record.inputs.at(name).to_integers();
}

std::string decode(const char* more) {
  return "op=gdn mode=decode B=8 H=1 HV=1 K=4 V=4 " + std::string(more);
}

std::string mtp(const char* more) {
  return "op=gdn mode=mtp B=8 T=4 H=1 HV=1 K=4 V=4 " + std::string(more);
}

}  // namespace

TEST_CASE("slot patterns give the slots that they are named after") {
  CHECK_FALSE(record_of(decode("")).inputs.contains("state_indices"));
  CHECK(integers(record_of(decode("slots=identity")), "state_indices") ==
        std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(integers(record_of(decode("slots=identity pad_slot=2")), "state_indices") ==
        std::vector<std::int64_t>{0, 1, 3, 4, 5, 6, 7, 8});

  const auto permuted = integers(record_of(decode("slots=permuted")), "state_indices");
  CHECK(std::set(permuted.begin(), permuted.end()).size() == 8);
  CHECK_FALSE(std::ranges::is_sorted(permuted));
  CHECK(permuted != integers(record_of(decode("slots=permuted seed=1")), "state_indices"));

  auto padded = integers(record_of(decode("slots=padded")), "state_indices");
  CHECK((padded[2] == -1 && padded[5] == -1));
  CHECK(std::ranges::count(padded, -1) == 2);
  padded[2] = permuted[2];
  padded[5] = permuted[5];
  CHECK(padded == permuted);
}

TEST_CASE("a pad slot inside the pool goes to padded rows only") {
  for (const char* pattern : {"slots=permuted", "slots=padded", "slots=separate_padded"}) {
    const call::Record record = record_of(decode((std::string(pattern) + " pad_slot=0").c_str()));
    const call::Plan plan = call::make_plan(record, false);
    for (std::size_t b = 0; b < plan.sequences.size(); ++b) {
      CAPTURE(b);
      CHECK(plan.sequences[b].padded == (std::string(pattern) == "slots=padded" && b % 3 == 2));
    }
  }
}

TEST_CASE("separate output slots are disjoint from the input slots") {
  const call::Record record = record_of(decode("slots=separate"));
  std::set<std::int64_t> all;
  for (const char* name : {"state_indices", "output_state_indices"}) {
    for (const std::int64_t slot : integers(record, name)) all.insert(slot);
  }
  CHECK(all.size() == 16);
  const auto outputs = integers(record_of(decode("slots=separate_padded")), "output_state_indices");
  CHECK(std::ranges::count(outputs, -1) == 2);
  CHECK((outputs[2] == -1 && outputs[5] == -1));
}

TEST_CASE("the scatter form has a slot per token and drops some states where padded") {
  const call::Record record = record_of(mtp("slots=scatter"));
  const auto slots = integers(record, "ssm_state_indices");
  CHECK(std::set(slots.begin(), slots.end()).size() == 32);
  const auto counts = integers(record, "num_accepted_tokens");
  CHECK(std::set(counts.begin(), counts.end()).size() > 1);
  CHECK(std::ranges::all_of(counts, [](std::int64_t n) { return n >= 1 && n <= 4; }));

  const call::Plan padded = call::make_plan(record_of(mtp("slots=scatter_padded")), false);
  std::int64_t dropped = 0;
  for (std::size_t b = 0; b < padded.sequences.size(); ++b) {
    CHECK(padded.sequences[b].padded == (b % 3 == 2));
    if (!padded.sequences[b].padded) dropped += 4 - std::ssize(padded.sequences[b].snapshots);
  }
  CHECK(dropped > 0);
}

TEST_CASE("a scatter with start slots: read from elsewhere, from a slot of the row's own, or not") {
  for (const std::string pad : {"-1", "0"}) {
    const call::Record record = record_of(mtp(("slots=scatter_from pad_slot=" + pad).c_str()));
    CHECK_FALSE(record.inputs.contains("num_accepted_tokens"));
    const auto slots = integers(record, "ssm_state_indices");
    CHECK(std::set(slots.begin(), slots.end()).size() == 32);
    const auto start = integers(record, "state_indices");
    const call::Plan plan = call::make_plan(record, false);
    for (std::size_t b = 0; b < start.size(); ++b) {
      CHECK((start[b] == std::stoi(pad)) == (b % 3 == 2));
      CHECK(plan.sequences[b].padded == (b % 3 == 2));
      if (b % 3 == 2) continue;
      const auto own = std::span(slots).subspan(b * 4, 4);
      CHECK((std::ranges::find(own, start[b]) != own.end()) == (b % 2 == 1));
      CHECK(std::ranges::count(slots, start[b]) == static_cast<std::ptrdiff_t>(b % 2));
      CHECK(plan.sequences[b].start_block == start[b]);
      CHECK(plan.sequences[b].snapshots.size() == 4);
    }
  }
}

TEST_CASE("accepted counts include none and all") {
  const auto counts = integers(record_of(mtp("accepted=mixed")), "accepted_tokens");
  CHECK(counts[0] == 0);
  CHECK(counts[1] == 4);
  CHECK(std::set(counts.begin(), counts.end()).size() > 2);
  CHECK(std::ranges::all_of(counts, [](std::int64_t n) { return n >= 0 && n <= 4; }));
}

TEST_CASE("index tensors have the index type") {
  CHECK(record_of(decode("slots=identity")).inputs.at("state_indices").dtype() ==
        call::DType::kI64);
  CHECK(record_of(decode("slots=identity index=i32")).inputs.at("state_indices").dtype() ==
        call::DType::kI32);
  const call::Record prefill =
      record_of("op=gdn mode=prefill lens=3,0,2x2 H=1 HV=1 K=4 V=4 index=i32");
  CHECK(prefill.inputs.at("cu_seqlens").dtype() == call::DType::kI32);
  CHECK(integers(prefill, "cu_seqlens") == std::vector<std::int64_t>{0, 3, 3, 5, 7});
  CHECK_FALSE(prefill.inputs.contains("initial_state"));
}

TEST_CASE("slot patterns of a prefill are those of its sequences") {
  const char* line = "op=gdn mode=prefill lens=3,0,2,2,5,1 H=1 HV=1 K=4 V=4 slots=";
  const call::Record padded = record_of(line + std::string("padded"));
  const auto slots = integers(padded, "state_indices");
  REQUIRE(slots.size() == 6);
  CHECK((slots[2] == -1 && slots[5] == -1));
  CHECK(padded.inputs.at("initial_state").shape()[0] == 8);  // two that nobody names
  const call::Record separate = record_of(line + std::string("separate"));
  CHECK(separate.inputs.at("initial_state").shape()[0] == 14);
  CHECK(integers(separate, "output_state_indices").size() == 6);
  CHECK(record_of(line + std::string("permuted P=9")).inputs.at("initial_state").shape()[0] == 9);
  CHECK_FALSE(record_of(line + std::string("none")).inputs.contains("initial_state"));
}

TEST_CASE("checkpoints are where they are named after") {
  using Offsets = std::vector<std::vector<std::int64_t>>;
  const auto of = [](const std::string& keys) {
    return checkpoint_offsets(
        parse("op=gdn mode=prefill lens=130,64,0,1,63,65 H=1 HV=1 K=4 V=4 " + keys));
  };
  CHECK(of("").empty());
  CHECK(of("checkpoints=after") == Offsets{{64, 128}, {64}, {}, {}, {}, {64}});
  CHECK(of("checkpoints=before") == Offsets{{0, 64, 128}, {0}, {}, {0}, {0}, {0, 64}});
  CHECK(of("checkpoints=after every=65") == Offsets{{65, 130}, {}, {}, {}, {}, {65}});
  const Offsets continued = of("checkpoints=continued every=40");
  for (const auto& offsets : continued) {
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      CHECK(offsets[i] == offsets[0] + 40 * static_cast<std::int64_t>(i));
    }
    if (!offsets.empty()) CHECK((offsets[0] > 0 && offsets[0] < 40));
  }
  CHECK(continued[0].size() >= 3);
  const Offsets listed = of("checkpoints=listed");
  CHECK(listed[0].front() == 0);
  CHECK(listed[0].back() == 130);
  CHECK(listed[1].back() == 64);
  CHECK(listed[1].front() > 0);
  CHECK(listed[2].empty());
  CHECK(listed[5].empty());
  CHECK(listed != of("checkpoints=listed seed=1"));
}

TEST_CASE("checkpoints are packed as the sequences are") {
  const call::Record r = record_of(
      "op=kda mode=prefill lens=5,0,4 H=1 HV=1 K=4 V=4 checkpoints=before every=2 index=i32");
  CHECK(integers(r, "checkpoint_offsets") == std::vector<std::int64_t>{0, 2, 4, 0, 2});
  CHECK(integers(r, "cu_checkpoints") == std::vector<std::int64_t>{0, 3, 3, 5});
  CHECK(r.inputs.at("checkpoint_offsets").dtype() == call::DType::kI32);
  CHECK(golden_bytes(
            parse("op=gdn mode=prefill lens=5 H=1 HV=1 K=4 V=4 checkpoints=before every=2")) ==
        8 * (5 * 4 + (1 + 3) * 16));
}
