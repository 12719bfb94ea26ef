// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in the acceptance of drafts: rows of unequal length, buffers of intermediate states,
// second slots and trees. Each is the right kernel asked for something else.
#include <algorithm>
#include <array>

#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/take.hpp"
#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/calls/outputs.hpp"
#include "reference/delta/mistakes/tables.hpp"

namespace goldenrule::delta {
namespace {

using call::Record;
using call::TensorMap;
using Integers = std::vector<std::int64_t>;

constexpr const char* kKeptRows = "intermediate_state_indices";
constexpr const char* kParents = "parent_tokens";

bool has_uneven_rows(const Record& r) {
  if (r.mode != call::Mode::kMtp || !call::is_packed(r)) return false;
  const call::Plan plan = call::make_plan(r, false);
  return std::ranges::any_of(plan.sequences, [&](const call::Sequence& s) {
    return !s.padded && s.token_count > 0 &&
           s.first_token != (&s - plan.sequences.data()) * calls::longest_sequence(r);
  });
}

// Token t of row b is read at b * longest + t; what would lie behind the buffer is its last token.
TensorMap rows_at_longest(const Record& r, const calls::Kernel& kernel) {
  const call::Plan plan = call::make_plan(r, false);
  const std::int64_t longest = calls::longest_sequence(r);
  Integers source = call::all_indices(plan.dims.tokens);
  for (std::size_t b = 0; b < plan.sequences.size(); ++b) {
    const call::Sequence& s = plan.sequences[b];
    for (std::int64_t t = 0; t < s.token_count; ++t) {
      source[static_cast<std::size_t>(s.first_token + t)] =
          std::min(static_cast<std::int64_t>(b) * longest + t, plan.dims.tokens - 1);
    }
  }
  return kernel(calls::with_tokens(r, source));
}

// The count of the call before may be larger than what this call has.
Integers clamped_counts(const Record& r) {
  const call::Tensor* counts = r.find_input("num_accepted_tokens");
  if (counts == nullptr || r.mode != call::Mode::kMtp || !call::is_packed(r)) return {};
  Integers clamped = counts->to_integers();
  const call::Plan plan = call::make_plan(r, false);
  for (std::size_t b = 0; b < clamped.size(); ++b) {
    clamped[b] = std::min(clamped[b], std::max<std::int64_t>(plan.sequences[b].token_count, 1));
  }
  return clamped;
}

call::Tensor like(const call::Tensor& tensor, const Integers& values) {
  return {tensor.dtype(), tensor.shape(), std::vector<double>(values.begin(), values.end())};
}

// The call with other integers, where they are other ones and a plan takes them.
template <Integers (*changed)(const Record&)>
Record with_integers(const Record& r, const char* name) {
  Record result = calls::without_outputs(r);
  call::Tensor& tensor = result.inputs.at(name);
  tensor = like(tensor, changed(r));
  return result;
}
bool is_plannable(const Record& r) {
  try {
    (void)call::make_plan(r, true);
  } catch (const Error&) {
    return false;
  }
  return true;
}
template <Integers (*changed)(const Record&)>
bool changes(const Record& r, const char* name) {
  const call::Tensor* given = r.find_input(name);
  if (given == nullptr || call::validate(r).tokens == 0) return false;
  const Integers values = changed(r);
  return std::ssize(values) == given->size() && values != given->to_integers() &&
         is_plannable(with_integers<changed>(r, name));
}

Integers kept_by_row(const Record& r) {
  const call::Dims d = call::validate(r);
  return d.rows <= d.kept_rows ? call::all_indices(d.rows) : Integers();
}
Integers kept_by_slot(const Record& r) {
  const call::Tensor* slots = r.find_input("state_indices");
  if (slots == nullptr) return {};
  Integers rows = slots->to_integers();
  for (std::int64_t& row : rows) row = row < call::validate(r).kept_rows ? row : -1;
  return rows;
}
Integers kept_wrapped(const Record& r) {
  Integers rows = r.inputs.at(kKeptRows).to_integers();
  const call::Plan plan = call::make_plan(r, false);
  const std::int64_t last = plan.dims.kept_rows - 1;
  for (std::size_t b = 0; b < rows.size(); ++b) {
    const call::Sequence& s = plan.sequences[b];
    if (rows[b] >= 0 || s.padded || s.token_count == 0) continue;
    std::ranges::replace(rows, last, std::int64_t{-1});  // whose row it is finds others' states
    rows[b] = last;
    break;
  }
  return rows;
}

Integers counts_of_ends(const Record& r) {
  Integers ends;
  for (const call::Sequence& s : call::make_plan(r, false).sequences) ends.push_back(s.token_count);
  return ends;
}
bool has_second_slot(const Record& r) {
  return r.find_input("checkpoint_state_indices") != nullptr &&
         r.convention.disable_state_update == 0;
}
TensorMap second_slot_ignored(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  changed.inputs.erase("checkpoint_state_indices");
  changed.inputs.erase("checkpoint_tokens");
  return kernel(changed);
}

// Parents of all tokens as f(row, token in the row) says.
template <class F>
Integers other_parents(const Record& r, F&& f) {
  Integers parents;
  if (!call::has_tree(r)) return parents;
  for (const call::Sequence& s : call::make_plan(r, false).sequences) {
    for (std::int64_t t = 0; t < s.token_count; ++t) parents.push_back(f(s, t));
  }
  return parents;
}
std::int64_t parent_of(const call::Sequence& s, std::int64_t t) {
  return s.parents[static_cast<std::size_t>(t)];
}

Integers chain(const Record& r) {
  return other_parents(r, [](const call::Sequence&, std::int64_t t) { return t - 1; });
}
Integers parent_before(const Record& r) {
  return other_parents(r, [](const call::Sequence& s, std::int64_t t) {
    return std::max<std::int64_t>(parent_of(s, t) - 1, -1);
  });
}
Integers parent_behind(const Record& r) {
  return other_parents(r, [](const call::Sequence& s, std::int64_t t) {
    return std::min<std::int64_t>(parent_of(s, t) + 1, t - 1);
  });
}
Integers sibling(const Record& r) {
  return other_parents(r, [](const call::Sequence& s, std::int64_t t) {
    for (std::int64_t other = t - 1; other >= 0; --other) {
      if (parent_of(s, other) == parent_of(s, t)) return other;
    }
    return parent_of(s, t);
  });
}
Integers later_root(const Record& r) {
  return other_parents(r, [](const call::Sequence& s, std::int64_t t) {
    return parent_of(s, t) < 0 ? t - 1 : parent_of(s, t);
  });
}
Integers first_tree(const Record& r) {
  const call::Plan plan = call::make_plan(r, false);
  return other_parents(r, [&](const call::Sequence& s, std::int64_t t) {
    const auto& first = plan.sequences.front();
    return t < first.token_count ? parent_of(first, t) : parent_of(s, t);
  });
}

template <const char* const& name, Integers (*changed)(const Record&)>
constexpr calls::Mistake other_integers(std::string_view mistake, std::string_view meaning) {
  return {mistake, "Drafts", meaning, [](const Record& r) { return changes<changed>(r, name); },
          [](const Record& r, const calls::Kernel& kernel) {
            return kernel(with_integers<changed>(r, name));
          }};
}

constexpr const char* kAccepted = "num_accepted_tokens";
constexpr const char* kCheckpointTokens = "checkpoint_tokens";

constexpr std::array kDraftsMistakes{
    calls::Mistake{"rows_at_longest", "Drafts",
                   "rows of unequal length are read at the stride of the longest, whatever "
                   "cu_seqlens says",
                   has_uneven_rows, rows_at_longest},
    other_integers<kAccepted, clamped_counts>(
        "accepted_clamped",
        "num_accepted_tokens is clamped to the tokens of this call: the row starts from the wrong "
        "slot where the call before had more"),
    other_integers<kKeptRows, kept_by_row>(
        "kept_row_ignored",
        "row b takes row b of the buffer, whatever intermediate_state_indices says"),
    other_integers<kKeptRows, kept_by_slot>(
        "kept_row_by_slot", "the buffer of intermediate states is indexed by the pool slot"),
    other_integers<kKeptRows, kept_wrapped>(
        "kept_row_wraps",
        "an intermediate_state_indices of -1 wraps around: the last row of the buffer is "
        "overwritten"),
    calls::Mistake{"checkpoint_slot_ignored", "Drafts", "the second slot is never written",
                   has_second_slot, second_slot_ignored},
    other_integers<kCheckpointTokens, counts_of_ends>(
        "checkpoint_slot_late",
        "the second slot holds the state after all tokens, whatever checkpoint_tokens says"),
    other_integers<kParents, chain>(
        "tree_ignored", "every token continues the one before it, whatever parent_tokens says"),
    other_integers<kParents, parent_before>("parent_early",
                                            "a token continues the token before its parent"),
    other_integers<kParents, parent_behind>("parent_late",
                                            "a token continues the token behind its parent"),
    other_integers<kParents, sibling>(
        "sibling_leaks", "a token continues the state that its sibling left, not its parent's"),
    other_integers<kParents, later_root>(
        "second_root_continues",
        "only the first token starts from the start state: a later root continues the token "
        "before it"),
    other_integers<kParents, first_tree>("tree_of_first_row", "all rows use the tree of the first"),
};

}  // namespace

std::span<const calls::Mistake> draft_mistakes() { return kDraftsMistakes; }

}  // namespace goldenrule::delta
