// SPDX-License-Identifier: Apache-2.0
//
// The whole table against itself, on calls of every mode and pattern; and pairs of mistakes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "fixtures/random/philox.hpp"
#include "reference/delta/mistakes/table.hpp"
#include "tests/explain/confusions.hpp"

namespace goldenrule::explain::test {
namespace {

// Every mistake in one of `one_in` of the calls in which it can be made, drawn from a seed: all of
// them take an hour of one core.
std::vector<Attempt> singles(const Calls& calls, int one_in) {
  constexpr std::uint64_t kSeed = 0x73696e676c65;
  std::vector<Attempt> attempts;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const random::Stream stream(kSeed, calls[i].line);
    std::int64_t draw = 0;
    for (const calls::Mistake& m : delta::mistakes()) {
      const bool drawn = stream.uniform(draw++, 0.0, one_in) < 1.0;
      if (drawn && m.applies(calls[i].record)) attempts.push_back({i, {&m}});
    }
  }
  return attempts;
}

// `count` ordered pairs for each call, drawn from all that can be made in it.
std::vector<Attempt> pairs(const Calls& calls, int count) {
  constexpr std::uint64_t kSeed = 0x70616972;
  std::vector<Attempt> attempts;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Hypothesis possible;
    for (const calls::Mistake& m : delta::mistakes()) {
      if (m.applies(calls[i].record)) possible.push_back(&m);
    }
    const random::Stream stream(kSeed, calls[i].line);
    std::int64_t draw = 0;
    const auto next = [&] {
      const double x = stream.uniform(draw++, 0.0, static_cast<double>(possible.size()));
      return possible[static_cast<std::size_t>(x)];
    };
    for (int n = 0; n < count;) {
      const Attempt pair{i, {next(), next()}};
      if (pair.made[0] == pair.made[1]) continue;
      attempts.push_back(pair);
      ++n;
    }
  }
  return attempts;
}

TEST_CASE("single mistakes in various calls") {
  const Calls calls(various_calls());
  const auto attempts = singles(calls, 4);
  const Score score = print_confusions(calls, attempts, diagnose_all(calls, attempts));
  CHECK(score.shown >= 250);
  CHECK(score.share() >= 0.98);
}

TEST_CASE("single mistakes under every pattern") {
  const Calls calls(calls_of_patterns());
  const auto attempts = singles(calls, 16);
  const Score score = print_confusions(calls, attempts, diagnose_all(calls, attempts));
  CHECK(score.shown >= 250);
  CHECK(score.share() >= 0.98);
}

TEST_CASE("pairs of mistakes in various calls") {
  const Calls calls(various_calls());
  const auto attempts = pairs(calls, 8);
  const Score score = print_confusions(calls, attempts, diagnose_all(calls, attempts));
  CHECK(score.shown >= 75);
}

}  // namespace
}  // namespace goldenrule::explain::test
