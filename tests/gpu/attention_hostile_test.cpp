// SPDX-License-Identifier: Apache-2.0
//
// Attention and what only the device can see: bounds, lengths, pages, offsets and counts of any
// value. Such a call may have no defined result, but it touches nothing outside its buffers, and
// the checking kernel says what is wrong. And calls that the host refuses write nothing at all.
#include <functional>
#include <limits>

#include "fixtures/random/philox.hpp"
#include "tests/gpu/device_list.hpp"
#include "tests/gpu/gpu_test.hpp"

namespace goldenrule::test {
namespace {

using call::Record;
using Args = goldenrule_gpu_attention_args;
using Integers = std::vector<std::int64_t>;

/// Values around `most`, around 0 and around the ends of the types.
DeviceList hostile_list(const char* name, std::uint64_t seed, std::int64_t count, std::int64_t most,
                        bool wide) {
  using Wide = std::numeric_limits<std::int64_t>;
  using Narrow = std::numeric_limits<std::int32_t>;
  Integers values{0,  1,  2,        most / 2, most - 1,      most,
                  -1, -2, most + 1, 1 << 20,  Narrow::max(), Narrow::min()};
  if (wide) values.insert(values.end(), {Wide::max(), Wide::min(), std::int64_t{1} << 32});
  const random::Stream stream(seed, name);
  Integers list;
  for (std::int64_t i = 0; i < count; ++i) list.push_back(values[stream.bits(i) % values.size()]);
  return {name, list, wide};
}

/// Every list of the call in turn is hostile, or all of them are.
void run_hostile(const LiveCase& c, const Record& record, std::uint64_t seed) {
  const call::Dims d = call::validate(record);
  const bool wide = seed % 2 == 0;
  const std::int64_t keys = d.table_width * d.page_size;
  const auto list = [&](const char* name, std::int64_t count, std::int64_t most) {
    return hostile_list(name, seed, count, most, wide);
  };
  const DeviceList queries = list("cu_seqlens_q", d.rows + 1, d.tokens);
  const DeviceList fresh = list("cu_seqlens_k", d.rows + 1, d.fresh_keys);
  const DeviceList lengths = list("kv_lens", d.rows, keys);
  const DeviceList table = list("page_table", d.rows * d.table_width, d.pages);
  const DeviceList bounds = list("page_indptr", d.rows + 1, d.rows * d.table_width);
  const DeviceList offsets = list("q_offset", d.rows, keys);
  const DeviceList valid = list("valid_q", d.rows, 9);
  LiveCall live(record, c.placement);
  Args& args = live.attention_args();
  const std::uint64_t one = seed / 2 % 8;  // 7: all
  const auto give = [&](std::uint64_t which, goldenrule_gpu_tensor& to, const DeviceList& from) {
    if (one == which || one == 7) to = from.tensor();
  };
  give(0, args.cu_seqlens_q, queries);
  if (args.cu_seqlens_k.data != nullptr) give(1, args.cu_seqlens_k, fresh);
  give(2, args.kv_lens, lengths);
  give(3, args.page_table, table);
  if (one == 4 || (one == 7 && seed % 3 == 0)) {
    args.page_table = {};
    args.page_indptr = bounds.tensor();
    args.page_indices = table.tensor();
    args.table_size = d.rows * d.table_width;
  }
  give(5, args.q_offset, offsets);
  give(6, args.valid_q, valid);
  live.launch();
  live.synchronize();
  CHECK(live.stray_write() == "");
  for (const DeviceList* checked :
       {&queries, &fresh, &lengths, &table, &bounds, &offsets, &valid}) {
    CHECK(checked->violation() == "");
  }
}

TEST_CASE("attention: lists of any value: nothing outside the buffers is touched") {
  REQUIRE_GPU();
  int calls = 0;
  for_each_case(
      "op=attention mode=decode lens=4,0,9,5 ctx=70,5,33,64 H=1 HV=2 K={64,60} V=64 "
      "block_kv={separate,in_cache} mask={full,block_causal} block=4 splits=4",
      [&](const LiveCase& c, const Record& record) {
        for (std::uint64_t seed = 0; seed < 48; ++seed, ++calls) run_hostile(c, record, seed);
      });
  std::printf("%d hostile calls\n", calls);
}

goldenrule_gpu_attention_report report_of(const Args& args) {
  GuardedBuffer buffer("report", sizeof(goldenrule_gpu_attention_report), 3);
  char message[256] = "";
  REQUIRE_MESSAGE(goldenrule_gpu_attention_check(
                      &args, static_cast<goldenrule_gpu_attention_report*>(buffer.data()), message,
                      sizeof message) == GOLDENRULE_GPU_OK,
                  message);
  gpu::check_cuda(cudaDeviceSynchronize(), "check");
  CHECK(buffer.violation() == "");
  goldenrule_gpu_attention_report report{};
  std::memcpy(&report, buffer.download().data(), sizeof report);
  return report;
}

TEST_CASE("attention: the checking kernel reports bounds, lengths, counts and pages") {
  REQUIRE_GPU();
  const Record record = record_of(
      "op=attention mode=decode lens=4,0,9,5 ctx=70,5,33,64 H=1 HV=2 K=64 V=64 page=16 index=i32");
  LiveCall live(record);
  Args& args = live.attention_args();
  goldenrule_gpu_attention_report r = report_of(args);
  CHECK(r.query_bound_out_of_range + r.fresh_bound_out_of_range + r.table_bound_out_of_range +
            r.length_out_of_range + r.valid_out_of_range + r.page_out_of_range + r.page_missing ==
        0);
  CHECK(r.first_page_missing == -1);
  const auto width = args.table_width;  // 5: 70 tokens on pages of 16
  REQUIRE(width == 5);
  const DeviceList queries("cu_seqlens_q", {1, 4, 4, 3, 18}, false);
  const DeviceList fresh("cu_seqlens_k", {0, 4, 4, 13, 19}, true);
  const DeviceList lengths("kv_lens", {70, -1, 81, 64}, false);
  const DeviceList valid("valid_q", {4, 0, 0, 16}, true);
  Integers pages(static_cast<std::size_t>(4 * width), 0);
  pages[3] = -1;
  pages[7] = -5;  // behind the length of its request
  pages[2 * 5 + 4] = args.pages;
  pages[3 * 5 + 1] = -2;
  const DeviceList table("page_table", pages, true);
  args.cu_seqlens_q = queries.tensor();
  args.cu_seqlens_k = fresh.tensor();
  args.kv_lens = lengths.tensor();
  args.valid_q = valid.tensor();
  args.page_table = table.tensor();
  r = report_of(args);
  CHECK(r.query_bound_out_of_range == 2);  // the first is not 0; 4 to 3
  CHECK(r.first_query_bound_out_of_range == 0);
  CHECK(r.fresh_bound_out_of_range == 1);
  CHECK(r.first_fresh_bound_out_of_range == 3);
  CHECK(r.length_out_of_range == 2);  // -1; 81 of 80
  CHECK(r.first_length_out_of_range == 1);
  CHECK(r.valid_out_of_range == 2);  // 4 of 3; 16 of 15
  CHECK(r.first_valid_out_of_range == 0);
  CHECK(r.page_missing == 1);
  CHECK(r.first_page_missing == 3);
  CHECK(r.page_out_of_range == 2);
  CHECK(r.first_page_out_of_range == 14);
  const DeviceList bounds("page_indptr", {0, 5, 4, 10, 21}, false);
  args.page_indices = table.tensor();
  args.table_size = 20;
  args.page_table = {};
  args.page_indptr = bounds.tensor();
  r = report_of(args);
  CHECK(r.table_bound_out_of_range == 2);
  CHECK(r.first_table_bound_out_of_range == 1);
}

TEST_CASE("attention: a refused call launches nothing and writes nothing") {
  REQUIRE_GPU();
  struct Spoil {
    const char* words;
    void (*spoil)(Args&);
  };
  const std::vector<Spoil> spoils = {
      {"K: expected 1 to 256, actual 257", [](Args& a) { a.K = 257; }},
      {"V: expected 1 to 256, actual 0", [](Args& a) { a.V = 0; }},
      {"HV: expected a multiple of H=2, actual 3", [](Args& a) { a.HV = 3; }},
      {"mask: expected 0 to 2, actual 3", [](Args& a) { a.mask = 3; }},
      {"block: expected 1 to", [](Args& a) { a.block = 0; }},
      {"window_left: expected -1 to", [](Args& a) { a.window_left = -2; }},
      {"splits: expected 0, 1, 2, 4, 8, 9 or 16, actual 3", [](Args& a) { a.splits = 3; }},
      {"most_q: expected 1 or more (total), actual 0", [](Args& a) { a.most_q = 0; }},
      {"flags: expected only", [](Args& a) { a.flags = 2; }},
      {"scale: expected a finite number", [](Args& a) { a.scale = 1.0 / 0.0; }},
      {"q.dtype: expected f16 or bf16, actual f32", [](Args& a) { a.q.dtype = 1; }},
      {"k_cache.dtype: expected that of q", [](Args& a) { a.k_cache.dtype = 2; }},
      {"lse.dtype: expected f32", [](Args& a) { a.lse.dtype = 3; }},
      {"kv_lens.data: expected a device pointer (page_size)",
       [](Args& a) { a.kv_lens.data = nullptr; }},
      {"page_table.data: expected a device pointer (page_size)",
       [](Args& a) { a.page_table.data = nullptr; }},
      {"page_table.data: expected NULL (page_indptr)",
       [](Args& a) { a.page_indptr = a.cu_seqlens_q; }},
      {"v.data: expected a device pointer (beside k, v or cu_seqlens_k)",
       [](Args& a) { a.v.data = nullptr; }},
      {"k.data: expected NULL (GOLDENRULE_GPU_BLOCK_IN_CACHE)",
       [](Args& a) { a.block_kv = GOLDENRULE_GPU_BLOCK_IN_CACHE; }},
      {"k_cache.data: expected NULL (page_size)", [](Args& a) { a.page_size = 0; }},
      {"o.data: expected memory that nothing else of the call is in, actual shared with q",
       [](Args& a) { a.o.data = a.q.data; }},
      {"lse.data: expected memory", [](Args& a) { a.lse.data = a.kv_lens.data; }},
      {"q.data: expected alignment", [](Args& a) { a.q.data = static_cast<char*>(a.q.data) + 1; }},
  };
  const Record record = record_of("op=attention mode=decode lens=4,3 ctx=40,9 H=2 HV=4 K=64 V=64");
  const std::uint64_t hits = goldenrule_gpu_dispatch_hits();
  for (const Spoil& spoil : spoils) {
    LiveCall live(record);
    Args args = live.attention_args();
    spoil.spoil(args);
    char message[256] = "";
    CHECK(goldenrule_gpu_attention(&args, message, sizeof message) != GOLDENRULE_GPU_OK);
    CHECK_MESSAGE(std::string(message).starts_with(spoil.words), message);
    live.synchronize();
    CHECK(live.stray_write({.o = false, .final_state = {}, .kept_states = {}}) == "");
  }
  CHECK(goldenrule_gpu_dispatch_hits() == hits);
}

}  // namespace
}  // namespace goldenrule::test
