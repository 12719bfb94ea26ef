// SPDX-License-Identifier: Apache-2.0
//
// The walk over a call in tiles of value channels: lanes are prepared in batches, their tiles run
// in parallel, and a visitor of each tile sees every token and every snapshot. The exact values
// with their certificate are one visitor (evaluate.cpp), the running error of a recurrent contract
// is another (budget/running_grant.cpp).
//
// A visitor is made for each tile as make(tile_start) and has
//   token(t, row, tile)       after token t of the lane, those that it replays from a ring among
//                             them; `row` is where the tile's outputs and norms have it
//   snapshot(snapshot, tile)  when the state is that of `snapshot`
// Afterwards finish(job, visitor) is called for every tile in a fixed order, on one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/rule/lane.hpp"
#include "reference/delta/rule/recurrent.hpp"

namespace goldenrule::delta {

/// A tile before its first token.
template <class S>
struct TileStart {
  const LaneJob& job;
  const Lane<S>& lane;
  const RecurrentTile<S>& tile;
  std::int64_t first_column;
  std::span<const double> v;           ///< [tokens, columns]
  typename ColumnNorms<S>::Row norm2;  ///< of the columns of the start state
};

struct Walk {
  const char* phase;                 ///< for those who watch the progress
  Detail detail;                     ///< what the tiles record
  std::int64_t tokens_at_once = 64;  ///< 1: the visitor needs the state after each token
};

template <class S>
class TileWalk {
 public:
  TileWalk(const call::Record& record, const call::Plan& plan)
      : record_(record),
        plan_(plan),
        dims_(plan.dims),
        inputs_(record),
        index_(record, plan.dims) {}

  [[nodiscard]] const CallInputs& inputs() const { return inputs_; }
  [[nodiscard]] const OutputIndex& index() const { return index_; }

  template <class Make, class Finish>
  void run(const Walk& walk, Make&& make, Finish&& finish) const {
    const std::vector<LaneJob> jobs = lanes_of(plan_);
    const std::int64_t tiles = (dims_.V + kColumns - 1) / kColumns;
    parallel::Phase phase(walk.phase, std::ssize(jobs) * tiles);
    std::size_t begin = 0;
    while (begin < jobs.size()) {
      std::size_t end = begin;
      std::int64_t bytes = 0;
      while (end < jobs.size() && (end == begin || bytes < kBatchBytes)) {
        bytes += lane_bytes(jobs[end].sequence->lane_tokens());
        ++end;
      }
      run_batch(walk, {jobs.data() + begin, end - begin}, phase, make, finish);
      begin = end;
    }
  }

 private:
  static constexpr int kColumns = kTileColumns<S>;
  // Prepared lanes that are alive together.
  static constexpr std::int64_t kBatchBytes = std::int64_t{64} << 20;

  [[nodiscard]] std::int64_t lane_bytes(std::int64_t tokens) const {
    const std::int64_t gates = call::gate_channels(record_, dims_.K);
    return tokens * ((2 * dims_.K + gates + 1) * static_cast<std::int64_t>(sizeof(S)) +
                     gates * static_cast<std::int64_t>(sizeof(double)) +
                     static_cast<std::int64_t>(sizeof(TokenBounds)));
  }

  template <class Make, class Finish>
  void run_batch(const Walk& walk, std::span<const LaneJob> jobs, parallel::Phase& phase,
                 Make& make, Finish& finish) const {
    std::vector<Lane<S>> lanes(jobs.size());
    parallel::for_each_index(std::ssize(jobs), [&](std::int64_t i) {
      const LaneJob& job = jobs[static_cast<std::size_t>(i)];
      lanes[static_cast<std::size_t>(i)] =
          prepare_lane<S>(record_, dims_, inputs_, *job.sequence, job.head);
    });
    std::vector<std::pair<std::size_t, std::int64_t>> tiles;  // lane, first column
    for (std::size_t lane = 0; lane < jobs.size(); ++lane) {
      for (std::int64_t c = 0; c < dims_.V; c += kColumns) tiles.emplace_back(lane, c);
    }
    using Visitor = decltype(make(std::declval<const TileStart<S>&>()));
    std::vector<std::optional<Visitor>> visitors(tiles.size());
    parallel::for_each_index(std::ssize(tiles), [&](std::int64_t i) {
      const auto& [lane, first_column] = tiles[static_cast<std::size_t>(i)];
      visitors[static_cast<std::size_t>(i)] =
          run_tile(walk, jobs[lane], lanes[lane], first_column, make);
      phase.advance();
    });
    for (std::size_t i = 0; i < tiles.size(); ++i) finish(jobs[tiles[i].first], *visitors[i]);
  }

  // v of the tile's columns, [tokens, columns].
  [[nodiscard]] std::vector<double> tile_values(const LaneJob& job, std::int64_t first_column,
                                                int columns) const {
    const std::int64_t tokens = job.sequence->lane_tokens();
    std::vector<double> v(static_cast<std::size_t>(tokens * columns));
    for (std::int64_t t = 0; t < tokens; ++t) {
      read_values(inputs_, index_, job, t, first_column, columns, v.data() + t * columns);
    }
    return v;
  }

  // Gives the tile its start state and returns the squared norms of its columns.
  typename ColumnNorms<S>::Row set_start(RecurrentTile<S>& tile, const LaneJob& job,
                                         std::int64_t first_column, int columns) const {
    typename ColumnNorms<S>::Row norm2{};
    if (job.sequence->start_block < 0 || inputs_.initial_state.empty()) return norm2;
    const std::vector<double> start =
        start_columns(inputs_, dims_, index_, *job.sequence, job.head, first_column, columns);
    for (std::int64_t i = 0; i < dims_.K; ++i) {
      for (int c = 0; c < columns; ++c) {
        const double x = start[static_cast<std::size_t>(i * columns + c)];
        tile.set_state(i, c, S(x));
        norm2[static_cast<std::size_t>(c)] += x * x;
      }
    }
    return norm2;
  }

  template <class Make>
  auto run_tile(const Walk& walk, const LaneJob& job, const Lane<S>& lane,
                std::int64_t first_column, Make& make) const {
    const call::Sequence& sequence = *job.sequence;
    const auto columns = static_cast<int>(std::min<std::int64_t>(kColumns, dims_.V - first_column));
    const std::vector<double> v = tile_values(job, first_column, columns);
    RecurrentTile<S> tile(lane, v.data(), columns, 0, columns);
    const auto norm2 = set_start(tile, job, first_column, columns);
    auto visitor = make(TileStart<S>{job, lane, tile, first_column, v, norm2});
    std::int64_t t = 0;
    auto snapshot = sequence.snapshots.begin();
    const auto take_snapshots = [&] {
      for (; snapshot != sequence.snapshots.end() && snapshot->after == t; ++snapshot) {
        visitor.snapshot(*snapshot, tile);
      }
    };
    take_snapshots();
    while (t < lane.tokens) {
      parallel::stop_if_asked();
      std::int64_t end = std::min(lane.tokens, t + walk.tokens_at_once);
      if (snapshot != sequence.snapshots.end()) end = std::min(end, snapshot->after);
      tile.advance(t, end, walk.detail);
      for (std::int64_t i = t; i < end; ++i) visitor.token(i, i - t, tile);
      t = end;
      take_snapshots();
    }
    return visitor;
  }

  const call::Record& record_;
  const call::Plan& plan_;
  const call::Dims& dims_;
  const CallInputs inputs_;
  const OutputIndex index_;
};

}  // namespace goldenrule::delta
