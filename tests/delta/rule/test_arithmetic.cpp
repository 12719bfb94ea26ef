// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of the reference is the arithmetic that is written: no contraction, no
// reassociation, no flushed subnormals, and the same bits from every clone of the vector loops.
// The tile is compared bit for bit with a scalar loop whose every operation is a statement of its
// own; on a machine with FMA the clone that runs was compiled with FMA at hand.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>

#include "reference/delta/rule/forms.hpp"
#include "reference/delta/rule/recurrent.hpp"
#include "tests/delta/rule/random_lane.hpp"

using namespace goldenrule;
using namespace goldenrule::delta;
using scalar::Quad;

namespace {

#if defined(__x86_64__)
#define HAS_FMA __attribute__((noinline, target("fma")))
#else
#define HAS_FMA __attribute__((noinline))
#endif

HAS_FMA double multiply_add(double a, double b, double c) { return a * b + c; }

bool same_bits(double x, double y) {
  return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
}
bool same_bits(const Quad& x, const Quad& y) {
  return same_bits(x.hi, y.hi) && same_bits(x.lo, y.lo);
}

// A store and a load between any two operations: nothing can be fused or reordered.
double barrier(double x) {
  volatile double kept = x;
  return kept;
}
Quad barrier(const Quad& x) { return {barrier(x.hi), barrier(x.lo)}; }

template <class S>
struct Column {
  std::vector<S> state, output;
  std::vector<double> state2, delta, predicted2, output2;  // last token
};

// The recurrence of one column, one rounding per line.
template <class S>
Column<S> plain_recurrence(const Lane<S>& lane, const std::vector<double>& v, std::int64_t stride,
                           std::int64_t column, std::vector<S> state) {
  Column<S> result;
  const auto leading = [](const S& x) { return scalar::to_double(x); };
  for (std::int64_t t = 0; t < lane.tokens; ++t) {
    S predicted(0);
    double predicted2 = 0, output2 = 0, state2 = 0;
    for (std::int64_t i = 0; i < lane.K; ++i) {
      S& z = state[static_cast<std::size_t>(i)];
      z = barrier(z * lane.alpha_at(t, i));
      const S product = barrier(z * lane.k_row(t)[i]);
      predicted = barrier(predicted + product);
      predicted2 += leading(product) * leading(product);
    }
    const S difference = barrier(S(v[static_cast<std::size_t>(t * stride + column)]) - predicted);
    const S delta = barrier(lane.beta[static_cast<std::size_t>(t)] * difference);
    S output(0);
    for (std::int64_t i = 0; i < lane.K; ++i) {
      S& z = state[static_cast<std::size_t>(i)];
      const S write = barrier(lane.k_row(t)[i] * delta);
      z = barrier(z + write);
      const S product = barrier(z * lane.q_row(t)[i]);
      output = barrier(output + product);
      state2 += leading(z) * leading(z);
      output2 += leading(product) * leading(product);
    }
    result.output.push_back(output);
    result.state2.push_back(state2);
    result.delta.push_back(leading(delta));
    result.predicted2.push_back(predicted2);
    result.output2.push_back(output2);
  }
  result.state = std::move(state);
  return result;
}

// Every number of columns of a tile, and one more, against the plain recurrence.
template <class S>
void check_tiles(std::int64_t K, std::int64_t gates) {
  CAPTURE(K);
  CAPTURE(gates);
  constexpr std::int64_t kTokens = 3;
  constexpr std::int64_t kStride = 40;
  const Lane<S> lane = test::random_lane<S>(kTokens, K, gates, static_cast<std::uint64_t>(K));
  const std::vector<double> v = test::random_doubles(kTokens * kStride, 1);
  const std::vector<double> initial = test::random_doubles(K * 33, 2);
  std::vector<Column<S>> plain;
  for (std::int64_t c = 0; c < 33; ++c) {
    std::vector<S> start;
    for (std::int64_t i = 0; i < K; ++i) {
      start.emplace_back(initial[static_cast<std::size_t>(i * 33 + c)]);
    }
    plain.push_back(plain_recurrence<S>(lane, v, kStride, c, std::move(start)));
  }
  int wrong = 0;
  for (int columns = 1; columns <= 33; ++columns) {
    Matrix<double> values(kTokens, columns), start(K, columns);
    for (std::int64_t c = 0; c < columns; ++c) {
      for (std::int64_t t = 0; t < kTokens; ++t) {
        values(t, c) = v[static_cast<std::size_t>(t * kStride + c)];
      }
      for (std::int64_t i = 0; i < K; ++i) {
        start(i, c) = initial[static_cast<std::size_t>(i * 33 + c)];
      }
    }
    const FormResult<S> form = recurrent_form<S>(lane, values, start);
    for (std::int64_t c = 0; c < columns; ++c) {
      const Column<S>& expected = plain[static_cast<std::size_t>(c)];
      for (std::int64_t t = 0; t < kTokens; ++t) {
        wrong += same_bits(form.o(t, c), expected.output[static_cast<std::size_t>(t)]) ? 0 : 1;
      }
      for (std::int64_t i = 0; i < K; ++i) {
        wrong += same_bits(form.state(i, c), expected.state[static_cast<std::size_t>(i)]) ? 0 : 1;
      }
    }
  }
  CHECK(wrong == 0);
}

// What a tile records does not change what it computes, and is what the bounds take it for.
template <class S>
void check_details(std::int64_t K, std::int64_t gates) {
  constexpr std::int64_t kTokens = 4;
  constexpr int kColumns = 29;
  const Lane<S> lane = test::random_lane<S>(kTokens, K, gates, 7);
  const std::vector<double> v = test::random_doubles(kTokens * kColumns, 8);
  for (const Detail detail : {Detail::kValues, Detail::kNorms, Detail::kSums}) {
    RecurrentTile<S> tile(lane, v.data(), kColumns, 0, kColumns);
    tile.advance(0, 3, detail);
    tile.advance(3, kTokens, detail);
    int wrong = 0;
    for (int c = 0; c < kColumns; ++c) {
      const auto at = static_cast<std::size_t>(c);
      const Column<S> plain = plain_recurrence<S>(
          lane, v, kColumns, c, std::vector<S>(static_cast<std::size_t>(K), S(0)));
      wrong += same_bits(tile.output(0, c), plain.output[3]) ? 0 : 1;
      wrong += same_bits(tile.state(K - 1, c), plain.state.back()) ? 0 : 1;
      if (detail == Detail::kValues) continue;
      const ColumnNorms<S>& norms = tile.norms()[0];
      wrong += same_bits(norms.state2[at], plain.state2[3]) ? 0 : 1;
      wrong += same_bits(norms.delta[at], plain.delta[3]) ? 0 : 1;
      if (detail == Detail::kNorms) continue;
      wrong += same_bits(norms.predicted2[at], plain.predicted2[3]) ? 0 : 1;
      wrong += same_bits(norms.output2[at], plain.output2[3]) ? 0 : 1;
      wrong += same_bits(norms.output[at], scalar::to_double(plain.output[3])) ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

}  // namespace

TEST_CASE("arithmetic: a * b + c has two roundings") {
  const double x = barrier(1.0 + 0x1p-30);
  // Exactly x^2 = 1 + 2^-29 + 2^-60; the last term is lost where the product is rounded.
  CHECK(multiply_add(x, x, -(1.0 + 0x1p-29)) == 0.0);
  CHECK(scalar::fused_multiply_add(x, x, -(1.0 + 0x1p-29)) == 0x1p-60);
}

TEST_CASE("arithmetic: subnormal operands and results are kept") {
  CHECK(barrier(0x1p-1022) * barrier(0.5) == 0x1p-1023);
  CHECK(barrier(0x1p-1074) + barrier(0.0) == 0x1p-1074);
  // In the vector loops too: beta = 0 and alpha = 1/2 halve a state that is the smallest normal.
  Lane<double> lane = test::random_lane<double>(1, 4, 1, 3);
  lane.alpha[0] = 0.5;
  lane.beta[0] = 0.0;
  Matrix<double> start = Matrix<double>::Constant(4, 1, 0x1p-1022);
  start(1, 0) = 0x1p-1073;
  const FormResult<double> result = recurrent_form<double>(lane, Matrix<double>::Zero(1, 1), start);
  CHECK(result.state(0, 0) == 0x1p-1023);
  CHECK(result.state(1, 0) == 0x1p-1074);
}

TEST_CASE("arithmetic: the tile is the plain recurrence, bit for bit") {
  for (const std::int64_t K : {1, 2, 3, 8, 31, 64, 100, 128}) {
    for (const std::int64_t gates : {std::int64_t{1}, K}) {
      check_tiles<double>(K, gates);
      check_tiles<Quad>(K, gates);
    }
  }
}

TEST_CASE("arithmetic: recording norms changes no bit") {
  for (const std::int64_t K : {1, 5, 64, 129}) {
    check_details<double>(K, 1);
    check_details<double>(K, K);
    check_details<Quad>(K, K);
  }
}
