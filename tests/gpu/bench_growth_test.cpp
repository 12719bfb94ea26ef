// SPDX-License-Identifier: Apache-2.0
//
// What the benchmark says of the host's time, and the steps of its growing cache. Needs no GPU.
#include <doctest/doctest.h>

#include <numeric>
#include <set>

#include "tools/bench_gpu/growth.hpp"

namespace goldenrule::test {
namespace {

using bench::Growth;
using bench::HostTimes;

TEST_CASE("host times: median, 99th percentile and maximum of calls in any order") {
  std::vector<double> us(1000);
  std::iota(us.rbegin(), us.rend(), 1.0);  // 1000 down to 1
  const HostTimes times = bench::summary_of(us);
  CHECK(times.calls == 1000);
  CHECK(times.median == 501.0);
  CHECK(times.p99 == 991.0);
  CHECK(times.max == 1000.0);
  const HostTimes one = bench::summary_of({2.5});
  CHECK(one.max_over_median() == 1.0);
  CHECK_THROWS_WITH_AS(static_cast<void>(bench::summary_of({})),
                       doctest::Contains("at least one call"), Error);
}

TEST_CASE("host times: one call that compiles misses the goal, and so does one dispatch miss") {
  std::vector<double> us(4096, 2.0);
  us[77] = 6.0;
  const std::string met = bench::text_of(bench::summary_of(us), 0);
  CHECK_MESSAGE(met.find("max/median 3.0 (goal 3: met)") != std::string::npos, met);
  CHECK_MESSAGE(met.find("dispatch misses 0 (goal 0: met)") != std::string::npos, met);
  us[78] = 2000.0;  // no median and no percentile sees it
  const std::string missed = bench::text_of(bench::summary_of(us), 1);
  CHECK_MESSAGE(missed.find("99% 2.00 us") != std::string::npos, missed);
  CHECK_MESSAGE(missed.find("max/median 1000.0 (goal 3: MISSED)") != std::string::npos, missed);
  CHECK_MESSAGE(missed.find("dispatch misses 1 (goal 0: MISSED)") != std::string::npos, missed);
}

TEST_CASE("growing cache: every width of the table, every size of the batch, both directions") {
  std::set<std::int64_t> widths, requests;
  for (int i = 0; i < Growth::kSteps; ++i) {
    const std::int64_t context = Growth::context(i);
    widths.insert(Growth::width(context));
    requests.insert(Growth::requests(i));
    const std::vector<std::int32_t> lengths = Growth::lengths(i);
    REQUIRE(std::ssize(lengths) == Growth::requests(i));
    REQUIRE(lengths.front() == context);
    REQUIRE(*std::ranges::min_element(lengths) >= 0);
    REQUIRE(Growth::width(context) * Growth::kPage >= context);
    REQUIRE((Growth::width(context) - 1) * Growth::kPage < context);
  }
  CHECK(std::ssize(widths) == 2048);  // 64k tokens in pages of 32: none is left out
  CHECK(*widths.begin() == 1);
  CHECK(Growth::width(0) == 1);
  CHECK(Growth::width(Growth::kPage) == 1);
  CHECK(Growth::width(Growth::kPage + 1) == 2);
  CHECK(*widths.rbegin() == 2048);
  CHECK(std::ssize(requests) == Growth::kMostRequests);
  CHECK(Growth::requests(0) == 1);
  CHECK(Growth::requests(Growth::kMostRequests - 1) == Growth::kMostRequests);
  CHECK(Growth::requests(Growth::kMostRequests) == Growth::kMostRequests - 1);
}

}  // namespace
}  // namespace goldenrule::test
