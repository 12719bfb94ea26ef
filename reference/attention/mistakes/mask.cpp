// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in which positions a query sees: masks, blocks and windows.
#include <algorithm>
#include <array>

#include "reference/attention/mistakes/mistake.hpp"

namespace goldenrule::attention {
namespace {

constexpr std::int64_t kQueryTile = 16;

// The ranges that other attributes give.
template <class Change>
void with_attributes(Work& work, const Change& change) {
  if (work.call.inputs.contains("visible_first")) return;  // nothing is made of masks
  call::Convention attributes = work.call.convention;
  change(attributes);
  for (Request& request : work.plan.requests) {
    request.visible = visible_ranges(attributes, request);
  }
}

void causal_in_block(Work& work) {
  for (Request& request : work.plan.requests) {
    for (std::int64_t i = 0; i < request.valid; ++i) {
      Range& range = request.visible[static_cast<std::size_t>(i)];
      range.last = std::min(range.last, request.offset + i + 1);
    }
  }
}
void none_in_segment(Work& work) {
  with_attributes(work, [](call::Convention& a) { a.mask = Mask::kFull; });
}
void base_segment(Work& work) {
  with_attributes(work, [](call::Convention& a) { a.block_base = BlockBase::kSegment; });
}
void base_absolute(Work& work) {
  with_attributes(work, [](call::Convention& a) { a.block_base = BlockBase::kAbsolute; });
}
void next_block(Work& work) {
  const call::Convention& a = work.call.convention;
  if (a.mask != Mask::kBlockCausal) return;
  for (Request& request : work.plan.requests) {
    for (Range& range : request.visible) range.last += a.block;
  }
}
template <std::int64_t by>
void window_moved(Work& work) {
  with_attributes(work, [](call::Convention& a) {
    if (a.window_left >= 0) a.window_left = std::max(std::int64_t{0}, a.window_left + by);
  });
}
template <std::int64_t by>
void window_right_moved(Work& work) {
  with_attributes(work, [](call::Convention& a) {
    if (a.window_right >= 0) a.window_right = std::max(std::int64_t{0}, a.window_right + by);
  });
}
void window_ignored(Work& work) {
  with_attributes(work, [](call::Convention& a) { a.window_left = a.window_right = -1; });
}
void window_right_cut(Work& work) {
  with_attributes(work, [](call::Convention& a) {
    if (a.window_left >= 0) a.window_right = 0;
  });
}
void window_symmetric(Work& work) {
  with_attributes(work, [](call::Convention& a) {
    if (a.window_left >= 0) a.window_right = a.window_left;
  });
}
void window_first_tile(Work& work) {
  if (work.call.inputs.contains("visible_first")) return;
  call::Convention none = work.call.convention;
  none.window_left = none.window_right = -1;
  for (Request& request : work.plan.requests) {
    if (request.valid <= kQueryTile) continue;
    const std::vector<Range> ranges = visible_ranges(none, request);
    std::copy_n(ranges.begin(), kQueryTile, request.visible.begin());
  }
}

constexpr std::array kFullMask{calls::Meant{"mask", "", "full"}};
constexpr std::array kSegmentBase{calls::Meant{"block_base", "absolute", "segment"}};
constexpr std::array kAbsoluteBase{calls::Meant{"block_base", "segment", "absolute"}};

constexpr std::array kMaskMistakes{
    mistake<causal_in_block>("mask_causal_in_block", "masks",
                             "hides the later tokens of a block from its earlier ones",
                             "vLLM #43445"),
    mistake<none_in_segment>("mask_none_in_segment", "masks",
                             "lets all tokens of a call see each other, whatever the mask is",
                             "Diffulex", kFullMask),
    mistake<base_segment>("block_base_segment", "masks",
                          "counts blocks from the first query, not from position 0",
                          "Diffulex, SGLang #12588", kSegmentBase),
    mistake<base_absolute>("block_base_absolute", "masks",
                           "counts blocks from position 0, not from the first query", "",
                           kAbsoluteBase),
    mistake<next_block>("next_block_visible", "masks", "lets a query see the block behind its own"),
    mistake<window_moved<1>>("window_off_by_one", "windows",
                             "sees one key more than the window has",
                             "transformers #39408; ik_llama.cpp #2021"),
    mistake<window_moved<-1>>("window_off_by_one", "windows",
                              "sees one key less than the window has", "transformers #39408"),
    mistake<window_right_moved<1>>("window_off_by_one", "windows",
                                   "sees one later key more than the window has"),
    mistake<window_right_moved<-1>>("window_off_by_one", "windows",
                                    "sees one later key less than the window has"),
    mistake<window_ignored>("window_ignored", "windows", "sees beyond the window"),
    mistake<window_right_cut>("window_right_cut", "windows",
                              "sees no later token in a layer with a window that is not causal",
                              "vLLM #46104"),
    mistake<window_symmetric>("window_symmetric", "windows",
                              "limits later tokens by the window to the left", "vLLM #46104"),
    mistake<window_first_tile>("window_first_tile", "windows",
                               "ignores the window in the first tile of queries",
                               "FlashInfer #4972"),
};

}  // namespace

std::span<const calls::Mistake> mask_mistakes() { return kMaskMistakes; }

}  // namespace goldenrule::attention
