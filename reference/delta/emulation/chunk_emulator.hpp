// SPDX-License-Identifier: Apache-2.0
//
// A chunked kernel as its contract declares it: the chunk form of rule/forms.hpp in double, with a
// rounding at every point of the contract's table, fp32 arithmetic everywhere else, and nothing
// more. The inverse is exact up to the rounding of its result: a contract declares storage, never
// an unstable algorithm. Where no operand is rounded to less than fp32 it is forward substitution
// in fp32.
//
// Modes. kNearest rounds to nearest as hardware does and so reproduces what an honest kernel
// computes: sums are rounded to fp32 at every term, other numbers at every operation; before each
// rounding to fewer bits the number is moved by up to four units of 2^-24, since the fp32 sum that
// a kernel rounds depends on its order of summation. kRandom replaces each rounding error by one
// that is drawn, uniform over half an ulp to either side of the value: the spread of the results
// over runs is the spread that the declared roundings cause, including every correlation that the
// algorithm introduces (one rounded key reaches all value columns and all later tokens). What is
// drawn is a function of what the chunk brings: chunks that are alike err alike
// (budget/spread.hpp). kTruncated moves every operand that is rounded to tf32 half an ulp towards
// zero, the mean of what truncation does to it, and nothing else: tensor cores drop the bits that
// tf32 does not have, so this error is no random one. kExact rounds nothing.
//
// Sums. A product of n terms x_i with sum p takes, in any order of summation and on top of a number
// c in the accumulator, errors of the variance (running.hpp)
//
//   u^2/3 [ n (c^2 + |c p| + p^2/3) + (n/6 + 2) sum x_i^2 ],
//
// c only where a kernel may accumulate onto it. The sum of squares is computed and not bounded by
// those of its factors: a term of which one factor is 0 costs nothing, however large the other is.
// A value that no point rounds is still the result of a few fp32 operations, four of them: it errs
// by 2u, uniform.
//
// The cumulated gate. Kernels form decays as exp of differences of an fp32 running sum G. Its error
// is |G| 2^-24 relative to 1 in the decay, which matters after one token of log alpha = -2661 even
// for decays between later tokens. Summed in sequence, G takes a rounding at each token, and these
// add up to e_i; summed in a tree, a rounding in each of log2(C) passes, and neighbours have passed
// through other nodes: e'_i, of which that of a sum in fp64 that is rounded once is a part. Both
// are there: token i carries the factor f_i = exp(e_i + e'_i), and D_ij becomes D_ij f_i / f_j.
// (With one rounding in place of e'_i an honest v_new was refused behind a hard gate, 1.02 of its
// budget.) A run of equal gates there is rounded the same way at every token, so nearest sums are
// really summed up; kernels cumulate ln or log2 of decays, whose last bits are others, so in a unit
// of their own. A kernel that cumulates the logarithm of alpha = 0 may take that of the smallest
// normal number, or of another small one, in place of -inf: then G goes on behind it, and errs by
// its size.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "fixtures/random/philox.hpp"
#include "reference/contract/contract.hpp"
#include "reference/delta/emulation/noise_table.hpp"
#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {

/// log 2^-126.
inline constexpr float kFlooredGate = -87.336544F;

enum class RoundingMode : std::uint8_t { kNearest, kRandom, kTruncated, kExact };

/// The roundings of one run. Random ones come from a counter-based generator: the k-th rounding of
/// a chunk is a function of (seed, stream, content of the chunk, k).
class Rounder {
 public:
  Rounder(const contract::Chunked& chunked, RoundingMode mode, std::uint64_t seed,
          std::uint64_t stream)
      : chunked_(&chunked),
        mode_(mode),
        seed_(seed),
        stream_(stream),
        start_(random::Stream(seed, "arithmetic").bits(static_cast<std::int64_t>(stream))),
        gate_unit_(
            mode == RoundingMode::kNearest
                ? std::exp2(
                      -random::Stream(seed, "gate unit").uniform(static_cast<std::int64_t>(stream)))
                : 1.0),
        places_(start_) {}

  /// Whether errors are drawn. Only these depend on the content of a chunk: a kernel does the same
  /// for 2 v as for v.
  [[nodiscard]] bool draws() const { return mode_ == RoundingMode::kRandom; }
  /// What follows belongs to a chunk with this content (noise_table.hpp).
  void begin(std::uint64_t content) {
    block_ = content;
    left_ = 0;
    places_ = NoisePlaces(start_ ^ content);
  }

  /// Rounds numbers in place as the contract does at `point`, a Point or an Activation.
  template <class P>
  void apply(P point, Matrix<double>& x) {
    apply(chunked_->at(point), x.data(), x.size());
  }

  /// What the cumulated gate is counted in.
  [[nodiscard]] double gate_unit() const { return gate_unit_; }
  /// An error of a sum of magnitude `magnitude` stored at `point`.
  [[nodiscard]] double error(contract::Point point, double magnitude);

  [[nodiscard]] bool rounds(contract::Point point) const { return chunked_->at(point).has_value(); }

  /// Unit roundoff of the random errors of sums; 0 where there are none in this mode.
  [[nodiscard]] double of_sums() const {
    return mode_ == RoundingMode::kRandom ? chunked_->unit_roundoff : 0.0;
  }
  /// Whether sums are rounded to the nearest fp32 number instead.
  [[nodiscard]] bool rounds_sums() const {
    return mode_ == RoundingMode::kNearest && chunked_->unit_roundoff > 0.0;
  }

  /// What a few fp32 operations do to each number.
  void apply_arithmetic(double* x, std::int64_t count);

  /// Calls f(first, count, noise) for parts of [0, total), noise uniform on (-1, 1).
  template <class F>
  void for_each_noise(std::int64_t total, F&& f) {
    for (std::int64_t first = 0; first < total; first += kNoiseRun) {
      f(first, std::min(kNoiseRun, total - first), places_.three(noise_table())[0]);
    }
  }

 private:
  void apply(const contract::Rounding& format, double* x, std::int64_t count);
  [[nodiscard]] double uniform();  // on (-1, 1)

  const contract::Chunked* chunked_;
  RoundingMode mode_;
  std::uint64_t seed_, stream_, start_;
  double gate_unit_;
  std::uint64_t block_ = 0;
  std::array<std::uint32_t, 4> bits_{};
  int left_ = 0;        // bytes that remain in bits_
  NoisePlaces places_;  // of whole arrays, which take many more numbers
};

/// Whether an emulated kernel hands out its stages: each before the rounding that its contract has
/// for it as an operand, which a kernel may store before or after. A kernel of the direct form has
/// no w and no u.
enum class Keep : std::uint8_t { kOutputs, kStages };

/// Runs one lane. `v` is [tokens,V], `initial` [K,V].
[[nodiscard]] FormResult<double> emulate_chunks(const Lane<double>& lane, const Matrix<double>& v,
                                                const Matrix<double>& initial,
                                                const contract::Chunked& chunked, Rounder& rounder,
                                                Keep keep = Keep::kOutputs);

}  // namespace goldenrule::delta
