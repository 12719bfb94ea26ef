// SPDX-License-Identifier: Apache-2.0
//
// What has to be the same bits: a request alone and among others, repeated runs, and a replayed
// graph at every length that its cache grows to. And what has to be one entry of the dispatch
// table: calls that differ in runtime values.
#include <cstring>

#include "tests/gpu/gpu_test.hpp"

namespace goldenrule::test {
namespace {

using Args = goldenrule_gpu_attention_args;

/// The address of element i of a list of integers.
void advance(goldenrule_gpu_tensor& list, std::int64_t elements) {
  if (list.data == nullptr) return;
  const std::int64_t size = list.dtype == GOLDENRULE_GPU_I64 ? 8 : 4;
  list.data = static_cast<char*>(list.data) + elements * size;
}

/// The same buffers, of which only request n is a request.
void take_request(Args& a, std::int64_t n) {
  a.N = 1;
  for (goldenrule_gpu_tensor* list : {&a.cu_seqlens_q, &a.cu_seqlens_k, &a.page_indptr}) {
    advance(*list, n);
  }
  for (goldenrule_gpu_tensor* list : {&a.kv_lens, &a.q_offset, &a.valid_q}) {
    advance(*list, n * list->stride[0]);
  }
  advance(a.page_table, n * a.page_table.stride[0]);
}

/// "" or the first output of which rows first to last - 1 (of the first axis) have other bits.
std::string rows_difference(const call::TensorMap& a, const call::TensorMap& b, std::int64_t first,
                            std::int64_t last) {
  for (const auto& [name, tensor] : a) {
    const auto row = tensor.bytes().size() / static_cast<std::size_t>(tensor.shape()[0]);
    const auto from = static_cast<std::size_t>(first) * row,
               count = static_cast<std::size_t>(last - first) * row;
    if (std::memcmp(&tensor.bytes()[from], &b.at(name).bytes()[from], count) != 0) return name;
  }
  return "";
}

TEST_CASE("attention: a request alone has the bits that it has among others") {
  REQUIRE_GPU();
  for_each_case(
      "op=attention mode=decode lens=4,9,16,1 ctx=150,0,300,65 H=2 HV=4 K={64,128,100} V=64 "
      "splits={1,8} table={permuted,csr} columns={1,3} mask={full,causal} shift={0,1}",
      [](const LiveCase& c, const call::Record& record) {
        const call::TensorMap all = outputs_of(record, c.placement);
        for (std::int64_t n = 0; n < 4; ++n) {
          LiveCall alone(record, c.placement);
          take_request(alone.attention_args(), n);
          alone.launch();
          alone.synchronize();
          const call::Tensor& bounds = record.inputs.at("cu_seqlens_q");
          CHECK(rows_difference(all, alone.outputs(), static_cast<std::int64_t>(bounds[n]),
                                static_cast<std::int64_t>(bounds[n + 1])) == "");
        }
      });
}

TEST_CASE("attention: repeated runs give the same bits") {
  REQUIRE_GPU();
  for_each_case(
      "op=attention mode=decode lens=16,16,4 ctx=700,65,3 H=2 HV=8 K={64,128,100} V=64 "
      "splits={1,8} mask={full,causal}",
      [](const LiveCase& c, const call::Record& record) {
        LiveCall live(record, c.placement);
        const call::TensorMap first = outputs_of(live, record.case_line);
        CHECK(different_runs(live, first, 20) == 0);
      });
}

/// Every third request has `length` tokens in the cache, others fewer.
call::Tensor lengths(const call::Record& record, std::int64_t length) {
  call::Tensor lens = record.inputs.at("kv_lens");
  for (std::int64_t n = 0; n < lens.size(); ++n) {
    lens.set(n, static_cast<double>(n % 3 == 0 ? length : length / (n + 1)));
  }
  return lens;
}

TEST_CASE("attention: a graph captured at one length follows every later one") {
  REQUIRE_GPU();
  REQUIRE(goldenrule_gpu_initialize(nullptr, 0) == GOLDENRULE_GPU_OK);
  for_each_case(
      "op=attention mode=decode lens=4,9,16,1 ctx=333,300,290,288 H=2 HV=4 K={64,128,100} V=64 "
      "page=16 splits={0,8} mask={full,block_causal} block=8",
      [](const LiveCase& c, const call::Record& record) {
        LiveCall live(record, c.placement);
        live.overwrite("kv_lens", lengths(record, 1));
        const gpu::Stream stream = gpu::make_stream();
        const gpu::GraphExec graph =
            gpu::capture(stream.get(), [&](cudaStream_t s) { live.launch(s); });
        for (const std::int64_t length : {1, 15, 16, 17, 63, 64, 65, 128, 200, 288}) {
          live.overwrite("kv_lens", lengths(record, length));
          gpu::check_cuda(cudaGraphLaunch(graph.get(), stream.get()), "graph");
          gpu::check_cuda(cudaStreamSynchronize(stream.get()), "graph");
          const call::TensorMap replayed = live.outputs();
          LiveCall eager(record, c.placement);
          eager.overwrite("kv_lens", lengths(record, length));
          eager.launch();
          eager.synchronize();
          CHECK(difference(replayed, eager.outputs()) == "");
        }
      });
}

/// The entry that a call is served by.
std::string entry_of(const std::string& line) {
  const LiveCase c = parse_live(line);
  LiveCall live(make_record(c), c.placement);
  const std::map<std::string, std::uint64_t> before = hits_by_name();
  live.launch();
  live.synchronize();
  for (const auto& [name, hits] : hits_by_name()) {
    if (hits != before.at(name)) return name;
  }
  return "";
}

TEST_CASE("attention: runtime values have one entry, fields of the key have others") {
  REQUIRE_GPU();
  const std::string base = "op=attention mode=decode H=2 K=128 V=128 splits=4 ";
  const std::string entry = entry_of(base + "lens=4 ctx=64 HV=4");
  CHECK(entry == "attention_bf16_d128_r16_c4");
  for (const char* same :
       {"lens=4 ctx=65 HV=4", "lens=4 ctx=900 HV=4", "lens=4,4,4 ctx=1,2,3 HV=4",
        "lens=8 ctx=64 HV=4", "lens=4 ctx=64 HV=4 page=3", "lens=4 ctx=64 HV=4 table=padded",
        "lens=4 ctx=64 HV=4 table=csr", "lens=4 ctx=64 HV=4 kv_layout=hnd", "lens=4 ctx=64 HV=8",
        "lens=4 ctx=64 HV=4 scale=3", "lens=4 ctx=64 HV=4 window_left=9",
        "lens=4 ctx=64 HV=4 mask=causal", "lens=4 ctx=64 HV=4 mask=block_causal block=7",
        "lens=4 ctx=64 HV=4 block_kv=in_cache", "lens=4 ctx=64 HV=4 gap=8",
        "lens=4 ctx=64 HV=4 index=i32", "lens=4 ctx=64 HV=4 lse_layout=ht"}) {
    CHECK_MESSAGE(entry_of(base + same) == entry, same);
  }
  const std::string other = "op=attention mode=decode ctx=64 H=2 HV=4 ";
  for (const char* key :
       {"K=64 V=64 lens=4 splits=4", "K=128 V=128 lens=9 splits=4", "K=128 V=128 lens=4 splits=2",
        "K=128 V=128 lens=4 splits=4 io=f16", "K=128 V=128 lens=4 splits=4 shift=1"}) {
    CHECK_MESSAGE(entry_of(other + key) != entry, key);
  }
}

}  // namespace
}  // namespace goldenrule::test
