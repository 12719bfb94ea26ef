// SPDX-License-Identifier: Apache-2.0
//
// A chunked kernel as its contract declares it: the chunk form of rule/forms.hpp in double, with a
// rounding at every point of the contract's table and nowhere else. The inverse is exact up to the
// rounding of its result: a contract declares storage, never an unstable algorithm.
//
// Modes. kNearest rounds to nearest as hardware does and so reproduces what an honest kernel
// computes; before each rounding the number is moved by up to four units of 2^-24, since the fp32
// sum that a kernel rounds depends on its order of summation. kRandom replaces each rounding error
// by a fresh one, uniform over half an ulp to either side of the value: the spread of the results
// over runs is the spread that the declared roundings cause, including every correlation that the
// algorithm introduces (one rounded key reaches all value columns and all later tokens).
//
// The cumulated gate. Kernels form decays as exp of differences of an fp32 running sum G. Its error
// is |G| 2^-24 relative to 1 in the decay, which matters after one token of log alpha = -2661 even
// for decays between later tokens; here each token carries a factor f = exp(error of G), and D_ij
// becomes D_ij f_i / f_j.
#pragma once

#include <cstdint>

#include "reference/bounds/contract.hpp"
#include "reference/rule/forms.hpp"

namespace goldenrule::bounds {

enum class RoundingMode { kNearest, kRandom };

/// The roundings of one run. Random ones come from a counter-based generator: the k-th rounding of
/// a run is a function of (seed, stream, k).
class Rounder {
 public:
  Rounder(const Contract& contract, RoundingMode mode, std::uint64_t seed, std::uint64_t stream)
      : contract_(&contract), mode_(mode), seed_(seed), stream_(stream) {}

  /// Rounds `count` numbers in place as the contract does at `point`.
  void apply(Point point, double* x, std::int64_t count);
  void apply(Point point, rule::Matrix<double>& x) { apply(point, x.data(), x.size()); }

  /// An error of a sum of magnitude `magnitude` stored at `point`.
  [[nodiscard]] double error(Point point, double magnitude);

  [[nodiscard]] bool rounds(Point point) const { return contract_->at(point).has_value(); }

 private:
  [[nodiscard]] double uniform();  // on (-1, 1)

  const Contract* contract_;
  RoundingMode mode_;
  std::uint64_t seed_, stream_;
  std::uint64_t block_ = 0;
  std::array<std::uint32_t, 4> bits_{};
  int left_ = 0;  // bytes that remain in bits_
};

/// Runs one lane. `v` is [tokens,V], `initial` [K,V]; the contract must have a chunk size.
[[nodiscard]] rule::FormResult<double> emulate_chunks(const rule::Lane<double>& lane,
                                                      const rule::Matrix<double>& v,
                                                      const rule::Matrix<double>& initial,
                                                      const Contract& contract, Rounder& rounder);

}  // namespace goldenrule::bounds
