// SPDX-License-Identifier: Apache-2.0
//
// All sensible orders of the steps of a token and of the decays of a chunk, but for those that the
// table names.
#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/mistakes/common.hpp"
#include "reference/delta/mistakes/gates.hpp"
#include "reference/delta/mistakes/generated.hpp"
#include "reference/delta/mistakes/variant.hpp"

namespace goldenrule::delta {
namespace {

using call::Record;
using call::TensorMap;

constexpr std::array kPredicts{StateAt::kDecayed, StateAt::kOld, StateAt::kNothing};
constexpr std::array kLeaves{StateAt::kDecayedAndWrite, StateAt::kDecayOfBoth,
                             StateAt::kOldAndWrite};
constexpr std::array kReads{StateAt::kDecayedAndWrite, StateAt::kDecayOfBoth, StateAt::kOldAndWrite,
                            StateAt::kDecayed, StateAt::kOld};
constexpr std::size_t kTokenOrders = kPredicts.size() * kLeaves.size() * kReads.size();

constexpr TokenOrder token_order(std::size_t i) {
  return {.predicts = kPredicts[i / (kReads.size() * kLeaves.size())],
          .leaves = kLeaves[i / kReads.size() % kLeaves.size()],
          .reads = kReads[i % kReads.size()]};
}

// What is wrong in a chunk: one or two of the decays, or one of the rest.
constexpr std::size_t kDecays = 6;
constexpr std::size_t kOthers = 4;
constexpr std::size_t kChunkOrders = kDecays * kDecays + kOthers;

constexpr void drop_decay(std::size_t which, ChunkOrder& order) {
  bool* const decays[]{&order.pairs,     &order.predicted, &order.read,
                       &order.attention, &order.writes,    &order.carried};
  *decays[which] = false;
}
// Two decays occur twice: the right order stands for the second time.
constexpr ChunkOrder chunk_order(std::size_t i) {
  ChunkOrder order;
  if (i < kDecays * kDecays) {
    if (i / kDecays > i % kDecays) return order;
    drop_decay(i / kDecays, order);
    drop_decay(i % kDecays, order);
    return order;
  }
  const std::size_t other = i - kDecays * kDecays;
  order.writes_along_values = other == 0;
  order.o_corrected = other != 1 && other != 3;
  order.writes_corrected = other != 2 && other != 3;
  return order;
}
constexpr std::array<std::int64_t, 4> kChunks{16, 32, 64, 128};

bool is_gated(const Record& r) { return has_gate(r); }

// In chunks of C tokens: shorter sequences are the same in smaller ones.
template <std::int64_t C>
bool is_in_chunks(const Record& r) {
  return has_gate(r) && calls::is_prefill(r) &&
         calls::longest_sequence(r) > (C == kChunks.front() ? 1 : C / 2);
}
template <std::int64_t C>
bool is_in_chunks_with_one_gate(const Record& r) {
  return is_in_chunks<C>(r) && call::gate_channels(r, call::validate(r).K) == 1;
}

template <std::size_t i>
TensorMap commit_token_order(const Record& r, const calls::Kernel&) {
  return run_lanes(r, step_variant({.order = token_order(i)}));
}
template <std::int64_t C, std::size_t i>
TensorMap commit_chunk_order(const Record& r, const calls::Kernel&) {
  return run_lanes(r, chunk_variant({.chunk = C, .order = chunk_order(i)}));
}

struct Words {
  std::string name, meaning;
  void add(std::string_view in_name, std::string_view in_meaning) {
    name.append(name.empty() ? "" : "_").append(in_name);
    meaning.append(meaning.empty() ? "" : "; ").append(in_meaning);
  }
};

Words words_of(const TokenOrder& order) {
  Words w;
  if (order.predicts == StateAt::kOld) {
    w.add("predicts_undecayed", "predicts from the state before the decay");
  }
  if (order.predicts == StateAt::kNothing) w.add("predicts_nothing", "v is written as it is");
  if (order.leaves == StateAt::kDecayOfBoth) {
    w.add("decays_own_write", "the state decays after the write of the token");
  }
  if (order.leaves == StateAt::kOldAndWrite) {
    w.add("leaves_undecayed", "the state that is left has not decayed");
  }
  if (order.reads == order.leaves) return w;
  switch (order.reads) {
    case StateAt::kOld:
      w.add("reads_old", "o is read from the state before the decay and the write");
      break;
    case StateAt::kDecayed:
      w.add("reads_unwritten", "o is read after the decay and before the write");
      break;
    case StateAt::kOldAndWrite:
      w.add("reads_undecayed", "o is read after the write from a state that has not decayed");
      break;
    case StateAt::kDecayOfBoth:
      w.add("reads_decayed_write", "o is read from a state whose write has decayed as well");
      break;
    default:
      w.add("reads_decayed", "o is read after the decay and the write");
      break;
  }
  return w;
}

Words words_of(const ChunkOrder& order, std::int64_t C) {
  std::string name, lacking;
  const auto lacks = [&](bool has, std::string_view in_name, std::string_view what) {
    if (has) return;
    name.append(in_name).append("_");
    lacking.append(lacking.empty() ? "" : " and ").append(what);
  };
  lacks(order.pairs, "a", "A");
  lacks(order.predicted, "w", "w");
  lacks(order.read, "inter", "what q reads of the state of the chunk start");
  lacks(order.attention, "intra", "q k^T");
  lacks(order.writes, "write", "what is written to the state");
  lacks(order.carried, "carry", "the state that is carried over");
  const std::string chunks = "chunks of " + std::to_string(C);
  const std::string of = "_of_" + std::to_string(C);
  if (!name.empty()) return {name + "no_decay" + of, lacking + " has no decay in " + chunks};
  if (order.writes_along_values) {
    return {"write_decay_along_values" + of,
            "in " + chunks +
                " the decay of a write to the end lies along value channels, not along tokens"};
  }
  const std::string lack = " lacks what is predicted from the state of the start of " + chunks;
  if (order.o_corrected) return {"write_uncorrected" + of, "what is written to the state" + lack};
  if (order.writes_corrected) return {"read_uncorrected" + of, "what o reads of a chunk" + lack};
  return {"chunk_uncorrected" + of, "every value" + lack};
}

constexpr std::string_view kOrderGroup = "Order of steps";

calls::Mistake mistake(Words words, bool (*applies)(const Record&),
                       TensorMap (*commit)(const Record&, const calls::Kernel&)) {
  static std::deque<Words> kept;  // a mistake refers to its words
  const Words& w = kept.emplace_back(std::move(words));
  return {.name = w.name,
          .group = kOrderGroup,
          .meaning = w.meaning,
          .applies = applies,
          .commit = commit,
          .cut_by = calls::CutBy::kValuesAndTokens};
}

template <std::size_t... i>
void add_token_orders(std::vector<calls::Mistake>& all, std::index_sequence<i...>) {
  const auto add = [&](const TokenOrder& order, auto commit) {
    if (order == TokenOrder{} ||
        std::ranges::find(kNamedTokenOrders, order) != kNamedTokenOrders.end()) {
      return;
    }
    all.push_back(mistake(words_of(order), is_gated, commit));
  };
  (add(token_order(i), commit_token_order<i>), ...);
}

template <std::int64_t C, std::size_t... i>
void add_chunk_orders(std::vector<calls::Mistake>& all, std::index_sequence<i...>) {
  const auto add = [&](const ChunkOrder& order, auto commit) {
    const bool named =
        C == kChunk && std::ranges::find(kNamedChunkOrders, order) != kNamedChunkOrders.end();
    if (order == ChunkOrder{} || named) return;
    const auto applies =
        order.writes_along_values ? is_in_chunks_with_one_gate<C> : is_in_chunks<C>;
    all.push_back(mistake(words_of(order, C), applies, commit));
    if (order.writes_along_values) all.back().cut_by = calls::CutBy::kNothing;
  };
  (add(chunk_order(i), commit_chunk_order<C, i>), ...);
}

template <std::size_t... c>
void add_chunks(std::vector<calls::Mistake>& all, std::index_sequence<c...>) {
  (add_chunk_orders<kChunks[c]>(all, std::make_index_sequence<kChunkOrders>{}), ...);
}

}  // namespace

std::vector<calls::Mistake> order_mistakes() {
  std::vector<calls::Mistake> all;
  add_token_orders(all, std::make_index_sequence<kTokenOrders>{});
  add_chunks(all, std::make_index_sequence<kChunks.size()>{});
  return all;
}

}  // namespace goldenrule::delta
