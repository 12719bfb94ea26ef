// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "reference/attention/slice.hpp"
#include "reference/suites/unknown/draw.hpp"
#include "reference/suites/unknown/merge_kernel.hpp"

namespace goldenrule::suites {
namespace {

using attention::Request;
using attention::Run;
using attention::Source;

// Requests of unlike lengths: one of a single part, where splits are long.
std::string drawn_merge_call(Draws& draws) {
  std::string lens, ctx;
  const std::int64_t N = draws.between(2, 3);
  for (std::int64_t n = 0; n < N; ++n) {
    lens += fmt::format("{}{}", n > 0 ? "," : "", draws.between(1, 5));
    ctx += fmt::format("{}{}", n > 0 ? "," : "", draws.between(60, 520));
  }
  const std::int64_t H = draws.between(1, 2);
  return fmt::format(
      "op=attention mode=decode lens={} ctx={} H={} HV={} K=32 V={} mask={} page=16 kv_layout={} "
      "io={} seed={} pattern=A",
      lens, ctx, H, H * draws.between(2, 3), draws.of<int>({16, 32}),
      draws.of<std::string>({"causal", "full"}), draws.of<std::string>({"nhd", "hnd"}),
      draws.of<std::string>({"bf16", "f16"}), draws.between(1, 100000));
}

struct DrawnParts {
  PartOfKey part_of;
  std::string words;
};

// Splits of lengths that are and are not among those of the generator (attention/mistakes/merges).
DrawnParts drawn_parts(Draws& draws) {
  const std::int64_t kind = draws.between(0, 3);
  if (kind == 0) {
    const auto part_of = [](const Request& r, std::int64_t i) {
      for (const Run& run : r.runs) i -= run.source == Source::kCache ? run.count : 0;
      return std::int64_t{i >= 0 ? 1 : 0};
    };
    return {part_of, "cached keys and fresh keys"};
  }
  if (kind == 1) {
    const std::int64_t size = 16 * draws.between(2, 19);
    const auto part_of = [size](const Request&, std::int64_t i) { return i / size; };
    return {part_of, fmt::format("splits of {} keys", size)};
  }
  const std::int64_t number = draws.between(2, 9), tile = kind == 2 ? 1 : 64;
  const auto part_of = [number, tile](const Request& r, std::int64_t i) {
    const std::int64_t tiles = (r.key_count() + tile - 1) / tile;
    return i / ((tiles + number - 1) / number * tile);
  };
  return {part_of,
          fmt::format("{} splits{}", number, tile > 1 ? " of whole tiles of 64 keys" : "")};
}

}  // namespace

Draw draw_merge(Draws& draws) {
  Draw draw = drawn_call(attention::slice(), drawn_merge_call(draws));
  const DrawnParts parts = drawn_parts(draws);
  MergeInParts merge{.part_of = parts.part_of};
  merge.way = draws.of<WrongMerge>({WrongMerge::kBaseEOf2, WrongMerge::kBase2OfE, WrongMerge::kMean,
                                    WrongMerge::kSum, WrongMerge::kOwnMaximum,
                                    WrongMerge::kEmptyIsOne, WrongMerge::kLost, WrongMerge::kTwice,
                                    WrongMerge::kLastWriter, WrongMerge::kTransposed,
                                    WrongMerge::kLseOfLast, WrongMerge::kLseMaximum});
  merge.part = draws.between(0, 1);
  const bool of_lse = merge.way == WrongMerge::kLseOfLast || merge.way == WrongMerge::kLseMaximum;
  merge.right_lse = !of_lse && draws.between(0, 1) == 0;
  draw.planted = fmt::format("{}: {}", parts.words, words_for(merge.way));
  if (merge.way == WrongMerge::kLost || merge.way == WrongMerge::kTwice) {
    draw.planted += fmt::format(" (part {})", merge.part);
  }
  if (merge.right_lse) draw.planted += ", lse is right";
  // It does not show in requests of one part.
  const BlockPlanter planter(attention::slice(), draw.line);
  const BlockSet set = [plan = attention::make_plan(draw.call), merge](std::int64_t request,
                                                                       std::int64_t) {
    const Request& r = plan.requests[static_cast<std::size_t>(request)];
    return merge.part_of(r, r.key_count() - 1) > 0;
  };
  if (auto where = planter.words(FailingBlocks(planter.map.size(), true), set); !where.empty()) {
    draw.where = {std::move(where)};
    draw.sets = {set};
  }
  draw.made = calls::stored(draw.call, *draw.contract, merge_in_parts<float>(draw.call, merge));
  draw.exact = merge_in_parts<double>(draw.call, merge);
  return draw;
}

}  // namespace goldenrule::suites
