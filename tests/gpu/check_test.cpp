// SPDX-License-Identifier: Apache-2.0
//
// The checking kernel of decode and MTP: what it reports of slots, counts, rings, bounds, parents
// and rows of buffers, and that it writes nothing but its report, of the version of the caller.
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/gpu/gpu_test.hpp"

namespace goldenrule::test {
namespace {

/// What the checking kernel says of a call's slots and counts; it writes nothing but that.
goldenrule_gpu_index_report checked(LiveCall& live) {
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
goldenrule_gpu_index_report checked(const call::Record& record, const Placement& placement) {
  LiveCall live(record, placement);
  return checked(live);
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
  const goldenrule_gpu_index_report r = checked(record, {.keeps = 0});
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
  const goldenrule_gpu_index_report r = checked(record, {.keeps = 0, .columns = 5});
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
  // The report of version 1 ends in front of the rings, that of version 2 in front of bounds.
  LiveCall live(record_of("op=gdn mode=mtp B=2 T=1 H=1 HV=1 K=64 V=64"));
  const std::pair<std::size_t, std::size_t> sizes[] = {
      {offsetof(goldenrule_gpu_recurrent_args, rings),
       offsetof(goldenrule_gpu_index_report, ring_out_of_range)},
      {offsetof(goldenrule_gpu_recurrent_args, tokens),
       offsetof(goldenrule_gpu_index_report, bounds_out_of_range)}};
  for (const auto& [size, bytes] : sizes) {
    live.args().struct_size = size;
    GuardedBuffer report("report", bytes, 3);
    REQUIRE(goldenrule_gpu_recurrent_check(&live.args(),
                                           static_cast<goldenrule_gpu_index_report*>(report.data()),
                                           nullptr, 0) == GOLDENRULE_GPU_OK);
    live.synchronize();
    CHECK(report.violation().empty());
  }
}

TEST_CASE("the checking kernel reports bounds, parents and rows of a buffer") {
  REQUIRE_GPU();
  const call::Record record = record_of(
      "op=gdn mode=mtp lens=3,2,1,4,2,3 H=1 HV=2 K=64 V=64 slots=permuted tree=mixed kept=buffer "
      "track=mixed index=i32");
  const auto changed = [&](const char* name, std::vector<std::pair<int, int>> values) {
    LiveCall live(record);
    call::Tensor tensor = record.inputs.at(name);
    for (const auto& [i, x] : values) tensor.set(i, x);
    live.overwrite(name, tensor);
    return checked(live);
  };
  goldenrule_gpu_index_report r = changed("parent_tokens", {});
  CHECK(r.bounds_out_of_range + r.parent_out_of_range + r.kept_out_of_range + r.kept_of_two_rows ==
        0);
  CHECK(r.output_out_of_range + r.written_twice + r.count_out_of_range == 0);
  r = changed("parent_tokens", {{0, 0}, {4, -2}, {6, 0}});  // of itself, below -1, of itself
  CHECK(r.parent_out_of_range == 3);
  CHECK(r.first_parent_out_of_range == 0);
  r = changed("cu_seqlens", {{1, 6}});  // row 0 longer than T, row 1 ends before it begins
  CHECK(r.bounds_out_of_range == 2);
  CHECK(r.first_bounds_out_of_range == 0);
  r = changed("cu_seqlens", {{6, 16}});
  CHECK(r.bounds_out_of_range == 1);
  CHECK(r.first_bounds_out_of_range == 5);
  const call::Tensor& kept = record.inputs.at("intermediate_state_indices");
  int free = 0;  // a row of the call that keeps states
  while (kept[free] < 0) ++free;
  int other = free + 1;
  while (kept[other] < 0) ++other;
  r = changed("intermediate_state_indices", {{other, static_cast<int>(kept[free])}});
  CHECK(r.kept_of_two_rows == 1);
  CHECK(r.first_kept_of_two_rows == other);
  r = changed("intermediate_state_indices", {{1, 1000}, {3, -2}});
  CHECK(r.kept_out_of_range == 2);
  CHECK(r.first_kept_out_of_range == 1);
  const call::Tensor& slots = record.inputs.at("state_indices");
  r = changed("checkpoint_state_indices", {{2, static_cast<int>(slots[4])}});
  CHECK(r.written_twice >= 1);
  r = changed("checkpoint_tokens", {{0, 4}});
  CHECK(r.count_out_of_range == 1);
  CHECK(r.first_count_out_of_range == 0);
}

}  // namespace
}  // namespace goldenrule::test
