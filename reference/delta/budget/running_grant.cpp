// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/running_grant.hpp"

#include <cmath>
#include <string>
#include <string_view>

#include "reference/delta/budget/grant.hpp"
#include "reference/delta/budget/running.hpp"
#include "reference/delta/oracle/tile_walk.hpp"
#include "reference/verdict/grants.hpp"

namespace goldenrule::delta {
namespace {

// The outputs that the tiles of a call write; states that nobody asked for are absent.
struct Targets {
  verdict::Expected* o = nullptr;
  verdict::Expected* final_state = nullptr;
  verdict::Expected* kept_states = nullptr;
  verdict::Expected* corrections = nullptr;
};

void store(verdict::Expected& to, std::size_t at, const Spread& s) {
  if (std::isfinite(to.exact.golden[at])) store_grant(to.grant, at, s.sigma, s.bias);
}

class RunningTile {
 public:
  RunningTile(const contract::Contract& contract, const TileStart<double>& start,
              const call::Dims& dims, const OutputIndex& index, const Targets& targets)
      : job_(start.job),
        dims_(&dims),
        index_(&index),
        targets_(&targets),
        first_column_(start.first_column),
        error_(contract, start.lane, start.tile) {}

  void token(std::int64_t t, std::int64_t row, const RecurrentTile<double>& tile) {
    error_.advance(t, tile.norms()[static_cast<std::size_t>(row)], tile);
    const call::Sequence& sequence = *job_.sequence;
    const std::int64_t token = sequence.first_token + t - sequence.replay.count;
    if (t < sequence.replay.count) return;
    for (int c = 0; c < tile.columns(); ++c) {
      store(*targets_->o, index_->o(token, job_.head, first_column_ + c), error_.output(c));
      if (targets_->corrections == nullptr) continue;
      store(*targets_->corrections, index_->d(sequence, t, job_.head, first_column_ + c),
            error_.correction(c));
    }
  }

  void snapshot(const call::Snapshot& s, const RecurrentTile<double>& tile) {
    verdict::Expected& to =
        s.target == call::Target::kFinalState ? *targets_->final_state : *targets_->kept_states;
    for (std::int64_t i = 0; i < dims_->K; ++i) {
      for (int c = 0; c < tile.columns(); ++c) {
        store(to, (*index_)(s.block, job_.head, i, first_column_ + c), error_.state(i, c));
      }
    }
  }

 private:
  LaneJob job_;
  const call::Dims* dims_;
  const OutputIndex* index_;
  const Targets* targets_;
  std::int64_t first_column_;
  RunningError error_;
};

}  // namespace

void grant_running_errors(const call::Record& record, const call::Plan& plan,
                          const contract::Contract& contract, verdict::GrantDetail detail,
                          verdict::Expectations& expected) {
  const auto target = [&](std::string_view name) -> verdict::Expected* {
    const auto found = expected.outputs.find(std::string(name));
    if (found == expected.outputs.end()) return nullptr;
    verdict::Expected& e = found->second;
    e.grant = empty_grant(e.exact, verdict::deviation_multiple(std::ssize(e.exact.golden)), detail);
    return &e;
  };
  const Targets targets{
      .o = target("o"),
      .final_state = target("final_state"),
      .kept_states = plan.kept_states ? target(call::name_of(*plan.kept_states)) : nullptr,
      .corrections = target("ring_d")};
  const TileWalk<double> walk(record, plan);
  const auto make = [&](const TileStart<double>& start) {
    return RunningTile(contract, start, plan.dims, walk.index(), targets);
  };
  walk.run({.phase = "budget", .detail = Detail::kSums, .tokens_at_once = 1}, make,
           [](const LaneJob&, const RunningTile&) {});
}

}  // namespace goldenrule::delta
