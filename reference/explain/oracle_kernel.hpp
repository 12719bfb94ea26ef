// SPDX-License-Identifier: Apache-2.0
//
// The oracle in double precision as the kernel around which mistakes are committed, shifted by a
// sign times the spread that a contract allows.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "reference/verdict/slice.hpp"

namespace goldenrule::explain {

/// The sign of the shift of each element: 0, +1, -1, or random.
struct Signs {
  double common = 0.0;
  std::optional<std::uint64_t> pattern{};  ///< independent random signs times `common`
};

class OracleKernel {
 public:
  using Key = std::vector<std::uint64_t>;  ///< of a call
  /// Without a contract there is no spread and shifts do nothing, and the last `remembered` results
  /// are those of further runs of the same calls.
  OracleKernel(const verdict::Slice& slice, const contract::Contract* contract,
               std::size_t remembered = 0)
      : slice_(&slice), contract_(contract), remembered_(remembered) {}

  /// golden + sign (multiple sigma + bias + radius); NaN where nothing writes.
  [[nodiscard]] call::TensorMap operator()(const call::Record& record, const Signs& signs);

  [[nodiscard]] std::int64_t calls() const { return calls_; }

 private:
  // Runs that differ in the shift only ask for the same evaluations: mostly for one, or for one of
  // each part of a call.
  static constexpr std::size_t kKept = 16;
  struct Entry {
    Key key;
    verdict::Expectations expected;
  };

  const verdict::Expectations& expect(const call::Record& record);
  call::TensorMap exact(const call::Record& record);

  const verdict::Slice* slice_;
  const contract::Contract* contract_;
  std::size_t remembered_;
  std::list<Entry> kept_;
  std::list<std::pair<Key, call::TensorMap>> exact_;
  std::int64_t calls_ = 0;
};

}  // namespace goldenrule::explain
