// SPDX-License-Identifier: Apache-2.0
//
// What a kernel that decides otherwise gives a row, by hand: the rule of each part.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "reference/drafts/search/points.hpp"
#include "reference/drafts/search/read.hpp"
#include "tests/drafts/calls.hpp"

namespace goldenrule::drafts {
namespace {

// Row 0 of a greedy call: drafts 5 6 7.
std::int64_t count_of_row(const std::vector<std::int64_t>& targets, Stop stop,
                          From from = From::kOwn) {
  const call::Record record = test::greedy(targets);
  const Work work(record);
  const Reading reading(work);
  return count_of(reading, 0, {.target = from, .stop = stop}).value_or(-1);
}

}  // namespace

TEST_CASE("draft search: how tests become a count") {
  // The first and the third draft pass.
  const std::vector<std::int64_t> targets{5, 0, 7, 1};
  CHECK(count_of_row(targets, Stop::kFirstFailure) == 1);
  CHECK(count_of_row(targets, Stop::kSum) == 2);
  CHECK(count_of_row(targets, Stop::kLastSuccess) == 3);
  CHECK(count_of_row(targets, Stop::kAllOrNone) == 0);
  CHECK(count_of_row({5, 6, 7, 1}, Stop::kAllOrNone) == 3);
  CHECK(count_of_row(targets, Stop::kOneMore) == 2);
  CHECK(count_of_row({5, 6, 7, 1}, Stop::kOneMore) == 3);
  CHECK(count_of_row(targets, Stop::kOneLess) == 0);
  CHECK(count_of_row({0, 6, 7, 1}, Stop::kFirstFree) == 3);
}

TEST_CASE("draft search: where a test reads") {
  CHECK(count_of_row({0, 5, 6, 7}, Stop::kFirstFailure, From::kNext) == 3);
  CHECK(count_of_row({5, 5, 5, 0}, Stop::kFirstFailure, From::kFirst) == 1);
  CHECK(count_of_row({0, 0, 0, 5}, Stop::kFirstFailure, From::kLast) == 1);
  // Nobody knows what stands before the first request.
  CHECK(count_of_row({5, 6, 7, 0}, Stop::kFirstFailure, From::kBefore) == -1);
  CHECK(count_of_row({5, 6, 7, 0}, Stop::kFirstFailure, From::kBeforeInside) == 1);
}

TEST_CASE("draft search: tests of one draft") {
  // Draft 1 of 4: p = 1/8, q = 1/4, u = 1/2 + 1/8: u q > p, refused; each other test as it is.
  const std::vector<double> p{0.5, 0.125, 0.25, 0.125}, q{0.25, 0.25, 0.25, 0.25};
  const auto passes = [&](Test t, double u) {
    const call::Record record = test::rejection(p, q, u, 0.5);
    const Work work(record);
    const Reading reading(work);
    return count_of(reading, 0, {.test = t}).value_or(-1);
  };
  CHECK(passes(Test::kRight, 0.625) == 0);
  CHECK(passes(Test::kWithoutQ, 0.0625) == 1);
  CHECK(passes(Test::kWithoutQ, 0.25) == 0);
  CHECK(passes(Test::kInverted, 0.625) == 1);
  CHECK(passes(Test::kComplement, 0.625) == 1);
  CHECK(passes(Test::kComplement, 0.375) == 0);
  CHECK(passes(Test::kWithoutU, 0.25) == 0);
  CHECK(passes(Test::kProduct, 0.625) == 0);
  CHECK(passes(Test::kProduct, 0.375) == 1);
  CHECK(passes(Test::kLikeliest, 0.25) == 0);
  CHECK(passes(Test::kAlsoLikeliest, 0.25) == 1);
  // Draft 1 has [0.5, 0.625) of the line.
  CHECK(passes(Test::kSampled, 0.5625) == 1);
  CHECK(passes(Test::kSampled, 0.25) == 0);
  CHECK(passes(Test::kSampled, 0.75) == 0);
  CHECK(passes(Test::kAlways, 1.0) == 1);
  CHECK(passes(Test::kNever, 0.0) == 0);
  // On the edge fp32 may decide either way.
  CHECK(passes(Test::kRight, 0.5) == -1);
  CHECK(passes(Test::kWithoutQ, 0.125) == -1);
  CHECK(passes(Test::kSampled, 0.5) == -1);
  CHECK(passes(Test::kSampled, 0.625) == -1);
  CHECK(passes(Test::kSampled, 0.875) == 0);  // an edge of others
}

}  // namespace goldenrule::drafts
