// SPDX-License-Identifier: Apache-2.0
#include "reference/serving/cache_layer.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "fixtures/call/operation.hpp"
#include "reference/serving/tokens.hpp"
#include "reference/suites/slices.hpp"

namespace goldenrule::serving {
namespace {

std::vector<Row> live_rows(const Step& step) {
  std::vector<Row> rows;
  std::ranges::copy_if(step.rows, std::back_inserter(rows),
                       [](const Row& row) { return row.request >= 0; });
  return rows;
}

// Whether the change of a step is of this request.
bool errs(const Step& step, CacheFault fault, std::int64_t request) {
  return step.cache.fault == fault && (step.cache.request < 0 || step.cache.request == request);
}

// Row `i` of `from` becomes row `j` of `to`; rows of both have one size.
void copy_row(const call::Tensor& from, std::int64_t i, call::Tensor& to, std::int64_t j) {
  const std::int64_t elements = from.shape().end()[-1] * from.shape().end()[-2];
  const std::size_t size = static_cast<std::size_t>(elements) * call::info(from.dtype()).bytes;
  std::memcpy(to.bytes().data() + static_cast<std::size_t>(j) * size,
              from.bytes().data() + static_cast<std::size_t>(i) * size, size);
}

// The outputs of an honest kernel: o in the type of q, integers as such.
void compute(call::Record& record) {
  const verdict::Slice& slice = suites::slice_of(record.op);
  for (const auto& [name, values] :
       slice.emulate(record, slice.default_contract(record), kKernelSeed)) {
    const call::DType type = record.op == call::Op::kDraftAcceptance ? call::DType::kI64
                             : name == "lse"                         ? call::DType::kF32
                                             : record.inputs.at("q").dtype();
    record.outputs[name] = call::Tensor(type, values.shape(), values.to_doubles());
  }
}

}  // namespace

CacheLayer::CacheLayer(const cases::Scenario& scenario, const std::vector<Request>& requests)
    : scenario_(scenario), requests_(requests), stream_(scenario.seed, "serving/cache") {
  if (scenario.cache == 0) return;
  const std::int64_t most = scenario.prompt + scenario.output + scenario.T;
  const std::int64_t pages = scenario.requests * ((most + scenario.cache - 1) / scenario.cache + 1);
  keys_ = drawn(scenario.io, {pages, scenario.cache, scenario.H, scenario.K});
  values_ = drawn(scenario.io, {pages, scenario.cache, scenario.H, scenario.V});
  for (std::int64_t page = 0; page < pages; ++page) free_.insert(page);
}

std::vector<double> CacheLayer::draw(std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& x : values) x = stream_.normal(draws_++);
  return values;
}

call::Tensor CacheLayer::drawn(call::DType type, call::Shape shape) {
  const std::int64_t count = call::element_count(shape);
  return {type, std::move(shape), draw(count)};
}

std::int64_t CacheLayer::take_page() {
  const auto count = static_cast<std::uint64_t>(free_.size());
  const auto page =
      std::next(free_.begin(), static_cast<std::ptrdiff_t>(stream_.bits(draws_++) % count));
  return free_.extract(page).value();
}

std::int64_t CacheLayer::place(const Live& request, std::int64_t t) const {
  return request.pages[static_cast<std::size_t>(t / scenario_.cache)] * scenario_.cache +
         t % scenario_.cache;
}

// Pages that no other request has are free.
void CacheLayer::release(Live& request) {
  for (const std::int64_t page : std::exchange(request.pages, {})) {
    const bool shared = std::ranges::any_of(live_, [&](const auto& other) {
      return std::ranges::find(other.second.pages, page) != other.second.pages.end();
    });
    if (!shared) free_.insert(page);
  }
  request.length = 0;
}

// Done are those that have all their tokens, once the request that shares their prefix has begun.
void CacheLayer::retire(const Step& step) {
  for (auto& [id, request] : live_) {
    if (request.length < requests_[static_cast<std::size_t>(id)].total) continue;
    if (std::ranges::find(step.rows, id, &Row::request) != step.rows.end()) continue;
    const auto next = static_cast<std::size_t>(id) + 1;
    const bool awaited =
        next < requests_.size() && requests_[next].shared > 0 && !live_.contains(id + 1);
    if (!awaited) release(request);
  }
}

void CacheLayer::share(Live& request, const Live& from, std::int64_t length) {
  release(request);
  const std::int64_t full = length / scenario_.cache;
  request.pages.assign(from.pages.begin(), from.pages.begin() + full);
  if (full * scenario_.cache == length) return;
  request.pages.push_back(take_page());
  for (std::int64_t t = full * scenario_.cache; t < length; ++t) {
    copy_row(keys_, place(from, t), keys_, place(request, t));
    copy_row(values_, place(from, t), values_, place(request, t));
  }
}

// What the server does with the cache of a row before its call.
void CacheLayer::enter(const Row& row) {
  Live& request = live_[row.request];
  if (row.position == 0) release(request);
  if (row.restored_from >= 0 && row.restored_from != row.request) {
    share(request, live_.at(row.restored_from), row.position);
  }
  request.length = row.position;
  grow(request, request.length, nullptr);  // where a call before is missing
}

void CacheLayer::grow(Live& request, std::int64_t length, const Live* next) {
  while (std::ssize(request.pages) * scenario_.cache < length) {
    const bool twice = next != nullptr && !next->pages.empty();
    request.pages.push_back(twice ? next->pages.back() : take_page());
    next = nullptr;
  }
}

// What comes into the cache of the rows that a call brings. Another page that is taken for a new
// one is that of the next row.
void CacheLayer::write(const std::vector<Row>& rows, const Step& step, const call::Record& record) {
  call::Tensor keys = record.inputs.at("k");
  call::Tensor values = record.inputs.at("v");
  std::int64_t token = 0;
  for (std::size_t n = 0; n < rows.size(); ++n) {
    const Row& row = rows[n];
    Live& request = live_.at(row.request);
    const bool twice = errs(step, CacheFault::kPageTwice, row.request);
    grow(request, request.length + row.count,
         twice ? &live_.at(rows[(n + 1) % rows.size()].request) : nullptr);
    const std::int64_t shift = errs(step, CacheFault::kShifted, row.request) ? 1 : 0;
    for (std::int64_t i = 0; i < row.count; ++i, ++token) {
      const std::int64_t t = request.length + i + shift;
      if (errs(step, CacheFault::kNotWritten, row.request)) continue;
      if (t >= std::ssize(request.pages) * scenario_.cache) continue;
      for (const auto& [from, to] : {std::pair{&keys, &keys_}, std::pair{&values, &values_}}) {
        if (step.cache.fault >= CacheFault::kZeros) spoil(step, row.request, token, *from);
        copy_row(*from, token, *to, place(request, t));
      }
    }
    request.length = row.position + row.accepted;
  }
}

// Row `token` of k or v, as a mistake stores it.
void CacheLayer::spoil(const Step& step, std::int64_t request, std::int64_t token,
                       call::Tensor& rows) {
  const std::int64_t heads = rows.shape()[1];
  const std::int64_t dim = rows.shape()[2];
  std::vector<double> row(static_cast<std::size_t>(heads * dim));
  rows.read(token * heads * dim, heads * dim, row.data());
  if (errs(step, CacheFault::kHeadsMoved, request)) {
    std::rotate(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(dim), row.end());
  } else if (errs(step, CacheFault::kZeros, request)) {
    std::ranges::fill(row, 0.0);
  } else if (errs(step, CacheFault::kNoise, request)) {
    row = draw(heads * dim);
  }
  for (std::int64_t i = 0; i < heads * dim; ++i) {
    rows.set(token * heads * dim + i, row[static_cast<std::size_t>(i)]);
  }
}

call::Tensor CacheLayer::table_of(const std::vector<Row>& rows, const Step& step) {
  std::vector<std::vector<std::int64_t>> table;
  for (std::size_t n = 0; n < rows.size(); ++n) {
    table.push_back(live_.at(rows[n].request).pages);
    const std::vector<std::int64_t>& next = live_.at(rows[(n + 1) % rows.size()].request).pages;
    if (errs(step, CacheFault::kPageOfNext, rows[n].request) && !table[n].empty() &&
        !next.empty()) {
      table[n].front() = next.front();
    }
    const bool stale = errs(step, CacheFault::kTableOfLast, rows[n].request);
    if (!stale || n >= table_.size()) continue;
    std::copy_n(table_[n].begin(), std::min(table_[n].size(), table[n].size()), table[n].begin());
  }
  table_ = table;
  std::size_t width = 1;
  for (const auto& pages : table) width = std::max(width, pages.size());
  std::vector<std::int64_t> all;
  for (auto& pages : table) {
    pages.resize(width, -1);
    all.insert(all.end(), pages.begin(), pages.end());
  }
  return call::integer_tensor(all, {std::ssize(rows), static_cast<std::int64_t>(width)});
}

call::Record CacheLayer::attend(const Step& step) {
  const std::vector<Row> rows = live_rows(step);
  retire(step);
  for (const Row& row : rows) {
    enter(row);
    if (errs(step, CacheFault::kLengthOff, row.request)) {
      live_.at(row.request).length += step.cache.off;
    }
  }
  call::Record record;
  record.op = call::Op::kAttention;
  record.mode = call::Mode::kDecode;
  record.convention.mask = call::Mask::kCausal;
  record.source = "simulated server: " + cases::canonical(scenario_);
  const call::Tensor tokens = bounds(of_rows(rows, [](const Row& r) { return r.count; }));
  const std::int64_t count = tokens.to_integers().back();
  record.inputs["q"] = drawn(scenario_.io, {count, scenario_.HV, scenario_.K});
  record.inputs["k"] = drawn(scenario_.io, {count, scenario_.H, scenario_.K});
  record.inputs["v"] = drawn(scenario_.io, {count, scenario_.H, scenario_.V});
  record.inputs["cu_seqlens_q"] = tokens;
  record.inputs["cu_seqlens_k"] = tokens;
  const auto length = [&](const Row& r) { return live_.at(r.request).length; };
  record.inputs["kv_lens"] = integers(1, of_rows(rows, length));
  record.inputs["q_offset"] = record.inputs.at("kv_lens");
  record.inputs["k_cache"] = keys_;
  record.inputs["v_cache"] = values_;
  record.inputs["page_table"] = table_of(rows, step);
  add_ids(rows, record);
  compute(record);
  write(rows, step, record);
  return record;
}

std::optional<call::Record> CacheLayer::mtp(const Step& step) {
  std::vector<Row> rows = live_rows(step);
  std::erase_if(rows, [](const Row& row) { return row.accepted == 0; });
  if (rows.empty()) return std::nullopt;
  std::vector<std::int64_t> starts, drafts, targets;
  for (std::size_t n = 0; n < rows.size(); ++n) {
    const Row& row = rows[n];
    const bool moved = errs(step, CacheFault::kCommitsMoved, row.request);
    const std::int64_t more = errs(step, CacheFault::kCommitsOff, row.request) ? step.cache.off : 0;
    const std::int64_t commits = more + (moved ? rows[(n + 1) % rows.size()] : row).accepted;
    starts.push_back(row.position +
                     (errs(step, CacheFault::kStartOff, row.request) ? step.cache.off : 0));
    for (std::int64_t i = 0; i < row.count; ++i) {
      const auto token = static_cast<std::int64_t>(stream_.bits(draws_++) % 1000);
      if (i + 1 < row.count) drafts.push_back(token);
      targets.push_back(i + 1 < commits ? token : token + 1);
    }
  }
  const std::int64_t width = rows.front().count;
  call::Record record;
  record.op = call::Op::kDraftAcceptance;
  record.mode = call::Mode::kGreedy;
  record.convention.page_size = scenario_.cache;
  record.source = "simulated server: " + cases::canonical(scenario_);
  record.inputs["start"] = integers(1, starts);
  record.inputs["draft_tokens"] = call::integer_tensor(drafts, {std::ssize(rows), width - 1});
  record.inputs["target_tokens"] = call::integer_tensor(targets, {std::ssize(rows), width});
  record.inputs["request_ids"] =
      integers(1, of_rows(rows, [](const Row& r) { return said_of(r).request; }));
  compute(record);
  return record;
}

void CacheLayer::add_calls(const Step& step, std::vector<call::Record>& records) {
  records.push_back(attend(step));
  if (step.mode != call::Mode::kMtp) return;
  std::optional<call::Record> acceptance = mtp(step);
  if (acceptance) records.push_back(*std::move(acceptance));
}

}  // namespace goldenrule::serving
