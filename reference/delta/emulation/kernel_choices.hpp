// SPDX-License-Identifier: Apache-2.0
//
// The freedoms that all emulated fp32 kernels have, drawn from a seed: the order of a sum, fused or
// separate operations, and by how much each function errs.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "fixtures/random/philox.hpp"
#include "reference/delta/emulation/pieces.hpp"

namespace goldenrule::delta {

/// The choices of one kernel; errors of functions as multiples of what the contract grants.
struct KernelChoices {
  bool tree, fused, late_decay, early_output, direct, onto;
  bool cuts;                                                        // into segments
  bool floors;                                                      // log 0 (kFlooredGate)
  ChunkEnds ends;                                                   // at checkpoints
  int cumulation;                                                   // 0: sequence, 1: tree, 2: fp64
  double exp, log_alpha, softplus, logit, sigmoid, norm_k, norm_q;  // on (-1, 1)

  explicit KernelChoices(std::uint64_t seed) {
    const random::Stream stream(seed, "kernel");
    const auto coin = [&](std::int64_t i) { return stream.uniform(i) < 0.5; };
    const auto sign = [&](std::int64_t i) { return 2.0 * stream.uniform(i) - 1.0; };
    tree = coin(0);
    fused = coin(1);
    late_decay = coin(2);
    early_output = coin(3);
    exp = sign(4);
    log_alpha = sign(5);
    softplus = sign(6);
    logit = sign(7);
    sigmoid = sign(8);
    norm_k = sign(9);
    norm_q = sign(10);
    direct = coin(11);
    onto = coin(12);
    cumulation = static_cast<int>(3.0 * stream.uniform(13));
    ends = coin(14) ? ChunkEnds::kSplit : ChunkEnds::kKeep;
    cuts = coin(15);
    floors = coin(16);
  }
};

/// sum + a b in fp32.
[[nodiscard]] inline float add_product(bool fused, float sum, float a, float b) {
  return fused ? std::fma(a, b, sum) : sum + a * b;
}

/// A random order of `n` terms, a function of (stream, index).
[[nodiscard]] inline std::vector<std::int64_t> random_order(const random::Stream& stream,
                                                            std::int64_t n, std::int64_t index) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[stream.bits(static_cast<std::int64_t>(i) + index * n) % i]);
  }
  return order;
}

}  // namespace goldenrule::delta
