// SPDX-License-Identifier: Apache-2.0
//
// Where fp32 overflows: what an honest kernel may return there, and what no kernel may.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/attention/support.hpp"

using namespace goldenrule;
using namespace goldenrule::test;
using cases::record_of;
using verdict::Verdict;

// An honest exponential takes s c - m c, whose error is 2^-24 |m c|: with scores of 1e10 that is
// Inf, and with those of 1e39 they are themselves. A kernel that is finite there is judged as ever.
TEST_CASE("attention: huge scores have a budget, and NaN is honest where fp32 overflows") {
  const call::Record plain =
      record_of("op=attention mode=prefill lens=4 H=1 HV=1 K=16 V=8 io=f32 pattern=A");
  for (const double size : {1e3, 1e4, 1e5, 1e8, 1e19}) {
    CAPTURE(size);
    call::Record record = plain;
    for (const char* name : {"q", "k"}) {
      call::Tensor& x = record.inputs.at(name);
      for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, x[i] * size);
    }
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      record.outputs = outputs_of(record, flash_contract(), seed);
      const Verdict verdict = judged(record, flash_contract()).verdict;
      CHECK_MESSAGE((is_pass(verdict) || (size > 1e4 && verdict == Verdict::kSkipped)),
                    verdict::name_of(verdict));
    }
    record.outputs = exact_outputs(record);
    const Verdict exact = judged(record, flash_contract()).verdict;
    CHECK_MESSAGE(is_pass(exact), verdict::name_of(exact));
    const auto verdict_with = [&](const char* name, std::int64_t i, double x) {
      call::Record other = record;
      other.outputs.at(name).set(i, x);
      return judged(other, flash_contract()).verdict;
    };
    const auto nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(is_pass(verdict_with("o", 3, nan)) == (size > 1e4));
    CHECK(is_pass(verdict_with("lse", 0, HUGE_VAL)) == (size > 1e4));
    CHECK(verdict_with("lse", 0, record.outputs.at("lse")[0] * 1.01) == Verdict::kOutOfBudget);
    CHECK(verdict_with("o", 3, record.outputs.at("o")[3] + 0.01) == Verdict::kOutOfBudget);
    // The mean of all values.
    for (std::int64_t x = 0; x < 8; ++x) {
      double mean = 0.0;
      for (std::int64_t t = 0; t < 4; ++t) mean += record.inputs.at("v")[t * 8 + x] / 4.0;
      record.outputs.at("o").set(x, mean);
    }
    CHECK(judged(record, flash_contract()).verdict == Verdict::kOutOfBudget);
  }
}

TEST_CASE("attention: a sum of values that may overflow is one of its own column") {
  call::Record record =
      record_of("op=attention mode=prefill lens=6 H=1 HV=1 K=16 V=8 io=f32 pattern=A");
  call::Tensor& q = record.inputs.at("q");
  for (std::int64_t i = 0; i < q.size(); ++i) q.set(i, 0.0);
  call::Tensor& v = record.inputs.at("v");
  for (std::int64_t t = 0; t < 6; ++t) v.set(t * 8 + 2, 2e38);
  record.outputs = exact_outputs(record);
  const auto verdict_with = [&](std::int64_t i, double x) {
    call::Record other = record;
    other.outputs.at("o").set(i, x);
    return judged(other, flash_contract()).verdict;
  };
  CHECK(is_pass(judged(record, flash_contract()).verdict));
  CHECK(is_pass(verdict_with(2, HUGE_VAL)));
  CHECK(verdict_with(3, HUGE_VAL) == Verdict::kOutOfBudget);
  CHECK(verdict_with(2, 1e38) == Verdict::kOutOfBudget);
}

// Stored scores of 1e8 err by 1e6: keys whose exact weight no double holds may lead.
TEST_CASE("attention: a key of no weight may have all of it where scores err by as much") {
  call::Record record = record_of("op=attention mode=decode lens=4,4 ctx=33,70 H=2 HV=4 K=32 V=16");
  for (const char* name : {"q", "k", "k_cache"}) {
    call::Tensor& x = record.inputs.at(name);
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, std::ldexp(x[i], 14));
  }
  const contract::Contract& eager = contract::find_contract("eager_bf16");
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    CAPTURE(seed);
    record.outputs = outputs_of(record, eager, seed);
    CHECK(judged(record, eager).verdict != Verdict::kOutOfBudget);
  }
}

// Weights that are rounded to 16 bits sum up to 1 +- 2^-9: a mean of values of 65504 is then beyond
// 65520, from where a number rounds to infinity in f16.
TEST_CASE(
    "attention: a right number that rounds to an infinity is right, and no other infinity is") {
  const contract::Contract& eager = contract::find_contract("eager_bf16");
  const contract::Contract& ideal = contract::find_contract("ideal");
  const auto verdict_of = [](double value, double actual, const contract::Contract& contract) {
    call::Record record =
        record_of("op=attention mode=prefill lens=5 H=1 HV=1 K=16 V=8 io=f16 pattern=A");
    call::Tensor& v = record.inputs.at("v");
    for (std::int64_t i = 0; i < v.size(); ++i) v.set(i, i % 8 == 2 ? value : 1.0);
    record.outputs = exact_outputs(record);
    record.outputs.erase("lse");
    record.outputs.at("o").set(4 * 8 + 2, actual);
    return judged(record, contract).verdict;
  };
  for (const double sign : {1.0, -1.0}) {
    const double largest = sign * 65504.0;
    const double infinity = sign * HUGE_VAL;
    CHECK(verdict_of(largest, infinity, eager) == Verdict::kWithinBudget);
    CHECK(verdict_of(largest, -infinity, eager) == Verdict::kOutOfBudget);
    CHECK(verdict_of(largest, std::nan(""), eager) == Verdict::kOutOfBudget);
    CHECK(verdict_of(largest, infinity, ideal) == Verdict::kOutOfBudget);
    CHECK(verdict_of(0.98 * largest, infinity, eager) == Verdict::kOutOfBudget);
  }
}
