// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fixtures/random/philox.hpp"

using namespace goldenrule::random;

// kat_vectors of Random123, "philox4x32 10".
TEST_CASE("philox4x32-10 gives the published answers") {
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) ==
        PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

// Test vectors of the FNV specification.
TEST_CASE("fnv1a gives the published answers") {
  CHECK(fnv1a("") == 0xcbf29ce484222325);
  CHECK(fnv1a("a") == 0xaf63dc4c8601ec8c);
  CHECK(fnv1a("foobar") == 0x85944171f73967e8);
}

TEST_CASE("an element depends on seed, name and the whole index") {
  const Stream q(1, "q");
  CHECK(q.bits(5) == Stream(1, "q").bits(5));
  CHECK((q.bits(5) >> 32) != (q.bits(5) & 0xffffffff));
  CHECK(q.bits(5) != Stream(1, "k").bits(5));
  CHECK(q.bits(5) != Stream(2, "q").bits(5));
  CHECK(q.bits(5) != Stream(1 + (std::uint64_t{1} << 32), "q").bits(5));
  CHECK(q.bits(5) != q.bits(6));
  CHECK(q.bits(5) != q.bits(5 + (std::int64_t{1} << 32)));
}

TEST_CASE("uniform and normal have their moments") {
  constexpr int kCount = 1 << 16;
  const Stream stream(7, "moments");
  double mean = 0, normal_mean = 0, normal_square = 0, normal_fourth = 0, lowest = 1, highest = 0;
  for (int i = 0; i < kCount; ++i) {
    const double u = stream.uniform(i);
    const double z = stream.normal(i);
    REQUIRE(std::fmod(u * 0x1p53, 2) == 1);  // an odd multiple of 2^-53: never 0, never 1
    mean += u / kCount;
    lowest = std::min(lowest, u);
    highest = std::max(highest, u);
    normal_mean += z / kCount;
    normal_square += z * z / kCount;
    normal_fourth += z * z * z * z / kCount;
  }
  // Five standard deviations of the mean of n draws: 5 sqrt(var / n), variances 1/12, 1, 2, 96.
  const double five = 5.0 / std::sqrt(double{kCount});
  CHECK(std::fabs(mean - 0.5) < five * std::sqrt(1.0 / 12));
  CHECK(std::fabs(normal_mean) < five);
  CHECK(std::fabs(normal_square - 1) < five * std::sqrt(2.0));
  CHECK(std::fabs(normal_fourth - 3) < five * std::sqrt(96.0));
  // P(no draw of n falls into an interval of width 12/n) = e^-12.
  CHECK(lowest > 0);
  CHECK(lowest < 12.0 / kCount);
  CHECK(highest < 1);
  CHECK(highest > 1 - 12.0 / kCount);
}

TEST_CASE("log_uniform stays within its ends and is uniform in the logarithm") {
  const Stream stream(3, "log");
  constexpr int kCount = 1 << 14;
  double mean = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = stream.log_uniform(i, 1e-3, 10);
    REQUIRE(x > 1e-3 * (1 - 1e-12));
    REQUIRE(x < 10 * (1 + 1e-12));
    mean += std::log10(x) / kCount;
  }
  CHECK(std::fabs(mean + 1) < 5 * 4 / std::sqrt(12.0 * kCount));
}

TEST_CASE("permutation is one, and not the identity") {
  const std::vector<std::int64_t> order = permutation(Stream(1, "p"), 0, 100);
  std::vector<std::int64_t> sorted = order;
  std::ranges::sort(sorted);
  std::vector<std::int64_t> identity(100);
  std::iota(identity.begin(), identity.end(), 0);
  CHECK(sorted == identity);
  CHECK(order != identity);
  CHECK(order != permutation(Stream(1, "p"), 100, 100));
}
