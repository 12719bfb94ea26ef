// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/index_set.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace goldenrule::explain {
namespace {

constexpr std::int64_t kFewAtMost = 6;

// The step of an arithmetic progression that holds exactly these indices; 0 where there is none.
std::int64_t common_step(const std::vector<std::int64_t>& indices) {
  const std::int64_t step = indices[1] - indices[0];
  for (std::size_t i = 1; i < indices.size(); ++i) {
    if (indices[i] - indices[i - 1] != step) return 0;
  }
  return step;
}

std::int64_t ranges_of(const std::vector<std::int64_t>& indices) {
  std::int64_t ranges = 1;
  for (std::size_t i = 1; i < indices.size(); ++i) {
    ranges += indices[i] == indices[i - 1] + 1 ? 0 : 1;
  }
  return ranges;
}

Shape shape_of(const IndexSet& set, const std::vector<std::int64_t>& indices) {
  const bool dense = set.last - set.first + 1 == set.count;
  if (set.count == set.size) return Shape::kAll;
  if (set.count == 1) return Shape::kOne;
  if (dense && set.last == set.size - 1) return Shape::kFrom;
  if (dense && set.first == 0) return Shape::kBelow;
  if (dense) return Shape::kRange;
  // The whole residue class, not a part of it; two indices always have a step.
  const std::int64_t step = set.count < kPeriodic ? 0 : common_step(indices);
  if (step > 1 && set.first < step && set.last + step >= set.size) return Shape::kResidue;
  if (set.count == set.size - 1) return Shape::kAllButOne;
  if (set.period.width > 1) return Shape::kPeriod;
  return set.ranges <= kFewAtMost ? Shape::kFew : Shape::kAll;
}

}  // namespace

// Ranges are bounded by twice as many of the size + 1 places between indices; single indices are
// fewer.
double log_alternatives(const IndexSet& set) {
  const double n = std::log(static_cast<double>(set.size));
  switch (set.shape) {
    case Shape::kFew:
      return set.ranges == set.count ? log_choices(set.size, set.count)
                                     : log_choices(set.size + 1, 2 * set.ranges);
    case Shape::kRange:
    case Shape::kResidue:
      return 2 * n;
    case Shape::kPeriod:
      return 3 * n;
    default:
      return n;
  }
}

double log_choices(std::int64_t n, std::int64_t k) {
  const auto lg = [](std::int64_t x) { return std::lgamma(static_cast<double>(x) + 1.0); };
  return lg(n) - lg(k) - lg(n - k);
}

IndexSet index_set(std::span<const std::int64_t> hits) {
  IndexSet set{.size = std::ssize(hits)};
  std::vector<std::int64_t> indices;
  std::vector<std::uint8_t> members(hits.size());
  std::int64_t elements = 0;
  for (std::int64_t i = 0; i < set.size; ++i) {
    if (hits[static_cast<std::size_t>(i)] == 0) continue;
    indices.push_back(i);
    members[static_cast<std::size_t>(i)] = 1;
    elements += hits[static_cast<std::size_t>(i)];
  }
  set.count = std::ssize(indices);
  if (indices.empty()) {
    set.shape = Shape::kNothing;
    return set;
  }
  set.first = indices.front();
  set.last = indices.back();
  set.ranges = ranges_of(indices);
  set.period = period_of(members).value_or(Period{});
  set.shape = shape_of(set, indices);
  if (set.shape == Shape::kAll) return set;
  if (set.shape == Shape::kResidue) set.modulus = indices[1] - indices[0];
  if (set.shape == Shape::kAllButOne) {
    const auto gap = std::ranges::find(hits, 0);
    set.first = gap - hits.begin();
  }
  const double share = static_cast<double>(set.count) / static_cast<double>(set.size);
  const double chance = static_cast<double>(elements) * std::log(share) + log_alternatives(set);
  // One element has an index on every axis: that is its place, not a pattern, and always said.
  if (elements > 1 && chance > std::log(kChance)) set.shape = Shape::kAll;
  return set;
}

std::string ordinal(std::int64_t n) {
  const bool teen = n % 100 / 10 == 1;
  const std::int64_t digit = teen ? 0 : n % 10;
  const char* ending = digit == 1 ? "st" : digit == 2 ? "nd" : digit == 3 ? "rd" : "th";
  return std::to_string(n) + ending;
}

std::string condition(const IndexSet& set, std::span<const std::int64_t> hits,
                      const std::string& letter) {
  const auto text = [](std::int64_t x) { return std::to_string(x); };
  switch (set.shape) {
    case Shape::kNothing:
    case Shape::kAll:
      return "";
    case Shape::kOne:
      return letter + " = " + text(set.first);
    case Shape::kAllButOne:
      return letter + " != " + text(set.first);
    case Shape::kFrom:
      return letter + " >= " + text(set.first);
    case Shape::kBelow:
      return letter + " < " + text(set.last + 1);
    case Shape::kRange:
      return text(set.first) + " <= " + letter + " <= " + text(set.last);
    case Shape::kResidue:
      return letter + " % " + text(set.modulus) + " = " + text(set.first);
    case Shape::kPeriod:
      return condition(set.period, letter);
    case Shape::kFew: {
      std::string list;
      const auto is_hit = [&](std::int64_t i) {
        return i < set.size && hits[static_cast<std::size_t>(i)] != 0;
      };
      for (std::int64_t i = 0; i < set.size; ++i) {
        if (!is_hit(i)) continue;
        const std::int64_t first = i;
        while (is_hit(i + 1)) ++i;
        list += (list.empty() ? "" : ", ") + text(first);
        if (i > first) list += (i == first + 1 ? ", " : "-") + text(i);
      }
      return letter + " in {" + list + "}";
    }
  }
  return "";
}

std::string box_in_words(std::span<const BoxAxis> axes) {
  std::string text;
  for (const BoxAxis& axis : axes) {
    const IndexSet set = index_set(axis.hits);
    if (set.shape == Shape::kAll || set.shape == Shape::kNothing) continue;
    text += text.empty() ? "" : ", ";
    text += set.shape == Shape::kOne ? axis.word + " " + std::to_string(set.first)
                                     : axis.word + "s " + condition(set, axis.hits, axis.letter);
  }
  return text;
}

}  // namespace goldenrule::explain
