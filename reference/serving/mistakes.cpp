// SPDX-License-Identifier: Apache-2.0
//
// Length: one table.
#include "reference/serving/mistakes.hpp"

#include <algorithm>
#include <array>

#include "fixtures/call/row_named.hpp"
#include "reference/serving/changes.hpp"

namespace goldenrule::serving {
namespace {

using call::Mode;
using Named = chain::Mistake;

constexpr std::array kTable{
    ServerMistake{
        "mtp_column_zero",
        "after an MTP call that accepted two tokens or more, a plain decode starts from the "
        "state of the first token",
        "vLLM #39273, #40738, #52942, #55504", Named::kWrongColumn, column_zero},
    ServerMistake{
        "accepted_of_other_row",
        "after rows have moved up in the batch, an MTP call goes on from as many tokens as "
        "another row has accepted",
        "vLLM #45100, #51571, #53919, vllm-ascend #13863",
        Named::kOtherRowsCount,
        counts_of_other_row,
        {Named::kWrongColumn}},
    ServerMistake{"boundary_copy_backwards",
                  "the copy of the state at a block boundary runs from the older snapshot into the "
                  "slot",
                  "vLLM #53505", Named::kOffBoundary, boundary_copy_backwards},
    ServerMistake{"snapshot_off_boundary",
                  "the snapshot of a block boundary is the state at the end of the call",
                  "vLLM #43559, #51113",
                  Named::kOffBoundary,
                  snapshot_off_boundary,
                  {Named::kWrongRollback}},
    ServerMistake{"dummy_rows_write",
                  "rows of graph padding name slots of requests that are not in the call",
                  "vLLM #37728, TensorRT-LLM #13151", Named::kOverwritten, dummy_rows_write},
    ServerMistake{"preempted_not_reset",
                  "a preempted request starts again from its first token on the state that it had",
                  "vllm-metal #488", Named::kStaleSlot, preempted_not_reset},
    ServerMistake{"slot_not_reset",
                  "a new request starts from the state that a former request left in its slot",
                  "llama.cpp #29092", Named::kStaleSlot, slot_not_reset},
    ServerMistake{"rollback_plane_stale",
                  "going back d tokens takes the state d before the end of the MTP call, though m "
                  "tokens have been decoded since: d - m is right",
                  "llama.cpp #22746, #29117", Named::kWrongRollback, rollback_plane_stale},
    ServerMistake{"copy_bytes_for_elements",
                  "a kept state is copied back with a count of elements where bytes are wanted",
                  "llama.cpp #20700", Named::kCopiedInPart, copy_bytes_for_elements},
    ServerMistake{"rollback_one_short",
                  "an MTP call goes on from the state one token before the last accepted one",
                  "mlx-swift-lm #143",
                  Named::kWrongRollback,
                  rollback_one_short,
                  {Named::kWrongColumn}},
    ServerMistake{
        "tree_token_by_count",
        "an MTP call of a tree goes on from the state of token count - 1, not of the last "
        "token that was accepted",
        "SGLang #27463",
        Named::kTokenByCount,
        tree_token_by_count,
        {Named::kWrongColumn}},
    ServerMistake{
        "replay_applied_again",
        "the tokens that an MTP call accepted are applied to the state again before every "
        "decode",
        "turboquant llama.cpp #352", Named::kReplayedTwice, replay_applied_again},
    ServerMistake{"snapshot_not_written", "snapshots are never written", "SGLang #31474, #30862",
                  Named::kNotWritten, snapshot_not_written},
    ServerMistake{"snapshot_grid_doubled",
                  "snapshots are packed one for each block and looked up as one for every second",
                  "SGLang #35086", Named::kOffBoundary, snapshot_grid_doubled},
    ServerMistake{"snapshot_bf16", "snapshots are rounded to bf16, the pool is wider",
                  "SGLang #34820", Named::kNarrowed, snapshot_bf16},
    ServerMistake{
        "short_prompt_not_written",
        "a prompt of as many tokens as an MTP call has is taken for one: its state is not "
        "written",
        "vLLM #47123, #49918, #53051", Named::kNotWritten, short_prompt_not_written},
    ServerMistake{"graph_slots_of_capture",
                  "a replayed decode graph has the slots with which it was captured",
                  "vllm-ascend #13277", Named::kOtherRequest, graph_slots_of_capture},
    ServerMistake{"transfer_heads_swapped",
                  "a state that moves between unequally divided servers arrives with the halves of "
                  "its heads exchanged",
                  "SGLang #20655, #22060, #23746, vLLM #55208", Named::kHeadsMoved,
                  transfer_heads_swapped},
    ServerMistake{"bounds_divided",
                  "the bounds of a prompt are divided by the number of ranks, so that each reads "
                  "its beginning",
                  "ISEEKYAN/Megatron-LM #111", Named::kTokensMissing, bounds_divided},
    ServerMistake{
        "parameters_bf16",
        "A_log and dt_bias are rounded to bf16 before decode calls, and before the others "
        "they are not",
        "Automodel #2484", Named::kParametersNarrowed, parameters_bf16},
    ServerMistake{"output_f16",
                  "o is stored in f16, whose range the outputs of the model leave while its state "
                  "grows",
                  "vLLM #54146",
                  Named::kOverflowed,
                  output_f16,
                  {},
                  true},
    ServerMistake{"key_buffer_reused",
                  "a decode reads its keys from a buffer in which those of the decode before it "
                  "still lie",
                  "pegainfer #411, ik_llama.cpp #1649, sparkinfer #665",
                  Named::kOtherKeys,
                  key_buffer_reused,
                  {},
                  true},
    // o of decodes whose states are left out.
    ServerMistake{
        "outputs_noise",
        "a decode returns noise of the size of its outputs, and its states are not recorded", "",
        Named::kNone, outputs_noise},
    ServerMistake{"outputs_nan",
                  "one element that a decode returns is NaN, and its states are not recorded", "",
                  Named::kNone, outputs_nan},
    ServerMistake{
        "outputs_of_next_row",
        "each row of a decode is given what the next one returns, and its states are not recorded",
        "", Named::kNone, outputs_of_next_row},
    ServerMistake{
        "empty_pool_narrowed",
        "decodes whose states are not recorded say that the pool is bf16 (f32 where it is)", "",
        Named::kNone, empty_pool_of_another_type},
    // The rule of the layer.
    ServerMistake{"scale_changes", "decodes scale q by 1/16, whatever the other calls do", "",
                  Named::kRuleChanged,
                  [](Step& step, const Past& past) {
                    return convention_of_decode(step, past,
                                                [](call::Convention& c) { c.scale = 1.0 / 16; });
                  }},
    ServerMistake{"norm_changes",
                  "decodes take q and k as they are, the other calls normalise them", "",
                  Named::kRuleChanged,
                  [](Step& step, const Past& past) {
                    return convention_of_decode(
                        step, past, [](call::Convention& c) { c.qk_l2norm = call::QkNorm::kNone; });
                  }},
    ServerMistake{
        "norm_eps_changes", "the eps in the norm of decodes is 1e-3", "", Named::kRuleChanged,
        [](Step& step, const Past& past) {
          return convention_of_decode(step, past, [](call::Convention& c) { c.l2_eps = 1e-3; });
        }},
    ServerMistake{"head_map_changes",
                  "decodes give value head j the keys of head j mod H, the other calls group them",
                  "", Named::kRuleChanged,
                  [](Step& step, const Past& past) {
                    return convention_of_decode(step, past, [](call::Convention& c) {
                      c.head_map = call::HeadMap::kTiled;
                    });
                  }},
    ServerMistake{"beta_changes", "decodes double beta", "", Named::kRuleChanged,
                  [](Step& step, const Past& past) {
                    return convention_of_decode(step, past, [](call::Convention& c) {
                      if (c.beta == call::BetaForm::kSigmoid) c.beta = call::BetaForm::kSigmoid2;
                    });
                  }},
    ServerMistake{"softplus_beta_changes", "the softplus of decodes has twice the slope constant",
                  "", Named::kRuleChanged,
                  [](Step& step, const Past& past) {
                    return convention_of_decode(
                        step, past, [](call::Convention& c) { c.softplus_beta *= 2.0; });
                  }},
    ServerMistake{"softplus_threshold_changes", "the softplus of decodes is linear from 1 on", "",
                  Named::kRuleChanged,
                  [](Step& step, const Past& past) {
                    return convention_of_decode(
                        step, past, [](call::Convention& c) { c.softplus_threshold = 1.0; });
                  }},
    ServerMistake{"layer_of_another",
                  "decodes have A_log and dt_bias of another layer",
                  "",
                  Named::kNone,
                  layer_of_another,
                  {},
                  false,
                  true},
    // Whose rows they are, and how far these have come.
    ServerMistake{"ids_exchanged",
                  "two rows of a decode are recorded under the request of each other", "",
                  Named::kOtherRequest, ids_exchanged},
    ServerMistake{"new_id",
                  "a request whose state was lost goes on from noise under another id",
                  "",
                  Named::kNone,
                  new_id,
                  {Named::kOtherRequest},
                  false,
                  true},
    ServerMistake{"position_zero_again",
                  "a request whose state was lost goes on from zero and is said to start anew",
                  "",
                  Named::kNone,
                  position_zero_again,
                  {Named::kStaleSlot},
                  false,
                  true},
    ServerMistake{"counts_said_of_other_row",
                  "after rows have moved up, the accepted count that is said of a row is that of "
                  "the next one",
                  "",
                  Named::kCountsContradicted,
                  counts_said_of_other_row,
                  {Named::kNotCommitted, Named::kOtherRowsCount}},
    ServerMistake{"counts_said_one_more",
                  "the accepted count that is said of a row is one too many",
                  "",
                  Named::kCountsContradicted,
                  counts_said_one_more,
                  {Named::kNotCommitted, Named::kOtherRowsCount}},
    ServerMistake{"counts_said_one_less",
                  "the accepted count that is said of a row is one too few",
                  "",
                  Named::kCountsContradicted,
                  counts_said_one_less,
                  {Named::kNotCommitted, Named::kOtherRowsCount}},
    ServerMistake{"restored_ahead", "a decode says that it restores a state from 50 tokens ahead",
                  "", Named::kTokensMissing, restored_ahead},
    ServerMistake{"restored_beyond",
                  "a shared prefix is said to reach beyond the last token of its request", "",
                  Named::kTokensMissing, restored_beyond},
    // When calls are made.
    ServerMistake{"call_lost",
                  "a decode is never made, and the server goes on as if it had been",
                  "",
                  Named::kTokensMissing,
                  call_lost,
                  {Named::kCountsContradicted}},
    ServerMistake{"calls_exchanged",
                  "a decode and the call after it are made in the other order",
                  "",
                  Named::kTokensMissing,
                  calls_exchanged,
                  {Named::kCountsContradicted}},
    ServerMistake{"call_retried",
                  "a decode is made again on the states that its first attempt left", "",
                  Named::kReplayedTwice, call_retried},
    ServerMistake{"bounds_off_by_one", "the last prompt of a call ends one token early", "",
                  Named::kTokensMissing, bounds_off_by_one},
    // Which state lies in a slot.
    ServerMistake{"slots_exchanged", "two rows of a decode have the slot of each other", "",
                  Named::kOtherRequest, slots_exchanged},
    ServerMistake{"slots_shifted", "every row of a decode has the slot of the next one", "",
                  Named::kOtherRequest, slots_shifted},
    ServerMistake{"slot_one_call_old", "a decode reads the state from before the last call", "",
                  Named::kNotWritten, slot_one_call_old},
    ServerMistake{"slot_noise", "the slot of a decode holds noise", "", Named::kNone, slot_noise},
    ServerMistake{"padding_names_slot_zero",
                  "padding names slot 0, in which a request waits that is not in the call", "",
                  Named::kOverwritten, padding_names_slot_zero},
    ServerMistake{"fork_in_one_slot",
                  "what goes on from the prefix of another request goes on in its slot",
                  "",
                  Named::kOverwritten,
                  fork_in_one_slot,
                  {Named::kOtherRequest}},
    ServerMistake{"resumed_as_zero", "a request that was preempted comes back to a state of zeros",
                  "", Named::kNotWritten, resumed_as_zero},
    ServerMistake{"snapshot_not_initialised",
                  "a snapshot that was never written is restored from what the memory held", "",
                  Named::kNone, snapshot_not_initialised},
    ServerMistake{"snapshot_of_other_row",
                  "the snapshot of a block boundary is that of another row", "",
                  Named::kOtherRequest, snapshot_of_other_row},
    ServerMistake{"restored_between",
                  "a request goes on one token behind the snapshot that it is given", "",
                  Named::kOffBoundary, restored_between},
    ServerMistake{"restored_one_off",
                  "a request goes back two tokens, and is given the state of one", "",
                  Named::kOffBoundary, restored_one_off},
    // Which token of an MTP call goes on.
    ServerMistake{"rollback_one_long",
                  "an MTP call goes on from the state one token behind the last accepted one",
                  "",
                  Named::kWrongRollback,
                  rollback_one_long,
                  {Named::kOtherRowsCount, Named::kWrongColumn}},
    ServerMistake{"counts_of_mtp_before",
                  "an MTP call goes on from as many tokens as the MTP call before has accepted",
                  "",
                  Named::kWrongRollback,
                  counts_of_mtp_before,
                  {Named::kOtherRowsCount, Named::kWrongColumn, Named::kTokenByCount}},
    ServerMistake{
        "tree_sibling",
        "an MTP call of a tree goes on from a sibling of the last token that was accepted",
        "",
        Named::kWrongRollback,
        tree_sibling,
        {Named::kOtherRowsCount, Named::kWrongColumn, Named::kTokenByCount}},
    ServerMistake{"tree_deepest",
                  "an MTP call of a tree goes on from its deepest token",
                  "",
                  Named::kWrongRollback,
                  tree_deepest,
                  {Named::kOtherRowsCount, Named::kWrongColumn, Named::kTokenByCount}},
    // What becomes of a state on its way.
    ServerMistake{"axes_exchanged", "a state arrives with its axes of keys and values exchanged",
                  "", Named::kAxesExchanged, axes_exchanged},
    ServerMistake{"heads_of_first_half", "both halves of the heads of a state arrive as the first",
                  "", Named::kHeadsMoved, heads_of_first_half},
    ServerMistake{"state_scaled", "a state arrives multiplied by the scale of q", "",
                  Named::kScaled, state_scaled},
    ServerMistake{"state_of_other_layer", "what is restored is the state of another layer", "",
                  Named::kNone, state_of_other_layer},
    ServerMistake{"swapped_through_bf16",
                  "states of preempted requests are kept in bf16, the pool is wider", "",
                  Named::kNarrowed, swapped_through_bf16},
    ServerMistake{"decayed_at_swap_in",
                  "a state that comes back is decayed by the token to come, and again in the call",
                  "",
                  Named::kDecayedAgain,
                  decayed_at_swap_in,
                  {Named::kScaled}},
    ServerMistake{"missing_tokens_decay",
                  "tokens behind a snapshot decay the state that is restored, and write nothing",
                  "",
                  Named::kNone,
                  missing_tokens_decay,
                  {Named::kOffBoundary}},
    // Caches of attention, and draft acceptances.
    ServerMistake{"cache_page_of_next",
                  "a page table names a page of the next row",
                  "",
                  Named::kOtherPage,
                  cache_page_of_next,
                  {Named::kRowNotWritten}},
    ServerMistake{"cache_table_of_last", "a decode has the page tables of the call before", "",
                  Named::kOtherPage, cache_table_of_last},
    ServerMistake{"cache_page_given_twice",
                  "a new page is one that the next row has",
                  "",
                  Named::kOverwritten,
                  cache_page_given_twice,
                  {Named::kOtherPage}},
    ServerMistake{"cache_rows_shifted", "new rows come into the cache one place further", "",
                  Named::kOtherPosition, cache_rows_shifted},
    ServerMistake{"cache_prompt_not_written", "the rows of a prompt do not come into the cache", "",
                  Named::kRowNotWritten, cache_prompt_not_written},
    ServerMistake{"cache_draft_stays",
                  "behind an MTP call the row of a rejected draft is not written over",
                  "",
                  Named::kRejectedRow,
                  cache_draft_stays,
                  {Named::kRowNotWritten}},
    ServerMistake{"cache_zeros", "new rows of a cache are zeros", "", Named::kNone, cache_zeros},
    ServerMistake{"cache_noise", "new rows of a cache are others", "", Named::kNone, cache_noise},
    ServerMistake{"cache_heads_moved", "each head of a new row is the next one", "", Named::kNone,
                  cache_heads_moved},
    ServerMistake{"cache_not_cropped", "a rejected draft counts as a token of the cache", "",
                  Named::kWrongLength, cache_not_cropped},
    ServerMistake{"cache_cropped_too_far", "behind an MTP call the cache is one token too short",
                  "", Named::kWrongLength, cache_cropped_too_far},
    ServerMistake{"acceptance_starts_late", "a draft acceptance begins one token too late", "",
                  Named::kWrongStart, acceptance_starts_late},
    ServerMistake{"acceptance_commits_more", "the server keeps one token less than is committed",
                  "", Named::kNotCommitted, acceptance_commits_more},
    ServerMistake{"acceptance_commits_less", "the server keeps one token more than is committed",
                  "", Named::kNotCommitted, acceptance_commits_less},
    ServerMistake{"acceptance_counts_moved",
                  "the server keeps as many tokens as the draft acceptance commits of another row",
                  "", Named::kOtherRowsCount, acceptance_counts_moved},
};

}  // namespace

void Past::add(const Step& meant) {
  if (meant.mode == Mode::kPrefill) prefill = meant;
  last = meant;
  if (meant.mode == Mode::kDecode) first_decode.emplace(meant.rows.size(), meant);
  for (const Move& move : meant.moves) {
    if (move.replay) replayed[move.replay->request] = *move.replay;
  }
  for (const Row& row : meant.rows) {
    if (row.request < 0) continue;
    reached[row.request] = std::max(reached[row.request], row.position + row.accepted);
    if (meant.mode == Mode::kMtp) {
      if (const auto before = kept.find(row.request); before != kept.end()) {
        kept_before[row.request] = before->second;
      }
      kept[row.request] = row.kept;
    }
    mtp_rows.erase(row.request);
    if (meant.mode == Mode::kMtp) mtp_rows.emplace(row.request, row);
    if (meant.mode == Mode::kPrefill) replayed.erase(row.request);
    for (const std::int64_t slot : row.columns) owner[slot] = row.request;
    if (row.out >= 0) owner[row.out] = row.request;
  }
}

std::span<const ServerMistake> server_mistakes() { return kTable; }

const ServerMistake* find_server_mistake(std::string_view name) {
  if (name.empty()) return nullptr;
  return &call::row_named(kTable, name, ErrorKind::kArgument, "scenario line: mistake");
}

}  // namespace goldenrule::serving
