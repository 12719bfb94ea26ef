// SPDX-License-Identifier: Apache-2.0
//
// Periodic sets are found where they are, and nowhere else.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "fixtures/random/philox.hpp"
#include "reference/explain/index_set.hpp"
#include "reference/explain/period.hpp"
#include "reference/explain/token_words.hpp"

namespace goldenrule::explain::test {
namespace {

using Members = std::vector<std::uint8_t>;

Members members(std::int64_t size, const std::function<bool(std::int64_t)>& is_in) {
  Members m(static_cast<std::size_t>(size));
  for (std::int64_t j = 0; j < size; ++j) m[static_cast<std::size_t>(j)] = is_in(j) ? 1 : 0;
  return m;
}

std::string words(std::int64_t size, std::int64_t each,
                  const std::function<bool(std::int64_t)>& is_in) {
  std::vector<std::int64_t> hits(static_cast<std::size_t>(size));
  for (std::int64_t j = 0; j < size; ++j) hits[static_cast<std::size_t>(j)] = is_in(j) ? each : 0;
  return condition(index_set(hits), hits, "v");
}

TEST_CASE("period: every modulus, place and width that an axis shows twice is found") {
  for (const std::int64_t size : {30, 32, 67}) {
    for (std::int64_t m = 3; 2 * m <= size; ++m) {
      for (std::int64_t first = 0; first < m; ++first) {
        for (std::int64_t width = 1; width < m; ++width) {
          const Period planted{.modulus = m, .first = first, .width = width};
          const Members set = members(size, [&](std::int64_t j) { return planted.contains(j); });
          CAPTURE(size);
          CAPTURE(m);
          CAPTURE(first);
          CAPTURE(width);
          const auto found = period_of(set);
          // A set of three or four of thirty may be chance.
          const auto count = std::ranges::count(set, 1);
          if (!found) {
            CHECK(std::min<std::int64_t>(count, size - count) < 6);
            continue;
          }
          CHECK(*found == planted);
        }
      }
    }
  }
}

TEST_CASE("period: one index more or less is none") {
  const auto tile = [](std::int64_t j) { return j % 16 >= 4 && j % 16 < 8; };
  CHECK(period_of(members(128, tile)) == Period{.modulus = 16, .first = 4, .width = 4});
  for (const std::int64_t other : {0, 5, 63, 127}) {
    CHECK_FALSE(period_of(members(128, [&](std::int64_t j) { return tile(j) != (j == other); })));
  }
  // Two ranges in each period.
  CHECK_FALSE(period_of(members(128, [](std::int64_t j) { return j % 16 < 2 || j % 16 == 9; })));
  CHECK_FALSE(period_of(members(128, [](std::int64_t) { return true; })));
  CHECK_FALSE(period_of(members(128, [](std::int64_t) { return false; })));
  CHECK_FALSE(period_of(members(0, [](std::int64_t) { return true; })));
  // One and a half periods.
  CHECK_FALSE(period_of(members(96, [](std::int64_t j) { return j % 64 < 16; })));
}

TEST_CASE("period: of sets drawn at random no more have one than chance allows") {
  const random::Stream stream(20261128, "period");
  std::int64_t next = 0;
  int found = 0;
  constexpr int kRuns = 20000;
  for (int run = 0; run < kRuns; ++run) {
    const std::int64_t size = 8 + static_cast<std::int64_t>(stream.bits(next++) % 57);
    const std::uint64_t drawn = stream.bits(next++);
    // Rare ones too.
    const std::uint64_t bits = run % 2 == 0 ? drawn : drawn & stream.bits(next++);
    found +=
        period_of(members(size, [&](std::int64_t j) { return (bits >> j & 1U) != 0; })) ? 1 : 0;
  }
  CHECK(found <= kChance * kRuns);
}

TEST_CASE("period: in words") {
  CHECK(words(128, 40, [](std::int64_t j) { return j % 16 < 4; }) == "v % 16 < 4");
  CHECK(words(128, 40, [](std::int64_t j) { return j % 16 >= 12; }) == "v % 16 >= 12");
  CHECK(words(128, 40, [](std::int64_t j) { return j % 16 >= 4 && j % 16 < 8; }) ==
        "4 <= v % 16 < 8");
  CHECK(words(128, 40, [](std::int64_t j) { return (j + 2) % 16 < 4; }) ==
        "v % 16 < 2 or v % 16 >= 14");
  CHECK(words(128, 40, [](std::int64_t j) { return j % 16 == 5; }) == "v % 16 = 5");
  // What is no period is listed in ranges, as long as these are few.
  CHECK(words(16, 100, [](std::int64_t j) { return j % 4 < 2; }) ==
        "v in {0, 1, 4, 5, 8, 9, 12, 13}");
  CHECK(words(64, 100, [](std::int64_t j) { return (j > 1 && j < 9) || j == 40; }) ==
        "v in {2-8, 40}");
  CHECK(words(64, 100, [](std::int64_t j) { return j < 36 && j % 5 == 1 && j != 11; }) ==
        "v in {1, 6, 16, 21, 26, 31}");
  CHECK(words(64, 100, [](std::int64_t j) { return j < 42 && j % 5 == 1 && j != 11; }).empty());
}

TEST_CASE("period: tokens of each sequence") {
  const auto last = [](std::int64_t t) { return t % 64 >= 48; };
  const auto first = [](std::int64_t t) { return t % 64 < 16; };
  const auto between = [](std::int64_t t) { return t % 64 >= 16 && t % 64 < 24; };
  CHECK(token_words({members(256, last), members(100, last)}) ==
        "the last 16 tokens of each 64 of a sequence");
  CHECK(token_words({members(256, first), members(130, first)}) ==
        "the first 16 tokens of each 64 of a sequence");
  CHECK(token_words({members(256, between), members(20, between)}) ==
        "tokens 16 <= t % 64 < 24 of a sequence");
  // Of packed tokens and not of those of a sequence.
  CHECK(token_words({members(256, last), members(200, [&](std::int64_t t) { return last(t + 8); })})
            .empty());
}

}  // namespace
}  // namespace goldenrule::explain::test
