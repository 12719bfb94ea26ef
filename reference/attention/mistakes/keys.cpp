// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in which keys there are and where they are read: contexts, pages, padding and heads.
#include <algorithm>
#include <array>
#include <vector>

#include "fixtures/call/integer_inputs.hpp"
#include "reference/attention/mistakes/mistake.hpp"

namespace goldenrule::attention {
namespace {

constexpr std::int64_t kFreshTile = 16;
constexpr std::int64_t kHeadTile = 4;

// change(request, index of the run) for the last run of each request that `source` has.
template <class Change>
void change_last_run(Work& work, Source source, const Change& change) {
  for (Request& request : work.plan.requests) {
    for (std::size_t i = request.runs.size(); i-- > 0;) {
      if (request.runs[i].source != source) continue;
      change(request, i);
      break;
    }
  }
}

void drop(Work& work, Source source) {
  for (Request& request : work.plan.requests) {
    std::erase_if(request.runs, [&](const Run& run) { return run.source == source; });
  }
}

void context_short(Work& work) {
  change_last_run(work, has_cache(work.plan.dims) ? Source::kCache : Source::kFresh,
                  [](Request& request, std::size_t i) { --request.runs[i].count; });
}

void first_dropped(Work& work) {
  for (Request& request : work.plan.requests) {
    if (request.runs.empty()) continue;
    Run& first = request.runs.front();
    ++first.row;
    ++first.t;
    if (--first.count == 0) request.runs.erase(request.runs.begin());
  }
}
void fresh_short(Work& work) {
  if (!has_cache(work.plan.dims)) return;
  change_last_run(work, Source::kFresh, [](Request& request, std::size_t i) {
    if (--request.runs[i].count == 0) {
      request.runs.erase(request.runs.begin() + static_cast<std::ptrdiff_t>(i));
    }
  });
}

// kv_lens of the step before, which had as many queries.
void stale_lengths(Work& work) {
  for (Request& request : work.plan.requests) {
    std::int64_t left = request.queries;
    for (std::size_t i = request.runs.size(); i-- > 0;) {
      Run& run = request.runs[i];
      if (run.source != Source::kCache) continue;
      const std::int64_t dropped = std::min(left, run.count);
      run.count -= dropped;
      left -= dropped;
    }
    std::erase_if(request.runs, [](const Run& run) { return run.count == 0; });
  }
}

// More slots of the last page, up to `most`.
void extend_page(Work& work, std::int64_t most) {
  const std::int64_t P = work.plan.dims.page_size;
  change_last_run(work, Source::kCache, [&](Request& request, std::size_t i) {
    Run& run = request.runs[i];
    const std::int64_t used = (run.row + run.count) % P;
    if (used != 0) run.count += std::min(most, P - used);
  });
}
void context_long(Work& work) { extend_page(work, 1); }
void page_tail(Work& work) { extend_page(work, kMaxKeys); }

void full_page_empty(Work& work) {
  const std::int64_t P = work.plan.dims.page_size;
  change_last_run(work, Source::kCache, [&](Request& request, std::size_t i) {
    Run& run = request.runs[i];
    if ((run.row + run.count) % P == 0) run.count -= P;
    if (run.count <= 0) request.runs.erase(request.runs.begin() + static_cast<std::ptrdiff_t>(i));
  });
}
void counted_twice(Work& work) {
  if (!has_cache(work.plan.dims)) return;
  change_last_run(work, Source::kFresh, [](Request& request, std::size_t i) {
    const Run twice = request.runs[i];
    request.runs.push_back(twice);
  });
}
void fresh_ignored(Work& work) { drop(work, Source::kFresh); }
void cache_ignored(Work& work) { drop(work, Source::kCache); }

void padding_in_sum(Work& work) {
  for (Request& request : work.plan.requests) {
    const std::int64_t keys = request.key_count();
    if (keys == 0) continue;
    const std::int64_t missing = (kKeyTile - keys % kKeyTile) % kKeyTile;
    // Where every query but those of a narrow window sees them.
    for (std::int64_t i = 0; i < missing; ++i) {
      request.runs.push_back({Source::kZeros, 0, request.offset, 1});
    }
  }
}
void last_split_dropped(Work& work) {
  for (Request& request : work.plan.requests) {
    std::int64_t left = request.key_count() - kKeyTile;
    if (left <= 0) continue;
    left = (left + kKeyTile - 1) / kKeyTile * kKeyTile;
    for (Run& run : request.runs) {
      run.count = std::min(run.count, left);
      left -= run.count;
    }
    std::erase_if(request.runs, [](const Run& run) { return run.count == 0; });
  }
}
void first_tile_reread(Work& work) {
  change_last_run(work, Source::kFresh, [](Request& request, std::size_t i) {
    const Run run = request.runs[i];
    if (run.count <= kFreshTile) return;
    request.runs[i].count = kFreshTile;
    for (std::int64_t at = kFreshTile; at < run.count; at += kFreshTile) {
      request.runs.push_back(
          {run.source, run.row, run.t + at, std::min(kFreshTile, run.count - at)});
    }
  });
}
void neighbour_rows(Work& work) {
  const std::int64_t total = work.plan.dims.fresh_keys;
  change_last_run(work, Source::kFresh, [&](Request& request, std::size_t i) {
    Run& run = request.runs[i];
    const std::int64_t whole = (run.count + kFreshTile - 1) / kFreshTile * kFreshTile;
    run.count = std::min(whole, total - run.row);
  });
}
// Request n at the place of request n + 1, the last at that of the first.
void fresh_row_shifted(Work& work) {
  const std::vector<Request> right = work.plan.requests;
  const auto first_fresh = [](const Request& r) {
    return std::ranges::find(r.runs, Source::kFresh, &Run::source);
  };
  for (std::size_t n = 0; n < right.size(); ++n) {
    const Request& next = right[(n + 1) % right.size()];
    const auto own = first_fresh(right[n]);
    const auto other = first_fresh(next);
    if (own == right[n].runs.end() || other == next.runs.end()) continue;
    for (Run& run : work.plan.requests[n].runs) {
      if (run.source != Source::kFresh) continue;
      run.row += other->row - own->row;
      run.count = std::min(run.count, work.plan.dims.fresh_keys - run.row);
    }
    std::erase_if(work.plan.requests[n].runs, [](const Run& run) { return run.count <= 0; });
  }
}
void valid_q_ignored(Work& work) {
  call::Record changed = work.call;
  if (changed.inputs.erase("valid_q") != 0) work.plan = make_plan(changed);
}

// A table of other pages, where it is dense; what the pool does not have becomes page 0.
template <class Page>
void with_table(Work& work, const Page& page) {
  call::Record changed = work.call;
  auto given = call::integers(changed, "page_table");
  if (!given || work.plan.dims.pages == 0) return;
  const std::int64_t width = changed.inputs.at("page_table").shape()[1];
  call::Integers table = *given;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    table[i] = page(*given, at / width, at % width, width);
    if (table[i] < -1 || table[i] >= work.plan.dims.pages) table[i] = 0;
    if (table[i] == -1 && changed.convention.missing_page == MissingPage::kError) table[i] = 0;
  }
  changed.inputs["page_table"] =
      call::integer_tensor(table, changed.inputs.at("page_table").shape());
  work.plan = make_plan(changed);
}
void minus_one_is_zero(Work& work) {
  with_table(work,
             [](const call::Integers& table, std::int64_t n, std::int64_t i, std::int64_t width) {
               return std::max(std::int64_t{0}, table[static_cast<std::size_t>(n * width + i)]);
             });
}
void table_ignored(Work& work) {
  with_table(work, [](const call::Integers&, std::int64_t n, std::int64_t i, std::int64_t width) {
    return n * width + i;
  });
}
void row_shifted(Work& work) {
  with_table(work,
             [](const call::Integers& table, std::int64_t n, std::int64_t i, std::int64_t width) {
               const std::int64_t next = (n + 1) * width + i;
               return table[static_cast<std::size_t>(next % std::ssize(table))];
             });
}
void page_16bit(Work& work) {
  with_table(work,
             [](const call::Integers& table, std::int64_t n, std::int64_t i, std::int64_t width) {
               const std::int64_t page = table[static_cast<std::size_t>(n * width + i)];
               return page < 0 ? page : page & 0xffff;
             });
}
void layout_swapped(Work& work) {
  if (work.plan.dims.page_size == 1 || work.plan.dims.H == 1 || !has_cache(work.plan.dims)) return;
  KvLayout& layout = work.plan.layout;
  layout = layout == KvLayout::kNhd ? KvLayout::kHnd : KvLayout::kNhd;
}

void head_tiled(Work& work) {
  const Dims& d = work.plan.dims;
  const bool grouped = work.call.convention.head_map == call::HeadMap::kGrouped;
  for (std::int64_t j = 0; j < d.HV; ++j) {
    work.plan.key_head[static_cast<std::size_t>(j)] = grouped ? j % d.H : j / (d.HV / d.H);
  }
}
void head_zero(Work& work) { std::ranges::fill(work.plan.key_head, 0); }
void group_crosses(Work& work) {
  auto& heads = work.plan.key_head;
  for (std::size_t j = 0; j < heads.size(); ++j) heads[j] = heads[j / kHeadTile * kHeadTile];
}

constexpr std::array kOtherLayout{calls::Meant{"kv_layout", "nhd", "hnd"},
                                  calls::Meant{"kv_layout", "hnd", "nhd"}};
constexpr std::array kOtherMap{calls::Meant{"head_map", "grouped", "tiled"},
                               calls::Meant{"head_map", "tiled", "grouped"}};

constexpr std::array kKeysMistakes{
    mistake<context_short>("context_short", "context",
                           "drops the last cached key, or the last key where there is no cache"),
    mistake<context_long>("context_long", "context", "reads the slot behind the last cached key"),
    mistake<first_dropped>("first_key_dropped", "context", "drops the first key"),
    mistake<fresh_short>("fresh_short", "context", "drops the last fresh key behind a cache"),
    mistake<stale_lengths>("stale_lengths", "context",
                           "has the lengths of the step before: as many cached keys fewer as there "
                           "are queries",
                           "vLLM #48167, FlashInfer #5176"),
    mistake<counted_twice>("block_counted_twice", "context",
                           "sees the fresh keys twice, in the cache and beside it",
                           "Diffulex v0.0.1"),
    mistake<fresh_ignored>("fresh_ignored", "context", "sees the cache alone", "xinfer #481"),
    mistake<cache_ignored>("cache_ignored", "context", "sees the fresh keys alone", "xinfer #481"),
    mistake<last_split_dropped>("last_split_dropped", "context",
                                "leaves the last tile of keys out of the merge"),
    mistake<first_tile_reread>("first_tile_reread", "context",
                               "reads the first tile of fresh keys in the place of each",
                               "Diffulex v0.0.1"),
    mistake<full_page_empty>("full_page_empty", "pages", "takes a full last page for an empty one",
                             "Diffulex"),
    mistake<page_tail>("page_tail_visible", "pages", "sees all slots of the last page",
                       "FlashInfer #3716, tilelang #1552"),
    mistake<minus_one_is_zero>("page_minus_one_is_zero", "pages",
                               "reads page 0 where the table has no page", "Diffulex"),
    mistake<table_ignored>("table_ignored", "pages", "reads pages in the order of the pool"),
    mistake<row_shifted>("table_row_shifted", "pages", "reads the pages of the next request"),
    mistake<page_16bit>("page_id_16bit", "pages", "cuts page numbers to 16 bits",
                        "vLLM #50427; ATOM #702"),
    mistake<layout_swapped>("layout_swapped", "pages", "reads a page in the other layout",
                            "FlashInfer #441", kOtherLayout),
    mistake<padding_in_sum>("padding_in_sum", "padding",
                            "counts the zero keys that fill a tile in the sum of the weights",
                            "FlashInfer #3716, vLLM #57432"),
    mistake<neighbour_rows>("neighbour_rows", "padding",
                            "sees the fresh keys of the next request up to the end of a tile",
                            "Diffulex"),
    mistake<fresh_row_shifted>("fresh_row_shifted", "padding",
                               "reads the fresh keys of the next request"),
    mistake<valid_q_ignored>("valid_q_ignored", "padding", "takes padding rows for tokens",
                             "Diffulex"),
    mistake<head_tiled>("kv_head_tiled", "heads", "reads key heads by the other map", "onnx #7274",
                        kOtherMap),
    mistake<head_zero>("kv_head_zero", "heads", "reads key head 0 for every query head"),
    mistake<group_crosses>("group_tile_crosses", "heads",
                           "reads one key head for a tile of query heads that has two",
                           "FreeToken #177"),
};

}  // namespace

std::span<const calls::Mistake> key_mistakes() { return kKeysMistakes; }

}  // namespace goldenrule::attention
