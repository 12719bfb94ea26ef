// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/emulation/noise_table.hpp"

#include <algorithm>
#include <vector>

#include "fixtures/random/philox.hpp"

namespace goldenrule::delta {

const double* noise_table() {
  static const std::vector<double> table = [] {
    const random::Stream stream(0, "roundings");
    std::vector<double> x(kNoiseTable + kNoiseRun);
    for (std::int64_t i = 0; i < kNoiseTable / 2; ++i) {
      x[static_cast<std::size_t>(i)] = stream.uniform(i, -1.0, 1.0);
      x[static_cast<std::size_t>(i + kNoiseTable / 2)] = -x[static_cast<std::size_t>(i)];
    }
    std::copy_n(x.begin(), kNoiseRun, x.begin() + kNoiseTable);
    return x;
  }();
  return table.data();
}

std::uint64_t content_of(const Lane<double>& lane, const Matrix<double>& v, std::int64_t begin,
                         std::int64_t end) {
  std::uint64_t hash = 0;
  const auto add = [&](const double* x, std::int64_t width) {
    for (std::int64_t i = begin * width; i < end * width; ++i) {
      hash = mixed(hash, x[i]);
    }
  };
  add(lane.k.data(), lane.K);
  add(v.data(), v.cols());
  add(lane.alpha.data(), lane.gates);
  add(lane.beta.data(), 1);
  return hash;
}

}  // namespace goldenrule::delta
