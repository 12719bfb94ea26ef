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
#include "reference/scalar/pack.hpp"

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

// A tile as [K][kColumns] numbers, while it lies in the nearest cache. Columns that the tile has
// not are zero.
using Rows = std::vector<double>;

const double* row_of(const Rows& rows, std::int64_t i) { return rows.data() + i * kColumns; }
double* row_of(Rows& rows, std::int64_t i) { return rows.data() + i * kColumns; }

void put(const Rows& rows, std::int64_t keys, Tile& tile) {
  for (std::int64_t i = 0; i < keys; ++i) tile.set_row(i, row_of(rows, i));
}
void take(const Tile& tile, std::int64_t keys, Rows& rows) {
  for (std::int64_t i = 0; i < keys; ++i) tile.read_row(i, row_of(rows, i));
}

// Adds the squares of the elements of each column.
template <class T>
GOLDENRULE_INLINE void add_squares_of(const T* rows, std::int64_t keys, double* sums) {
  for (std::int64_t i = 0; i < keys; ++i) {
    for (int c = 0; c < kColumns; ++c) {
      const auto x = static_cast<double>(rows[i * kColumns + c]);
      sums[c] += x * x;
    }
  }
}
GOLDENRULE_VECTOR_CLONES void add_squares(const double* rows, std::int64_t keys, double* sums) {
  add_squares_of(rows, keys, sums);
}
GOLDENRULE_VECTOR_CLONES void add_squares(const float* rows, std::int64_t keys, double* sums) {
  add_squares_of(rows, keys, sums);
}

}  // namespace

// A tile of a value head: columns [first, first + columns).
struct Carry::Place {
  std::int64_t head = 0, first = 0;
  int columns = 0;

  [[nodiscard]] std::size_t element(const Layout& layout, std::int64_t i, int c) const {
    return layout.at(0, head, i, first + c);
  }
  [[nodiscard]] std::size_t column(const Layout& layout, int c) const {
    return static_cast<std::size_t>(head * layout.V + first + c);
  }
  void load(const Layout& layout, const Block& block, Rows& rows) const {
    for (int c = 0; c < columns; ++c) {
      const double* from = &block[element(layout, 0, c)];
      for (std::int64_t i = 0; i < layout.K; ++i) row_of(rows, i)[c] = from[i * layout.at.key];
    }
  }
  void save(const Layout& layout, const Rows& rows, Block& block) const {
    for (int c = 0; c < columns; ++c) {
      double* to = &block[element(layout, 0, c)];
      for (std::int64_t i = 0; i < layout.K; ++i) to[i * layout.at.key] = row_of(rows, i)[c];
    }
  }
};

// One row on its way through the call: a tile of it, what the call adds to that, and the squares of
// what it adds to each column.
struct Carry::Work {
  Work(const Layout& layout, const contract::Contract& contract, std::uint64_t content)
      : rows(static_cast<std::size_t>(layout.K * kColumns)),
        added(rows.size()),
        sigma(rows.size()),
        bias(rows.size()),
        deviations(contract.state_dtype.value_or(layout.pool)),
        sign(content, layout.size(), static_cast<std::size_t>(layout.runs)),
        error2(layout.columns()),
        bias2(layout.columns()) {}

  Rows rows, added;
  std::vector<float> sigma, bias;
  Deviations deviations;
  NoiseSigns sign;
  std::vector<double> error2, bias2;
};

bool Carry::serves(const contract::Contract& contract, const call::Record& tokens) {
  return contract.chunked() == nullptr && tokens.mode != call::Mode::kPrefill &&
         !call::has_tree(tokens);
}

Carry::Carry(const contract::Contract& contract, const Layout& layout, const call::Record& tokens,
             std::int64_t rows)
    : contract_(contract),
      layout_(layout),
      tokens_(without_states(tokens, layout, rows)),
      plan_(call::make_plan(tokens_, false)),
      inputs_(tokens_) {}

void Carry::run_tile(const delta::Lane<double>& lane, const double* v, const Place& at,
                     const Ledger& start, Ledger& ledger, Work& work) const {
  at.load(layout_, start.state, work.rows);
  Norms norm2{};
  add_squares(work.rows.data(), layout_.K, norm2.data());
  for (std::size_t c = static_cast<std::size_t>(at.columns); c < norm2.size(); ++c) norm2[c] = 0.0;
  Tile tile(lane, v, layout_.V, at.first, at.columns);
  put(work.rows, layout_.K, tile);
  delta::Certificate<double> certificate(lane, norm2);
  std::optional<delta::RunningError> running;
  if (!contract_.is_ideal()) running.emplace(contract_, lane, tile);
  for (std::int64_t t = 0; t < lane.tokens; ++t) {
    tile.advance(t, t + 1, delta::Detail::kSums);
    certificate.advance(t, tile.norms().front());
    if (running) running->advance(t, tile.norms().front(), tile);
  }
  take(tile, layout_.K, work.rows);
  at.save(layout_, work.rows, ledger.state);
  std::array<double, kColumns> bias2{};
  if (running) {
    running->read(work.sigma.data(), work.bias.data());
    add_squares(work.bias.data(), layout_.K, bias2.data());
  }
  for (int c = 0; c < at.columns; ++c) {
    const double r = certificate.state_radius(c);
    const auto radius = static_cast<double>(call::f32_bound(std::isnan(r) ? HUGE_VAL : r));
    double error2 = 0.0;
    for (std::int64_t i = 0; i < layout_.K; ++i) error2 += radius * radius;
    work.error2[at.column(layout_, c)] = error2;
    work.bias2[at.column(layout_, c)] = bias2[static_cast<std::size_t>(c)];
  }
  work.deviations.of(work.rows.data(), running ? work.sigma.data() : nullptr, work.rows.size(),
                     work.added.data());
}

// The noise of the start through the same tokens, and what the call adds to it.
void Carry::move_noise(const delta::Lane<double>& lane, const Place& at, const Ledger& start,
                       bool any, Ledger& ledger, Work& work) const {
  const std::vector<double> v(static_cast<std::size_t>(lane.tokens * layout_.V), 0.0);
  for (std::size_t run = 0; run < ledger.noise.size(); ++run) {
    if (any) {
      at.load(layout_, start.noise[run], work.rows);
      Tile tile(lane, v.data(), layout_.V, at.first, at.columns);
      put(work.rows, layout_.K, tile);
      tile.advance(0, lane.tokens, delta::Detail::kValues);
      take(tile, layout_.K, work.rows);
    } else {
      std::ranges::fill(work.rows, 0.0);
    }
    for (int c = 0; c < at.columns; ++c) {
      const std::size_t first = at.element(layout_, 0, c);
      double* to = &ledger.noise[run][first];
      for (std::int64_t i = 0; i < layout_.K; ++i) {
        const auto step = static_cast<std::size_t>(i * layout_.at.key);
        to[step] = with_noise(row_of(work.rows, i)[c], row_of(work.added, i)[c],
                              work.sign(run, first + step));
      }
    }
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
  Work work(layout_, contract_, content_of(tokens_, plan_.dims, sequence.first_token, tokens));
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
      run_tile(lane, v.data(), at, *start, ledger, work);
      move_noise(lane, at, *start, any_noise, ledger, work);
    }
    transport(layout_, h, transport_of(contract_, lane), ledger);
  }
  if (!std::ranges::all_of(ledger.state, [](double x) { return std::isfinite(x); })) return nullptr;
  for (std::size_t c = 0; c < work.error2.size(); ++c) {
    ledger.error[c] += std::sqrt(work.error2[c]);
    ledger.bias[c] += std::sqrt(work.bias2[c]);
  }
  return std::make_shared<Ledger>(std::move(ledger));
}

}  // namespace goldenrule::chain
