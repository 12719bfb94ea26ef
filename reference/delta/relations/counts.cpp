// SPDX-License-Identifier: Apache-2.0
//
// An MTP call with other accepted counts. What a kernel computes of the tokens does not depend on
// how many of them are accepted, and the state after a of them is the same whether it is kept on
// the way or is the final one. A graph that replays the counts with which it was captured breaks
// this.
#include <array>
#include <optional>

#include "fixtures/call/operation.hpp"
#include "reference/delta/calls/rows.hpp"
#include "reference/delta/relations/tables.hpp"
#include "reference/delta/relations/trial.hpp"

namespace goldenrule::relations {
namespace {

using call::Record;

bool has_counts(const Record& r, const contract::Contract&) {
  return r.mode == call::Mode::kMtp && r.find_input("accepted_tokens") != nullptr &&
         !call::has_tree(r) && r.convention.disable_state_update == 0 &&
         r.find_input("initial_intermediate_states") == nullptr;
}

// T - n for n, and where that is n as well, none.
Record with_other_counts(const Record& record, std::int64_t T) {
  Record changed = record;
  calls::change(changed.inputs.at("accepted_tokens"), [&](std::int64_t, double count) {
    const double other = static_cast<double>(T) - count;
    return other == count ? 0.0 : other;
  });
  return changed;
}

// Block of the snapshot of `target`, if the sequence has one after so many tokens.
std::optional<std::int64_t> block_of(const call::Sequence& sequence, call::Target target,
                                     std::optional<std::int64_t> after) {
  for (const call::Snapshot& s : sequence.snapshots) {
    if (s.target == target && (!after || s.after == *after)) return s.block;
  }
  return std::nullopt;
}

void counts_changed(Trial& trial) {
  const Run& base = trial.base();
  const call::Dims& d = base.plan.dims;
  const Run other = trial.run(with_other_counts(base.record, d.T));
  Pairs pairs;
  const auto count = static_cast<std::size_t>(base.outputs.at("o").size());
  for (std::size_t i = 0; i < count; ++i) pairs["o"].push_back({i, i, d.T});
  trial.claim_pairs(other, pairs);
  const auto kept = base.outputs.find("intermediate_states");
  if (kept == base.outputs.end()) return;
  const call::Tensor& final_states = other.outputs.at("final_state");
  const Grants granted = trial.granted(other);
  const std::size_t block = static_cast<std::size_t>(d.HV * d.state_size());
  for (std::size_t n = 0; n < base.plan.sequences.size(); ++n) {
    const call::Sequence& sequence = other.plan.sequences[n];
    if (sequence.padded) continue;
    for (const call::Snapshot& s : sequence.snapshots) {
      if (s.target != call::Target::kFinalState || s.after == 0) continue;
      const auto there =
          block_of(base.plan.sequences[n], call::Target::kIntermediateStates, s.after);
      if (!there) continue;
      for (std::size_t i = 0; i < block; ++i) {
        const std::size_t at = static_cast<std::size_t>(*there) * block + i;
        const std::size_t now = static_cast<std::size_t>(s.block) * block + i;
        trial.claim("intermediate_states", at, kept->second[static_cast<std::int64_t>(at)],
                    final_states[static_cast<std::int64_t>(now)],
                    sum_of(trial.base_granted().at("intermediate_states")[at].bound,
                           granted.at("final_state")[now].bound));
      }
    }
  }
}

constexpr std::array kCountsRelations{
    Relation{"counts_changed",
             "other accepted counts: o stays, the final state is the one that was kept on the way",
             Demand::kBudget, has_counts, counts_changed},
};

}  // namespace

std::span<const Relation> count_relations() { return kCountsRelations; }

}  // namespace goldenrule::relations
