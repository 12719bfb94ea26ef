// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/loop/world.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/gpu/loop/accepted.hpp"
#include "tests/gpu/loop/calls.hpp"

namespace goldenrule::test::loop {
namespace {

using call::Integers;
using call::Record;
using call::Tensor;

constexpr std::int64_t kQueryHeads = kHeads * kGroup;
constexpr std::int64_t kOutput = kQueryHeads * kDim;  // elements of o of a token
constexpr Hidden kPadding{.token = 0, .position = -1};

/// The slot of a row, none for the padding.
std::int64_t slot_of(std::size_t n) {
  return std::cmp_less(n, kRequests) ? static_cast<std::int64_t>(n * 3 + 1) % kSlots : -1;
}

Integers bounds_of_blocks() {
  Integers bounds;
  for (std::int64_t n = 0; n <= kRows; ++n) bounds.push_back(n * kBlock);
  return bounds;
}

static_assert(kRequests == 4);
Tensor valid_rows() { return call::integer_tensor({kBlock, kBlock, kBlock, kBlock, 0}); }

/// What is emitted where one draft more is taken for accepted.
Tokens one_more(const std::vector<Hidden>& block, const Tokens& chosen, std::int64_t accepted) {
  Tokens emitted;
  for (std::int64_t i = 1; i <= accepted + 1; ++i) {
    emitted.push_back(block[static_cast<std::size_t>(i)].token);
    if (emitted.back() == kStop) return emitted;
  }
  emitted.push_back(chosen[static_cast<std::size_t>(accepted + 1)]);
  return emitted;
}

}  // namespace

World::World(Engine engine, Draws& draws, bool leads, Fault fault)
    : engine_(std::move(engine)),
      draws_(draws),
      leads_(leads),
      fault_(fault),
      pool_(call::DType::kF32, {kSlots, kStateHeads, kStateValue, kStateKey}),
      drift_(static_cast<std::size_t>(kSlots * kStateHeads * kStateValue)) {
  for (std::int64_t i = 0; i < pool_.size(); ++i) pool_.set(i, 3.0);  // of slots that nobody has
  rows_.resize(kRequests);
  for (std::size_t n = 0; n < rows_.size(); ++n) admit(n);
}

// A new request takes the row, its slot and its pages.
void World::admit(std::size_t n) {
  const auto request = std::ssize(requests_);
  requests_[request] = {1 + request % (kVocabulary - 1)};
  rows_[n] = Row{.request = request};
  draft_cache_.release_from(n, 0);
  target_cache_.release_from(n, 0);
  constexpr std::int64_t kColumns = kStateHeads * kStateValue;
  const std::int64_t slot = slot_of(n);
  for (std::int64_t i = 0; i < kColumns * kStateKey; ++i) {
    pool_.set(slot * kColumns * kStateKey + i, 0.0);
  }
  std::fill_n(drift_.begin() + slot * kColumns, kColumns, 0.0);
}

std::int64_t World::answer(const Question& question, const Output& output, std::int64_t first,
                           std::int64_t count) {
  const auto part = [&](const std::vector<double>& all) {
    return all.empty() ? std::span<const double>()
                       : std::span(all).subspan(static_cast<std::size_t>(first),
                                                static_cast<std::size_t>(count));
  };
  const Numbers numbers{.values = part(output.values), .bounds = part(output.bounds)};
  return leads_ ? draws_.lead(question, numbers) : draws_.follow(question, numbers);
}

const Turn& World::round() {
  turn_ = {};
  draft();
  run_delta();
  run_attention();
  settle();
  return turn_;
}

void World::draft() {
  std::vector<Hidden> queries, fresh;
  Integers bounds{0}, lengths, offsets;
  for (Row& row : rows_) {
    row.block.clear();
    for (std::int64_t i = 0; i < kBlock; ++i) {
      row.block.push_back({.token = i == 0 ? tokens(row).back() : kMask,
                           .position = start(row) + i,
                           .has_signs = false});
    }
    fresh.insert(fresh.end(), row.context.begin(), row.context.end());
    fresh.insert(fresh.end(), row.block.begin(), row.block.end());
    queries.insert(queries.end(), row.block.begin(), row.block.end());
    bounds.push_back(std::ssize(fresh));
    lengths.push_back(fault_ == Fault::kStaleDraftLength ? row.draft_len_before : row.draft_len);
    offsets.push_back(lengths.back() + std::ssize(row.context));
  }
  queries.insert(queries.end(), kBlock, kPadding);
  bounds.push_back(bounds.back());
  lengths.push_back(0);
  offsets.push_back(0);
  Record record = attention_record(call::Mode::kDecode, "draft", queries, bounds_of_blocks());
  for (const char* name : {"k", "v"}) {
    record.inputs[name] = projected(std::string("draft ") + name, call::DType::kBF16,
                                    {std::ssize(fresh), kHeads, kDim}, fresh);
  }
  record.inputs["cu_seqlens_k"] = call::integer_tensor(bounds);
  record.inputs["kv_lens"] = call::integer_tensor(lengths);
  record.inputs["q_offset"] = call::integer_tensor(offsets);
  record.inputs["valid_q"] = valid_rows();
  draft_cache_.give(record);
  const Output& o = turn_.outputs["draft o"] = engine_(record, "o");
  for (std::size_t n = 0; n < rows_.size(); ++n) {
    Row& row = rows_[n];
    const std::int64_t rows = bounds[n + 1] - bounds[n];
    for (std::int64_t i = 0; i < rows; ++i) {
      const Hidden& hidden = fresh[static_cast<std::size_t>(bounds[n] + i)];
      draft_cache_.write(n, row.draft_len + i, key_of("draft", "k", hidden),
                         key_of("draft", "v", hidden));
    }
    for (std::int64_t i = 1; i < kBlock; ++i) {
      Hidden& place = row.block[static_cast<std::size_t>(i)];
      const std::int64_t first = (static_cast<std::int64_t>(n) * kBlock + i) * kOutput;
      place.token = answer({Kind::kDraft, row.request, place.position}, o, first, kOutput);
    }
  }
}

Record World::delta_call() const {
  std::vector<Hidden> tokens;
  Integers slots;
  for (std::size_t n = 0; n < rows_.size(); ++n) {
    tokens.insert(tokens.end(), rows_[n].block.begin(), rows_[n].block.end());
    slots.push_back(slot_of(n));
  }
  tokens.insert(tokens.end(), kBlock, kPadding);
  slots.push_back(-1);
  Record record = delta_record(call::Mode::kMtp, tokens, kBlock);
  record.inputs["initial_state"] = pool_;
  record.inputs["state_indices"] = call::integer_tensor(slots);
  return record;
}

void World::run_delta() {
  Record record = delta_call();
  record.convention.disable_state_update = 1;
  Output& u = turn_.outputs["delta o"] = engine_(record, "o");
  for (std::size_t n = 0; n < rows_.size(); ++n) {
    const auto drift = drift_.begin() + slot_of(n) * kSignCount;
    for (std::int64_t i = 0; i < kBlock; ++i) {
      const std::int64_t first = (static_cast<std::int64_t>(n) * kBlock + i) * kSignCount;
      for (std::int64_t d = 0; leads_ && d < kSignCount; ++d) {
        u.bounds[static_cast<std::size_t>(first + d)] += drift[d];
      }
      Hidden& hidden = rows_[n].block[static_cast<std::size_t>(i)];
      hidden.signs = static_cast<std::uint32_t>(
          answer({Kind::kSigns, rows_[n].request, hidden.position}, u, first, kSignCount));
      hidden.has_signs = true;
    }
  }
}

void World::run_attention() {
  std::vector<Hidden> queries;
  Integers lengths;
  for (std::size_t n = 0; n < rows_.size(); ++n) {
    const Row& row = rows_[n];
    for (std::int64_t i = 0; i < kBlock; ++i) {
      const Hidden& hidden = row.block[static_cast<std::size_t>(i)];
      target_cache_.write(n, row.target_len + i, key_of("target", "k", hidden),
                          key_of("target", "v", hidden));
      queries.push_back(hidden);
    }
    lengths.push_back(row.target_len + kBlock);
  }
  queries.insert(queries.end(), kBlock, kPadding);
  lengths.push_back(0);
  Record record = attention_record(call::Mode::kDecode, "target", queries, bounds_of_blocks());
  record.convention.mask = call::Mask::kCausal;
  record.convention.block_kv = call::BlockKv::kInCache;
  record.inputs["kv_lens"] = call::integer_tensor(lengths);
  record.inputs["valid_q"] = valid_rows();
  target_cache_.give(record);
  const Output& o = turn_.outputs["target o"] = engine_(record, "o");
  chosen_.assign(rows_.size(), {});
  for (std::size_t n = 0; n < rows_.size(); ++n) {
    for (std::int64_t i = 0; i < kBlock; ++i) {
      const std::int64_t first = (static_cast<std::int64_t>(n) * kBlock + i) * kOutput;
      chosen_[n].push_back(
          answer({Kind::kTarget, rows_[n].request, start(rows_[n]) + i + 1}, o, first, kOutput));
    }
  }
}

void World::settle() {
  Integers starts, drafts, chosen;
  for (std::size_t n = 0; n < rows_.size(); ++n) {
    starts.push_back(start(rows_[n]));
    for (std::size_t i = 1; i < kBlock; ++i) drafts.push_back(rows_[n].block[i].token);
    chosen.insert(chosen.end(), chosen_[n].begin(), chosen_[n].end());
  }
  starts.push_back(-1);
  drafts.insert(drafts.end(), kDrafts, 0);
  chosen.insert(chosen.end(), kBlock, 0);
  const Accepted decided(acceptance_record(starts, drafts, chosen));
  Integers counts;
  for (std::size_t n = 0; n < rows_.size(); ++n) {
    std::int64_t accepted = decided("accepted", n);
    Tokens emitted;
    for (std::int64_t i = 0; i < decided("committed", n); ++i) {
      emitted.push_back(decided("tokens", n * kBlock + static_cast<std::size_t>(i)));
    }
    if (fault_ == Fault::kAcceptsOneMore && accepted < kDrafts) {
      emitted = one_more(rows_[n].block, chosen_[n], accepted);
      ++accepted;
    }
    counts.push_back(std::ssize(emitted));
    keep(n, accepted, emitted, decided("draft_len", n));
  }
  commit(counts);
  for (std::size_t n = 0; n < rows_.size(); ++n) {
    if (tokens(rows_[n]).back() == kStop) admit(n);
  }
  Output& state = turn_.outputs["state"];
  state.values = pool_.to_doubles();
  for (std::size_t i = 0; leads_ && i < state.values.size(); ++i) {
    state.bounds.push_back(drift_[i / static_cast<std::size_t>(kStateKey)]);
  }
}

// Tokens, lengths and pages of a row after a draft acceptance that commits its first emitted.size()
// rows.
void World::keep(std::size_t n, std::int64_t accepted, const Tokens& emitted,
                 std::int64_t draft_len) {
  Row& row = rows_[n];
  const std::int64_t committed = std::ssize(emitted);
  const std::int64_t most_target = row.target_len + kBlock;
  const std::int64_t most_draft = row.draft_len + std::ssize(row.context) + kBlock;
  row.draft_len_before = row.draft_len;
  row.target_len = start(row) + committed;
  row.draft_len = draft_len;
  if (fault_ == Fault::kTargetKeepsRejected) {
    row.target_len = std::min(row.target_len + 1, most_target);
  }
  if (fault_ == Fault::kDraftKeepsRejected) row.draft_len = std::min(draft_len + 1, most_draft);
  row.context.assign(row.block.begin(), row.block.begin() + committed);
  target_cache_.release_from(n, (row.target_len + kPage - 1) / kPage);
  draft_cache_.release_from(n, (row.draft_len + kPage - 1) / kPage);
  const auto end = fault_ == Fault::kBonusNotCommitted ? emitted.end() - 1 : emitted.end();
  tokens(row).insert(tokens(row).end(), emitted.begin(), end);
  turn_.emitted.emplace_back(emitted.begin(), end);
  turn_.accepted.push_back(accepted);
  turn_.lengths.insert(turn_.lengths.end(), {row.target_len, row.draft_len, start(row)});
}

void World::commit(const std::vector<std::int64_t>& counts) {
  Record record = delta_call();
  Integers accepted = counts;
  for (std::int64_t& count : accepted) count -= fault_ == Fault::kCommitsOneLess ? 1 : 0;
  accepted.push_back(0);
  record.inputs["accepted_tokens"] = call::integer_tensor(accepted);
  const Output state = engine_(record, "final_state");
  for (std::size_t column = 0; column < drift_.size(); ++column) {
    double length2 = 0.0;
    for (std::size_t i = 0; i < kStateKey; ++i) {
      const std::size_t at = column * kStateKey + i;
      const auto element = static_cast<std::int64_t>(at);
      pool_.set(element, state.values[at]);
      if (!leads_) continue;
      const double step = state.bounds[at] + std::fabs(pool_[element] - state.values[at]);
      length2 += step * step;
    }
    drift_[column] += std::sqrt(length2);
  }
}

bool World::lengths_agree() const {
  return std::ranges::all_of(rows_, [&](const Row& row) {
    return row.draft_len + std::ssize(row.context) == row.target_len &&
           row.target_len == std::ssize(requests_.at(row.request)) - 1;
  });
}

}  // namespace goldenrule::test::loop
