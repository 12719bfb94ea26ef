// SPDX-License-Identifier: Apache-2.0
//
// The numbers of one drawn mistake, in the order in which they are asked for: counted, so that a
// seed and a name give the same ones on every machine.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "fixtures/random/philox.hpp"

namespace goldenrule::suites {

class Draws {
 public:
  Draws(std::uint64_t seed, std::string_view name) : stream_(seed, name) {}

  /// Both ends included.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(stream_.uniform(next_++) *
                                           static_cast<double>(high - low + 1));
  }
  template <class T>
  T of(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(between(0, std::ssize(values) - 1))];
  }

 private:
  random::Stream stream_;
  std::int64_t next_ = 0;
};

}  // namespace goldenrule::suites
