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
  Attributes attributes = work.call.attributes;
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
  with_attributes(work, [](Attributes& a) { a.mask = Mask::kFull; });
}
void base_segment(Work& work) {
  with_attributes(work, [](Attributes& a) { a.block_base = BlockBase::kSegment; });
}
void base_absolute(Work& work) {
  with_attributes(work, [](Attributes& a) { a.block_base = BlockBase::kAbsolute; });
}
void next_block(Work& work) {
  const Attributes& a = work.call.attributes;
  if (a.mask != Mask::kBlockCausal) return;
  for (Request& request : work.plan.requests) {
    for (Range& range : request.visible) range.last += a.block;
  }
}
template <std::int64_t by>
void window_moved(Work& work) {
  with_attributes(work, [](Attributes& a) {
    if (a.window_left >= 0) a.window_left = std::max(std::int64_t{0}, a.window_left + by);
  });
}
void window_ignored(Work& work) {
  with_attributes(work, [](Attributes& a) { a.window_left = a.window_right = -1; });
}
void window_right_cut(Work& work) {
  with_attributes(work, [](Attributes& a) {
    if (a.window_left >= 0) a.window_right = 0;
  });
}
void window_symmetric(Work& work) {
  with_attributes(work, [](Attributes& a) {
    if (a.window_left >= 0) a.window_right = a.window_left;
  });
}
void window_first_tile(Work& work) {
  Attributes none = work.call.attributes;
  none.window_left = none.window_right = -1;
  for (Request& request : work.plan.requests) {
    if (request.valid <= kQueryTile) continue;
    const std::vector<Range> ranges = visible_ranges(none, request);
    std::copy_n(ranges.begin(), kQueryTile, request.visible.begin());
  }
}

constexpr std::array kMistakes{
    Mistake{.name = "mask_causal_in_block",
            .group = "masks",
            .meaning = "hides the later tokens of a block from its earlier ones",
            .change = causal_in_block,
            .reported = "vLLM #43445"},
    Mistake{.name = "mask_none_in_segment",
            .group = "masks",
            .meaning = "lets all tokens of a call see each other, whatever the mask is",
            .change = none_in_segment,
            .reported = "Diffulex"},
    Mistake{.name = "block_base_segment",
            .group = "masks",
            .meaning = "counts blocks from the first query, not from position 0",
            .change = base_segment,
            .reported = "Diffulex, SGLang #12588"},
    Mistake{.name = "block_base_absolute",
            .group = "masks",
            .meaning = "counts blocks from position 0, not from the first query",
            .change = base_absolute},
    Mistake{.name = "next_block_visible",
            .group = "masks",
            .meaning = "lets a query see the block behind its own",
            .change = next_block},
    Mistake{.name = "window_off_by_one",
            .group = "windows",
            .meaning = "sees one key more than the window has",
            .change = window_moved<1>,
            .reported = "transformers #39408; ik_llama.cpp #2021"},
    Mistake{.name = "window_off_by_one",
            .group = "windows",
            .meaning = "sees one key less than the window has",
            .change = window_moved<-1>,
            .reported = "transformers #39408"},
    Mistake{.name = "window_ignored",
            .group = "windows",
            .meaning = "sees beyond the window",
            .change = window_ignored},
    Mistake{.name = "window_right_cut",
            .group = "windows",
            .meaning = "sees no later token in a layer with a window that is not causal",
            .change = window_right_cut,
            .reported = "vLLM #46104"},
    Mistake{.name = "window_symmetric",
            .group = "windows",
            .meaning = "limits later tokens by the window to the left",
            .change = window_symmetric,
            .reported = "vLLM #46104"},
    Mistake{.name = "window_first_tile",
            .group = "windows",
            .meaning = "ignores the window in the first tile of queries",
            .change = window_first_tile,
            .reported = "FlashInfer #4972"},
};

}  // namespace

std::span<const Mistake> mask_mistakes() { return kMistakes; }

}  // namespace goldenrule::attention
