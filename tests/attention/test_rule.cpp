// SPDX-License-Identifier: Apache-2.0
//
// Rules of the oracle that hold without arithmetic: what NaN reaches, what an empty row is, that
// the bits depend neither on threads nor on how the same keys are stored, and a value by hand.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>

#include "fixtures/call/integer_inputs.hpp"
#include "reference/attention/rule/evaluate.hpp"
#include "tests/attention/problems.hpp"
#include "tests/threads.hpp"

using namespace goldenrule;
using namespace goldenrule::attention;
using scalar::Precision;

namespace {

std::vector<std::uint64_t> bits_of(const verdict::Expectations& expected) {
  std::vector<std::uint64_t> bits;
  for (const auto& [name, output] : expected.outputs) {
    for (const double x : output.exact.golden) bits.push_back(std::bit_cast<std::uint64_t>(x));
    for (const float x : output.exact.radius) bits.push_back(std::bit_cast<std::uint32_t>(x));
  }
  return bits;
}

// Two queries over four fresh keys of one head, causal from position 2 on.
call::Record four_keys() {
  call::Record call;
  call.op = call::Op::kAttention;
  call.mode = call::Mode::kPrefill;
  auto& in = call.inputs;
  in["q"] = call::Tensor(call::DType::kF64, {2, 1, 1}, std::vector<double>{1, 2});
  in["cu_seqlens_q"] = call::integer_tensor({0, 2});
  in["k"] = call::Tensor(call::DType::kF64, {4, 1, 1}, std::vector<double>{0, 1, 2, 3});
  in["v"] =
      call::Tensor(call::DType::kF64, {4, 1, 2}, std::vector<double>{1, 0, 0, 1, 2, 2, -1, 4});
  in["cu_seqlens_k"] = call::integer_tensor({0, 4});
  in["q_offset"] = call::integer_tensor({2});
  call.convention.mask = Mask::kCausal;
  return call;
}

}  // namespace

TEST_CASE("attention: values by hand") {
  call::Record call = four_keys();
  const double e = std::exp(1.0);
  for (const Precision tier : {Precision::kDouble, Precision::kQuad, Precision::kMulti}) {
    const auto expected = evaluate(call, tier);
    const auto& o = expected.outputs.at("o").exact.golden;
    const double sum = 1 + e + e * e;
    CHECK(o[0] == doctest::Approx((1 + 2 * e * e) / sum).epsilon(1e-14));
    CHECK(o[1] == doctest::Approx((e + 2 * e * e) / sum).epsilon(1e-14));
    CHECK(expected.outputs.at("lse").exact.golden[0] ==
          doctest::Approx(std::log(sum)).epsilon(1e-14));
  }
  call.convention.lse_base = LseBase::k2;
  call.convention.soft_cap = 2.0;
  double sum = 0.0;
  for (int t = 0; t < 4; ++t) sum += std::exp(2.0 * std::tanh(2.0 * t / 2.0));
  for (const Precision tier : {Precision::kDouble, Precision::kQuad, Precision::kMulti}) {
    CHECK(evaluate(call, tier).outputs.at("lse").exact.golden[1] ==
          doctest::Approx(std::log2(sum)).epsilon(1e-14));
  }
}

TEST_CASE("attention: a NaN reaches its rows or its column, an infinite score what it must") {
  for (const Precision tier : {Precision::kDouble, Precision::kQuad, Precision::kMulti}) {
    const auto rows = [&](const char* name, std::int64_t at, double x) {
      call::Record call = four_keys();
      call.inputs[name].set(at, x);
      auto exact = evaluate(call, tier).outputs.at("o").exact;
      for (const float radius : exact.radius) CHECK(std::isfinite(radius));
      return exact.golden;
    };
    const auto k = rows("k", 3, NAN);  // the second query alone sees it
    CHECK(std::isfinite(k[0]));
    CHECK(std::isfinite(k[1]));
    CHECK(std::isnan(k[2]));
    CHECK(std::isnan(k[3]));
    const auto v = rows("v", 1, NAN);
    CHECK(std::isfinite(v[0]));
    CHECK(std::isnan(v[1]));
    CHECK(std::isfinite(v[2]));
    CHECK(std::isnan(v[3]));
    const auto q = rows("q", 0, INFINITY);
    CHECK(!std::isfinite(q[0]));
    CHECK(std::isfinite(q[2]));
    const auto low = rows("k", 1, -INFINITY);  // its weight is exactly 0
    CHECK(low[0] == doctest::Approx((1 + 2 * std::exp(2.0)) / (1 + std::exp(2.0))));
    CHECK(!std::isfinite(rows("k", 1, INFINITY)[0]));
  }
}

TEST_CASE("attention: a tier that overflows has an infinite radius, and the next one has not") {
  call::Record call = four_keys();
  call.inputs["q"].set(0, 1e300);
  call.inputs["k"].set(1, 1e300);
  const auto narrow = evaluate(call, Precision::kDouble).outputs.at("o").exact;
  CHECK(std::isinf(narrow.radius[0]));
  CHECK(std::isfinite(narrow.radius[2]) == false);  // its scores are 2e300
  const auto wide = evaluate(call, Precision::kMulti).outputs.at("o").exact;
  CHECK(wide.golden[0] == 0.0);
  CHECK(wide.golden[1] == 1.0);
}

TEST_CASE("attention: the bits do not depend on the number of threads") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const call::Record call = random_problem(Pattern::kRandom, call::DType::kBF16, seed);
    const test::RestoreThreads restore;
    omp_set_num_threads(1);
    const std::vector<std::uint64_t> one = bits_of(evaluate(call, Precision::kDouble));
    omp_set_num_threads(3);
    const std::vector<std::uint64_t> many = bits_of(evaluate(call, Precision::kDouble));
    CHECK(one == many);
  }
}

TEST_CASE("attention: what is invisible has no way to the result") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    // All problems hold NaN in what no table names; rows of a full mask see everything else.
    const call::Record call = random_problem(Pattern::kRandom, call::DType::kBF16, seed);
    const auto expected = evaluate(call, Precision::kDouble);
    for (const double x : expected.outputs.at("o").exact.golden) CHECK(std::isfinite(x));
    for (const double x : expected.outputs.at("lse").exact.golden) CHECK(!std::isnan(x));
  }
}
