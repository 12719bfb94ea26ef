// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/by_blocks.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "reference/explain/index_set.hpp"

namespace goldenrule::explain {
namespace {

std::vector<std::string> names_of(const std::vector<ComparedOutput>& outputs) {
  std::vector<std::string> names;
  names.reserve(outputs.size());
  for (const ComparedOutput& output : outputs) names.push_back(output.name);
  return names;
}

Place place_of(const BlockFit& fit) {
  return fit.is_made() ? Place::kHere : fit.is_open() ? Place::kOpen : Place::kElsewhere;
}

// Whether the mistakes are made in the same blocks; what is open depends on the mistake.
bool same_blocks(const std::vector<Place>& a, const std::vector<Place>& b) {
  return std::ranges::equal(
      a, b, [](Place x, Place y) { return (x == Place::kHere) == (y == Place::kHere); });
}

std::int64_t made_blocks(const BlockFits& fits) {
  return std::ranges::count_if(fits.blocks, &BlockFit::is_made);
}

// What the blocks and sums that tell have in common.
struct Told {
  BlockFit made;
  bool right = false;  // some block or sum
};

// Of the blocks of a sum those that are `place`.
bool all_are(const SumFit& sum, const std::vector<Place>& places, Place place) {
  return std::ranges::all_of(sum.blocks, [&](std::size_t b) { return places[b] == place; });
}

bool any_is(const SumFit& sum, const std::vector<Place>& places, Place place) {
  return std::ranges::any_of(sum.blocks, [&](std::size_t b) { return places[b] == place; });
}

// Whether a sum allows the places of its blocks; where only the sum tells it decides for them.
bool settle(const SumFit& sum, std::vector<Place>& places, Told& told) {
  if (all_are(sum, places, Place::kHere)) return sum.fit.reproduced;
  if (any_is(sum, places, Place::kHere)) return true;
  if (!sum.fit.fails) {
    told.right = told.right || (sum.fit.told && sum.fit.is_right());
    return true;
  }
  if (!sum.fit.is_made() || any_is(sum, places, Place::kElsewhere)) return false;
  for (const std::size_t b : sum.blocks) places[b] = Place::kHere;
  if (sum.fit.told) told.made.add(sum.fit);
  return true;
}

BlockExplanation explanation(const BlockFit& made, double accounted, std::int64_t blocks) {
  BlockExplanation e;
  e.ratio = made.ratio;
  e.accounted = accounted / static_cast<double>(blocks);
  e.assumes = made.assumes;
  e.residual =
      std::sqrt(made.square / static_cast<double>(std::max<std::int64_t>(made.compared, 1)));
  return e;
}

bool better_by_blocks(const BlockExplanation& a, const BlockExplanation& b) {
  return std::tuple(a.assumes, a.residual) < std::tuple(b.assumes, b.residual);
}

}  // namespace

std::string BlockExplanation::name() const {
  std::string text;
  for (const calls::Mistake* m : mistakes)
    text += (text.empty() ? "" : " + ") + std::string(m->name);
  return text;
}

BlockSearch::BlockSearch(const call::Record& call, const Matcher& matcher, std::int64_t possible)
    : matcher_(matcher),
      map_(call, names_of(matcher.outputs())),
      possible_(static_cast<double>(possible)) {}

bool BlockSearch::is_chance(double log_chance) const {
  return log_chance + std::log(possible_) > std::log(kChance);
}

void BlockSearch::consider(const calls::Mistake* mistake, const Prediction& prediction) {
  std::erase_if(considered_, [&](const Considered& c) { return c.mistake == mistake; });
  BlockFits fits = fit_blocks(map_, matcher_, prediction);
  std::vector<Place> places = alone(fits);
  if (places.empty() && made_blocks(fits) == 0) return;
  considered_.push_back({mistake, std::move(fits), std::move(places), prediction});
}

bool BlockSearch::may_be_chance(const Prediction& prediction) const {
  const BlockFits fits = fit_blocks(map_, matcher_, prediction);
  BlockFit all;
  for (const BlockFit& fit : fits.blocks) all.add(fit);
  for (const SumFit& sum : fits.sums) all.add(sum.fit);
  return all.has_numbers && is_chance(all.log_chance);
}

std::vector<Place> BlockSearch::alone(const BlockFits& fits) const {
  std::vector<Place> places;
  Told told;
  for (const BlockFit& fit : fits.blocks) {
    places.push_back(place_of(fit));
    if (fit.fails && places.back() != Place::kHere) return {};
    if (!fit.told) continue;
    told.right = told.right || fit.is_right();
    if (places.back() == Place::kHere) told.made.add(fit);
  }
  for (const SumFit& sum : fits.sums) {
    if (!settle(sum, places, told)) return {};
  }
  const bool both = told.right && told.made.told;
  return both && !is_chance(told.made.log_chance) ? places : std::vector<Place>{};
}

std::vector<BlockExplanation> BlockSearch::found_alone() const {
  std::vector<BlockExplanation> all;
  for (const Considered& c : considered_) {
    if (c.places.empty()) continue;
    BlockFit made;
    double accounted = 0.0;
    std::int64_t blocks = 0;
    const auto add = [&](const BlockFit& fit) {
      if (!fit.is_made()) return;
      made.add(fit);
      accounted += fit.share.accounted();
      ++blocks;
    };
    std::ranges::for_each(c.fits.blocks, add);
    for (const SumFit& sum : c.fits.sums) add(sum.fit);
    BlockExplanation e = explanation(made, accounted, blocks);
    e.mistakes = {c.mistake};
    e.parts = {{&c.prediction, c.places}};
    e.where = {map_.words(c.places)};
    add_or_join(std::move(e), all);
  }
  return all;
}

void BlockSearch::add_or_join(BlockExplanation e, std::vector<BlockExplanation>& all) const {
  const auto same = std::ranges::find_if(all, [&](const BlockExplanation& other) {
    if (other.parts.size() != e.parts.size()) return false;
    for (std::size_t i = 0; i < e.parts.size(); ++i) {
      const auto& [prediction, places] = e.parts[i];
      const Prediction& known = *other.parts[i].prediction;
      if (!same_blocks(other.parts[i].places, places)) return false;
      if (!same_in_blocks(map_, matcher_, known, *prediction, places)) return false;
    }
    return true;
  });
  if (same == all.end()) {
    all.push_back(std::move(e));
  } else if (e.mistakes.size() == 1 &&
             calls::are_of_a_kind(*same->mistakes.front(), *e.mistakes.front())) {
    calls::share(*same->mistakes.front(), *e.mistakes.front(), same->shared);
  } else {
    same->same.push_back(e.name());
  }
}

std::optional<BlockExplanation> BlockSearch::together(const Considered& a,
                                                      const Considered& b) const {
  std::vector<Place> of_a, of_b;
  BlockFit made, only_a, only_b;
  double accounted = 0.0;
  std::int64_t blocks = 0;
  for (std::size_t i = 0; i < map_.size(); ++i) {
    const BlockFit& x = a.fits.blocks[i];
    const BlockFit& y = b.fits.blocks[i];
    of_a.push_back(place_of(x));
    of_b.push_back(x.is_made() && y.is_made() ? Place::kOpen : place_of(y));
    if (!x.fails) continue;
    if (!x.is_made() && !y.is_made()) return std::nullopt;
    const BlockFit& better = x.is_made() ? x : y;
    made.add(better);
    accounted += better.share.accounted();
    ++blocks;
    if (x.told && x.is_made() && !y.is_made()) only_a.add(x);
    if (y.told && y.is_made() && !x.is_made()) only_b.add(y);
  }
  if (!only_a.told || !only_b.told) return std::nullopt;
  if (is_chance(only_a.log_chance) || is_chance(only_b.log_chance)) return std::nullopt;
  for (std::size_t s = 0; s < a.fits.sums.size(); ++s) {
    const SumFit& sum = a.fits.sums[s];
    const bool here = any_is(sum, of_a, Place::kHere) || any_is(sum, of_b, Place::kHere);
    if (all_are(sum, of_a, Place::kHere) && !sum.fit.reproduced) return std::nullopt;
    if (all_are(sum, of_b, Place::kHere) && !b.fits.sums[s].fit.reproduced) return std::nullopt;
    if (!here && sum.fit.fails) return std::nullopt;
  }
  BlockExplanation e = explanation(made, accounted, blocks);
  e.mistakes = {a.mistake, b.mistake};
  e.where = {map_.words(of_a), map_.words(of_b)};
  e.parts = {{&a.prediction, std::move(of_a)}, {&b.prediction, std::move(of_b)}};
  return e;
}

std::vector<BlockExplanation> BlockSearch::found_together() const {
  std::vector<const Considered*> most;
  for (const Considered& c : considered_) most.push_back(&c);
  std::ranges::stable_sort(most, std::greater{},
                           [](const Considered* c) { return made_blocks(c->fits); });
  if (most.size() > kCovering) most.resize(kCovering);
  std::vector<BlockExplanation> all;
  for (std::size_t i = 0; i < most.size(); ++i) {
    for (std::size_t j = i + 1; j < most.size(); ++j) {
      if (most[i]->mistake->name == most[j]->mistake->name) continue;
      if (auto e = together(*most[i], *most[j])) add_or_join(std::move(*e), all);
    }
  }
  return all;
}

std::vector<BlockExplanation> BlockSearch::found() const {
  std::vector<BlockExplanation> all = found_alone();
  if (all.empty()) all = found_together();
  std::ranges::stable_sort(all, better_by_blocks);
  for (BlockExplanation& e : all) e.parts.clear();
  return all;
}

}  // namespace goldenrule::explain
