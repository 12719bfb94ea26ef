// SPDX-License-Identifier: Apache-2.0
//
// The same lanes in other places. A lane (one row, one value head) reads nothing of another, so
// where it stands changes no number that it works on: its bits may change only if the kernel's
// order of summation follows its place (Options::batch_invariant). A pool slot is an address and
// not a place in the batch, so renaming slots must keep the bits of any kernel.
#include <algorithm>
#include <array>

#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/calls/rows.hpp"
#include "reference/delta/relations/tables.hpp"
#include "reference/delta/relations/trial.hpp"

namespace goldenrule::relations {
namespace {

using call::Record;

std::vector<std::int64_t> reversed(std::int64_t count) {
  std::vector<std::int64_t> order = call::all_indices(count);
  std::ranges::reverse(order);
  return order;
}

void rows_reversed(Trial& trial) {
  const Run& base = trial.base();
  const std::vector<std::int64_t> order = reversed(base.plan.dims.rows);
  const Run other = trial.run(calls::select_rows(base.record, base.plan, order));
  Pairs pairs;
  for (std::int64_t m = 0; m < std::ssize(order); ++m) {
    pair_sequences(base, order[static_cast<std::size_t>(m)], other, m,
                   call::all_indices(base.plan.dims.HV), pairs);
  }
  trial.claim_pairs(other, pairs);
}

void rows_alone(Trial& trial) {
  const Run& base = trial.base();
  for (std::int64_t n = 0; n < base.plan.dims.rows; ++n) {
    const Run other = trial.run(calls::select_rows(base.record, base.plan, std::span(&n, 1)));
    Pairs pairs;
    pair_sequences(base, n, other, 0, call::all_indices(base.plan.dims.HV), pairs);
    trial.claim_pairs(other, pairs);
  }
}

// The q/k heads are reversed and their value heads go with them; where there is one q/k head, its
// value heads rotate by one. A kernel that takes one head map for the other is not consistent with
// itself under this (all of them reversed, it would be).
struct HeadOrder {
  std::vector<std::int64_t> qk, value;  // head i of the new call is head [i] of the old one
};
HeadOrder other_heads(const call::Dims& d, call::HeadMap map) {
  HeadOrder order{.qk = reversed(d.H), .value = call::all_indices(d.HV)};
  const std::int64_t group = d.HV / d.H;
  const auto head = [&](std::int64_t h, std::int64_t g) {
    return map == call::HeadMap::kGrouped ? h * group + g : g * d.H + h;
  };
  for (std::int64_t h = 0; h < d.H; ++h) {
    for (std::int64_t g = 0; g < group; ++g) {
      order.value[static_cast<std::size_t>(head(h, g))] =
          d.H > 1 ? head(d.H - 1 - h, g) : head(h, (g + 1) % group);
    }
  }
  return order;
}

void heads_permuted(Trial& trial) {
  const Run& base = trial.base();
  Record changed = base.record;
  const HeadOrder order = other_heads(base.plan.dims, changed.convention.head_map);
  const auto permute = [&](const auto&, const auto& axes, call::Tensor& tensor) {
    if (const auto qk = call::find_axis(axes, call::axis::kQkHead)) {
      tensor = call::take(tensor, *qk, order.qk);
    } else if (const auto value = call::find_axis(axes, call::axis::kValueHead)) {
      tensor = call::take(tensor, *value, order.value);
    }
  };
  call::for_each_input(changed, base.plan.dims, permute);
  std::vector<std::int64_t> moved(order.value.size());  // old head -> its place in the new call
  for (std::size_t j = 0; j < moved.size(); ++j) {
    moved[static_cast<std::size_t>(order.value[j])] = static_cast<std::int64_t>(j);
  }
  const Run other = trial.run(std::move(changed));
  Pairs pairs;
  for (std::int64_t n = 0; n < base.plan.dims.rows; ++n) {
    pair_sequences(base, n, other, n, moved, pairs);
  }
  trial.claim_pairs(other, pairs);
}

// A value channel is a column of the state with a v of its own: where it stands is a place too.
void values_reversed(Trial& trial) {
  const Run& base = trial.base();
  const call::Dims& d = base.plan.dims;
  Record changed = base.record;
  call::for_each_input(changed, d, [&](const auto&, const auto& axes, call::Tensor& tensor) {
    if (const auto value = call::find_axis(axes, call::axis::kValue)) {
      tensor = call::take(tensor, *value, reversed(d.V));
    }
  });
  const Run other = trial.run(std::move(changed));
  Pairs pairs;
  for (std::int64_t n = 0; n < d.rows; ++n) {
    pair_sequences(base, n, other, n, call::all_indices(d.HV), pairs);
  }
  for (auto& [name, list] : pairs) {
    const bool keys_inside =
        name != "o" && base.record.convention.state_layout == call::StateLayout::kVK;
    const auto below = static_cast<std::size_t>(keys_inside ? d.K : 1);
    const auto V = static_cast<std::size_t>(d.V);
    for (Pair& p : list) {
      const std::size_t value = p.other / below % V;
      p.other += (V - 1 - value) * below - value * below;
    }
  }
  trial.claim_pairs(other, pairs);
}

// The pad slot keeps its number: it has a meaning.
std::vector<std::int64_t> other_slots(const Record& r, std::int64_t slots) {
  std::vector<std::int64_t> order = call::all_indices(slots);
  if (r.convention.pad_slot >= 0 && r.convention.pad_slot < slots) {
    order.erase(order.begin() + r.convention.pad_slot);
  }
  std::ranges::reverse(order);
  if (std::ssize(order) < slots) {
    order.insert(order.begin() + r.convention.pad_slot, r.convention.pad_slot);
  }
  return order;  // its own inverse
}

void slots_permuted(Trial& trial) {
  const Run& base = trial.base();
  const call::Dims& d = base.plan.dims;
  Record changed = calls::with_explicit_slots(base.record);
  const std::vector<std::int64_t> order = other_slots(changed, d.slots);
  changed.inputs.at("initial_state") = call::take(changed.inputs.at("initial_state"), 0, order);
  call::for_each_input(changed, d, [&](const auto& row, const auto&, call::Tensor& tensor) {
    if (row.storage != call::Storage::kSlot) return;
    calls::change(tensor, [&](std::int64_t, double slot) {
      const auto s = static_cast<std::int64_t>(slot);
      return s < 0 || s >= d.slots ? slot : static_cast<double>(order[static_cast<std::size_t>(s)]);
    });
  });
  const Run other = trial.run(std::move(changed));
  Pairs pairs;
  for (std::int64_t n = 0; n < d.rows; ++n)
    pair_sequences(base, n, other, n, call::all_indices(d.HV), pairs);
  // Of the pool everything corresponds, also what nobody writes.
  std::vector<Pair>& pool = pairs["final_state"];
  pool.clear();
  const std::int64_t block = d.HV * d.state_size();
  for (std::int64_t s = 0; s < d.slots; ++s) {
    const std::int64_t there = order[static_cast<std::size_t>(s)] * block;
    for (std::int64_t i = 0; i < block; ++i) {
      pool.push_back({static_cast<std::size_t>(s * block + i), static_cast<std::size_t>(there + i),
                      calls::longest_sequence(base.record)});
    }
  }
  trial.claim_pairs(other, pairs);
}

bool has_rows(const Record& r, const contract::Contract&) {
  const call::Dims d = call::validate(r);
  return d.rows > 1 && d.tokens > 0;
}

constexpr std::array kPlacementRelations{
    Relation{"rows_reversed", "the rows (sequences) of the batch in reverse order",
             Demand::kSameBitsIfInvariant, has_rows, rows_reversed},
    Relation{"rows_alone", "every row (sequence) in a call of its own",
             Demand::kSameBitsIfInvariant, has_rows, rows_alone},
    Relation{
        "heads_permuted",
        "q/k heads in reverse order with their value heads (one q/k head: its value heads rotate)",
        Demand::kSameBitsIfInvariant,
        [](const Record& r, const contract::Contract&) {
          const call::Dims d = call::validate(r);
          return d.HV > 1 && d.tokens > 0;
        },
        heads_permuted},
    Relation{"values_reversed", "the value channels of v and of the states in reverse order",
             Demand::kSameBitsIfInvariant,
             [](const Record& r, const contract::Contract&) {
               const call::Dims d = call::validate(r);
               return d.V > 1 && d.tokens > 0;
             },
             values_reversed},
    Relation{"slots_permuted", "the slots of the pool in reverse order, all indices with them",
             Demand::kSameBits,
             [](const Record& r, const contract::Contract&) {
               return !calls::is_prefill(r) && call::validate(r).slots > 1;
             },
             slots_permuted},
};

}  // namespace

std::span<const Relation> placement_relations() { return kPlacementRelations; }

}  // namespace goldenrule::relations
