// SPDX-License-Identifier: Apache-2.0
//
// Uniform numbers in runs. Emulated kernels take several roundings per state element and token, too
// many for Philox. They are read from one table of uniform numbers, each row of an array from a
// place of its own. Elements of a row never meet, so that rows overlap elsewhere does no harm; and
// the second half of the table is the first with the opposite sign, so that its mean, which would
// add up over the tokens, is zero.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "reference/delta/rule/forms.hpp"
#include "reference/scalar/pack.hpp"

namespace goldenrule::delta {

inline constexpr std::int64_t kNoiseTable = std::int64_t{1} << 14;
/// Numbers that may be read from any place on.
inline constexpr std::int64_t kNoiseRun = 256;

/// kNoiseTable + kNoiseRun numbers on (-1, 1).
[[nodiscard]] const double* noise_table();

/// A hash of numbers with one more of them.
[[nodiscard]] inline std::uint64_t mixed(std::uint64_t hash, double x) {
  return (std::rotl(hash, 5) ^ std::bit_cast<std::uint64_t>(x)) * 0x9e3779b97f4a7c15U;
}

/// A hash of what tokens [begin, end) bring to the state: k^, v, alpha and beta. The same tokens
/// err the same way wherever they come (spread.hpp), so noise is drawn by it. `v` is [tokens,V].
[[nodiscard]] std::uint64_t content_of(const Lane<double>& lane, const Matrix<double>& v,
                                       std::int64_t begin, std::int64_t end);

/// Places in the table: the finalizer of MurmurHash3 over a counter.
class NoisePlaces {
 public:
  explicit NoisePlaces(std::uint64_t start) : next_(start) {}

  /// Three places, 14 bits each.
  GOLDENRULE_INLINE std::array<const double*, 3> three(const double* table) {
    std::uint64_t h = (next_ += 0x9e3779b97f4a7c15U);
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdU;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53U;
    h ^= h >> 33;
    constexpr std::uint64_t kMask = kNoiseTable - 1;
    return {table + (h & kMask), table + ((h >> 14) & kMask), table + ((h >> 28) & kMask)};
  }

 private:
  std::uint64_t next_;
};

}  // namespace goldenrule::delta
