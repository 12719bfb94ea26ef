// SPDX-License-Identifier: Apache-2.0
//
// States on the way. A chunked kernel that is asked for the state of a sequence after p tokens, p
// inside of a chunk, has two honest ways to get it:
//
//   kKeep   its chunks stay where they are, and a chunk that begins where that one does and ends at
//           p is computed aside, for its state;
//   kSplit  a chunk ends at p, and the next one begins there: then later tokens stand in other
//           chunks too, whose operands are rounded elsewhere.
//
// Both run a chunk that ends at p, so a checkpoint inside of a chunk is a short chunk there. They
// differ in how many chunks lie before it, and in what comes after it. Where every p is the end of
// a chunk anyway they are one.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {

enum class ChunkEnds : std::uint8_t { kKeep, kSplit };

/// What a kernel computes from a lane: o [tokens,V] and the states [K,V] after given numbers of
/// tokens, ascending; and the corrections d [tokens,V] of an emulated chunked kernel. Its stages
/// too where it ran in one piece and was asked for them.
template <class S>
struct KeptForm {
  Matrix<S> o;
  std::vector<Matrix<S>> states;
  Matrix<S> d = {};
  ChunkStages<S> stages = {};
};

/// Tokens [begin, end) of a lane.
[[nodiscard]] Lane<double> slice(const Lane<double>& lane, std::int64_t begin, std::int64_t end);

/// Whether kKeep and kSplit differ: some position is not the end of a chunk.
[[nodiscard]] bool splits_chunks(std::span<const std::int64_t> positions, std::int64_t tokens,
                                 std::int64_t chunk);

/// Runs a lane with run(lane, v, start), a chunked kernel whose chunks begin with the tokens that
/// it is given. `positions` ascend and lie in (0, tokens].
template <class S, class Run>
KeptForm<S> run_in_pieces(const Lane<double>& lane, const Matrix<double>& v,
                          const Matrix<double>& initial, std::span<const std::int64_t> positions,
                          std::int64_t chunk, ChunkEnds ends, Run&& run) {
  KeptForm<S> result{.o = Matrix<S>(lane.tokens, v.cols()), .states = {}};
  Matrix<double> state = initial;
  std::int64_t begin = 0;
  const auto run_to = [&](std::int64_t end) -> FormResult<S> {
    if (begin == 0 && end == lane.tokens) return run(lane, v, state);
    return run(slice(lane, begin, end), Matrix<double>(v.middleRows(begin, end - begin)), state);
  };
  const auto advance = [&](std::int64_t end) {
    if (end <= begin) return;
    FormResult<S> piece = run_to(end);
    result.o.middleRows(begin, end - begin) = piece.o;
    if (piece.d.size() > 0) {
      result.d.conservativeResize(lane.tokens, v.cols());
      result.d.middleRows(begin, end - begin) = piece.d;
    }
    state = piece.state.template cast<double>();
    if (begin == 0 && end == lane.tokens) result.stages = std::move(piece.stages);
    begin = end;
  };
  for (const std::int64_t position : positions) {
    const bool is_end = ends == ChunkEnds::kSplit || position == lane.tokens;
    advance(is_end ? position : position / chunk * chunk);
    result.states.push_back(position == begin ? Matrix<S>(state.template cast<S>())
                                              : run_to(position).state);
  }
  advance(lane.tokens);
  return result;
}

}  // namespace goldenrule::delta
