// SPDX-License-Identifier: Apache-2.0
//
// What a result must not depend on. Numbers that are not read may be anything, so the bits of the
// result stay: other tokens later in the sequence (causality), NaN in other rows, in their states,
// in padding and in slots that nobody reads (isolation).
//
// A NaN in a later token of the same chunk is another matter: a chunk kernel multiplies the masked
// part of q k^T and of T, which is 0, with it, and 0 * NaN is NaN. That is no lookahead (finite
// tokens show it, `future_changed`), so under a contract with chunks only the chunks before the
// NaN are claimed.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/calls/rows.hpp"
#include "reference/delta/relations/tables.hpp"
#include "reference/delta/relations/trial.hpp"

namespace goldenrule::relations {
namespace {

using call::Record;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Tokens of a sequence that stay as they are.
std::int64_t kept(std::int64_t count) { return (count + 1) / 2; }

// Claims what depends on at most limit(token_count) tokens of each sequence.
template <class F>
void claim_past(Trial& trial, const Run& other, F&& limit) {
  const Run& base = trial.base();
  Pairs past;
  for (std::int64_t n = 0; n < base.plan.dims.rows; ++n) {
    Pairs pairs;
    pair_sequences(base, n, other, n, call::all_indices(base.plan.dims.HV), pairs);
    const std::int64_t most = limit(base.plan.sequences[static_cast<std::size_t>(n)].token_count);
    for (auto& [name, list] : pairs) {
      for (const Pair& p : list) {
        if (p.after <= most) past[name].push_back(p);
      }
    }
  }
  trial.claim_pairs(other, past);
}

// Every later token becomes a token from the part that is kept.
void future_changed(Trial& trial) {
  const Run& base = trial.base();
  std::vector<std::int64_t> source = call::all_indices(base.plan.dims.tokens);
  for (const call::Sequence& s : base.plan.sequences) {
    for (std::int64_t t = kept(s.token_count); t < s.token_count; ++t) {
      source[static_cast<std::size_t>(s.first_token + t)] = s.first_token + t - kept(s.token_count);
    }
  }
  claim_past(trial, trial.run(calls::with_tokens(base.record, source)), kept);
}

// NaN in all token inputs for which poisoned(token) holds.
template <class F>
void poison_tokens(Record& record, std::int64_t tokens, F&& poisoned) {
  for (const call::TensorRow& row : call::operation(record.op).tensors) {
    const auto it = record.inputs.find(std::string(row.name));
    if (it == record.inputs.end() || !row.is_per_token() || tokens == 0) continue;
    const std::int64_t width = it->second.size() / tokens;
    if (width == 0) continue;
    calls::change(it->second,
                  [&](std::int64_t i, double x) { return poisoned(i / width) ? kNaN : x; });
  }
}

void future_nan(Trial& trial) {
  const Run& base = trial.base();
  std::vector<bool> late(static_cast<std::size_t>(base.plan.dims.tokens), false);
  for (const call::Sequence& s : base.plan.sequences) {
    for (std::int64_t t = kept(s.token_count); t < s.token_count; ++t) {
      late[static_cast<std::size_t>(s.first_token + t)] = true;
    }
  }
  Record changed = base.record;
  poison_tokens(changed, base.plan.dims.tokens,
                [&](std::int64_t t) { return late[static_cast<std::size_t>(t)]; });
  const std::int64_t chunk = trial.contract().tokens_together();
  claim_past(trial, trial.run(std::move(changed)),
             [&](std::int64_t count) { return kept(count) / chunk * chunk; });
}

// Odd rows are poisoned and even ones compared, then the reverse. Padded rows are always
// poisoned: their output is zero whatever they hold.
void neighbour_nan(Trial& trial) {
  const Run& base = trial.base();
  const call::Dims& d = base.plan.dims;
  for (const std::int64_t parity : {0, 1}) {
    Record changed = base.record;
    std::vector<bool> tokens(static_cast<std::size_t>(d.tokens), false);
    std::vector<bool> blocks(static_cast<std::size_t>(d.slots), true);
    for (std::int64_t n = 0; n < d.rows; ++n) {
      const call::Sequence& s = base.plan.sequences[static_cast<std::size_t>(n)];
      const bool poisoned = n % 2 != parity || s.padded;
      std::fill_n(tokens.begin() + s.first_token, s.token_count, poisoned);
      if (!poisoned && s.start_block >= 0) blocks[static_cast<std::size_t>(s.start_block)] = false;
    }
    poison_tokens(changed, d.tokens,
                  [&](std::int64_t t) { return tokens[static_cast<std::size_t>(t)]; });
    const auto states = changed.inputs.find("initial_state");
    if (states != changed.inputs.end()) {
      const std::int64_t block = d.HV * d.state_size();
      calls::change(states->second, [&](std::int64_t i, double x) {
        return blocks[static_cast<std::size_t>(i / block)] ? kNaN : x;
      });
    }
    const Run other = trial.run(std::move(changed));
    Pairs pairs;
    for (std::int64_t n = 0; n < d.rows; ++n) {
      const bool padded = base.plan.sequences[static_cast<std::size_t>(n)].padded;
      if (n % 2 == parity || padded)
        pair_sequences(base, n, other, n, call::all_indices(d.HV), pairs);
    }
    trial.claim_pairs(other, pairs);
  }
}

bool has_future(const Record& r, const contract::Contract&) {
  return calls::longest_sequence(r) > 1;
}

constexpr std::array kPoisonRelations{
    Relation{"future_changed", "other later tokens: what came before them stays", Demand::kSameBits,
             has_future, future_changed},
    Relation{"future_nan", "NaN in all later tokens: what came before them stays",
             Demand::kSameBits,
             [](const Record& r, const contract::Contract& contract) {
               return calls::longest_sequence(r) > 1 &&
                      kept(calls::longest_sequence(r)) >= contract.tokens_together();
             },
             future_nan},
    Relation{"neighbour_nan", "NaN in the other rows, their states, padding and unread slots",
             Demand::kSameBits,
             [](const Record& r, const contract::Contract&) {
               const call::Dims d = call::validate(r);
               return d.tokens > 0 && (d.rows > 1 || !calls::is_prefill(r));
             },
             neighbour_nan},
};

}  // namespace

std::span<const Relation> poison_relations() { return kPoisonRelations; }

}  // namespace goldenrule::relations
