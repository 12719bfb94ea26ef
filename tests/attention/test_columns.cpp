// SPDX-License-Identifier: Apache-2.0
//
// The vector loops of attention against the same operations one by one, bit for bit: whatever
// generation of processors they run on, and for NaN and infinity, too.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/attention/rule/columns.hpp"

using namespace goldenrule;

namespace {

using Doubles = std::vector<double>;

/// Doubles of both signs, with NaN and infinity among them where `wild`.
Doubles numbers(std::size_t count, std::uint64_t seed, bool wild) {
  Doubles x(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double k = static_cast<double>((i * 7919 + seed * 104729) % 8191) - 4095.0;
    x[i] = k / 37.0;
    if (wild && i % 11 == 5) x[i] = std::numeric_limits<double>::quiet_NaN();
    if (wild && i % 13 == 7) x[i] = std::copysign(std::numeric_limits<double>::infinity(), k);
  }
  return x;
}

bool same(const Doubles& a, const Doubles& b) {
  return std::ranges::equal(a, b, [](double x, double y) {
    return (std::isnan(x) && std::isnan(y)) ||
           std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  });
}

/// f(columns, wild) for numbers of columns with and without a rest behind whole vectors.
template <class F>
void for_each_size(F&& f) {
  for (const std::size_t columns : {1, 3, 8, 16, 17, 80, 128}) {
    for (const bool wild : {false, true}) {
      CAPTURE(columns);
      CAPTURE(wild);
      f(columns, wild);
    }
  }
}

}  // namespace

TEST_CASE("columns: products of a query with several keys") {
  constexpr auto kKeys = static_cast<std::size_t>(attention::kKeysTogether);
  for_each_size([](std::size_t K, bool wild) {
    const Doubles q = numbers(K, 1, false), keys = numbers(K * kKeys, 2, wild);
    Doubles dot(kKeys), size(kKeys), right_dot(kKeys), right_size(kKeys);
    attention::add_products(q.data(), keys.data(), K, dot.data(), size.data());
    for (std::size_t i = 0; i < kKeys; ++i) {
      for (std::size_t d = 0; d < K; ++d) {
        right_dot[i] += q[d] * keys[i * K + d];
        right_size[i] += std::fabs(q[d] * keys[i * K + d]);
      }
    }
    CHECK(same(dot, right_dot));
    CHECK(same(size, right_size));
  });
}

TEST_CASE("columns: the sums of the certificate") {
  for_each_size([](std::size_t V, bool wild) {
    const Doubles o = numbers(V, 3, false);
    Doubles e(V), sum(V), most(V), right_e(V), right_sum(V), right_most(V);
    for (std::uint64_t t = 0; t < 5; ++t) {
      const Doubles v = numbers(V, 4 + t, wild);
      const double w = 0.1 + static_cast<double>(t) / 7.0, we = w * 0x1p-40;
      attention::add_spread(w, we, v.data(), o.data(), V, {e.data(), sum.data(), most.data()});
      for (std::size_t x = 0; x < V; ++x) {
        right_e[x] += we * std::fabs(v[x] - o[x]);
        right_sum[x] += w * std::fabs(v[x]);
        right_most[x] = std::max(right_most[x], std::fabs(v[x]));
      }
    }
    CHECK(same(e, right_e));
    CHECK(same(sum, right_sum));
    CHECK(same(most, right_most));
  });
}

TEST_CASE("columns: the sums of a budget") {
  for_each_size([](std::size_t V, bool wild) {
    const Doubles o = numbers(V, 3, false), mean = numbers(V, 9, false);
    std::vector<Doubles> a(8, Doubles(V)), b = a;  // the last two: forward and backward
    const attention::BudgetSums sums{a[0].data(), a[1].data(), a[2].data(),
                                     a[3].data(), a[4].data(), a[5].data()};
    for (std::uint64_t t = 0; t < 5; ++t) {
      const Doubles v = numbers(V, 4 + t, wild);
      const attention::KeyShare key{.w = 0.2 + static_cast<double>(t), .linear = 0.3, .lost = 0.07};
      attention::add_share(key, v.data(), o.data(), mean.data(), V, sums);
      attention::add_partial(a[5].data(), o.data(), V, a[6].data(), a[7].data());
      for (std::size_t x = 0; x < V; ++x) {
        b[0][x] += key.linear * std::fabs(v[x] - o[x]);
        b[1][x] += key.lost * std::fabs(v[x] - mean[x]);
        b[2][x] += key.w * std::fabs(v[x]);
        b[3][x] = std::max(b[3][x], std::fabs(v[x] - o[x]));
        b[4][x] = std::max(b[4][x], std::fabs(v[x]));
        b[5][x] += key.w * v[x];
        b[6][x] += std::fabs(b[5][x]);
        b[7][x] += std::fabs(o[x] - b[5][x]);
      }
    }
    for (std::size_t i = 0; i < a.size(); ++i) {
      CAPTURE(i);
      CHECK(same(a[i], b[i]));
    }
  });
}

TEST_CASE("columns: the sums of a bin") {
  for_each_size([](std::size_t V, bool wild) {
    const Doubles o = numbers(V, 3, false);
    Doubles sum(V), square(V), total(V), right_sum(V), right_square(V), right_total(V);
    for (std::uint64_t t = 0; t < 6; ++t) {
      const Doubles v = numbers(V, 4 + t, wild);
      const double factor = 0.1 + static_cast<double>(t), rho = t < 3 ? 0.0 : 1.0;
      attention::add_term(factor, rho, v.data(), o.data(), V, sum.data(), square.data());
      for (std::size_t x = 0; x < V; ++x) {
        const double term = factor * (v[x] - rho * o[x]);
        right_sum[x] += term;
        right_square[x] += term * term;
      }
      if (t % 2 == 0) continue;
      attention::close_terms(V, sum.data(), square.data(), total.data());
      for (std::size_t x = 0; x < V; ++x) {
        right_total[x] += std::max(right_sum[x] * right_sum[x], right_square[x]);
        right_sum[x] = right_square[x] = 0.0;
      }
    }
    CHECK(same(sum, right_sum));
    CHECK(same(square, right_square));
    CHECK(same(total, right_total));
  });
}
