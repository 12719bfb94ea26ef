// SPDX-License-Identifier: Apache-2.0
//
// Lanes with prescribed numbers in them, for tests of the forms that need no inputs of a call.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "reference/delta/rule/lane.hpp"

namespace goldenrule::delta::test {

/// Uniform on (-1, 1), the same on every machine (std's distributions are not).
class Uniform {
 public:
  explicit Uniform(std::uint64_t seed) : random_(seed) {}
  double operator()() { return static_cast<double>(random_() >> 11) * 0x1p-52 - 1.0; }
  std::uint64_t bits() { return random_(); }

 private:
  std::mt19937_64 random_;
};

/// A number of S whose every part is in use.
template <class S>
S number(Uniform& uniform) {
  S x(uniform());
  x += S(uniform() * 0x1p-54);
  return x;
}
template <>
inline double number<double>(Uniform& uniform) {
  return uniform();
}

/// Keys near length 1, alpha in (0, 1), beta in (0, 2); no bounds.
template <class S>
Lane<S> random_lane(std::int64_t tokens, std::int64_t K, std::int64_t gates, std::uint64_t seed) {
  Uniform uniform(seed);
  Lane<S> lane;
  lane.tokens = tokens;
  lane.K = K;
  lane.gates = gates;
  const S width(1.0 / std::sqrt(static_cast<double>(K)));
  for (std::int64_t i = 0; i < tokens * K; ++i) {
    lane.q.push_back(number<S>(uniform) * width);
    lane.k.push_back(number<S>(uniform) * width);
  }
  for (std::int64_t i = 0; i < tokens * gates; ++i) {
    lane.alpha.push_back((number<S>(uniform) + S(1)) * S(0.5));
  }
  for (std::int64_t i = 0; i < tokens; ++i) lane.beta.push_back(number<S>(uniform) + S(1));
  lane.bounds.resize(static_cast<std::size_t>(tokens));
  return lane;
}

inline std::vector<double> random_doubles(std::int64_t count, std::uint64_t seed) {
  Uniform uniform(seed);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& x : values) x = uniform();
  return values;
}

}  // namespace goldenrule::delta::test
