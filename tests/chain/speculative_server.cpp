// SPDX-License-Identifier: Apache-2.0
#include "tests/chain/speculative_server.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "fixtures/call/integer_inputs.hpp"
#include "fixtures/random/philox.hpp"
#include "reference/attention/plan/plan.hpp"
#include "reference/suites/slices.hpp"

namespace goldenrule::testing {
namespace {

using Integers = std::vector<std::int64_t>;

// The outputs of an honest kernel.
void compute(call::Record& record, std::uint64_t seed) {
  const verdict::Slice& slice = suites::slice_of(record.op);
  for (const auto& [name, values] : slice.emulate(record, slice.default_contract(record), seed)) {
    const call::DType type = record.op == call::Op::kDraftAcceptance ? call::DType::kI64
                             : name == "lse"                         ? call::DType::kF32
                                                                     : call::DType::kBF16;
    record.outputs[name] = call::Tensor(type, values.shape(), values.to_doubles());
  }
}

}  // namespace

SpeculativeServer::SpeculativeServer(const SpeculativeOptions& options)
    : states({.seed = options.seed}), options_(options) {
  const bool nhd = options.layout == call::KvLayout::kNhd;
  keys_ = draw("old keys", nhd ? call::Shape{kPages, kP, kH, kK} : call::Shape{kPages, kH, kP, kK});
  values_ =
      draw("old values", nhd ? call::Shape{kPages, kP, kH, kV} : call::Shape{kPages, kH, kP, kV});
  for (std::int64_t page = 0; page < kPages; ++page) free_.insert(page);
}

call::Tensor SpeculativeServer::draw(const std::string& name, call::Shape shape) {
  const random::Stream stream(options_.seed, name + " " + std::to_string(drawn_++));
  call::Tensor tensor(call::DType::kBF16, std::move(shape));
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.set(i, stream.uniform(i, -1, 1));
  return tensor;
}

// Any page that is free.
void SpeculativeServer::grow(Live& request, std::int64_t tokens) {
  const random::Stream stream(options_.seed, "page " + std::to_string(drawn_++));
  while (std::ssize(request.pages) * kP < tokens) {
    auto page = free_.begin();
    const auto count = static_cast<double>(free_.size());
    std::advance(page, static_cast<std::int64_t>(
                           stream.uniform(std::ssize(request.pages), 0.0, count - 0.01)));
    request.pages.push_back(*page);
    free_.erase(page);
  }
}

void SpeculativeServer::write(const Live& request, std::int64_t t, const call::Record& record,
                              std::int64_t row) {
  if (!request.writes) return;
  t += request.shift;
  if (t < 0 || t / kP >= std::ssize(request.pages)) return;
  attention::Plan plan;
  plan.dims.H = kH;
  plan.dims.HV = kHV;
  plan.dims.K = kK;
  plan.dims.V = kV;
  plan.dims.pages = kPages;
  plan.dims.page_size = kP;
  plan.layout = options_.layout;
  const std::int64_t place = request.pages[static_cast<std::size_t>(t / kP)] * kP + t % kP;
  for (std::int64_t h = 0; h < kH; ++h) {
    for (const auto& [name, to, dim] :
         {std::tuple{"k", &keys_, kK}, std::tuple{"v", &values_, kV}}) {
      const std::int64_t from = (row * kH + h) * dim;
      const std::int64_t at =
          attention::key_element(plan, attention::Source::kCache, place, h, dim);
      for (std::int64_t i = 0; i < dim; ++i) to->set(at + i, record.inputs.at(name)[from + i]);
    }
  }
}

void SpeculativeServer::hand_over(call::Record record) {
  calls.push_back({.chain = "test", .index = states.index++, .record = std::move(record)});
}

void SpeculativeServer::add_table(const std::vector<Fresh>& rows, call::Record& r) const {
  Integers bounds{0}, pages;
  std::size_t width = 0;
  for (const Fresh& row : rows) width = std::max(width, live.at(row.id).pages.size());
  for (const Fresh& row : rows) {
    Integers own = live.at(row.id).pages;
    if (!options_.csr) own.resize(width, -1);
    pages.insert(pages.end(), own.begin(), own.end());
    bounds.push_back(std::ssize(pages));
  }
  if (options_.csr) {
    r.inputs["page_indptr"] = call::integer_tensor(bounds);
    r.inputs["page_indices"] = call::integer_tensor(pages);
  } else {
    r.inputs["page_table"] =
        call::integer_tensor(pages, {std::ssize(rows), static_cast<std::int64_t>(width)});
  }
}

void SpeculativeServer::attend(const std::vector<Fresh>& rows, bool is_prompt,
                               std::int64_t restored_from) {
  const bool in_cache = options_.use == CacheUse::kInCache && !is_prompt;
  Integers ids, positions, restored, lens, offsets, q{0}, k{0};
  for (const Fresh& row : rows) {
    ids.push_back(row.id);
    positions.push_back(live[row.id].length);
    restored.push_back(restored_from);
    lens.push_back(live[row.id].length + (in_cache ? row.keys : 0));
    offsets.push_back(row.offset);
    q.push_back(q.back() + row.queries);
    k.push_back(k.back() + row.keys);
  }
  call::Record r;
  r.op = call::Op::kAttention;
  r.mode = is_prompt && restored_from < 0 ? call::Mode::kPrefill : call::Mode::kDecode;
  r.convention.mask = call::Mask::kCausal;
  r.convention.kv_layout = options_.layout;
  r.inputs["q"] = draw("q", {q.back(), kHV, kK});
  r.inputs["k"] = draw("k", {k.back(), kH, kK});
  r.inputs["v"] = draw("v", {k.back(), kH, kV});
  r.inputs["cu_seqlens_q"] = call::integer_tensor(q);
  r.inputs["cu_seqlens_k"] = call::integer_tensor(k);
  r.inputs["request_ids"] = call::integer_tensor(ids);
  r.inputs["positions"] = call::integer_tensor(positions);
  if (restored_from >= 0) r.inputs["restored_from"] = call::integer_tensor(restored);
  const auto write_all = [&] {
    for (std::size_t n = 0; n < rows.size(); ++n) {
      Live& request = live[rows[n].id];
      grow(request, request.length + rows[n].keys);
      for (std::int64_t i = 0; i < rows[n].keys; ++i) {
        write(request, request.length + i, r, k[n] + i);
      }
    }
  };
  call::Record unwritten = r;
  if (in_cache) write_all();
  if (r.mode == call::Mode::kDecode) {
    unwritten.inputs["kv_lens"] = call::integer_tensor(lens);
    unwritten.inputs["k_cache"] = keys_;
    unwritten.inputs["v_cache"] = values_;
    if (!in_cache) unwritten.inputs["q_offset"] = call::integer_tensor(offsets);
    add_table(rows, unwritten);
  }
  if (in_cache) {
    unwritten.convention.block_kv = call::BlockKv::kInCache;
    for (const char* name : {"k", "v", "cu_seqlens_k"}) unwritten.inputs.erase(name);
  } else {
    write_all();
  }
  if (on_attention) on_attention(unwritten);
  compute(unwritten, options_.seed);
  hand_over(std::move(unwritten));
}

void SpeculativeServer::mtp(const Rows& rows, const Integers& starts) {
  Integers ids, drafts, targets;
  const random::Stream stream(options_.seed, "tokens " + std::to_string(drawn_++));
  for (const auto& [id, committed] : rows) {
    ids.push_back(id);
    for (std::int64_t i = 0; i < kBlock; ++i) {
      const auto at = std::ssize(targets);
      const auto token = static_cast<std::int64_t>(stream.uniform(at, 0.0, 99.0));
      if (i + 1 < kBlock) drafts.push_back(token);
      targets.push_back(i + 1 < committed ? token : token + 1);
    }
  }
  call::Record r;
  r.op = call::Op::kDraftAcceptance;
  r.mode = call::Mode::kGreedy;
  r.convention.page_size = kP;
  r.inputs["start"] = call::integer_tensor(starts);
  r.inputs["draft_tokens"] = call::integer_tensor(drafts, {std::ssize(rows), kBlock - 1});
  r.inputs["target_tokens"] = call::integer_tensor(targets, {std::ssize(rows), kBlock});
  r.inputs["request_ids"] = call::integer_tensor(ids);
  if (on_acceptance) on_acceptance(r);
  compute(r, options_.seed);
  hand_over(std::move(r));
}

void SpeculativeServer::prompt(std::int64_t id, std::int64_t slot, std::int64_t tokens) {
  live[id].slot = slot;
  attend({{.id = id, .queries = tokens, .keys = tokens, .offset = 0}}, true);
  live[id].length = tokens;
  calls.push_back(states.serve(call::Mode::kPrefill,
                               {{.request = id, .slot = slot, .tokens = tokens, .fresh = true}}));
}

void SpeculativeServer::share(std::int64_t id, std::int64_t slot, std::int64_t from) {
  Live& request = live[id];
  request.slot = slot;
  request.length = 8;
  if (request.pages.empty()) {
    request.pages = {live[from].pages.begin(), live[from].pages.begin() + 8 / kP};
  }
  attend({{.id = id, .queries = 4, .keys = 4, .offset = 8}}, true, from);
  request.length += 4;
  states.put(slot, states.left("checkpoints", 0));
  states.positions[id] = 8;
  calls.push_back(states.serve(
      call::Mode::kPrefill, {{.request = id, .slot = slot, .tokens = 4, .restored_from = from}}));
}

void SpeculativeServer::step(const Rows& rows) {
  std::vector<Fresh> fresh;
  std::vector<ServedRow> served;
  Integers starts;
  for (const auto& [id, committed] : rows) {
    const std::int64_t start = states.positions[id];
    const bool draft = options_.use == CacheUse::kDraft;
    starts.push_back(start);
    fresh.push_back({.id = id,
                     .queries = kBlock,
                     .keys = kBlock + (draft ? start - live[id].length : 0),
                     .offset = draft ? start : live[id].length});
    served.push_back(
        {.request = id, .slot = live[id].slot, .accepted = committed + live[id].beyond});
  }
  attend(fresh, false);
  chain::Call call = states.serve(call::Mode::kMtp, served);
  if (!options_.counted) {
    call.record.inputs.erase("accepted_counts");
    call.record.inputs.erase("accepted_tokens");
    call.record.outputs.erase("final_state");
    call.record.convention.disable_state_update = 1;
  }
  calls.push_back(std::move(call));
  mtp(rows, starts);
  for (std::size_t n = 0; n < rows.size(); ++n) {
    const auto& [id, committed] = rows[n];
    live[id].length = options_.use == CacheUse::kDraft ? starts[n] : live[id].length + committed;
  }
}

void SpeculativeServer::release(std::int64_t id) {
  for (const std::int64_t page : live[id].pages) {
    const bool shared = std::ranges::any_of(live, [&](const auto& other) {
      return other.first != id && std::ranges::count(other.second.pages, page) > 0;
    });
    if (!shared) free_.insert(page);
  }
  live.erase(id);
}

void SpeculativeServer::preempt(std::int64_t id, std::int64_t tokens) {
  const std::int64_t slot = live[id].slot;
  release(id);
  prompt(id, slot, tokens);
}

SpeculativeServer begun(std::int64_t requests, const SpeculativeOptions& options) {
  SpeculativeServer server(options);
  SpeculativeServer::Rows rows{{1, 2}, {2, 3}, {3, 1}};
  rows.resize(static_cast<std::size_t>(requests));
  const std::vector<std::int64_t> lengths{10, 7, 5};
  for (std::int64_t n = 0; n < requests; ++n) {
    server.prompt(n + 1, n, lengths[static_cast<std::size_t>(n)]);
  }
  server.step(rows);
  return server;
}

chain::Finding first_of(const std::vector<chain::Call>& calls, std::size_t findings) {
  const Judged judged = judge(calls, {.only_chain = true});
  REQUIRE(judged.findings.size() == findings);
  CHECK(judged.findings[0].check == chain::Check::kContinuity);
  return judged.findings[0];
}
chain::Finding only(const std::vector<chain::Call>& calls) { return first_of(calls, 1); }

void number(std::vector<chain::Call>& calls) {
  std::int64_t index = 0;
  for (chain::Call& call : calls) call.index = index++;
}

}  // namespace goldenrule::testing
