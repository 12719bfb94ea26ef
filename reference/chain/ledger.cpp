// SPDX-License-Identifier: Apache-2.0
//
// Length: a ledger and each number that is read off it.
#include "reference/chain/ledger.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <boost/math/distributions/chi_squared.hpp>
#include <cmath>
#include <string>

#include "fixtures/call/chain_rows.hpp"
#include "fixtures/call/error.hpp"
#include "fixtures/call/integer_inputs.hpp"
#include "fixtures/call/take.hpp"
#include "fixtures/random/philox.hpp"
#include "reference/delta/budget/running.hpp"
#include "reference/delta/emulation/noise_table.hpp"
#include "reference/scalar/pack.hpp"
#include "reference/verdict/budget.hpp"
#include "reference/verdict/grants.hpp"

namespace goldenrule::chain {
namespace {

constexpr std::int64_t kSamples = 64;  // of one row of the noise

GOLDENRULE_VECTOR_CLONES void deviations(double factor, double least, const double* state,
                                         const float* sigma, std::size_t count, double* to) {
  constexpr std::uint64_t kExponent = std::uint64_t{0x7ff} << 52U;
  for (std::size_t i = 0; i < count; ++i) {
    const auto power = std::bit_cast<double>(std::bit_cast<std::uint64_t>(state[i]) & kExponent);
    const double half = std::max(power * factor, least);
    const double s = sigma == nullptr ? 0.0 : static_cast<double>(sigma[i]);
    to[i] = std::sqrt(s * s + half * half / 3.0);
  }
}

// Adds the squares of the elements of each column.
void add_squares(const Layout& layout, std::span<const float> x, std::vector<double>& sums) {
  for_each_element(layout, [&](std::size_t i, std::int64_t, std::int64_t, std::size_t column) {
    const auto y = static_cast<double>(x[i]);
    sums[column] += y * y;
  });
}

}  // namespace

Layout::Layout(const call::Record& record, const call::Dims& dims)
    : HV(dims.HV),
      K(dims.K),
      V(dims.V),
      at(call::output_strides(record, dims, "final_state")),
      runs(static_cast<int>((kSamples + dims.V - 1) / dims.V)),
      multiple(0.0),
      pool(record.find_input("initial_state") == nullptr
               ? call::DType::kF32
               : record.find_input("initial_state")->dtype()) {
  multiple = multiple_for(static_cast<std::int64_t>(size()));
}

double Layout::multiple_for(std::int64_t n) const {
  const double freedom = static_cast<double>(runs) * static_cast<double>(V);
  const boost::math::chi_squared chi2(freedom);
  const double q =
      boost::math::quantile(chi2, verdict::kFalseAlarm / (2.0 * static_cast<double>(n))) / freedom;
  return verdict::deviation_multiple(2 * n) / std::sqrt(q);
}

Known Layout::exact(Block state) const {
  return std::make_shared<Ledger>(
      Ledger{.state = std::move(state),
             .noise = std::vector<Block>(static_cast<std::size_t>(runs), Block(size(), 0.0)),
             .error = std::vector<double>(columns(), 0.0),
             .bias = std::vector<double>(columns(), 0.0)});
}

double transport_of(const contract::Contract& contract, const delta::Lane<double>& lane) {
  double product = 1.0;
  for (const delta::TokenBounds& bounds : lane.bounds) {
    product = delta::times(delta::error_transport(contract, bounds), product);
  }
  return product;
}

void transport(const Layout& layout, std::int64_t head, double rho, Ledger& ledger) {
  for (std::int64_t v = 0; v < layout.V; ++v) {
    const auto c = static_cast<std::size_t>(head * layout.V + v);
    ledger.error[c] = delta::times(rho, ledger.error[c]);
    ledger.bias[c] = delta::times(rho, ledger.bias[c]);
  }
}

Deviations::Deviations(call::DType pool)
    : factor_(std::ldexp(1.0, -call::info(pool).significand_bits)),
      least_(0.5 * call::ulp(pool, 0.0)) {}

void Deviations::of(const double* state, const float* sigma, std::size_t count, double* to) const {
  deviations(factor_, least_, state, sigma, count, to);
}

NoiseSigns::NoiseSigns(std::uint64_t content, std::size_t size, std::size_t runs)
    : words_per_run_((size + 63) / 64), words_(runs * words_per_run_) {
  const random::Stream stream(content, "ledger");
  for (std::size_t i = 0; i < words_.size(); ++i) {
    words_[i] = stream.bits(static_cast<std::int64_t>(i));
  }
}

void add_errors(const Layout& layout, const contract::Contract& contract, const Added& added,
                std::uint64_t content, Ledger& ledger) {
  std::vector<double> error2(layout.columns(), 0.0);
  std::vector<double> bias2(layout.columns(), 0.0);
  add_squares(layout, added.radius, error2);
  if (!added.bias.empty()) add_squares(layout, added.bias, bias2);
  for (std::size_t c = 0; c < error2.size(); ++c) {
    ledger.error[c] += std::sqrt(error2[c]);
    // A contract that says nothing of this state says nothing of what follows from it.
    ledger.bias[c] += added.given ? std::sqrt(bias2[c]) : HUGE_VAL;
  }
  std::vector<double> deviation(layout.size());
  Deviations(contract.state_dtype.value_or(layout.pool))
      .of(ledger.state.data(), added.sigma.empty() ? nullptr : added.sigma.data(), layout.size(),
          deviation.data());
  const NoiseSigns sign(content, layout.size(), ledger.noise.size());
  for (std::size_t run = 0; run < ledger.noise.size(); ++run) {
    Block& noise = ledger.noise[run];
    for (std::size_t i = 0; i < noise.size(); ++i) {
      if (!std::isfinite(ledger.state[i])) continue;
      noise[i] = with_noise(noise[i], deviation[i], sign(run, i));
    }
  }
}

namespace {

// Of all runs together, element by element.
Block squares_of(const Layout& layout, const Ledger& ledger) {
  Block square(layout.size(), 0.0);
  for (const Block& noise : ledger.noise) {
    for (std::size_t i = 0; i < square.size(); ++i) square[i] += noise[i] * noise[i];
  }
  return square;
}

std::vector<double> sums_of_columns(const Layout& layout, const Block& square) {
  std::vector<double> channel(layout.columns(), 0.0);
  for_each_element(layout, [&](std::size_t i, std::int64_t, std::int64_t, std::size_t column) {
    channel[column] += square[i];
  });
  return channel;
}

}  // namespace

std::vector<double> noise_of_channels(const Layout& layout, const Ledger& ledger) {
  return sums_of_columns(layout, squares_of(layout, ledger));
}

// A value channel answers for no other (lane_sizes.hpp), so the runs of a row of the state are
// averaged in units of what they left in each channel.
std::vector<float> carried_budget(const Layout& layout, const Ledger& ledger) {
  const Block square = squares_of(layout, ledger);
  const std::vector<double> channel = sums_of_columns(layout, square);
  std::vector<RowOfNoise> rows(static_cast<std::size_t>(layout.HV * layout.K));
  const auto row_of = [&](std::int64_t h, std::int64_t k) -> RowOfNoise& {
    return rows[static_cast<std::size_t>(h * layout.K + k)];
  };
  for_each_element(layout, [&](std::size_t i, std::int64_t h, std::int64_t k, std::size_t column) {
    row_of(h, k).add(square[i], channel[column]);
  });
  std::vector<float> budget(layout.size());
  for_each_element(layout, [&](std::size_t i, std::int64_t h, std::int64_t k, std::size_t column) {
    const double random = layout.multiple * row_of(h, k).sigma(layout, channel[column]);
    budget[i] = call::f32_not_below(random + ledger.bias[column]);
  });
  return budget;
}

bool is_vacuous(const Layout& layout, const Block& golden, const std::vector<float>& spread) {
  std::vector<double> budget2(static_cast<std::size_t>(layout.HV * layout.V), 0.0);
  std::vector<double> signal2(budget2.size(), 0.0);
  for_each_element(layout, [&](std::size_t i, std::int64_t, std::int64_t, std::size_t column) {
    budget2[column] += static_cast<double>(spread[i]) * static_cast<double>(spread[i]);
    signal2[column] += golden[i] * golden[i];
  });
  for (std::size_t column = 0; column < budget2.size(); ++column) {
    if (budget2[column] > 0.0 && budget2[column] >= signal2[column]) return true;
  }
  return false;
}

Fit fit(const Block& x, const Allowed& allowed) {
  Fit result;
  double worst = -1.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double golden = allowed.golden[i];
    const auto budget = static_cast<double>(allowed.budget[i]);
    const auto radius = static_cast<double>(allowed.radius[i]);
    if (!std::isfinite(golden)) {
      if (!std::isfinite(radius)) result.undecided = true;
      if (std::isfinite(x[i])) ++result.out;
      continue;
    }
    const double error = std::fabs(x[i] - golden);
    if (error <= budget) continue;
    if (!std::isfinite(radius) || !std::isfinite(budget)) {
      result.undecided = true;
    } else if (error <= budget + radius) {
      result.undecided = true;
      continue;
    } else {
      ++result.out;
    }
    const double over = std::isfinite(error) ? error - budget : HUGE_VAL;
    if (over <= worst) continue;
    worst = over;
    result.worst = i;
    result.error = error;
    result.budget = budget;
  }
  return result;
}

Allowed allowed_now(const Layout& layout, const contract::Contract& contract,
                    const Ledger& ledger) {
  Allowed allowed{.golden = ledger.state,
                  .budget = carried_budget(layout, ledger),
                  .radius = std::vector<float>(layout.size()),
                  .vacuous = false};
  allowed.vacuous = is_vacuous(layout, ledger.state, allowed.budget);
  const call::DType storage = contract.state_dtype.value_or(layout.pool);
  for_each_element(layout, [&](std::size_t i, std::int64_t, std::int64_t, std::size_t column) {
    allowed.radius[i] = call::f32_not_below(ledger.error[column]);
    if (ledger.state[i] == 0.0 && allowed.budget[i] == 0.0F) return;
    const double spread = static_cast<double>(allowed.budget[i]);
    const double ulp =
        verdict::state_ulp(storage, layout.pool, std::fabs(ledger.state[i]) + spread);
    allowed.budget[i] = call::f32_not_below(spread + 0.5 * ulp);
  });
  return allowed;
}

call::Record tokens_of(const call::Record& record) {
  constexpr std::array kStates{"initial_state",
                               "state_indices",
                               "output_state_indices",
                               "ssm_state_indices",
                               "num_accepted_tokens",
                               "accepted_tokens",
                               "has_initial_state",
                               "checkpoint_state_indices",
                               "checkpoint_tokens",
                               "initial_intermediate_states",
                               "intermediate_state_indices"};
  call::Record tokens;
  tokens.op = record.op;
  tokens.mode = record.mode;
  tokens.convention = record.convention;
  tokens.convention.pad_slot = -1;
  tokens.convention.disable_state_update = 0;
  for (const auto& [name, tensor] : record.inputs) {
    if (std::ranges::find(kStates, name) == kStates.end()) tokens.inputs.emplace(name, tensor);
  }
  call::erase_chain_inputs(tokens);
  return tokens;
}

std::uint64_t content_of(const call::Record& tokens, const call::Dims& dims, std::int64_t first,
                         std::int64_t count) {
  std::uint64_t hash = 0;
  for (const auto& [name, tensor] : tokens.inputs) {
    const call::TensorRow* row = call::find_row(tokens, call::Group::kInput, name);
    // q only reads the state.
    if (name == "q" || row == nullptr || !row->is_per_token() || dims.tokens == 0) continue;
    const std::int64_t width = tensor.size() / dims.tokens;
    std::vector<double> numbers(static_cast<std::size_t>(count * width));
    tensor.read(first * width, count * width, numbers.data());
    for (const double x : numbers) hash = delta::mixed(hash, x);
  }
  return hash;
}

call::Tensor pool_of(const call::Record& tokens, const Layout& layout, std::int64_t slots) {
  call::Dims dims;
  dims.slots = dims.rows = slots;
  dims.HV = layout.HV;
  dims.K = layout.K;
  dims.V = layout.V;
  const call::TensorRow& row = *call::find_row(tokens, call::Group::kInput, "initial_state");
  return {call::DType::kF64, call::shape_of(tokens, dims, row)};
}

call::Record one_row(const call::Record& tokens, std::int64_t row,
                     std::span<const std::int64_t> offsets) {
  call::Record one = tokens;
  one.inputs.erase("checkpoint_offsets");
  one.inputs.erase("cu_checkpoints");
  std::vector<std::int64_t> indices{row};
  if (tokens.find_input("cu_seqlens") != nullptr) {
    const std::vector<std::int64_t> bounds = tokens.inputs.at("cu_seqlens").to_integers();
    indices.clear();
    for (std::int64_t t = bounds[static_cast<std::size_t>(row)];
         t < bounds[static_cast<std::size_t>(row + 1)]; ++t) {
      indices.push_back(t);
    }
    one.inputs["cu_seqlens"] = call::integer_tensor({0, std::ssize(indices)});
    if (!offsets.empty() && one.mode == call::Mode::kPrefill) {
      one.inputs["checkpoint_offsets"] = call::integer_tensor({offsets.begin(), offsets.end()});
      one.inputs["cu_checkpoints"] = call::integer_tensor({0, std::ssize(offsets)});
    }
  }
  for (auto& [name, tensor] : one.inputs) {
    const call::TensorRow& kind = *call::find_row(one, call::Group::kInput, name);
    if (kind.has(call::extent::kTokens) || kind.has(call::extent::kRows)) {
      tensor = call::take(tensor, 0, indices);
    }
  }
  return one;
}

}  // namespace goldenrule::chain
