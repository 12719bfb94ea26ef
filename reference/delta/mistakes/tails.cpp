// SPDX-License-Identifier: Apache-2.0
//
// All sensible tails, but for those that the table names.
#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "fixtures/call/plan.hpp"
#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/mistakes/generated.hpp"
#include "reference/delta/mistakes/tail.hpp"

namespace goldenrule::delta {
namespace {

using call::Record;

constexpr std::array kAxes{TailAxis::kKeys, TailAxis::kValues, TailAxis::kTokens, TailAxis::kHeads,
                           TailAxis::kRows};
constexpr std::array<std::int64_t, 5> kTiles{8, 16, 32, 64, 128};
constexpr std::array kRead{TailRead::kAll, TailRead::kNothing, TailRead::kNothingAfterNorm};
constexpr std::array kHolds{TailHolds::kResults, TailHolds::kUnwritten, TailHolds::kZero,
                            TailHolds::kFirst, TailHolds::kLast};
constexpr std::array kOf{TailOf::kAll, TailOf::kO, TailOf::kStates};
constexpr std::size_t kTails =
    kAxes.size() * kTiles.size() * kRead.size() * kHolds.size() * kOf.size();

constexpr Tail tail_at(std::size_t i) {
  const std::size_t of = i % kOf.size();
  const std::size_t holds = i / kOf.size() % kHolds.size();
  const std::size_t read = i / (kOf.size() * kHolds.size()) % kRead.size();
  const std::size_t outer = i / (kOf.size() * kHolds.size() * kRead.size());
  return {.axis = kAxes[outer / kTiles.size()],
          .tile = kTiles[outer % kTiles.size()],
          .read = kRead[read],
          .holds = kHolds[holds],
          .of = kOf[of]};
}

// What is read decides nothing where all that is written is something else, and o has no keys.
constexpr bool is_sensible(const Tail& t) {
  const bool all_read = t.read == TailRead::kAll;
  const bool results = t.holds == TailHolds::kResults;
  if (all_read && results) return false;
  if (results && t.of != TailOf::kAll) return false;
  switch (t.axis) {
    case TailAxis::kKeys:
      return results || t.of == TailOf::kStates;
    case TailAxis::kValues:
      return all_read || (t.read == TailRead::kNothing && (results || t.of != TailOf::kAll));
    case TailAxis::kTokens:
      return t.of == TailOf::kO && t.read != TailRead::kNothingAfterNorm;
    case TailAxis::kHeads:
    case TailAxis::kRows:
      return all_read;
  }
  return false;
}

constexpr std::size_t kSensible = [] {
  std::size_t count = 0;
  for (std::size_t i = 0; i < kTails; ++i) count += is_sensible(tail_at(i)) ? 1 : 0;
  return count;
}();
constexpr std::array<Tail, kSensible> kSensibleTails = [] {
  std::array<Tail, kSensible> tails{};
  std::size_t count = 0;
  for (std::size_t i = 0; i < kTails; ++i) {
    if (is_sensible(tail_at(i))) tails[count++] = tail_at(i);
  }
  return tails;
}();

std::int64_t extent_of(const Record& r, TailAxis axis) {
  const call::Dims d = call::validate(r);
  switch (axis) {
    case TailAxis::kKeys:
      return d.K;
    case TailAxis::kValues:
      return d.V;
    case TailAxis::kHeads:
      return d.HV;
    case TailAxis::kRows:
      return d.rows;
    case TailAxis::kTokens:
      break;
  }
  return 0;
}

// Whether tiles of both widths leave the same tail.
bool begin_alike(const Record& r, TailAxis axis, std::int64_t a, std::int64_t b) {
  if (axis != TailAxis::kTokens) {
    const std::int64_t extent = extent_of(r, axis);
    return tail_begin(extent, a) == tail_begin(extent, b);
  }
  return std::ranges::all_of(call::make_plan(r, false).sequences, [&](const call::Sequence& s) {
    return tail_begin(s.token_count, a) == tail_begin(s.token_count, b);
  });
}

// The same tail with a narrower tile, or one that the table names, is the same mistake.
template <Tail kTail>
bool is_new_tail(const Record& r) {
  if (!has_tail(r, kTail.axis, kTail.tile)) return false;
  if (kTail.read == TailRead::kNothingAfterNorm && r.convention.qk_l2norm == call::QkNorm::kNone) {
    return false;
  }
  for (const Tail& named : kNamedTails) {
    Tail here = kTail;
    here.tile = named.tile;
    if (here == named && begin_alike(r, kTail.axis, kTail.tile, named.tile)) return false;
  }
  return std::ranges::none_of(kTiles, [&](std::int64_t tile) {
    return tile < kTail.tile && begin_alike(r, kTail.axis, kTail.tile, tile);
  });
}

struct TailWords {
  std::string name, meaning;
};

TailWords words_of(const Tail& t) {
  constexpr std::array<std::array<const char*, 2>, 5> kAxisWords{{{"k", "key channels"},
                                                                  {"v", "value channels"},
                                                                  {"token", "tokens of a sequence"},
                                                                  {"head", "value heads"},
                                                                  {"row", "rows or sequences"}}};
  const auto& [axis, indices] = kAxisWords[static_cast<std::size_t>(t.axis)];
  TailWords w{std::string(axis) + "_tail_of_" + std::to_string(t.tile),
              std::string(indices) + " beyond the last full tile of " + std::to_string(t.tile) +
                  " (or of a wider one that ends there)"};
  if (t.read != TailRead::kAll) {
    const bool after_norm = t.read == TailRead::kNothingAfterNorm;
    w.name += after_norm ? "_unread_after_norm" : "_unread";
    w.meaning += after_norm ? " enter the norm and are not read behind it" : " are not read";
  }
  if (t.holds == TailHolds::kResults) return w;
  constexpr std::array<std::array<const char*, 2>, 5> kHoldsWords{
      {{"", ""},
       {"_unwritten", "are not written"},
       {"_zero", "hold 0"},
       {"_first", "hold the results of the first ones"},
       {"_last", "hold the results of the last one before them"}}};
  const auto& [name, meaning] = kHoldsWords[static_cast<std::size_t>(t.holds)];
  w.name += name;
  w.meaning += (t.read == TailRead::kAll ? " " : ", and ") + std::string(meaning);
  if (t.of != TailOf::kAll) {
    w.name += t.of == TailOf::kO ? "_in_o" : "_in_states";
    w.meaning += t.of == TailOf::kO ? " in o" : " in the states";
  }
  return w;
}

constexpr std::string_view kTailGroup = "Tails";

template <Tail kTail>
void add_tail(std::vector<calls::Mistake>& all) {
  if (std::ranges::find(kNamedTails, kTail) != std::end(kNamedTails)) return;
  static const TailWords words = words_of(kTail);  // the mistake refers to them
  // A tail of value channels is gone where these are cut.
  const bool cut = kTail.axis != TailAxis::kValues;
  all.push_back({.name = words.name,
                 .group = kTailGroup,
                 .meaning = words.meaning,
                 .applies = is_new_tail<kTail>,
                 .commit = commit_tail<kTail>,
                 .cut_by = cut ? calls::CutBy::kValues : calls::CutBy::kNothing});
}

template <std::size_t... i>
void add_tails(std::vector<calls::Mistake>& all, std::index_sequence<i...>) {
  (add_tail<kSensibleTails[i]>(all), ...);
}

}  // namespace

std::vector<calls::Mistake> tail_mistakes() {
  std::vector<calls::Mistake> all;
  add_tails(all, std::make_index_sequence<kSensible>{});
  return all;
}

}  // namespace goldenrule::delta
