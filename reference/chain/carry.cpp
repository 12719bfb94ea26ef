// SPDX-License-Identifier: Apache-2.0
#include "reference/chain/carry.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "fixtures/call/f32_bound.hpp"
#include "fixtures/call/integer_inputs.hpp"
#include "reference/delta/budget/running.hpp"
#include "reference/delta/oracle/certificate.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/rule/recurrent.hpp"

namespace goldenrule::chain {
namespace {

using Tile = delta::RecurrentTile<double>;
using Norms = delta::ColumnNorms<double>::Row;

constexpr int kColumns = delta::kTileColumns<double>;

// A call of these tokens in which no row reads or writes a state.
call::Record without_states(call::Record tokens, const Layout& layout, std::int64_t rows) {
  tokens.inputs["initial_state"] = pool_of(tokens, layout, 0);
  tokens.inputs["state_indices"] =
      call::integer_tensor(std::vector<std::int64_t>(static_cast<std::size_t>(rows), -1));
  return tokens;
}

}  // namespace

// Of all elements of a row, as add_errors wants them.
struct Carry::RowErrors {
  std::vector<float> radius, sigma, bias;
};

// A tile of a value head: columns [first, first + columns).
struct Carry::Place {
  std::int64_t head = 0, first = 0;
  int columns = 0;

  [[nodiscard]] std::size_t element(const Layout& layout, std::int64_t i, int c) const {
    return layout.at(0, head, i, first + c);
  }
  // Returns the squared norms of the columns.
  Norms load(const Layout& layout, const Block& block, Tile& tile) const {
    Norms norm2{};
    std::array<double, kColumns> row{};
    for (std::int64_t i = 0; i < layout.K; ++i) {
      for (int c = 0; c < columns; ++c) {
        const double x = block[element(layout, i, c)];
        row[static_cast<std::size_t>(c)] = x;
        norm2[static_cast<std::size_t>(c)] += x * x;
      }
      tile.set_row(i, row.data());
    }
    return norm2;
  }
  void save(const Layout& layout, const Tile& tile, Block& block) const {
    std::array<double, kColumns> row{};
    for (std::int64_t i = 0; i < layout.K; ++i) {
      tile.read_row(i, row.data());
      for (int c = 0; c < columns; ++c) {
        block[element(layout, i, c)] = row[static_cast<std::size_t>(c)];
      }
    }
  }
};

bool Carry::serves(const contract::Contract& contract, const call::Record& tokens) {
  return contract.chunked() == nullptr && tokens.mode != call::Mode::kPrefill &&
         !call::has_tree(tokens);
}

Carry::Carry(const contract::Contract& contract, const Layout& layout, const call::Record& tokens,
             std::int64_t rows, std::uint64_t seed)
    : contract_(contract),
      layout_(layout),
      tokens_(without_states(tokens, layout, rows)),
      seed_(seed),
      plan_(call::make_plan(tokens_, false)),
      inputs_(tokens_) {}

void Carry::run_tile(const delta::Lane<double>& lane, const double* v, const Place& at,
                     const Ledger& start, Ledger& ledger, RowErrors& errors) const {
  Tile tile(lane, v, layout_.V, at.first, at.columns);
  delta::Certificate<double> certificate(lane, at.load(layout_, start.state, tile));
  std::optional<delta::RunningError> running;
  if (!contract_.is_ideal()) running.emplace(contract_, lane, tile);
  for (std::int64_t t = 0; t < lane.tokens; ++t) {
    tile.advance(t, t + 1, delta::Detail::kSums);
    certificate.advance(t, tile.norms().front());
    if (running) running->advance(t, tile.norms().front(), tile);
  }
  at.save(layout_, tile, ledger.state);
  std::array<float, kColumns> radius{};
  for (int c = 0; c < at.columns; ++c) {
    const double r = certificate.state_radius(c);
    radius[static_cast<std::size_t>(c)] = call::f32_bound(std::isnan(r) ? HUGE_VAL : r);
  }
  for (std::int64_t i = 0; i < layout_.K; ++i) {
    for (int c = 0; c < at.columns; ++c) {
      const std::size_t element = at.element(layout_, i, c);
      errors.radius[element] = radius[static_cast<std::size_t>(c)];
      if (!running) continue;
      const delta::Spread s = running->state(i, c);
      errors.sigma[element] = call::f32_bound(s.sigma);
      errors.bias[element] = call::f32_bound(s.bias);
    }
  }
}

void Carry::move_noise(const delta::Lane<double>& lane, const Place& at, const Ledger& start,
                       Ledger& ledger) const {
  const std::vector<double> v(static_cast<std::size_t>(lane.tokens * layout_.V), 0.0);
  for (std::size_t run = 0; run < ledger.noise.size(); ++run) {
    Tile tile(lane, v.data(), layout_.V, at.first, at.columns);
    at.load(layout_, start.noise[run], tile);
    tile.advance(0, lane.tokens, delta::Detail::kValues);
    at.save(layout_, tile, ledger.noise[run]);
  }
}

Known Carry::after(std::int64_t row, const Known& start, std::int64_t tokens) const {
  if (tokens == 0) return start;
  const call::Sequence& sequence = plan_.sequences[static_cast<std::size_t>(row)];
  const delta::OutputIndex index(tokens_, plan_.dims);
  Ledger ledger{.state = Block(layout_.size()),
                .noise = std::vector<Block>(start->noise.size(), Block(layout_.size())),
                .error = start->error,
                .bias = start->bias};
  RowErrors errors{.radius = std::vector<float>(layout_.size()), .sigma = {}, .bias = {}};
  if (!contract_.is_ideal()) {
    errors.sigma.resize(layout_.size());
    errors.bias.resize(layout_.size());
  }
  const bool any_noise = !std::ranges::all_of(start->noise, is_zero);
  for (std::int64_t h = 0; h < layout_.HV; ++h) {
    const auto lane =
        delta::prepare_lane<double>(tokens_, plan_.dims, inputs_, sequence.first_token, tokens, h);
    const auto v = delta::lane_values(inputs_, plan_.dims, index, sequence, h);
    for (std::int64_t first = 0; first < layout_.V; first += kColumns) {
      const Place at{
          .head = h,
          .first = first,
          .columns = static_cast<int>(std::min<std::int64_t>(kColumns, layout_.V - first))};
      run_tile(lane, v.data(), at, *start, ledger, errors);
      if (any_noise) move_noise(lane, at, *start, ledger);
    }
    transport(layout_, h, transport_of(contract_, lane), ledger);
  }
  if (!std::ranges::all_of(ledger.state, [](double x) { return std::isfinite(x); })) return nullptr;
  add_errors(layout_, contract_,
             {.radius = errors.radius, .sigma = errors.sigma, .bias = errors.bias},
             seed_ + static_cast<std::uint64_t>(row), ledger);
  return std::make_shared<Ledger>(std::move(ledger));
}

}  // namespace goldenrule::chain
