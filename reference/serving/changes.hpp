// SPDX-License-Identifier: Apache-2.0
//
// What the mistakes of servers change: each function makes its mistake in a step, where the step
// has an occasion for it, and says so. Which mistake is which is the table (mistakes.cpp).
#pragma once

#include <algorithm>
#include <cstdint>

#include "reference/serving/mistakes.hpp"

namespace goldenrule::serving {

// Applies f to every row (move) and says whether any call of it returned true.
template <class Range, class F>
bool any_changed(Range& range, F&& f) {
  bool changed = false;
  for (auto& x : range) changed = f(x) || changed;
  return changed;
}

inline const Request& request_of(const Past& past, std::int64_t request) {
  return past.scheduler->requests()[static_cast<std::size_t>(request)];
}

inline bool is_copy(const Move& move, Place::Where from, Place::Where to) {
  return move.from.where == from && move.to.where == to;
}
// Out of what is kept beside the pool, into it.
inline bool is_restore(const Move& move) {
  return move.to.where == Place::Where::kSlot &&
         (move.from.where == Place::Where::kSnapshot || move.from.where == Place::Where::kSwap);
}

// A decode whose convention differs from that of the other calls.
bool convention_of_decode(Step& step, const Past& past, void (*change)(call::Convention&));

// changes.cpp: reported in public
bool column_zero(Step& step, const Past& past);
bool counts_of_other_row(Step& step, const Past& past);
bool boundary_copy_backwards(Step& step, const Past& past);
bool snapshot_off_boundary(Step& step, const Past& past);
bool snapshot_not_written(Step& step, const Past& past);
bool snapshot_grid_doubled(Step& step, const Past& past);
bool snapshot_bf16(Step& step, const Past& past);
bool swapped_through_bf16(Step& step, const Past& past);
bool dummy_rows_write(Step& step, const Past& past);
bool preempted_not_reset(Step& step, const Past& past);
bool slot_not_reset(Step& step, const Past& past);
bool rollback_plane_stale(Step& step, const Past& past);
bool copy_bytes_for_elements(Step& step, const Past& past);
bool replay_applied_again(Step& step, const Past& past);
bool short_prompt_not_written(Step& step, const Past& past);
bool graph_slots_of_capture(Step& step, const Past& past);
bool transfer_heads_swapped(Step& step, const Past& past);
bool bounds_divided(Step& step, const Past& past);

// changes_of_counts.cpp: which token's state goes on
bool rollback_one_short(Step& step, const Past& past);
bool tree_token_by_count(Step& step, const Past& past);
bool rollback_one_long(Step& step, const Past& past);
bool counts_of_mtp_before(Step& step, const Past& past);
bool tree_sibling(Step& step, const Past& past);
bool tree_deepest(Step& step, const Past& past);

// changes_of_calls.cpp: what a call is given, what it returns, when it is made
bool parameters_bf16(Step& step, const Past& past);
bool output_f16(Step& step, const Past& past);
bool key_buffer_reused(Step& step, const Past& past);
bool layer_of_another(Step& step, const Past& past);
bool outputs_noise(Step& step, const Past& past);
bool outputs_nan(Step& step, const Past& past);
bool outputs_of_next_row(Step& step, const Past& past);
bool empty_pool_of_another_type(Step& step, const Past& past);
bool call_lost(Step& step, const Past& past);
bool call_retried(Step& step, const Past& past);
bool calls_exchanged(Step& step, const Past& past);
bool ids_exchanged(Step& step, const Past& past);
bool bounds_off_by_one(Step& step, const Past& past);

// changes_of_words.cpp: what is recorded of a row
bool new_id(Step& step, const Past& past);
bool position_zero_again(Step& step, const Past& past);
bool counts_said_of_other_row(Step& step, const Past& past);
bool counts_said_one_more(Step& step, const Past& past);
bool counts_said_one_less(Step& step, const Past& past);
bool restored_ahead(Step& step, const Past& past);
bool restored_beyond(Step& step, const Past& past);

// changes_of_caches.cpp: what lies in a cache, how long it is, what a draft acceptance says
bool cache_page_of_next(Step& step, const Past& past);
bool cache_table_of_last(Step& step, const Past& past);
bool cache_page_given_twice(Step& step, const Past& past);
bool cache_rows_shifted(Step& step, const Past& past);
bool cache_prompt_not_written(Step& step, const Past& past);
bool cache_draft_stays(Step& step, const Past& past);
bool cache_zeros(Step& step, const Past& past);
bool cache_noise(Step& step, const Past& past);
bool cache_heads_moved(Step& step, const Past& past);
bool cache_not_cropped(Step& step, const Past& past);
bool cache_cropped_too_far(Step& step, const Past& past);
bool acceptance_starts_late(Step& step, const Past& past);
bool acceptance_commits_more(Step& step, const Past& past);
bool acceptance_commits_less(Step& step, const Past& past);
bool acceptance_counts_moved(Step& step, const Past& past);

// changes_of_slots.cpp: which state lies in a slot
bool slots_exchanged(Step& step, const Past& past);
bool slots_shifted(Step& step, const Past& past);
bool slot_one_call_old(Step& step, const Past& past);
bool slot_noise(Step& step, const Past& past);
bool resumed_as_zero(Step& step, const Past& past);
bool snapshot_not_initialised(Step& step, const Past& past);
bool padding_names_slot_zero(Step& step, const Past& past);
bool fork_in_one_slot(Step& step, const Past& past);
bool restored_between(Step& step, const Past& past);
bool restored_one_off(Step& step, const Past& past);
bool snapshot_of_other_row(Step& step, const Past& past);

// changes_of_states.cpp: what becomes of a state on its way
bool axes_exchanged(Step& step, const Past& past);
bool heads_of_first_half(Step& step, const Past& past);
bool state_of_other_layer(Step& step, const Past& past);
bool decayed_at_swap_in(Step& step, const Past& past);
bool missing_tokens_decay(Step& step, const Past& past);
bool state_scaled(Step& step, const Past& past);

}  // namespace goldenrule::serving
