// SPDX-License-Identifier: Apache-2.0
//
// What stands in a cache where another row was to be. A name is given where the row is known from
// elsewhere; one of zeros has none, since it is the same row everywhere.
#include <algorithm>
#include <map>

#include "reference/chain/cache_walk.hpp"

namespace goldenrule::chain {
namespace {

constexpr std::size_t kMostNamed = 64;  // rows of a request that are looked for

bool rejected(const Cache& cache, std::int64_t t, std::uint64_t digest) {
  return std::ranges::find(cache.rejected, std::pair{t, digest}) != cache.rejected.end();
}

// Where a request has shown this row.
std::vector<std::int64_t> positions_of(const Cache& cache, std::uint64_t digest) {
  std::vector<std::int64_t> positions;
  for (std::int64_t t = 0; t < std::ssize(cache.rows); ++t) {
    if (cache.at(t).known() && cache.at(t).digest == digest) positions.push_back(t);
  }
  return positions;
}

std::string row_words(std::int64_t t, std::int64_t request) {
  return "it is row " + std::to_string(t) + " of request " + std::to_string(request);
}

}  // namespace

// Whether the place held this row when the request has shown its own, which was elsewhere.
bool CacheWalk::was_there(const WrongRow& wrong) const {
  const auto place = static_cast<std::size_t>(wrong.place);
  if (wrong.place < 0 || place >= caches_.held_.size()) return false;
  const HeldRow& held = caches_.held_[place];
  return held.digest == wrong.digest && held.since <= wrong.expected.call &&
         wrong.expected.place != wrong.place;
}

// Whether the page is the request's: the row was there, or others of it are.
bool CacheWalk::is_own_page(const CacheRequest& request, const WrongRow& wrong) const {
  if (wrong.expected.place == wrong.place) return true;
  const Cache& cache = caches_.of_requests_.at(request.id.request);
  const std::int64_t page = wrong.place / plan_.dims.page_size;
  return std::ranges::any_of(request.stands, [&](const auto& stand) {
    const auto& [t, row] = stand;
    return t < request.base && row.place / plan_.dims.page_size == page && cache.at(t).known() &&
           cache.at(t).digest == row.digest;
  });
}

RowName CacheWalk::of_others(const CacheRequest& request, const WrongRow& wrong,
                             bool own_place) const {
  for (const auto& [id, cache] : caches_.of_requests_) {
    if (id == request.id.request) continue;
    std::vector<std::int64_t> at = positions_of(cache, wrong.digest);
    for (const auto& [t, digest] : cache.rejected) {
      if (digest == wrong.digest) at.push_back(t);
    }
    if (at.empty()) continue;
    return {own_place ? Mistake::kOverwritten : Mistake::kOtherPage,
            row_words(at.front(), id) + (own_place ? ", which was written over it" : "")};
  }
  // What other rows of this call bring.
  for (const CacheRequest& other : requests_) {
    if (other.id.request == request.id.request) continue;
    for (const auto& [t, row] : other.stands) {
      if (t < other.base || row.digest != wrong.digest) continue;
      return {own_place ? Mistake::kOverwritten : Mistake::kOtherPage,
              row_words(t, other.id.request) + (own_place ? ", which was written over it" : "")};
    }
  }
  return {};
}

RowName CacheWalk::of_itself(const CacheRequest& request, const WrongRow& wrong) const {
  const Cache& cache = caches_.of_requests_.at(request.id.request);
  const std::vector<std::int64_t> at = positions_of(cache, wrong.digest);
  if (at.size() != 1) return {};  // a row that repeats itself says nothing
  return {Mistake::kOtherPosition, row_words(at.front(), request.id.request)};
}

RowName CacheWalk::name_of(const CacheRequest& request, const WrongRow& wrong) const {
  const Cache& cache = caches_.of_requests_.at(request.id.request);
  const RowName unwritten{Mistake::kRowNotWritten, "it is what the place held before"};
  if (wrong.digest == zero_) return was_there(wrong) ? unwritten : RowName();
  if (rejected(cache, wrong.t, wrong.digest)) {
    return {Mistake::kRejectedRow, "it is the row of a draft that was rejected"};
  }
  const bool own_page = is_own_page(request, wrong);
  RowName name = of_itself(request, wrong);
  if (name.mistake != Mistake::kNone) return name;
  if (own_page && was_there(wrong)) return unwritten;
  name = of_others(request, wrong, own_page);
  if (name.mistake != Mistake::kNone) return name;
  return was_there(wrong) ? unwritten : RowName();
}

void CacheWalk::report_rows() {
  for (const CacheRequest& request : requests_) {
    if (request.wrong.empty()) continue;
    std::map<Mistake, std::pair<std::size_t, const WrongRow*>> votes;
    std::map<Mistake, std::string> words;
    for (std::size_t i = 0; i < std::min(request.wrong.size(), kMostNamed); ++i) {
      const RowName name = name_of(request, request.wrong[i]);
      auto& [count, first] = votes[name.mistake];
      if (count++ > 0) continue;
      first = &request.wrong[i];
      words[name.mistake] = name.words;
    }
    if (votes.size() > 1) votes.erase(Mistake::kNone);
    const auto most =
        std::ranges::max_element(votes, {}, [](const auto& vote) { return vote.second.first; });
    const WrongRow& row = *most->second.second;
    const std::int64_t P = plan_.dims.page_size;
    Finding& finding =
        report(request, most->first,
               "row " + std::to_string(row.t) + " of the cache, in slot " +
                   std::to_string(row.place % P) + " of page " + std::to_string(row.place / P) +
                   ", is not what the request has shown (" + std::to_string(request.wrong.size()) +
                   " of " + std::to_string(request.stands.size()) + " rows are not)");
    const std::string& of = words.at(most->first);
    if (!of.empty()) finding.text += ": " + of;
    finding.position = row.t;
    finding.page = row.place / P;
    finding.slot = row.place % P;
  }
}

}  // namespace goldenrule::chain
