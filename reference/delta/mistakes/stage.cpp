// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in one stage of the chunk form: the decays between the rows of a chunk, its inverse, the
// terms that read the state of the chunk start, and what it leaves. The other stages are right,
// so that often only one output, or only what lies behind the first chunk, is wrong.
#include <array>

#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/mistakes/common.hpp"
#include "reference/delta/mistakes/gates.hpp"
#include "reference/delta/mistakes/tables.hpp"
#include "reference/delta/mistakes/variant.hpp"

namespace goldenrule::delta {
namespace {

using call::Record;
using call::TensorMap;

constexpr std::int64_t kSubChunk = 16;

bool is_chunked(const Record& r, std::int64_t tokens) {
  return calls::is_prefill(r) && calls::longest_sequence(r) >= tokens;
}
template <std::int64_t tokens>
bool chunk_of(const Record& r) {
  return is_chunked(r, tokens);
}
template <std::int64_t tokens>
bool gates_of(const Record& r) {
  return is_chunked(r, tokens) && has_gate(r);
}
bool starts_from_state(const Record& r) {
  return is_chunked(r, 1) && r.find_input("initial_state") != nullptr;
}
bool has_state_operand(const Record& r) {
  return starts_from_state(r) || is_chunked(r, kChunk + 1);
}
bool has_tail(const Record& r, std::int64_t rows) {
  if (!calls::is_prefill(r)) return false;
  const std::vector<std::int64_t> bounds = r.inputs.at("cu_seqlens").to_integers();
  for (std::size_t n = 1; n < bounds.size(); ++n) {
    if ((bounds[n] - bounds[n - 1]) % kChunk >= rows) return true;
  }
  return false;
}
// Rows 4 and 8 of a fragment of 16 are both there.
bool has_two_quarters(const Record& r) { return has_tail(r, 9); }

TensorMap run(const Record& r, const ChunkVariant& variant) {
  return run_lanes(r, chunk_variant(variant));
}

constexpr std::string_view kStageGroup = "Stages of a chunk";
constexpr std::array kStageMistakes{
    calls::Mistake{
        "tail_decay_zero", kStageGroup,
        "a chunk of 64 that is not full ends with a cumulated gate of 0: the state before "
        "it does not decay, its own writes grow by exp(-G)",
        [](const Record& r) { return has_gate(r) && has_tail(r, 1); },
        [](const Record& r, const calls::Kernel&) {
          return run(r, {.end_row = EndRow::kZeroInTail});
        }},
    calls::Mistake{
        "decay_row_by_lane", kStageGroup,
        "the decay to the end of a chunk is taken from row 57, 59, 61 or 63 of 64, the "
        "last that a thread has: by key channel",
        gates_of<2>,
        [](const Record& r, const calls::Kernel&) { return run(r, {.end_row = EndRow::kByKey}); }},
    calls::Mistake{
        "decay_row_by_lane", kStageGroup,
        "the decay of the state to the end of a chunk is taken from row 57, 59, 61 or 63 "
        "of 64, by value channel",
        gates_of<2>,
        [](const Record& r, const calls::Kernel&) {
          return run(r, {.end_row = EndRow::kByValue});
        }},
    calls::Mistake{
        "inter_state_transposed", kStageGroup,
        "from the second chunk on o reads the state of the chunk start as [K,V] where it "
        "is stored as [V,K]; the states themselves are right",
        [](const Record& r) { return is_chunked(r, kChunk + 1) && has_two_axes(r); },
        [](const Record& r, const calls::Kernel&) { return run(r, {.transposed_from = 1}); }},
    calls::Mistake{
        "inter_state_transposed", kStageGroup,
        "o reads the state of every chunk start, the initial one too, as [K,V] where it "
        "is stored as [V,K]; the states themselves are right",
        [](const Record& r) { return starts_from_state(r) && has_two_axes(r); },
        [](const Record& r, const calls::Kernel&) { return run(r, {.transposed_from = 0}); }},
    calls::Mistake{
        "decay_factored", kStageGroup,
        "decays within 16 rows are exp(G_i) times exp(-G_j), each formed in fp32: 0 * inf, "
        "or 0 and inf, for hard gates",
        gates_of<1>,
        [](const Record& r, const calls::Kernel&) { return run(r, {.factored_rows = kSubChunk}); }},
    calls::Mistake{
        "decay_factored", kStageGroup,
        "decays within a chunk of 64 are exp(G_i) times exp(-G_j), each formed in fp32: "
        "0 * inf, or 0 and inf, for hard gates",
        gates_of<1>,
        [](const Record& r, const calls::Kernel&) { return run(r, {.factored_rows = kChunk}); }},
    calls::Mistake{
        "mask_after_exp", kStageGroup,
        "the upper triangle of q k^T is formed with exp(G_i - G_j) = inf and masked by a "
        "product with 0, which gives NaN",
        gates_of<2>,
        [](const Record& r, const calls::Kernel&) {
          return run(r, {.mask_attention_late = true});
        }},
    calls::Mistake{"mask_after_exp", kStageGroup,
                   "the upper triangles of q k^T and of A are formed with exp(G_i - G_j) = inf and "
                   "masked by a product with 0: NaN from that row on",
                   gates_of<2>,
                   [](const Record& r, const calls::Kernel&) {
                     return run(r, {.mask_attention_late = true, .mask_inverse_late = true});
                   }},
    calls::Mistake{
        "gate_base_mixed", kStageGroup,
        "cumulated gates in base 2 go through exp where a decay leads from one sub-chunk "
        "of 16 rows to another; within it they are right",
        gates_of<kSubChunk + 1>,
        [](const Record& r, const calls::Kernel&) {
          return run(r, {.wrong_base_rows = kSubChunk});
        }},
    calls::Mistake{
        "gate_base_mixed", kStageGroup,
        "cumulated gates in base 2 go through exp where a decay leads into a chunk of 64 "
        "or out of it; within it they are right",
        [](const Record& r) { return has_gate(r) && has_state_operand(r); },
        [](const Record& r, const calls::Kernel&) { return run(r, {.wrong_base_outside = true}); }},
    calls::Mistake{
        "inverse_rounds", kStageGroup,
        "the inverse of 16 rows has three rounds of Newton-Schulz where it takes four: its "
        "terms from L^8 on are missing",
        chunk_of<9>,
        [](const Record& r, const calls::Kernel&) {
          return run(r, {.chunk = kSubChunk, .inverse = Inverse::kThreeRounds});
        }},
    calls::Mistake{
        "inverse_doubling", kStageGroup,
        "the inverse of 64 rows is the product (I - L)(I + L^2)..(I + L^32) in fp32, which "
        "cancels for keys that resemble each other",
        chunk_of<4>,
        [](const Record& r, const calls::Kernel&) {
          return run(r, {.inverse = Inverse::kDoublingF32});
        }},
    calls::Mistake{
        "chunk_size_mixed", kStageGroup,
        "A and its inverse are formed for chunks of 32, all other stages work on 64: what "
        "the first half wrote is not subtracted in the second",
        chunk_of<kChunk / 2 + 1>,
        [](const Record& r, const calls::Kernel&) { return run(r, {.inverse_rows = kChunk / 2}); }},
    calls::Mistake{
        "w_decay_twice", kStageGroup,
        "w is exp(G) T (beta k), with the decay in front of the decayed inverse where it "
        "belongs behind it",
        [](const Record& r) { return has_gate(r) && has_state_operand(r); },
        [](const Record& r, const calls::Kernel&) { return run(r, {.w_decay_outside = true}); }},
    calls::Mistake{
        "w_no_decay", kStageGroup,
        "w = T (beta k) lacks its exp(G): what is predicted from the state of the chunk "
        "start has not decayed",
        [](const Record& r) { return has_gate(r) && has_state_operand(r); },
        [](const Record& r, const calls::Kernel&) { return run(r, {.order = kWNoDecay}); }},
    calls::Mistake{
        "intra_no_decay", kStageGroup, "q k^T within a chunk of 64 is masked, but has no decay",
        gates_of<2>,
        [](const Record& r, const calls::Kernel&) { return run(r, {.order = kIntraNoDecay}); }},
    calls::Mistake{
        "inter_no_decay", kStageGroup,
        "q meets the state of the chunk start as it was, without exp(G)",
        [](const Record& r) { return has_gate(r) && has_state_operand(r); },
        [](const Record& r, const calls::Kernel&) { return run(r, {.order = kInterNoDecay}); }},
    calls::Mistake{
        "old_state_not_added", kStageGroup,
        "the state after a chunk holds its writes alone; what was there before corrects "
        "them, but is not carried over",
        has_state_operand,
        [](const Record& r, const calls::Kernel&) { return run(r, {.keep_state = false}); }},
    calls::Mistake{
        "decay_split_ftz", kStageGroup,
        "exp(G_C) is exp(G_C - g_0) exp(g_0), and flushed to 0 where the first gate of a "
        "chunk of 64 is below -87.3: the chunk leaves no state",
        gates_of<1>,
        [](const Record& r, const calls::Kernel&) { return run(r, {.split_end = true}); }},
    calls::Mistake{
        "tail_rows_permuted", kStageGroup,
        "in the last 16 rows of a tail rows 4-7 and 8-11 are exchanged in what is written "
        "to the state",
        has_two_quarters,
        [](const Record& r, const calls::Kernel&) { return run(r, {.swap_tail_writes = true}); }},
    calls::Mistake{
        "tail_rows_permuted", kStageGroup,
        "in the last 16 rows of a tail rows 4-7 and 8-11 of o are exchanged", has_two_quarters,
        [](const Record& r, const calls::Kernel&) { return run(r, {.swap_tail_output = true}); }},
    calls::Mistake{
        "state_operand_f16",
        kStageGroup,
        "products read the state of a chunk start in fp16, which is inf from 65520 on",
        has_state_operand,
        [](const Record& r, const calls::Kernel&) { return run(r, {.state_operand_f16 = true}); },
        {},
        calls::kRounds},
};

}  // namespace

std::span<const calls::Mistake> stage_mistakes() { return kStageMistakes; }

}  // namespace goldenrule::delta
