// SPDX-License-Identifier: Apache-2.0
//
// All mistakes of a merge, but for those that the table of mistakes names.
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "reference/attention/mistakes/merge.hpp"
#include "reference/attention/mistakes/mistake.hpp"

namespace goldenrule::attention {
namespace {

using By = Partition::By;

constexpr std::array<std::int64_t, 24> kSizes{16,  32,  48,  64,  80,  96,   112,  128,
                                              144, 160, 176, 192, 208, 224,  240,  256,
                                              320, 384, 448, 512, 768, 1024, 2048, 4096};
constexpr std::int64_t kMostCounted = 8;  // parts of partitions by their number

constexpr auto kPartitions = [] {
  std::array<Partition, 1 + kSizes.size() + 2 * (kMostCounted - 1)> all{};
  std::size_t i = 1;  // the first: by source
  for (const std::int64_t size : kSizes) all[i++] = {By::kSize, size};
  for (const By by : {By::kCount, By::kTiles}) {
    for (std::int64_t n = 2; n <= kMostCounted; ++n) all[i++] = {by, n};
  }
  return all;
}();

struct Way {
  MergeO o;
  int part;
  MergeLse lse;
};

constexpr int kChosenParts = 7;  // that may be lost or counted twice, beside the last

// Where o is right lse is wrong; where o is wrong lse is wrong with it, or right.
constexpr auto kWays = [] {
  std::array<Way, 2 * 2 * (kChosenParts + 1) + 27 - 2> all{};
  std::size_t i = 0;
  for (const MergeLse lse : {MergeLse::kAsO, MergeLse::kRight}) {
    for (const MergeO o : {MergeO::kBaseEOf2, MergeO::kBase2OfE, MergeO::kMean, MergeO::kMeanOfSeen,
                           MergeO::kSum, MergeO::kOwnMaximum, MergeO::kEmptyIsOne,
                           MergeO::kLastWriter, MergeO::kHeadsFirst, MergeO::kTokensFirst}) {
      all[i++] = {o, 0, lse};
    }
    for (const MergeO o : {MergeO::kLost, MergeO::kTwice}) {
      for (int part = kLastPart; part < kChosenParts; ++part) all[i++] = {o, part, lse};
    }
  }
  for (const MergeO o : {MergeO::kBaseEOf2, MergeO::kBase2OfE}) {
    all[i++] = {o, 0, MergeLse::kOtherBase};
  }
  for (const MergeLse lse : {MergeLse::kLast, MergeLse::kMaximum, MergeLse::kSum}) {
    all[i++] = {MergeO::kRight, 0, lse};
  }
  return all;
}();
static_assert(kWays.back().lse == MergeLse::kSum, "every way has its place");

constexpr Merge merge_at(std::size_t i) {
  const Way& way = kWays[i % kWays.size()];
  return {kPartitions[i / kWays.size()], way.o, way.part, way.lse};
}

// fresh_ignored and cache_ignored, block_counted_twice, last_split_dropped.
constexpr bool is_in_table(const Merge& m) {
  if (m.lse != MergeLse::kAsO) return false;
  const bool by_source = m.partition.by == By::kSource;
  const bool by_tile = m.partition == Partition{By::kSize, kKeyTile};
  if (m.o == MergeO::kLost) return by_source || (by_tile && m.part == kLastPart);
  return m.o == MergeO::kTwice && by_source && m.part == kLastPart;
}

using Words = std::pair<std::string, std::string>;  // of the name, of the meaning

// What o, and lse with it, or lse alone makes of the parts.
Words kind_of(const Merge& m) {
  switch (m.o) {
    case MergeO::kBaseEOf2:
      return {"merge_base_e_of_2", "merges parts with base e where their lse is base 2"};
    case MergeO::kBase2OfE:
      return {"merge_base_2_of_e", "merges parts with base 2 where their lse is base e"};
    case MergeO::kMean:
    case MergeO::kMeanOfSeen:
      return {"merge_unweighted_mean", "takes the mean of parts without their weights"};
    case MergeO::kSum:
      return {"merge_unweighted_sum", "adds the outputs of parts without their weights"};
    case MergeO::kLost:
      return {"merge_part_lost", "leaves a part out of the merge"};
    case MergeO::kTwice:
      return {"merge_part_twice", "counts a part twice in the merge"};
    case MergeO::kOwnMaximum:
      return {"merge_own_maximum", "adds sums of parts, each relative to its own maximum"};
    case MergeO::kEmptyIsOne:
      return {"merge_empty_is_one", "merges a part without a visible key with lse 0, not -inf"};
    case MergeO::kLastWriter:
      return {"merge_last_writer", "writes the output of each part over that of the one before"};
    case MergeO::kHeadsFirst:
      return {"merge_lse_of_heads_first",
              "weights parts by their lse [heads, tokens] read as [tokens, heads]"};
    case MergeO::kTokensFirst:
      return {"merge_lse_of_tokens_first",
              "weights parts by their lse [tokens, heads] read as [heads, tokens]"};
    case MergeO::kRight:
      break;
  }
  switch (m.lse) {
    case MergeLse::kLast:
      return {"merge_lse_of_last", "returns the lse of the last part, not that of all"};
    case MergeLse::kMaximum:
      return {"merge_lse_maximum", "returns the largest lse of the parts, not that of all"};
    default:
      return {"merge_lse_sum", "returns the sum of the lse of the parts, not that of all"};
  }
}

void add_part(const Merge& m, std::vector<Words>& words) {
  if (m.o == MergeO::kMean) words.emplace_back("of_all", "of all, with a visible key or without");
  if (m.o == MergeO::kMeanOfSeen) words.emplace_back("of_seen", "of those with a visible key");
  if (m.o != MergeO::kLost && m.o != MergeO::kTwice) return;
  if (m.part == kLastPart) {
    words.emplace_back("last", "the last part");
  } else {
    const std::string number = std::to_string(m.part);
    words.emplace_back("part_" + number, "part " + number + " (the first is part 0)");
  }
}

void add_partition(const Partition& partition, std::vector<Words>& words) {
  const std::string number = std::to_string(partition.number);
  switch (partition.by) {
    case By::kSource:
      words.emplace_back("cache_and_fresh", "cached keys and fresh keys");
      return;
    case By::kSize:
      words.emplace_back("splits_of_" + number, "splits of " + number + " keys");
      return;
    case By::kCount:
    case By::kTiles:
      words.emplace_back(number + "_splits", number + " splits of the keys of a request");
      if (partition.by == By::kTiles) {
        const std::string tile = std::to_string(kKeyTile);
        words.emplace_back("tiles_of_" + tile, "whole tiles of " + tile);
      }
      return;
  }
}

void add_lse(const Merge& m, std::vector<Words>& words) {
  if (m.o == MergeO::kRight) return;
  if (m.lse == MergeLse::kRight) words.emplace_back("lse_right", "while lse is right");
  if (m.lse == MergeLse::kOtherBase) {
    words.emplace_back("lse_other_base", "and returns lse in that base");
  }
}

// A mistake refers to its words.
struct MergeWords {
  std::vector<Words> words;
  std::vector<calls::Aspect> aspects;
  std::string name, meaning;

  explicit MergeWords(const Merge& m) : words{kind_of(m)} {
    add_part(m, words);
    add_partition(m.partition, words);
    add_lse(m, words);
    for (const auto& [of_name, of_meaning] : words) aspects.push_back({of_name, of_meaning});
    name = calls::joined_name(aspects);
    meaning = calls::joined_meaning(aspects);
  }
};

template <std::size_t i>
calls::Mistake mistake_at() {
  static constexpr Merge kMerge = merge_at(i);
  static const MergeWords words(kMerge);
  return {
      .name = words.name,
      .group = "Merges",
      .meaning = words.meaning,
      .applies = [](const call::Record& record) { return shows(kMerge, record); },
      .commit = [](const call::Record& record,
                   const calls::Kernel& kernel) { return commit_merge(kMerge, record, kernel); },
      .cut_by = calls::CutBy::kValues,
      .aspects = words.aspects};
}

template <std::size_t... i>
std::vector<calls::Mistake> all_merges(std::index_sequence<i...>) {
  using Make = calls::Mistake (*)();
  constexpr std::array<Make, sizeof...(i)> kMakes{mistake_at<i>...};
  std::vector<calls::Mistake> all;
  for (std::size_t n = 0; n < kMakes.size(); ++n) {
    if (!is_in_table(merge_at(n))) all.push_back(kMakes[n]());
  }
  return all;
}

}  // namespace

std::span<const calls::Mistake> merge_mistakes() {
  static const std::vector<calls::Mistake> kAll =
      all_merges(std::make_index_sequence<kWays.size() * kPartitions.size()>{});
  return kAll;
}

}  // namespace goldenrule::attention
