// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in dg, the gradient by log alpha: in the pairs of tokens that a gate lies between, in
// the summands of a chunk and in how they are summed up.
#include <array>
#include <cmath>

#include "reference/backward/mistakes/common.hpp"
#include "reference/backward/mistakes/mistake.hpp"

namespace goldenrule::backward {
namespace {

using call::Record;

bool gates(const Record& r) { return has_chunk_form(r) && has_gate(r); }
bool gates_of_pairs(const Record& r) { return gates(r) && has_pairs(r); }
bool gates_of_chunks(const Record& r) { return gates(r) && has_chunks(r); }
bool gates_and_ends(const Record& r) {
  return gates(r) && (has_chunks(r) || has_state_gradient(r));
}
// A chunk begins with a state and ends with a gradient: n chunks have n - 1 of either, and one
// more of those that are given.
bool gates_and_both(const Record& r) {
  const std::int64_t chunks = (calls::longest_sequence(r) + kChunk - 1) / kChunk;
  return gates(r) && chunks + (has_start(r) ? 1 : 0) + (has_state_gradient(r) ? 1 : 0) >= 3;
}
bool gates_of_tails(const Record& r) { return gates(r) && has_tail(r) && has_state_gradient(r); }
// The grid of the packed axis cuts a sequence elsewhere than its own does, or joins the end of one
// to the beginning of another. The rows of a chunk that begins with the state 0 sum to 0.
bool gates_off_grid(const Record& r) {
  return gates(r) && std::ranges::any_of(sequences_of(r, call::validate(r)), [&](const auto& s) {
           const std::int64_t in_chunk = s.first % kChunk;
           return in_chunk != 0 && s.count > (has_start(r) ? 0 : kChunk - in_chunk);
         });
}

// The gates of a chunk behind its first token multiply to less than fp32 has the inverse of.
bool gates_that_overflow(const Record& r) {
  if (!gates(r)) return false;
  constexpr double kLargestLog = 89.0;
  const Record plain = plain_call(r);
  const call::Dims d = call::validate(plain);
  const call::Tensor& g = plain.inputs.at("g");
  const std::int64_t row = g.size() / d.tokens;
  for (const Sequence& tokens : sequences_of(plain, d)) {
    for (std::int64_t e = 0; e < row; ++e) {
      double sum = 0.0;
      for (std::int64_t t = 0; t < tokens.count; ++t) {
        sum = t % kChunk == 0 ? 0.0 : sum + g[(tokens.first + t) * row + e];
        if (sum < -kLargestLog) return true;
      }
    }
  }
  return false;
}

constexpr std::string_view kPairs = "Gradients of the gate: pairs";
constexpr std::string_view kSummands = "Gradients of the gate: summands";
constexpr std::string_view kSums = "Gradients of the gate: sums";

constexpr std::array kGateSumMistakes{
    variant_row<ChunkVariant{.pairs = PairDecay::kRoundedSides}>(
        "pair_factors_bf16", kPairs,
        "the decay between two tokens is split into two factors that are rounded to bf16, so that "
        "what cancels in dg leaves its roundings",
        gates, "attention-gym #461, TIRx #206", calls::kRounds),
    variant_row<ChunkVariant{.pairs = PairDecay::kShifted}>(
        "pair_gate_shifted", kPairs,
        "the decay between two tokens has the gate of the earlier one and lacks that of the later",
        gates_of_pairs),
    variant_row<ChunkVariant{.pairs = PairDecay::kFromLastRow}>(
        "later_gates_leak", kPairs,
        "the decay between two tokens is formed over the last token of the chunk, so that gates "
        "behind both of them overflow it",
        gates_that_overflow, "flash-linear-attention #1240"),
    variant_row<ChunkVariant{.raw = RawTerms::kNoErase}>("dg_without_erase", kSummands,
                                                         "dg lacks the terms of what tokens erase",
                                                         gates, "FlashQLA 6e5d2ea"),
    variant_row<ChunkVariant{.raw = RawTerms::kNoRow}>(
        "dg_of_incomplete_dk", kSummands,
        "dg is taken of a dk that does not have the part of the inverse yet", gates_of_pairs),
    variant_row<ChunkVariant{.last_row = LastRow::kNoState}>(
        "dg_state_product_missing", kSummands,
        "dg of a chunk lacks the product of the state before it and the gradient at its end",
        gates_and_both),
    variant_row<ChunkVariant{.last_row = LastRow::kNoKeys}>(
        "dg_last_row_keys_missing", kSummands,
        "the last row of a chunk lacks what the decay to its end gives the keys", gates_and_ends),
    variant_row<ChunkVariant{.last_row = LastRow::kFullChunks}>(
        "dg_last_row_lost_in_tail", kSummands,
        "what the decay to the end of a chunk gives dg goes to row 63, which a tail does not have",
        gates_of_tails, "FlashQLA #28"),
    variant_row<ChunkVariant{.sum = GateSum::kExclusive}>(
        "dg_sum_exclusive", kSums, "dg of a token sums the rows behind it without its own", gates),
    variant_row<ChunkVariant{.sum = GateSum::kForward}>(
        "dg_sum_forward", kSums, "dg of a token sums the rows up to it, not those from it on",
        gates_of_pairs),
    variant_row<ChunkVariant{.sum = GateSum::kOverSequence}>(
        "dg_sum_over_chunks", kSums, "the sum of dg does not begin again at a chunk",
        gates_of_chunks),
    variant_row<ChunkVariant{.sum = GateSum::kOverPackedChunk}>(
        "dg_sum_over_sequences", kSums,
        "the sum of dg begins again at every 64th token of the packed axis, not at sequences",
        gates_off_grid),
};

}  // namespace

std::span<const calls::Mistake> gate_sum_mistakes() { return kGateSumMistakes; }

}  // namespace goldenrule::backward
