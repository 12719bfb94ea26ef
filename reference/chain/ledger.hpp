// SPDX-License-Identifier: Apache-2.0
//
// The ledger of a request: its exact state, recomputed call by call from its own k, v, gate and
// beta alone, whatever slot a server kept it in, and how far from it the state of an honest server
// may be by now.
//
// The exact state is carried in double precision from call to call. Its own error is carried beside
// it, per value column: with e the norm of the error and rho the product over the tokens of
// ||I - beta k k^T|| max alpha (delta/oracle/certificate.hpp),
//
//     e <- rho e + ||radius of the call||.
//
// How budgets add up along calls. With M the linear map of a call's tokens and s_n, S_n the stored
// and the exact state after call n,
//
//     s_n - S_n = M_n (s_{n-1} - S_{n-1}) + r_n,
//
// where r_n is what the contract of the call grants one call (delta/budget) and the rounding to the
// pool. Its random part is zero-mean with deviations sigma_i, so what matters later is how M moves
// it. The norm of a column would say too much (sqrt(K) per element, which no bf16 prefill
// survives); so one server in error is run instead: `noise` starts at 0, is moved by the rule
// itself (v = 0, the noise as start state: exactly M), and each call adds +- sqrt(sigma_i^2 +
// h^2/3) to it, h half an ulp of the pool. The signs are a function of what the tokens of the call
// bring to the state: a request that is served the same token over and over is rounded the same way
// over and over. The elements of one row of the state (one key channel, V value columns, R runs so
// that R V >= 64) are taken to have one variance, estimated by their mean square; with q the
// quantile p/(2n) of chi^2 with R V degrees of freedom, over R V, and lambda of n elements as
// everywhere,
//
//     budget_i = lambda / sqrt(q) rms(row of M noise) + rho bias + grant of this call + half an
//     ulp.
//
// Premises beside those of delta/budget/spread.hpp: roundings of calls with different tokens
// are independent, and those of one call are independent between elements when a later call moves
// them. Systematic parts add linearly in the norm of the column, bias <- rho bias + ||bias of the
// call||.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "reference/contract/contract.hpp"
#include "reference/delta/rule/lane.hpp"
#include "reference/verdict/slice.hpp"

namespace goldenrule::chain {

/// One state [HV,state], as its pool has it, in double precision.
using Block = std::vector<double>;
[[nodiscard]] inline bool is_zero(const Block& block) {
  return std::ranges::all_of(block, [](double x) { return x == 0.0; });
}

struct Ledger {
  Block state;
  std::vector<Block> noise;         ///< R runs
  std::vector<double> error, bias;  ///< [HV,V]: norms of columns
};

/// A ledger that several may remember; nullptr: the history is not known.
using Known = std::shared_ptr<const Ledger>;

/// Extents and layout of the states of a chain, and what is the same for all of its ledgers.
struct Layout {
  explicit Layout(const call::Record& record, const call::Dims& dims);

  std::int64_t HV, K, V;
  call::Strides at;  ///< of one block
  int runs;          ///< R
  double multiple;   ///< lambda / sqrt(q)
  call::DType pool;  ///< type in which states are stored

  /// lambda / sqrt(q) for n numbers that are estimated from the runs.
  [[nodiscard]] double multiple_for(std::int64_t n) const;

  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(HV * K * V); }
  [[nodiscard]] std::size_t columns() const { return static_cast<std::size_t>(HV * V); }
  /// A state that is known exactly.
  [[nodiscard]] Known exact(Block state) const;
  [[nodiscard]] Known zero() const { return exact(Block(size(), 0.0)); }
};

/// What a stored state must be: |x - golden| <= budget + radius, element by element.
struct Allowed {
  Block golden;
  std::vector<float> budget, radius;
  bool vacuous = false;  ///< in some head the budget is as large as the state
};

/// How a stored state compares with it.
struct Fit {
  std::int64_t out = 0;    ///< elements beyond their budget
  bool undecided = false;  ///< passes thanks to the radius alone, or budget or radius is infinite
  std::size_t worst = 0;
  double error = 0.0, budget = 0.0;  ///< of the worst

  [[nodiscard]] bool passes() const { return out == 0 && !undecided; }
};
[[nodiscard]] Fit fit(const Block& x, const Allowed& allowed);

/// What a state that was stored as the ledger says may be, without further tokens.
[[nodiscard]] Allowed allowed_now(const Layout& layout, const contract::Contract& contract,
                                  const Ledger& ledger);

/// The tokens of a call without any state: what a ledger needs of it.
[[nodiscard]] call::Record tokens_of(const call::Record& record);
/// The same of one row, with a state wanted after each of `offsets` tokens in prefill.
[[nodiscard]] call::Record one_row(const call::Record& tokens, std::int64_t row,
                                   std::span<const std::int64_t> offsets = {});
/// A pool of so many states for them, in double precision.
[[nodiscard]] call::Tensor pool_of(const call::Record& tokens, const Layout& layout,
                                   std::int64_t slots);

/// Calls f(element, head, key, column) for all elements of a block, in the order in which they lie.
template <class F>
void for_each_element(const Layout& layout, F&& f) {
  const auto call = [&](std::int64_t h, std::int64_t k, std::int64_t v) {
    f(layout.at(0, h, k, v), h, k, static_cast<std::size_t>(h * layout.V + v));
  };
  const bool keys_inside = layout.at.key < layout.at.value;
  for (std::int64_t h = 0; h < layout.HV; ++h) {
    for (std::int64_t i = 0; i < (keys_inside ? layout.V : layout.K); ++i) {
      for (std::int64_t j = 0; j < (keys_inside ? layout.K : layout.V); ++j) {
        keys_inside ? call(h, j, i) : call(h, i, j);
      }
    }
  }
}

/// A hash of what `count` tokens of a call from `first` on bring to the state.
[[nodiscard]] std::uint64_t content_of(const call::Record& tokens, const call::Dims& dims,
                                       std::int64_t first, std::int64_t count);

/// What one call adds to the errors of a ledger, by element; without a span nothing.
struct Added {
  std::span<const float> radius;       ///< of the exact state
  std::span<const float> sigma, bias;  ///< that the contract grants
  bool given = true;                   ///< the contract says something of this state
};
/// What one call adds to elements of a state at random, as a deviation: what its contract grants
/// and the rounding to the pool (half an ulp, uniform). `sigma` may be absent.
class Deviations {
 public:
  explicit Deviations(call::DType pool);
  void of(const double* state, const float* sigma, std::size_t count, double* to) const;

 private:
  double factor_, least_;  // half an ulp at x is max(2^floor(log2 |x|) factor, least)
};

/// The signs of the noise that one call adds to a state of `size` elements.
class NoiseSigns {
 public:
  NoiseSigns(std::uint64_t content, std::size_t size, std::size_t runs);
  /// Of element i: its highest bit is that of the sign of a number.
  [[nodiscard]] std::uint64_t operator()(std::size_t run, std::size_t i) const {
    return ~words_[run * words_per_run_ + i / 64] << (63U - i % 64U);
  }

 private:
  std::size_t words_per_run_;
  std::vector<std::uint64_t> words_;  // bit i: the sign is +
};
/// x + deviation, or x - deviation.
[[nodiscard]] inline double with_noise(double x, double deviation, std::uint64_t sign) {
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63U;
  return x + std::bit_cast<double>(std::bit_cast<std::uint64_t>(deviation) ^ (sign & kSign));
}

/// Adds it, and the rounding to the pool, to a ledger that was moved by the tokens of the call.
/// `content`, that of the tokens, chooses the signs of the noise.
void add_errors(const Layout& layout, const contract::Contract& contract, const Added& added,
                std::uint64_t content, Ledger& ledger);

/// By how much the tokens of a lane can make an error larger: rho.
[[nodiscard]] double transport_of(const contract::Contract& contract,
                                  const delta::Lane<double>& lane);
/// The same for the errors of the columns of a value head.
void transport(const Layout& layout, std::int64_t head, double rho, Ledger& ledger);

/// Sums over a row of numbers, each in units of its own channel: with s_x^2 what the noise of
/// channel x holds, and n_x^2 the squares of its R runs in this row,
/// sigma_x^2 = s_x^2 mean_x (n_x^2 / s_x^2) / R.
class RowOfNoise {
 public:
  void add(double square, double of_channel) {
    if (!has_noise(of_channel)) return;
    share_ += square / of_channel;
    count_ += 1.0;
  }
  [[nodiscard]] double sigma(const Layout& layout, double of_channel) const {
    const double square = has_noise(of_channel) ? of_channel * share_ / count_ : of_channel;
    return std::sqrt(square / static_cast<double>(layout.runs));
  }

 private:
  // Else it is 0, or no number.
  static bool has_noise(double square) { return square > 0.0 && std::isfinite(square); }

  double share_ = 0.0, count_ = 0.0;
};
/// s_x^2 of each column.
[[nodiscard]] std::vector<double> noise_of_channels(const Layout& layout, const Ledger& ledger);

/// What the carried errors of a ledger grant each element.
[[nodiscard]] std::vector<float> carried_budget(const Layout& layout, const Ledger& ledger);

/// Whether in some head what is granted beside the storage is as large as the state.
[[nodiscard]] bool is_vacuous(const Layout& layout, const Block& golden,
                              const std::vector<float>& spread);

}  // namespace goldenrule::chain
