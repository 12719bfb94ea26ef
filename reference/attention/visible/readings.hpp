// SPDX-License-Identifier: Apache-2.0
//
// Which visible sets reproduce one row (query and head) of a capture: each is an interval of an
// order of keys (key_lines.hpp).
//
// A set reproduces the row when every element of o, and the lse where there is one, lies within the
// budget that the contract grants a kernel that means this set, radius and half an ulp included.
// That takes the exact result and the budget of the set; so intervals are first screened by a few
// columns: weights exp(s - m), m over the whole order, are added from one end to the other. They
// are positive and nothing is subtracted, so that nothing cancels, whatever the interval leaves
// out. What is screened by is an estimate of the budget, twice as wide: an interval that passes is
// confirmed, one that does not is none. With a fixed end the screening of all intervals takes O(n),
// of all pairs of ends O(n^2), in O(n) memory.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "reference/attention/visible/key_lines.hpp"
#include "reference/contract/contract.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::attention {

/// What all rows of a capture share.
struct Observed {
  const verdict::Judgement* judgement;
  const Plan* plan;
  Tensors tensors;
  std::vector<std::vector<KeyLine>> lines;  ///< of each request

  [[nodiscard]] const call::Record& record() const { return judgement->record; }
};

/// A row of the capture: row.query counts in its request.
struct Place {
  std::size_t request = 0;
  RowPlace row;
};

/// The interval of `line` that the call declares for the row.
[[nodiscard]] Interval declared(const Observed& seen, const Place& place, const KeyLine& line);

/// Whether the row is that of a kernel which sees `interval` of `line`.
[[nodiscard]] bool reproduces(const Observed& seen, const Place& place, const KeyLine& line,
                              const Interval& interval);

/// What a search in one order of keys found.
struct Readings {
  std::vector<Interval> fits;  ///< all of those that were sought
  bool complete = false;       ///< all intervals were; else those with one end as declared
  bool crowded = false;        ///< more were near than are confirmed: `fits` says nothing

  /// Whether an interval fits, where the search knows.
  [[nodiscard]] std::optional<bool> knows(const Interval& interval, const Interval& declared) const;
};

[[nodiscard]] Readings search(const Observed& seen, const Place& place, const KeyLine& line,
                              bool complete);

}  // namespace goldenrule::attention
