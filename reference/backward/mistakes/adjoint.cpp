// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in the adjoint of the recurrence: dq, dk, dv, dbeta and what is carried from chunk to
// chunk.
#include <array>

#include "reference/backward/mistakes/common.hpp"
#include "reference/backward/mistakes/mistake.hpp"

namespace goldenrule::backward {
namespace {

using call::Record;

bool form_of_tokens(const Record& r) { return has_chunk_form(r); }
bool form_of_pairs(const Record& r) { return has_chunk_form(r) && has_pairs(r); }
// The inverse of two tokens has no element that both its factors reach.
bool form_of_triples(const Record& r) {
  return has_chunk_form(r) && calls::longest_sequence(r) > 2;
}
// A token meets a state that is not 0.
bool form_of_states(const Record& r) { return has_chunk_form(r) && (has_pairs(r) || has_start(r)); }
// A chunk begins with a state that is not 0.
bool form_of_chunk_starts(const Record& r) {
  return has_chunk_form(r) && (has_chunks(r) || has_start(r));
}
// A chunk ends with a gradient that is not 0.
bool form_of_chunk_ends(const Record& r) {
  return has_chunk_form(r) && (has_chunks(r) || has_state_gradient(r));
}
bool form_of_decayed_ends(const Record& r) { return form_of_chunk_ends(r) && has_gate(r); }
bool form_of_inner_ends(const Record& r) {
  return has_chunk_form(r) && has_chunks(r) && has_state_gradient(r);
}
bool form_of_ranks(const Record& r) {
  return has_chunk_form(r) && calls::longest_sequence(r) > kSegment * kChunk;
}
// What the warm-up does not see: a chunk behind it, or the gradient of the last state.
bool form_of_warm_up(const Record& r) {
  return form_of_ranks(r) &&
         (calls::longest_sequence(r) > (kSegment + 1) * kChunk || has_state_gradient(r));
}
bool form_of_blocks(const Record& r) { return form_of_pairs(r) && call::validate(r).V > kBlock; }

constexpr std::string_view kErase = "Gradients of the erase step";
constexpr std::string_view kInverse = "Gradients of the inverse";
constexpr std::string_view kCarry = "Gradients carried over chunks";
constexpr std::string_view kOutput = "Gradients of the output";

using enum InverseAdjoint;

constexpr std::array kAdjointMistakes{
    variant_row<TokenVariant{.erases = false}>(
        "erase_adjoint_lost", kErase,
        "the gradient of the state is carried from token to token "
        "by the decay alone, without what the token erased",
        form_of_tokens),
    variant_row<TokenVariant{.by_residual = false}>(
        "dbeta_of_value", kErase, "dbeta is taken of v, not of what v differs by from the state",
        form_of_states, "attention-gym #453"),
    variant_row<TokenVariant{.state_in_dk = false}>(
        "dk_without_state", kErase, "dk has what the key writes with and lacks what it reads with",
        form_of_states, "flash-linear-attention #984, #988"),
    variant_row<ChunkVariant{.corrected_in_dbeta = true}>(
        "dbeta_of_corrected_value", kErase, "dbeta of a chunk is taken of v_new, not of v",
        form_of_tokens),
    variant_row<ChunkVariant{.corrected_in_dt = true}>(
        "dt_of_corrected_value", kInverse, "the gradient of T is taken of v_new, not of v",
        form_of_pairs),
    variant_row<ChunkVariant{.first_block_in_dt = true}>(
        "dt_second_block_missing", kInverse,
        "the gradient of T lacks the value columns behind the first block of 64", form_of_blocks),
    variant_row<ChunkVariant{.inverse = kDiagonal}>(
        "dm_diagonal_kept", kInverse,
        "the gradient by the matrix that is inverted keeps its diagonal, which is constant",
        form_of_tokens, "attention-gym #446-450"),
    variant_row<ChunkVariant{.inverse = kNegated}>(
        "dm_negated", kInverse, "the gradient of the inverse has the wrong sign", form_of_pairs),
    variant_row<ChunkVariant{.inverse = kOneFactor}>(
        "inverse_adjoint_one_factor", kInverse,
        "the gradient of the inverse lacks one of its two factors T^T", form_of_triples),
    variant_row<ChunkVariant{.inverse = kUntransposed}>(
        "inverse_adjoint_untransposed", kInverse,
        "the gradient of the inverse has T where it needs T^T", form_of_triples),
    variant_row<ChunkVariant{.dp_diagonal = false}>(
        "dp_diagonal_dropped", kOutput,
        "the gradient of the attention within a chunk lacks its diagonal: the token's own key",
        form_of_tokens),
    variant_row<ChunkVariant{.dp_reversed = true}>(
        "pair_mask_reversed", kOutput,
        "the gradient of the attention within a chunk is masked to the keys that follow the query",
        form_of_pairs),
    variant_row<ChunkVariant{.state_after = true}>(
        "chunk_state_after", kOutput,
        "the state behind the chunk is read where that before it belongs", form_of_tokens),
    variant_row<ChunkVariant{.state_f16 = true}>(
        "state_tape_f16", kOutput, "the states of the forward pass are kept in fp16",
        form_of_chunk_starts, "attention-gym #465", calls::kRounds),
    variant_row<ChunkVariant{.carry = Carry::kStateGradient}>(
        "state_gradient_per_chunk", kCarry,
        "the gradient of the final state is added at the end of every chunk", form_of_inner_ends),
    variant_row<ChunkVariant{.carry = Carry::kNoErase}>(
        "segment_without_erase", kCarry,
        "the gradient of the state passes a chunk by its decay alone, without the erase factor",
        form_of_chunk_ends, "attention-gym #464"),
    variant_row<ChunkVariant{.carry = Carry::kLost}>(
        "rank_gradient_lost", kCarry,
        "a part of a sequence that another rank has hands no gradient to the part before it "
        "(parts of 128 tokens)",
        form_of_ranks, "flash-linear-attention #1115"),
    variant_row<ChunkVariant{.carry = Carry::kWarmUp}>(
        "warm_up_short", kCarry,
        "the gradient at the end of a part of a sequence comes from the 64 tokens behind it alone "
        "(parts of 128 tokens)",
        form_of_warm_up),
    variant_row<ChunkVariant{.stored_decayed = true}>(
        "dstate_decayed", kCarry,
        "the gradient at the end of a chunk is stored after the decay of the chunk, and dk and dg "
        "read it",
        form_of_decayed_ends),
};

}  // namespace

std::span<const calls::Mistake> adjoint_mistakes() { return kAdjointMistakes; }

}  // namespace goldenrule::backward
