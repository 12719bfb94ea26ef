// SPDX-License-Identifier: Apache-2.0
//
// The keys of a request, tile by tile in the order of its runs, as the rule reads them: numbers of
// the storage types become numbers of the tier without an error. Whatever no run names is never
// read: slots beyond kv_lens, unused pages, other requests and padding have no way to the result.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/attention/plan/plan.hpp"
#include "reference/scalar/tier.hpp"

namespace goldenrule::attention {

inline constexpr std::int64_t kTile = 64;

/// The floating-point tensors of a call.
struct Tensors {
  const call::Tensor *q, *k, *v, *k_cache, *v_cache;

  explicit Tensors(const call::Record& record)
      : q(record.find_input("q")),
        k(record.find_input("k")),
        v(record.find_input("v")),
        k_cache(record.find_input("k_cache")),
        v_cache(record.find_input("v_cache")) {}

  /// k [K] or v [V] of one key for one key head.
  void read_key(const Plan& plan, Source source, std::int64_t row, std::int64_t head,
                double* to) const {
    read(plan, source == Source::kCache ? k_cache : k, source, row, head, plan.dims.K, to);
  }
  void read_value(const Plan& plan, Source source, std::int64_t row, std::int64_t head,
                  double* to) const {
    read(plan, source == Source::kCache ? v_cache : v, source, row, head, plan.dims.V, to);
  }

 private:
  static void read(const Plan& plan, const call::Tensor* from, Source source, std::int64_t row,
                   std::int64_t head, std::int64_t dim, double* to) {
    if (source == Source::kZeros) {
      std::fill_n(to, dim, 0.0);
    } else {
      from->read(key_element(plan, source, row, head, dim), dim, to);
    }
  }
};

/// Up to kTile keys: where they stand and at which positions.
struct Places {
  std::int64_t first = 0;  ///< how many keys of the span lie before them
  std::int64_t count = 0;
  std::array<Source, kTile> source;
  std::array<std::int64_t, kTile> row, t;
};

/// visit(places) for the keys of `request` with positions in `span`, in their order, kTile at a
/// time; returns their number.
template <class F>
std::int64_t for_each_tile(const Request& request, const Range& span, F&& visit) {
  Places places;
  for (const Run& run : request.runs) {
    const std::int64_t begin = std::clamp(span.first - run.t, std::int64_t{0}, run.count);
    const std::int64_t end = std::clamp(span.last - run.t, begin, run.count);
    for (std::int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<std::size_t>(places.count++);
      places.source[at] = run.source;
      places.row[at] = run.row + i;
      places.t[at] = run.t + i;
      if (places.count == kTile) {
        visit(places);
        places.first += kTile;
        places.count = 0;
      }
    }
  }
  if (places.count > 0) visit(places);
  return places.first + places.count;
}

/// Vectors of value columns or of keys, padded with zeros.
template <class S>
std::size_t vectors_of(std::int64_t numbers) {
  constexpr std::int64_t kLanes = scalar::Tier<S>::kLanes;
  return static_cast<std::size_t>((numbers + kLanes - 1) / kLanes);
}

/// `numbers` as vectors.
template <class S>
void to_vectors(const double* numbers, std::int64_t count, typename scalar::Tier<S>::Vector* to) {
  constexpr std::int64_t kLanes = scalar::Tier<S>::kLanes;
  for (std::int64_t i = 0; i < count; ++i) {
    scalar::set_lane(to[i / kLanes], static_cast<int>(i % kLanes), S(numbers[i]));
  }
}

/// ||x||_2 of numbers of any size, neither over- nor underflowing on the way; not finite where x is
/// not. Relative error at most (n + 8) 2^-53.
inline double norm_of(const double* x, std::int64_t n) {
  double largest = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return std::fabs(x[i]);
    largest = std::max(largest, std::fabs(x[i]));
  }
  if (largest == 0.0) return 0.0;
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i] / largest * (x[i] / largest);
  return largest * std::sqrt(sum);
}

}  // namespace goldenrule::attention
