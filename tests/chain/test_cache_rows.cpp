// SPDX-License-Identifier: Apache-2.0
//
// Which calls are of one layer of attention, which rows are the same, over lives of a request too,
// and how many are remembered.
#include <doctest/doctest.h>

#include <cstddef>
#include <functional>

#include "fixtures/call/operation.hpp"
#include "reference/chain/caches.hpp"
#include "tests/chain/speculative_server.hpp"

namespace {

using namespace goldenrule;
using testing::begun;
using testing::number;
using testing::only;
using testing::SpeculativeServer;

TEST_CASE("calls of another layer of attention are left out, and nothing is missing") {
  const auto other_heads = [](call::Record& r) {
    r.inputs["q"] = call::Tensor(call::DType::kBF16, {8, 6, SpeculativeServer::kK});
  };
  const auto other_layout = [](call::Record& r) {
    r.convention.kv_layout = call::KvLayout::kHnd;
    for (const auto& [name, dim] :
         {std::pair{"k_cache", SpeculativeServer::kK}, {"v_cache", SpeculativeServer::kV}}) {
      r.inputs[name] = call::Tensor(call::DType::kBF16, {SpeculativeServer::kPages, 2, 4, dim});
    }
  };
  const auto other_type = [](call::Record& r) {
    for (const char* name : {"k_cache", "v_cache"}) {
      r.inputs[name] = call::Tensor(call::DType::kF32, r.inputs.at(name).shape());
    }
  };
  const std::vector<std::pair<std::function<void(call::Record&)>, std::string>> kinds{
      {other_heads, "HV: expected 4, actual 6"},
      {other_layout, "kv_layout: another than that of the first call"},
      {other_type, "the type of the cache: another than that of the first call"}};
  for (const auto& [change, said] : kinds) {
    const std::string words = said;  // clang 14 captures no structured binding
    CAPTURE(words);
    SpeculativeServer server = begun(2);
    chain::Call other = server.calls[4];  // the attention of the step
    change(other.record);
    other.record.outputs.clear();
    other.index = server.states.index++;
    server.calls.push_back(std::move(other));
    server.step({{1, 2}, {2, 3}});
    const testing::Judged judged = testing::judge(server.calls, {.only_chain = true});
    REQUIRE(judged.findings.size() == 1);
    CHECK(judged.findings[0].check == chain::Check::kInput);
    CHECK(judged.findings[0].text.find(words) != std::string::npos);
    CHECK(judged.summary.rows_judged == judged.summary.rows);
    CHECK(judged.summary.acceptances_followed == 4);
  }
}

TEST_CASE("a request that began again where attention was not recorded has other rows") {
  SpeculativeServer server = begun(2);
  const std::size_t at = server.calls.size();
  server.preempt(1, 13);
  server.calls.erase(server.calls.begin() + static_cast<std::ptrdiff_t>(at));  // its attention
  server.step({{1, 1}, {2, 1}});
  number(server.calls);
  CHECK(testing::judge(server.calls, {.only_chain = true}).findings.empty());
}

TEST_CASE("a NaN of a row is a NaN, whatever its bits are") {
  constexpr std::size_t kAt = 3 * SpeculativeServer::kH * SpeculativeServer::kK * 2;  // row 3
  const auto set = [](call::Tensor& tensor, std::size_t at, unsigned low) {
    tensor.bytes()[at] = std::byte(low);
    tensor.bytes()[at + 1] = std::byte{0x7f};
  };
  SpeculativeServer server({});
  unsigned bits = 0xc1;
  server.on_attention = [&](call::Record& r) {
    if (!r.inputs.contains("k_cache")) return set(r.inputs.at("k"), kAt, 0xc0);
    const auto page = static_cast<std::size_t>(server.live[1].pages[0]);
    const std::size_t size = SpeculativeServer::kP * SpeculativeServer::kH * SpeculativeServer::kK *
                             sizeof(std::uint16_t);
    set(r.inputs.at("k_cache"), page * size + kAt, bits++);
  };
  server.prompt(1, 0, 10);
  for (int i = 0; i < 3; ++i) server.step({{1, 2}});
  const testing::Judged judged = testing::judge(server.calls, {.only_chain = true});
  for (const chain::Finding& finding : judged.findings) MESSAGE(finding.text);
  CHECK(judged.findings.empty());
}

TEST_CASE("what is rejected is remembered by position, and no more than is said") {
  chain::Cache cache;
  for (std::int64_t t = 0; t < 5000; ++t) {
    cache.put(t, {.digest = static_cast<std::uint64_t>(t), .place = 0, .call = 1});
  }
  cache.crop(10);
  CHECK(cache.rows.size() == 10);
  CHECK(cache.rejected.size() == chain::kMostRejected);
  CHECK(cache.rejected.back() == std::pair<std::int64_t, std::uint64_t>{4999, 4999});
}

TEST_CASE("a call whose rows take more memory than is given is an error") {
  SpeculativeServer server = begun(2);
  std::erase_if(server.calls,
                [](const chain::Call& c) { return call::operation(c.record.op).has_states; });
  number(server.calls);
  const testing::Judged judged =
      testing::judge(server.calls, {.only_chain = true, .call_bytes = 400.0});
  REQUIRE(judged.findings.size() == 1);
  CHECK(judged.findings[0].verdict == verdict::Verdict::kError);
  CHECK(judged.findings[0].text.find("--memory") != std::string::npos);
}

TEST_CASE("a prefix that a request had before it began again is one of its prefixes") {
  SpeculativeServer server({});
  server.prompt(1, 0, 10);
  const std::vector<std::int64_t> kept{server.live[1].pages.begin(),
                                       server.live[1].pages.begin() + 2};
  server.live[9].pages = kept;  // by a cache of prefixes
  SUBCASE("of another request") {
    server.preempt(1, 10);
    server.live[3].pages = kept;
    server.share(3, 2, 1);
    server.step({{1, 1}, {3, 1}});
    CHECK(testing::judge(server.calls, {.only_chain = true}).findings.empty());
    std::swap(server.live[3].pages[0], server.live[3].pages[1]);
    server.step({{1, 1}, {3, 1}});
    const chain::Finding finding = only(server.calls);
    CHECK(finding.mistake == chain::Mistake::kOtherPosition);
    CHECK(finding.request == 3);
    CHECK(finding.text.find("(8 of 13 rows are not): it is row 4 of") != std::string::npos);
  }
  SUBCASE("of the request itself, which has not gone back to it") {
    server.preempt(1, 10);
    server.live[1].pages[0] = kept[0];
    server.step({{1, 1}});
    const chain::Finding finding = only(server.calls);
    CHECK(finding.mistake == chain::Mistake::kNone);
    CHECK(finding.request == 1);
  }
  SUBCASE("where no call has shown rows of its present life") {
    const auto at = std::ssize(server.calls);
    server.preempt(1, 10);
    server.calls.erase(server.calls.begin() + at);  // its attention
    server.live[3].pages = kept;
    server.share(3, 2, 1);
    server.step({{3, 1}});
    testing::number(server.calls);
    const testing::Judged judged = testing::judge(server.calls, {.only_chain = true});
    CHECK(judged.findings.empty());
    CHECK(judged.summary.rows_judged == judged.summary.rows);
  }
}

TEST_CASE("a length that is wrong once is said once") {
  SpeculativeServer server = begun(2);
  server.step({{1, 1}, {2, 2}});
  server.on_attention = [](call::Record& r) {
    r.inputs.at("positions").set(1, r.inputs.at("positions")[1] + 1.0);
  };
  server.step({{1, 3}, {2, 2}});
  server.on_attention = {};
  for (int i = 0; i < 2; ++i) server.step({{1, 1}, {2, 2}});
  const chain::Finding finding = only(server.calls);
  CHECK(finding.mistake == chain::Mistake::kWrongLength);
  CHECK(finding.request == 2);
}

}  // namespace
