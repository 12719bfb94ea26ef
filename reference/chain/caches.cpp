// SPDX-License-Identifier: Apache-2.0
#include "reference/chain/caches.hpp"

#include <algorithm>
#include <string>

#include "fixtures/call/integer_inputs.hpp"
#include "reference/chain/admission.hpp"
#include "reference/chain/cache_walk.hpp"

namespace goldenrule::chain {
namespace {

bool holds(call::DType wide, call::DType narrow) {
  const bool is_wide = wide == call::DType::kF32 || wide == call::DType::kF64;
  return wide == narrow || (is_wide && call::info(wide).bytes > call::info(narrow).bytes);
}

// The first extent in which a call differs from the layer.
std::string difference(const CacheKind& kind, const CacheKind& now) {
  std::string differs = differing_extent(
      {{"HV", kind.HV, now.HV}, {"H", kind.H, now.H}, {"K", kind.K, now.K}, {"V", kind.V, now.V}});
  if (kind.page_size == 0 || now.page_size == 0 || !differs.empty()) return differs;
  if (kind.layout != now.layout) return "kv_layout: another than that of the first call";
  if (kind.keys != now.keys || kind.values != now.values) {
    return "the type of the cache: another than that of the first call";
  }
  return differing_extent({{"P", kind.page_size, now.page_size}});
}

CacheKind kind_of(const call::Record& record, const call::Dims& d) {
  CacheKind kind{.HV = d.HV, .H = d.H, .K = d.K, .V = d.V, .page_size = d.page_size};
  kind.layout = record.convention.kv_layout;
  if (!attention::has_cache(d)) return kind;
  kind.keys = record.inputs.at("k_cache").dtype();
  kind.values = record.inputs.at("v_cache").dtype();
  return kind;
}

}  // namespace

void Cache::put(std::int64_t t, const CacheRow& row) {
  if (t >= std::ssize(rows)) rows.resize(static_cast<std::size_t>(t) + 1);
  rows[static_cast<std::size_t>(t)] = row;
}

void Cache::crop(std::int64_t length) {
  for (std::int64_t t = length; t < std::ssize(rows); ++t) {
    if (at(t).known()) rejected.emplace_back(t, at(t).digest);
    if (rejected.size() > kMostRejected) rejected.pop_front();
  }
  if (length < std::ssize(rows)) rows.resize(static_cast<std::size_t>(length));
}

void Cache::begin_again(std::int64_t length) {
  if (!rows.empty()) former.push_front(std::make_shared<const std::vector<CacheRow>>(rows));
  if (former.size() > kMostLives) former.pop_back();
  if (length < std::ssize(rows)) rows.resize(static_cast<std::size_t>(length));
  rejected.clear();
}

bool Cache::once_had(std::int64_t t, std::uint64_t digest) const {
  return std::ranges::any_of(inherited, [&](const FormerRows& life) {
    const CacheRow row = row_at(*life, t);
    return row.known() && row.digest == digest;
  });
}

std::uint64_t Cache::bytes() const {
  std::uint64_t count = rows.size();
  for (const FormerRows& life : former) count += life->size();
  for (const FormerRows& life : inherited) count += life->size();
  return count * sizeof(CacheRow);
}

bool Caches::admit(const Call& call, const call::Record& record, const call::Dims& dims,
                   std::vector<Finding>& findings) {
  const CacheKind now = kind_of(record, dims);
  if (kind_) {
    const std::string differs = difference(*kind_, now);
    if (!differs.empty()) {
      findings.push_back(
          input_finding(call.index, differs + "; the call is left out of the chain"));
      return false;
    }
  }
  double rows = static_cast<double>(dims.fresh_keys);
  for (const std::int64_t length : call::integers(record, "kv_lens").value_or(call::Integers())) {
    rows += static_cast<double>(std::max<std::int64_t>(length, 0));
  }
  const double bytes = 2.0 * rows * static_cast<double>(sizeof(CacheRow));
  if (bytes > memory_.options.call_bytes) {
    throw Error(ErrorKind::kUnsafe, "",
                "a call whose rows in caches take at most " +
                    std::to_string(static_cast<std::uint64_t>(memory_.options.call_bytes)) +
                    " bytes (--memory)",
                std::to_string(static_cast<std::uint64_t>(bytes)) + " bytes");
  }
  if (kind_ && kind_->page_size > 0) return true;
  // What was brought before the type of the cache was known is as it was before rounding.
  if (kind_ && now.page_size > 0 && brought_ &&
      (!holds(now.keys, brought_->first) || !holds(now.values, brought_->second))) {
    for (auto& [id, cache] : of_requests_) {
      cache.rows.clear();
      cache.former.clear();
      cache.inherited.clear();
    }
  }
  kind_ = now;
  return true;
}

void Caches::add(const Call& call, const call::Record& record, std::vector<Finding>& findings) {
  CacheWalk(*this, call, record, findings).run();
  if (kind_->page_size == 0) {
    brought_ = std::pair{record.inputs.at("k").dtype(), record.inputs.at("v").dtype()};
  }
  trim(call.index);
}

void Caches::agree(const Call& call, std::vector<Finding>& findings) {
  if (role_ != Role::kTarget) return;
  std::vector<Followed> followed;
  std::shared_ptr<const std::vector<std::int64_t>> counts;
  for (const auto& [id, cache] : of_requests_) {
    Acceptance* said = acceptances_.find(id);
    if (said == nullptr || said->call != call.index || !said->committed) continue;
    if (cache.loose || cache.base != said->start || !cache.kept) continue;
    counts = said->counts;
    acceptances_.count(*said);
    followed.push_back({Followed::kRight, said->row, *cache.kept});
    if (*cache.kept == *said->committed) continue;
    followed.back().finding = findings.size();
    findings.push_back({.check = Check::kContinuity,
                        .mistake = Mistake::kNotCommitted,
                        .call = call.index,
                        .request = id,
                        .row = said->row,
                        .position = said->start,
                        .text = words_of_counts(id, *said->committed, *cache.kept)});
    said->committed = cache.kept;
  }
  if (counts) name_counts(*counts, followed, findings);
}

void Caches::turn(std::int64_t request, std::int64_t since, std::int64_t position) {
  const auto found = of_requests_.find(request);
  if (found == of_requests_.end() || found->second.turned > since) return;
  Cache& cache = found->second;
  cache.begin_again(position);
  cache.loose = true;
}

void Caches::forget_all() {
  of_requests_.clear();
  held_.clear();
}

void Caches::trim(std::int64_t index) {
  std::uint64_t bytes = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> resting;  // last call, request
  for (const auto& [id, cache] : of_requests_) {
    bytes += cache.bytes();
    if (cache.call < index) resting.emplace_back(cache.call, id);
  }
  std::ranges::sort(resting);
  for (const auto& [last, id] : resting) {
    if (bytes <= memory_.options.most_bytes) return;
    bytes -= of_requests_.at(id).bytes();
    of_requests_.erase(id);
    ++memory_.summary.forgotten;
  }
}

}  // namespace goldenrule::chain
