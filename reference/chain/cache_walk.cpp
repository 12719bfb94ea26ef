// SPDX-License-Identifier: Apache-2.0
#include "reference/chain/cache_walk.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fixtures/call/integer_inputs.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/chain/request.hpp"

namespace goldenrule::chain {

using attention::Source;

CacheWalk::CacheWalk(Caches& caches, const Call& call, const call::Record& record,
                     std::vector<Finding>& findings)
    : caches_(caches),
      memory_(caches.memory_),
      call_(call),
      index_(static_cast<std::int32_t>(
          std::min<std::int64_t>(call.index, std::numeric_limits<std::int32_t>::max()))),
      record_(record),
      findings_(findings),
      plan_(attention::make_plan(record)),
      in_cache_(record.convention.block_kv == call::BlockKv::kInCache) {}

Finding& CacheWalk::report(const CacheRequest& request, Mistake mistake, std::string text) {
  findings_.push_back({.check = Check::kContinuity,
                       .mistake = mistake,
                       .call = call_.index,
                       .request = request.id.request,
                       .row = request.row,
                       .position = request.base,
                       .text = std::move(text)});
  return findings_.back();
}

// Digests of every place of the pool. A NaN is a NaN.
void CacheWalk::digest_pool() {
  const call::Dims& d = plan_.dims;
  std::vector<double> zeros(static_cast<std::size_t>(d.H * (d.K + d.V)), 0.0);
  zero_ = digest_of(zeros);
  if (!attention::has_cache(d)) return;
  const call::Tensor& keys = record_.inputs.at("k_cache");
  const call::Tensor& values = record_.inputs.at("v_cache");
  pool_.resize(static_cast<std::size_t>(d.pages * d.page_size));
  parallel::for_each_index(d.pages, [&](std::int64_t page) {
    std::vector<double> row(static_cast<std::size_t>(d.H * (d.K + d.V)));
    for (std::int64_t p = page * d.page_size; p < (page + 1) * d.page_size; ++p) {
      double* to = row.data();
      for (std::int64_t h = 0; h < d.H; ++h, to += d.K + d.V) {
        keys.read(attention::key_element(plan_, Source::kCache, p, h, d.K), d.K, to);
        values.read(attention::key_element(plan_, Source::kCache, p, h, d.V), d.V, to + d.K);
      }
      for (double& x : row) {
        if (std::isnan(x)) x = std::numeric_limits<double>::quiet_NaN();
      }
      pool_[static_cast<std::size_t>(p)] = digest_of(row);
    }
  });
}

// A row of k and v, as the cache will hold it.
CacheRow CacheWalk::fresh_row(std::int64_t row) const {
  const call::Dims& d = plan_.dims;
  std::vector<double> values(static_cast<std::size_t>(d.H * (d.K + d.V)));
  double* to = values.data();
  for (std::int64_t h = 0; h < d.H; ++h) {
    for (const auto& [name, dim] : {std::pair{"k", d.K}, std::pair{"v", d.V}}) {
      record_.inputs.at(name).read(attention::key_element(plan_, Source::kFresh, row, h, dim), dim,
                                   to);
      const bool is_key = *name == 'k';
      for (std::int64_t i = 0; i < dim; ++i, ++to) {
        if (caches_.kind_->page_size > 0) {
          *to = call::round_to(is_key ? caches_.kind_->keys : caches_.kind_->values, *to);
        }
        if (std::isnan(*to)) *to = std::numeric_limits<double>::quiet_NaN();
      }
    }
  }
  return {.digest = digest_of(values), .place = -1, .call = index_};
}

void CacheWalk::read_request(const attention::Request& plan, CacheRequest& request) const {
  for (const attention::Range& range : plan.visible) {
    if (range.first >= range.last) continue;
    const bool none = request.first >= request.last;
    request.first = none ? range.first : std::min(request.first, range.first);
    request.last = none ? range.last : std::max(request.last, range.last);
  }
  const bool ordered = record_.find_input("key_positions") == nullptr;
  const bool has_cache = attention::has_cache(plan_.dims);
  std::int64_t fresh = 0;
  for (const attention::Run& run : plan.runs) {
    if (run.source == Source::kFresh) fresh += run.count;
    for (std::int64_t i = 0; i < run.count; ++i) {
      const std::int64_t t = run.t + i;
      if (run.source == Source::kFresh && ordered) {
        request.brought.emplace_back(has_cache ? t : request.base + t, fresh_row(run.row + i));
      }
      if (run.source != Source::kCache || t < request.first || t >= request.last) continue;
      const std::int64_t place = run.row + i;
      constexpr std::int64_t kFar = std::numeric_limits<std::int32_t>::max();
      request.stands.emplace_back(
          t, CacheRow{.digest = pool_[static_cast<std::size_t>(place)],
                      .place = static_cast<std::int32_t>(place > kFar ? -1 : place),
                      .call = index_});
    }
  }
  request.given = record_.find_input("k") == nullptr ? plan.valid : fresh;
}

void CacheWalk::read_rows() {
  const std::vector<call::ChainRow> ids = call::chain_rows(record_, plan_.dims);
  const auto lens = call::integers(record_, "kv_lens");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i].request == call::kNoRequest) continue;
    const attention::Request& plan = plan_.requests[i];
    CacheRequest request{.id = ids[i], .row = static_cast<std::int64_t>(i)};
    request.base = lens ? (*lens)[i] : ids[i].position.value_or(0);
    request.queries = plan.queries;
    request.valid = plan.valid;
    request.cached = request.base;
    if (in_cache_) request.base = std::max<std::int64_t>(plan.offset, 0);
    requests_.push_back(std::move(request));
  }
  parallel::for_each_index(std::ssize(requests_), [&](std::int64_t i) {
    CacheRequest& request = requests_[static_cast<std::size_t>(i)];
    read_request(plan_.requests[static_cast<std::size_t>(request.row)], request);
  });
}

// The rows of the request that it was restored from, which may be itself at an earlier position,
// where its present life has none those of the last one that has.
void CacheWalk::restore(const CacheRequest& request, Cache& cache) const {
  cache.begin_again(request.base);
  const bool own = *request.id.restored_from == request.id.request;
  if (!own) cache.rows.clear();
  const auto found = caches_.of_requests_.find(*request.id.restored_from);
  std::vector<FormerRows> lives;
  if (found != caches_.of_requests_.end()) {
    const Cache& source = found->second;
    lives.assign(source.former.begin(), source.former.end());
    lives.insert(lives.end(), source.inherited.begin(), source.inherited.end());
    for (std::int64_t t = 0; t < request.base; ++t) {
      CacheRow row = source.at(t);
      for (const FormerRows& life : lives) {
        if (!row.known()) row = row_at(*life, t);
      }
      if (row.known()) cache.put(t, row);
    }
  }
  if (lives.size() > 2 * kMostLives) lives.resize(2 * kMostLives);
  cache.inherited = std::move(lives);
}

void CacheWalk::enter(CacheRequest& request) {
  const std::int64_t id = request.id.request;
  if (memory_.reached.try_emplace(id, -1).second) ++memory_.summary.requests;
  Cache& cache = caches_.of_requests_[id];
  const bool known = cache.call >= 0;
  if (request.id.restored_from && request.base > 0) {
    restore(request, cache);
    cache.turned = call_.index;
  } else if (request.begins()) {
    const bool had = cache.base > 0 || cache.kept.value_or(cache.given) > 0;
    // Where there is a layer with states, it counts them.
    if (known && had && !memory_.layout) ++memory_.summary.restarts;
    cache.begin_again(0);
    cache.inherited.clear();
    cache.turned = call_.index;
  } else {
    cache.crop(request.base);
  }
}

void CacheWalk::compare(CacheRequest& request) {
  const Cache& cache = caches_.of_requests_.at(request.id.request);
  for (const auto& [t, row] : request.stands) {
    if (t >= request.base) continue;  // that the call brings
    ++memory_.summary.rows;
    const CacheRow expected = cache.at(t);
    if (!expected.known()) {
      request.taken = true;
      continue;
    }
    ++memory_.summary.rows_judged;
    if (expected.digest != row.digest && !cache.once_had(t, row.digest)) {
      request.wrong.push_back(
          {.t = t, .place = row.place, .expected = expected, .digest = row.digest});
    }
  }
  if (request.taken) ++memory_.summary.taken;
}

// The request goes on from what is there. Of a row that was wrong nobody knows: a table may have
// been, or the row is lost.
void CacheWalk::leave(CacheRequest& request) {
  Cache& cache = caches_.of_requests_.at(request.id.request);
  for (const auto& [t, row] : request.stands) cache.put(t, row);
  for (const WrongRow& wrong : request.wrong) cache.put(wrong.t, CacheRow());
  // Positions without a cache are what the call says: rows that follow none have no place.
  const bool has_cache = attention::has_cache(plan_.dims);
  for (const auto& [t, row] : request.brought) {
    if (t < 0) continue;
    if (has_cache || t <= std::ssize(cache.rows)) cache.put(t, row);
  }
  cache.call = call_.index;
  cache.base = request.base;
  cache.given = request.given;
  cache.kept = request.id.accepted;
  cache.loose = request.miscounted;
}

void CacheWalk::hold() {
  std::vector<HeldRow>& held = caches_.held_;
  if (pool_.empty()) return;
  const std::size_t before = held.size();
  held.resize(pool_.size());
  for (std::size_t p = 0; p < pool_.size(); ++p) {
    if (p >= before || held[p].digest != pool_[p]) held[p] = {.digest = pool_[p], .since = index_};
  }
}

void CacheWalk::run() {
  digest_pool();
  read_rows();
  find_role();
  check_lengths();
  for (CacheRequest& request : requests_) enter(request);
  for (CacheRequest& request : requests_) compare(request);
  report_rows();
  for (CacheRequest& request : requests_) leave(request);
  hold();
}

}  // namespace goldenrule::chain
