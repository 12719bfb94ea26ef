// SPDX-License-Identifier: Apache-2.0
//
// Digests of states and of rows of caches. Blocks of narrow types have zero low bits as doubles.
#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "fixtures/call/dtype.hpp"
#include "fixtures/random/philox.hpp"
#include "reference/chain/request.hpp"

namespace {

using namespace goldenrule;

TEST_CASE("digests of rows in a narrow type differ in all their bits") {
  const random::Stream stream(7, "rows");
  const auto to_bf16 = [](double x) { return call::round_to(call::DType::kBF16, x); };
  std::set<std::uint64_t> digests, high, low;
  constexpr std::int64_t kRows = 100'000, kSize = 16;
  for (std::int64_t n = 0; n < kRows; ++n) {
    std::vector<double> row(kSize);
    for (std::int64_t i = 0; i < kSize; ++i) {
      row[static_cast<std::size_t>(i)] = to_bf16(stream.uniform(n * kSize + i, -1, 1));
    }
    const std::uint64_t digest = chain::digest_of(row);
    digests.insert(digest);
    high.insert(digest >> 40U);
    low.insert(digest & 0xffffffU);
  }
  CHECK(std::ssize(digests) == kRows);
  // Of 2^24 values 100,000 leave some 99,700 different ones.
  CHECK(high.size() > 99'500);
  CHECK(low.size() > 99'500);
}

TEST_CASE("digests of blocks in bf16 are as many as the blocks") {
  const random::Stream stream(17, "digests");
  std::set<std::uint64_t> digests;
  chain::Block block(64);
  for (std::int64_t n = 0; n < 20000; ++n) {
    for (std::int64_t i = 0; i < 64; ++i) {
      block[static_cast<std::size_t>(i)] =
          call::round_to(call::DType::kBF16, stream.uniform(64 * n + i) - 0.5);
    }
    digests.insert(chain::digest_of(block));
  }
  CHECK(digests.size() == 20000);
}

TEST_CASE("rows that differ in one element by its last bit have other digests") {
  for (const std::size_t at : {0U, 14U, 15U}) {
    std::set<std::uint64_t> digests;
    for (std::int64_t n = 0; n < 128; ++n) {
      for (std::int64_t m = 0; m < 128; ++m) {
        std::vector<double> row(17, 0.5);
        row[at] = 1.0 + static_cast<double>(n) / 128.0;
        row[at + 1] = 1.0 + static_cast<double>(m) / 128.0;
        digests.insert(chain::digest_of(row));
      }
    }
    CHECK(digests.size() == 128 * 128);
  }
}

}  // namespace
