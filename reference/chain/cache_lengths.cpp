// SPDX-License-Identifier: Apache-2.0
//
// How many tokens the cache of each request has, beside what was kept of it.
#include <algorithm>
#include <map>

#include "reference/chain/cache_walk.hpp"

namespace goldenrule::chain {
namespace {

// The draft acceptance behind the last call of the cache.
Acceptance* behind(Acceptances& acceptances, std::int64_t request, const Cache& cache) {
  Acceptance* said = acceptances.find(request);
  return said != nullptr && !said->by_cache && said->call > cache.call ? said : nullptr;
}

std::string tokens(std::int64_t n) { return std::to_string(n); }

}  // namespace

// The target's cache or the draft's, by the lengths that most requests have where the two differ.
void CacheWalk::find_role() {
  if (caches_.role_ != Role::kUnknown) return;
  std::int64_t targets = 0;
  std::int64_t drafts = 0;
  for (const CacheRequest& request : requests_) {
    const auto found = caches_.of_requests_.find(request.id.request);
    if (found == caches_.of_requests_.end() || found->second.loose) continue;
    if (request.begins() || request.id.restored_from) continue;
    const Acceptance* said = behind(caches_.acceptances_, request.id.request, found->second);
    if (said == nullptr || !said->target_len() || said->target_len() == said->draft_len) continue;
    targets += request.base == said->target_len() ? 1 : 0;
    drafts += request.base == said->draft_len ? 1 : 0;
  }
  if (targets > drafts) caches_.role_ = Role::kTarget;
  if (drafts > targets) caches_.role_ = Role::kDraft;
}

// What the length may be; empty: nobody says.
std::vector<std::int64_t> CacheWalk::lengths(const CacheRequest& request, const Cache& cache,
                                             const Acceptance* said) const {
  std::vector<std::int64_t> all;
  if (said != nullptr) {
    const bool draft = caches_.role_ != Role::kTarget;
    const bool target = caches_.role_ != Role::kDraft;
    if (draft && said->draft_len) all.push_back(*said->draft_len);
    if (target && said->target_len()) all.push_back(*said->target_len());
    if (caches_.role_ == Role::kTarget || !all.empty()) {
      if (caches_.role_ == Role::kUnknown && cache.kept) all.push_back(cache.base + *cache.kept);
      if (!all.empty()) return all;
    }
  }
  if (cache.kept) return {cache.base + *cache.kept};
  return {std::clamp(request.base, cache.base, cache.base + cache.given)};
}

void CacheWalk::report_length(CacheRequest& request, std::int64_t expected,
                              const Acceptance* said) {
  request.miscounted = true;
  std::string text = "the cache of request " + tokens(request.id.request) + " has " +
                     tokens(request.base) + " tokens, expected " + tokens(expected);
  if (said != nullptr)
    text += ", which the draft acceptance in call " + tokens(said->call) + " says";
  text += request.base > expected ? ": a rejected draft stays" : ": tokens that were kept are gone";
  report(request, Mistake::kWrongLength, std::move(text));
}

void CacheWalk::check_length(CacheRequest& request, std::vector<Followed>& followed) {
  const bool counted = attention::has_cache(plan_.dims) && request.id.position.has_value();
  const auto found = caches_.of_requests_.find(request.id.request);
  const bool known = found != caches_.of_requests_.end() && !found->second.loose;
  Acceptance* said =
      known ? behind(caches_.acceptances_, request.id.request, found->second) : nullptr;
  if (said != nullptr) said->by_cache = true;
  if (counted && *request.id.position != request.base) {
    return report_length(request, *request.id.position, nullptr);
  }
  const bool shorter = in_cache_ && request.cached != request.base + request.queries &&
                       request.cached != request.base + request.valid;
  if (shorter && counted) {
    report(request, Mistake::kWrongLength,
           "the cache of request " + tokens(request.id.request) + " has " + tokens(request.cached) +
               " tokens with those of the call, expected " + tokens(request.base + request.valid));
    return;
  }
  if (!known || request.begins() || request.id.restored_from) return;
  const std::vector<std::int64_t> all = lengths(request, found->second, said);
  const bool is_target = caches_.role_ == Role::kTarget && said != nullptr && said->committed;
  if (said != nullptr) caches_.acceptances_.count(*said);
  const std::int64_t went = said == nullptr ? 0 : request.base - said->start;
  if (is_target) followed.push_back({Followed::kRight, said->row, went});
  if (std::ranges::find(all, request.base) != all.end()) return;
  if (is_target && counted && went >= 0) {
    followed.back().finding = findings_.size();
    report(request, Mistake::kNotCommitted,
           words_of_counts(request.id.request, *said->committed, went));
    said->committed = went;
    return;
  }
  report_length(request, all.front(), said);
}

void CacheWalk::check_lengths() {
  std::map<std::shared_ptr<const std::vector<std::int64_t>>, std::vector<Followed>> by_call;
  for (CacheRequest& request : requests_) {
    const Acceptance* said = caches_.acceptances_.find(request.id.request);
    std::vector<Followed> none;
    check_length(request, said == nullptr ? none : by_call[said->counts]);
  }
  for (const auto& [counts, followed] : by_call) name_counts(*counts, followed, findings_);
}

}  // namespace goldenrule::chain
