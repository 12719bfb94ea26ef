// SPDX-License-Identifier: Apache-2.0
//
// What only the device can see: slots and counts of any value. A call with them may have no defined
// result, but it touches nothing outside its buffers, and no slot that no index names. And calls
// that the host refuses write nothing at all.
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <string_view>

#include "fixtures/random/philox.hpp"
#include "tests/gpu/gpu_test.hpp"

namespace goldenrule::test {
namespace {

const char* const kIndices[] = {"state_indices",       "output_state_indices", "ssm_state_indices",
                                "num_accepted_tokens", "accepted_tokens",      "ring_indices",
                                "ring_start",          "ring_count",           "ring_flush"};

/// Slots, counts, and what lies around them and around the ends of the types.
std::vector<std::int64_t> hostile_values(const call::Dims& d, bool wide) {
  using Wide = std::numeric_limits<std::int64_t>;
  using Narrow = std::numeric_limits<std::int32_t>;
  std::vector<std::int64_t> values{0,           1,  d.T, d.T + 1,       d.slots - 1,  d.slots,
                                   d.slots + 1, -1, -2,  Narrow::max(), Narrow::min()};
  if (d.ring_places > 0) {
    values.insert(values.end(), {d.rings - 1, d.rings, d.ring_places - d.T, d.ring_places - d.T + 1,
                                 d.ring_places - 1, d.ring_places});
  }
  if (wide) values.insert(values.end(), {Wide::max(), Wide::min(), std::int64_t{1} << 32});
  return values;
}

/// Not by way of double, which cannot hold the largest.
void set_integer(call::Tensor& tensor, std::int64_t i, std::int64_t x) {
  const std::size_t bytes = call::info(tensor.dtype()).bytes;
  const auto narrow = static_cast<std::int32_t>(x);
  const void* from = bytes == sizeof x ? static_cast<const void*>(&x) : &narrow;
  std::memcpy(&tensor.bytes()[static_cast<std::size_t>(i) * bytes], from, bytes);
}

/// Hostile numbers in every index tensor. Everything may be written then but the slots of the pool
/// that no index names.
WriteSet make_hostile(call::Record& record, std::uint64_t seed) {
  const call::Dims d = call::validate(record);
  WriteSet writes{
      .o = true,
      .final_state = std::vector<bool>(static_cast<std::size_t>(d.slots)),
      .kept_states = std::vector<bool>(static_cast<std::size_t>(d.tokens), true),
      .rings = std::vector<bool>(static_cast<std::size_t>(d.rings * d.ring_places), true)};
  for (const char* name : kIndices) {
    const auto it = record.inputs.find(name);
    if (it == record.inputs.end()) continue;
    const auto values = hostile_values(d, it->second.dtype() == call::DType::kI64);
    const random::Stream stream(seed, name);
    for (std::int64_t i = 0; i < it->second.size(); ++i) {
      const std::int64_t x = values[stream.bits(i) % values.size()];
      set_integer(it->second, i, x);
      const bool slot = std::string_view(name).ends_with("state_indices");
      if (slot && x >= 0 && x < d.slots && x != record.convention.pad_slot) {
        writes.final_state[static_cast<std::size_t>(x)] = true;
      }
    }
  }
  return writes;
}

TEST_CASE("any slot and any count: nothing outside the buffers is touched") {
  REQUIRE_GPU();
  int calls = 0;
  const std::string shape =
      "op=gdn mode=mtp B=7 T={1,4} H=1 HV=1 K={128,60} V=64 state_layout={vk,kv} state={f32,bf16} "
      "index={i32,i64} pad_slot={-1,2} seed={1,2,3} kept=0 columns={1,3} ";
  for_each_case(
      shape + "slots={permuted,separate} accepted=mixed\n" + shape +
          "slots={scatter,scatter_from}\nop={gdn,kda} mode=mtp B=7 T={1,4} H=1 HV=1 K={128,60} "
          "V=64 state_layout={vk,kv} slots={permuted,separate} ring=io window=9 index={i32,i64} "
          "seed={1,2,3,4,5,6} columns={1,3}",
      [&](const LiveCase& c, call::Record record) {
        const WriteSet writes = make_hostile(record, c.call.seed);
        LiveCall live(record, c.placement);
        live.launch();
        live.synchronize();
        CHECK(live.stray_write(writes) == "");
        ++calls;
      });
  std::printf("%d hostile calls\n", calls);
}

/// What the checking kernel says of a record's slots and counts; it writes nothing but that.
goldenrule_gpu_index_report checked(const call::Record& record, const Placement& placement) {
  LiveCall live(record, placement);
  GuardedBuffer report("report", sizeof(goldenrule_gpu_index_report), 3);
  REQUIRE(goldenrule_gpu_recurrent_check(&live.args(),
                                         static_cast<goldenrule_gpu_index_report*>(report.data()),
                                         nullptr, 0) == GOLDENRULE_GPU_OK);
  live.synchronize();
  CHECK(report.violation().empty());
  goldenrule_gpu_index_report r;
  std::memcpy(&r, report.download().data(), sizeof r);
  return r;
}

TEST_CASE("the checking kernel reports what only the device can see") {
  REQUIRE_GPU();
  call::Record record = record_of(
      "op=gdn mode=mtp B=6 T=1 H=2 HV=4 K=128 V=128 slots=separate accepted=mixed index=i32");
  call::Tensor& start = record.inputs.at("state_indices");
  call::Tensor& output = record.inputs.at("output_state_indices");
  call::Tensor& accepted = record.inputs.at("accepted_tokens");
  start.set(2, 1000);
  output.set(4, -9);
  output.set(5, output[1]);
  output.set(0, start[3]);
  for (std::int64_t b = 0; b < 6; ++b) accepted.set(b, b == 3 ? 7 : 1);
  const goldenrule_gpu_index_report r = checked(record, {.kept = 0});
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
}

TEST_CASE("the checking kernel reports start slots beside a slot for each token") {
  REQUIRE_GPU();
  call::Record record =
      record_of("op=gdn mode=mtp B=6 T=3 H=1 HV=2 K=64 V=64 slots=scatter_from index=i32");
  call::Tensor& start = record.inputs.at("state_indices");
  call::Tensor& written = record.inputs.at("ssm_state_indices");
  start.set(4, -9);
  start.set(3, written[0]);        // read by row 3, written by row 0
  written.set(3 * 1 + 2, 1000);    // the last token of row 1
  written.set(3 * 3, written[1]);  // written by rows 0 and 3
  const goldenrule_gpu_index_report r = checked(record, {.kept = 0, .columns = 5});
  CHECK(r.start_out_of_range == 1);
  CHECK(r.first_start_out_of_range == 4);
  CHECK(r.output_out_of_range == 1);
  CHECK(r.first_output_out_of_range == 5);
  CHECK(r.written_twice == 1);
  CHECK(r.first_written_twice == 9);
  CHECK(r.read_after_write == 1);
  CHECK(r.first_read_after_write == 3);
  CHECK(r.count_out_of_range == 0);
}

TEST_CASE("the checking kernel reports rings and cursors, to callers that know them") {
  REQUIRE_GPU();
  call::Record record =
      record_of("op=gdn mode=mtp B=7 T=3 H=1 HV=2 K=64 V=64 slots=permuted ring=io index=i32");
  call::Tensor& rings = record.inputs.at("ring_indices");
  rings.set(2, -1);
  rings.set(5, rings[3]);
  record.inputs.at("ring_start").set(4, 16);
  record.inputs.at("ring_count").set(6, 14);
  record.inputs.at("ring_flush").set(1, 1);
  record.inputs.at("ring_flush").set(3, 2);  // so no row has the ring of another
  record.inputs.at("state_indices").set(1, -1);
  record.inputs.at("ring_start").set(1, -5);  // of a padded row: nobody reads it
  const goldenrule_gpu_index_report r = checked(record, {.columns = 2});
  CHECK(r.start_out_of_range == 0);
  CHECK(r.ring_out_of_range == 1);
  CHECK(r.first_ring_out_of_range == 2);
  CHECK(r.ring_of_two_rows == 0);
  CHECK(r.cursor_out_of_range == 3);
  CHECK(r.first_cursor_out_of_range == 3);
  record.inputs.at("ring_flush").set(3, 0);
  const goldenrule_gpu_index_report twice = checked(record, {});
  CHECK(twice.ring_of_two_rows == 1);
  CHECK(twice.first_ring_of_two_rows == 5);
  CHECK(twice.cursor_out_of_range == 2);
  // The report of version 1 ends in front of the rings.
  LiveCall live(record_of("op=gdn mode=mtp B=2 T=1 H=1 HV=1 K=64 V=64"));
  live.args().struct_size = offsetof(goldenrule_gpu_recurrent_args, rings);
  constexpr std::size_t kFirst = offsetof(goldenrule_gpu_index_report, ring_out_of_range);
  GuardedBuffer report("report", kFirst, 3);
  REQUIRE(goldenrule_gpu_recurrent_check(&live.args(),
                                         static_cast<goldenrule_gpu_index_report*>(report.data()),
                                         nullptr, 0) == GOLDENRULE_GPU_OK);
  live.synchronize();
  CHECK(report.violation().empty());
}

TEST_CASE("a refused call launches nothing and writes nothing") {
  REQUIRE_GPU();
  using Args = goldenrule_gpu_recurrent_args;
  const std::vector<std::function<void(Args&)>> spoils = {
      [](Args& a) { a.K = 257; },
      [](Args& a) { a.V = -1; },
      [](Args& a) { a.q.data = nullptr; },
      [](Args& a) { a.state.dtype = GOLDENRULE_GPU_F16; },
      [](Args& a) { a.o.stride[0] = a.o.stride[1] = a.o.stride[2] = 1; },
      [](Args& a) { a.k.data = static_cast<char*>(a.k.data) + 1; },
  };
  const call::Record record = record_of("op=gdn mode=mtp B=2 T=2 H=2 HV=4 K=128 V=128");
  const WriteSet nothing{
      .o = false, .final_state = std::vector<bool>(2), .kept_states = std::vector<bool>(4)};
  const std::uint64_t hits = goldenrule_gpu_dispatch_hits();
  for (const auto& spoil : spoils) {
    LiveCall live(record);
    Args args = live.args();
    spoil(args);
    char message[256] = "";
    CHECK(goldenrule_gpu_recurrent(&args, message, sizeof message) != GOLDENRULE_GPU_OK);
    CHECK(message[0] != '\0');
    live.synchronize();
    CHECK(live.stray_write(nothing) == "");
  }
  CHECK(goldenrule_gpu_dispatch_hits() == hits);
}

}  // namespace
}  // namespace goldenrule::test
