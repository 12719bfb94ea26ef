// SPDX-License-Identifier: Apache-2.0
//
// What an attention call does, with masks, tables and layouts resolved: each request has runs of
// keys, in the order of their positions, and each of its queries a range of positions that it sees.
// Every mask and window is such a range, so
//
//   V(i) = { keys of the request with first <= t < last },   [first, last) = visible[i].
//
// The oracle, the budget and the emulators run plans and know no attributes; a mistake in what is
// visible is a changed plan. The rules on which peers disagree are decided here, once:
//
//   - V(i) may be empty (no context and no fresh key, a window, a missing page): o = 0, lse = -inf;
//   - N = 0, requests without queries and keys without queries are legal;
//   - a row beyond valid_q is padding: o = 0, lse = -inf, and the key that the call brings at its
//     position does not exist;
//   - positions may be negative (in_cache with fewer keys than queries): causal masks then see
//     nothing, and blocks are counted by floor;
//   - key_positions and visible ranges, where a call gives them, are what they say: no fresh key is
//     taken for padding, and no mask or window is asked;
//   - of a table only what kv_lens needs is read, whatever stands behind it;
//   - requests may share pages.
//
// Integers come from strangers: every one is checked against what the tensors hold, and nothing is
// allocated in proportion to one that is not the extent of a tensor.
#pragma once

#include <cstdint>
#include <vector>

#include "fixtures/call/record.hpp"

namespace goldenrule::attention {

using call::BlockBase;
using call::BlockKv;
using call::Dims;
using call::KvLayout;
using call::LseBase;
using call::LseLayout;
using call::Mask;
using call::MissingPage;

[[nodiscard]] inline bool has_cache(const Dims& d) { return d.page_size > 0; }

/// Beyond this a number of keys of a request is taken for an error.
inline constexpr std::int64_t kMaxKeys = std::int64_t{1} << 22;
inline constexpr std::int64_t kMaxPosition = (std::int64_t{1} << 31) - 1;
/// Farther than any position, in both directions.
inline constexpr std::int64_t kMaxRangeEnd = std::int64_t{1} << 33;

enum class Source : std::uint8_t {
  kFresh,  ///< row of k and v
  kCache,  ///< row = page * P + slot of k_cache and v_cache
  kZeros,  ///< k = 0, v = 0: no call has such keys, but mistakes do
};

/// Consecutive keys: the n-th has position t + n and stands in row + n of its source.
struct Run {
  Source source = Source::kFresh;
  std::int64_t row = 0, t = 0, count = 0;

  bool operator==(const Run&) const = default;
};

/// Positions first <= t < last.
struct Range {
  std::int64_t first = 0, last = 0;
  [[nodiscard]] bool contains(std::int64_t t) const { return first <= t && t < last; }
  bool operator==(const Range&) const = default;
};

struct Request {
  std::int64_t first_query = 0, queries = 0;  ///< rows of q
  std::int64_t valid = 0;                     ///< queries; the others are padding
  std::int64_t offset = 0;                    ///< position of the first query
  std::vector<Run> runs = {};
  std::vector<Range> visible = {};  ///< of each valid query

  [[nodiscard]] std::int64_t key_count() const {
    std::int64_t count = 0;
    for (const Run& run : runs) count += run.count;
    return count;
  }
  bool operator==(const Request&) const = default;
};

struct Plan {
  Dims dims;
  std::vector<Request> requests;
  std::vector<std::int64_t> key_head;  ///< of each query head
  double scale = 1.0;
  double soft_cap = 0.0;  ///< 0: none
  KvLayout layout = KvLayout::kNhd;
  LseBase lse_base = LseBase::kE;
  LseLayout lse_layout = LseLayout::kTh;

  bool operator==(const Plan&) const = default;
};

/// Validates the record (call::validate) and its integers. Throws Error for whatever makes no
/// sense.
[[nodiscard]] Plan make_plan(const call::Record& call);

/// The positions that a query at `position` sees in a request whose first query is at `origin`.
[[nodiscard]] Range visible_range(const call::Convention& attributes, std::int64_t origin,
                                  std::int64_t position);

/// What `attributes` make of the numbers of a request: the ranges of its valid queries.
[[nodiscard]] std::vector<Range> visible_ranges(const call::Convention& attributes,
                                                const Request& request);

/// The key of `plan` that query head `head` reads in the last of a tensor's axes: where row `row`
/// of `source` begins, in elements of a tensor whose last axis is `dim`.
[[nodiscard]] std::int64_t key_element(const Plan& plan, Source source, std::int64_t row,
                                       std::int64_t key_head, std::int64_t dim);

/// The shape of output `lse`.
[[nodiscard]] call::Shape lse_shape(const Plan& plan);
/// Where the lse of a row of q and a query head stands.
[[nodiscard]] inline std::size_t lse_index(const Plan& plan, std::int64_t row, std::int64_t head) {
  return static_cast<std::size_t>(plan.lse_layout == LseLayout::kTh
                                      ? row * plan.dims.HV + head
                                      : head * plan.dims.tokens + row);
}

}  // namespace goldenrule::attention
