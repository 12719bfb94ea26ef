// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in where a query stands: which position it has, and from there the edge of the mask.
// Calls of one query and calls without a mask have others with the same outputs, which are named
// first (context_short): these come last.
#include <array>

#include "reference/attention/mistakes/mistake.hpp"

namespace goldenrule::attention {
namespace {

// offset(request) is where a kernel takes the first query to stand.
template <class Offset>
void with_offset(Work& work, const Offset& offset) {
  if (work.call.inputs.contains("visible_first")) return;
  for (Request& request : work.plan.requests) {
    Request moved = request;
    moved.offset = offset(request);
    request.visible = visible_ranges(work.call.convention, moved);
  }
}
void offset_ignored(Work& work) {
  with_offset(work, [](const Request&) { return std::int64_t{0}; });
}
void offset_from_end(Work& work) {
  with_offset(work, [](const Request& r) { return r.key_count() - r.queries; });
}
// Where a mask alone makes of the position, causal_off_by_one is the same.
template <std::int64_t by>
void offset_moved(Work& work) {
  const call::Convention& a = work.call.convention;
  if (a.window_left < 0 && a.window_right < 0 && a.mask != Mask::kBlockCausal) return;
  with_offset(work, [](const Request& r) { return r.offset + by; });
}
template <std::int64_t by>
void causal_moved(Work& work) {
  if (work.call.convention.mask != Mask::kCausal) return;
  if (work.call.inputs.contains("visible_first")) return;
  for (Request& request : work.plan.requests) {
    for (Range& range : request.visible) range.last += by;
  }
}
void mask_reversed(Work& work) {
  if (work.call.convention.mask != Mask::kCausal) return;
  if (work.call.inputs.contains("visible_first")) return;
  for (Request& request : work.plan.requests) {
    for (std::int64_t i = 0; i < request.valid; ++i) {
      request.visible[static_cast<std::size_t>(i)] = {request.offset + i, kMaxRangeEnd};
    }
  }
}

constexpr std::array kPositionMistakes{
    mistake<causal_moved<1>>("causal_off_by_one", "positions",
                             "sees the token behind its own under a causal mask"),
    mistake<causal_moved<-1>>("causal_off_by_one", "positions",
                              "does not see its own token under a causal mask"),
    mistake<mask_reversed>(
        "mask_reversed", "positions",
        "sees its own and later tokens where it may see its own and earlier ones"),
    mistake<offset_ignored>("q_offset_ignored", "positions",
                            "counts the positions of queries from 0, whatever stands before them"),
    mistake<offset_from_end>(
        "q_offset_from_end", "positions",
        "takes the last query to stand at the last key, whatever is asked for"),
    mistake<offset_moved<1>>("q_offset_off_by_one", "positions",
                             "takes each query to stand one position later"),
    mistake<offset_moved<-1>>("q_offset_off_by_one", "positions",
                              "takes each query to stand one position earlier"),
};

}  // namespace

std::span<const calls::Mistake> position_mistakes() { return kPositionMistakes; }

}  // namespace goldenrule::attention
