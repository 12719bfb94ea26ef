// SPDX-License-Identifier: Apache-2.0
#include "reference/chain/ledger.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <boost/math/distributions/chi_squared.hpp>
#include <cmath>
#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/call/take.hpp"
#include "fixtures/random/philox.hpp"
#include "reference/delta/budget/running.hpp"
#include "reference/delta/rule/lane.hpp"
#include "reference/verdict/budget.hpp"

namespace goldenrule::chain {
namespace {

constexpr std::int64_t kSamples = 64;  // of one row of the noise

call::Tensor integers(const std::vector<std::int64_t>& values) {
  const std::vector<double> numbers(values.begin(), values.end());
  return {call::DType::kI64, {std::ssize(values)}, numbers};
}

call::Tensor states(const call::Record& record, const Layout& layout, std::int64_t rows) {
  call::Dims dims;
  dims.slots = dims.rows = rows;
  dims.HV = layout.HV;
  dims.K = layout.K;
  dims.V = layout.V;
  const call::TensorRow& row = *call::find_row(record, call::Group::kInput, "initial_state");
  return {call::DType::kF64, call::shape_of(record, dims, row)};
}

void put(const Block& block, std::int64_t row, call::Tensor& tensor) {
  const std::span<const std::byte> from = std::as_bytes(std::span(block));
  std::ranges::copy(from, tensor.bytes().begin() + row * std::ssize(from));
}

bool is_zero(const Block& block) {
  return std::ranges::all_of(block, [](double x) { return x == 0.0; });
}

// 0 times a bound that is infinite is 0: what is erased carries no error.
double times(double x, double bound) { return x == 0.0 ? 0.0 : x * bound; }

// Half an ulp of the storage type at x.
class HalfUlp {
 public:
  explicit HalfUlp(call::DType type)
      : factor_(std::ldexp(1.0, -call::info(type).significand_bits)),
        least_(0.5 * call::ulp(type, 0.0)) {}

  [[nodiscard]] double operator()(double x) const {
    constexpr std::uint64_t kExponent = std::uint64_t{0x7ff} << 52U;
    const auto power = std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & kExponent);
    return std::max(power * factor_, least_);
  }

 private:
  double factor_, least_;
};

// Calls f(element, head, key, column) for all elements of a block.
template <class F>
void for_each_element(const Layout& layout, F&& f) {
  for (std::int64_t h = 0; h < layout.HV; ++h) {
    for (std::int64_t k = 0; k < layout.K; ++k) {
      for (std::int64_t v = 0; v < layout.V; ++v) {
        f(layout.at(0, h, k, v), h, k, static_cast<std::size_t>(h * layout.V + v));
      }
    }
  }
}

// What the carried errors of a ledger grant each element.
std::vector<float> carried_budget(const Layout& layout, const Ledger& ledger) {
  std::vector<double> row(static_cast<std::size_t>(layout.HV * layout.K), 0.0);
  for (const Block& noise : ledger.noise) {
    for_each_element(layout, [&](std::size_t i, std::int64_t h, std::int64_t k, std::size_t) {
      row[static_cast<std::size_t>(h * layout.K + k)] += noise[i] * noise[i];
    });
  }
  for (double& x : row) {
    x = layout.multiple * std::sqrt(x / static_cast<double>(layout.runs * layout.V));
  }
  std::vector<float> budget(layout.size());
  for_each_element(layout, [&](std::size_t i, std::int64_t h, std::int64_t k, std::size_t column) {
    budget[i] =
        call::f32_not_below(row[static_cast<std::size_t>(h * layout.K + k)] + ledger.bias[column]);
  });
  return budget;
}

bool is_vacuous(const Layout& layout, const Block& golden, const std::vector<float>& spread) {
  for (std::int64_t h = 0; h < layout.HV; ++h) {
    double budget2 = 0.0;
    double signal2 = 0.0;
    const auto first = static_cast<std::size_t>(h * layout.K * layout.V);
    for (std::size_t i = first; i < first + static_cast<std::size_t>(layout.K * layout.V); ++i) {
      budget2 += static_cast<double>(spread[i]) * static_cast<double>(spread[i]);
      signal2 += golden[i] * golden[i];
    }
    if (budget2 > 0.0 && budget2 >= signal2) return true;
  }
  return false;
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
  const auto n = static_cast<double>(size());
  const double freedom = static_cast<double>(runs) * static_cast<double>(V);
  const boost::math::chi_squared chi2(freedom);
  const double q = boost::math::quantile(chi2, delta::kFalseAlarm / (2.0 * n)) / freedom;
  multiple = delta::deviation_multiple(2 * static_cast<std::int64_t>(size())) / std::sqrt(q);
}

Ledger Layout::exact(Block state) const {
  return {.state = std::move(state),
          .noise = std::vector<Block>(static_cast<std::size_t>(runs), Block(size(), 0.0)),
          .error = std::vector<double>(columns(), 0.0),
          .bias = std::vector<double>(columns(), 0.0)};
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
    allowed.budget[i] =
        call::f32_not_below(spread + 0.5 * call::ulp(storage, std::fabs(ledger.state[i]) + spread));
  });
  return allowed;
}

call::Record tokens_of(const call::Record& record) {
  constexpr std::array kStates{"initial_state",     "state_indices",       "output_state_indices",
                               "ssm_state_indices", "num_accepted_tokens", "accepted_tokens",
                               "has_initial_state", "request_ids",         "positions",
                               "restored_from",     "accepted_counts"};
  call::Record tokens;
  tokens.op = record.op;
  tokens.mode = record.mode;
  tokens.convention = record.convention;
  tokens.convention.pad_slot = -1;
  tokens.convention.disable_state_update = 0;
  for (const auto& [name, tensor] : record.inputs) {
    if (std::ranges::find(kStates, name) == kStates.end()) tokens.inputs.emplace(name, tensor);
  }
  return tokens;
}

call::Record one_row(const call::Record& tokens, std::int64_t row,
                     std::span<const std::int64_t> offsets) {
  call::Record one = tokens;
  one.inputs.erase("checkpoint_offsets");
  one.inputs.erase("cu_checkpoints");
  std::vector<std::int64_t> indices{row};
  if (tokens.mode == call::Mode::kPrefill) {
    const std::vector<std::int64_t> bounds = tokens.inputs.at("cu_seqlens").to_integers();
    indices.clear();
    for (std::int64_t t = bounds[static_cast<std::size_t>(row)];
         t < bounds[static_cast<std::size_t>(row + 1)]; ++t) {
      indices.push_back(t);
    }
    one.inputs["cu_seqlens"] = integers({0, std::ssize(indices)});
    if (!offsets.empty()) {
      one.inputs["checkpoint_offsets"] = integers({offsets.begin(), offsets.end()});
      one.inputs["cu_checkpoints"] = integers({0, std::ssize(offsets)});
    }
  }
  for (auto& [name, tensor] : one.inputs) {
    const call::TensorRow& kind = *call::find_row(one, call::Group::kInput, name);
    if (kind.has(call::Extent::kTokens) || kind.has(call::Extent::kRows)) {
      tensor = call::take(tensor, 0, indices);
    }
  }
  return one;
}

Step::Step(const verdict::Slice& slice, const contract::Contract& contract, const Layout& layout,
           const call::Record& tokens, std::span<const Ledger* const> starts, std::uint64_t seed)
    : contract_(&contract),
      layout_(layout),
      record_(tokens),
      starts_(starts.begin(), starts.end()),
      seed_(seed) {
  const std::int64_t rows = std::ssize(starts_);
  std::vector<std::int64_t> slots;
  call::Tensor pool = states(record_, layout, rows);
  bool any_noise = false;
  for (std::int64_t row = 0; row < rows; ++row) {
    const Ledger* start = starts_[static_cast<std::size_t>(row)];
    slots.push_back(start == nullptr ? -1 : row);
    if (start == nullptr) continue;
    put(start->state, row, pool);
    any_noise = any_noise || !std::ranges::all_of(start->noise, is_zero);
  }
  record_.inputs["state_indices"] = integers(slots);
  record_.inputs["initial_state"] = std::move(pool);
  plan_ = call::make_plan(record_, true);
  expected_ = verdict::expect(slice, record_, contract, scalar::Precision::kDouble, {},
                              verdict::GrantDetail::kTerms);
  if (!any_noise) return;
  call::Record moved = record_;
  call::Tensor& v = moved.inputs.at("v");
  v = call::Tensor(v.dtype(), v.shape());
  for (int run = 0; run < layout.runs; ++run) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const Ledger* start = starts_[static_cast<std::size_t>(row)];
      if (start == nullptr) continue;
      put(start->noise[static_cast<std::size_t>(run)], row, moved.inputs.at("initial_state"));
    }
    moved_.push_back(slice.evaluate(moved, scalar::Precision::kDouble, {.certify = false}));
  }
}

std::vector<std::int64_t> Step::known(std::int64_t row) const {
  std::vector<std::int64_t> positions;
  for (const call::Snapshot& s : plan_.sequences[static_cast<std::size_t>(row)].snapshots) {
    if (s.after > 0 && (positions.empty() || positions.back() != s.after)) {
      positions.push_back(s.after);
    }
  }
  return positions;
}

Step::Place Step::place(std::int64_t row, std::int64_t tokens) const {
  for (const call::Snapshot& s : plan_.sequences[static_cast<std::size_t>(row)].snapshots) {
    if (s.after != tokens) continue;
    const char* name = call::name_of(s.target).data();
    return {.expected = &expected_.outputs.at(name),
            .name = name,
            .first = static_cast<std::size_t>(s.block) * layout_.size()};
  }
  throw Error(ErrorKind::kArgument, "tokens", "a position at which the state is known",
              std::to_string(tokens));
}

std::vector<double> Step::transport(std::int64_t row, std::int64_t tokens) const {
  const delta::CallInputs inputs(record_);
  const call::Sequence& sequence = plan_.sequences[static_cast<std::size_t>(row)];
  std::vector<double> rho;
  for (std::int64_t h = 0; h < layout_.HV; ++h) {
    const delta::Lane<double> lane =
        delta::prepare_lane<double>(record_, plan_.dims, inputs, sequence.first_token, tokens, h);
    double product = 1.0;
    for (const delta::TokenBounds& bounds : lane.bounds) {
      product = times(delta::error_transport(*contract_, bounds), product);
    }
    rho.push_back(product);
  }
  return rho;
}

Ledger Step::carried(const Place& at, std::int64_t row, std::int64_t tokens) const {
  const auto block = [&](const verdict::Expectations& from) {
    const auto first =
        from.outputs.at(at.name).exact.golden.begin() + static_cast<std::ptrdiff_t>(at.first);
    return Block(first, first + static_cast<std::ptrdiff_t>(layout_.size()));
  };
  const Ledger& start = *starts_[static_cast<std::size_t>(row)];
  Ledger ledger{.state = block(expected_), .noise = {}, .error = start.error, .bias = start.bias};
  for (const verdict::Expectations& moved : moved_) ledger.noise.push_back(block(moved));
  if (moved_.empty()) ledger.noise = start.noise;
  const std::vector<double> rho = transport(row, tokens);
  for (std::size_t c = 0; c < ledger.error.size(); ++c) {
    const double factor = rho[c / static_cast<std::size_t>(layout_.V)];
    ledger.error[c] = times(factor, ledger.error[c]);
    ledger.bias[c] = times(factor, ledger.bias[c]);
  }
  return ledger;
}

Ledger Step::after(std::int64_t row, std::int64_t tokens) const {
  if (tokens == 0) return *starts_[static_cast<std::size_t>(row)];
  const Place at = place(row, tokens);
  Ledger ledger = carried(at, row, tokens);
  const verdict::Expected& e = *at.expected;
  const HalfUlp half_ulp(contract_->state_dtype.value_or(layout_.pool));
  std::vector<double> error2(layout_.columns(), 0.0);
  std::vector<double> bias2(layout_.columns(), 0.0);
  for_each_element(layout_, [&](std::size_t i, std::int64_t, std::int64_t, std::size_t column) {
    const double radius = static_cast<double>(e.exact.radius[at.first + i]);
    error2[column] += radius * radius;
    if (e.grant.bias.empty()) return;
    const double bias = static_cast<double>(e.grant.bias[at.first + i]);
    bias2[column] += bias * bias;
  });
  for (std::size_t c = 0; c < error2.size(); ++c) {
    ledger.error[c] += std::sqrt(error2[c]);
    // A contract that says nothing of this state says nothing of what follows from it.
    ledger.bias[c] += e.grant.given ? std::sqrt(bias2[c]) : HUGE_VAL;
  }
  const random::Stream stream(seed_ + static_cast<std::uint64_t>(row), "ledger");
  std::int64_t word = 0;
  for (Block& noise : ledger.noise) {
    std::uint64_t signs = 0;
    for (std::size_t i = 0; i < noise.size(); ++i) {
      if (i % 64 == 0) signs = stream.bits(word++);  // of the next 64
      if (!std::isfinite(ledger.state[i])) continue;
      const double sigma =
          e.grant.sigma.empty() ? 0.0 : static_cast<double>(e.grant.sigma[at.first + i]);
      const double half = half_ulp(ledger.state[i]);
      const double deviation = std::sqrt(sigma * sigma + half * half / 3.0);
      noise[i] += ((signs >> (i % 64)) & 1U) != 0U ? deviation : -deviation;
    }
  }
  return ledger;
}

Allowed Step::allowed(std::int64_t row, std::int64_t tokens) const {
  if (tokens == 0) return allowed_now(layout_, *contract_, *starts_[static_cast<std::size_t>(row)]);
  const Place at = place(row, tokens);
  const Ledger ledger = carried(at, row, tokens);
  const verdict::Budget grant(at.name, layout_.pool, *at.expected, *contract_);
  Allowed allowed{.golden = ledger.state,
                  .budget = carried_budget(layout_, ledger),
                  .radius = std::vector<float>(layout_.size()),
                  .vacuous = false};
  std::vector<float> spread = allowed.budget;
  for_each_element(layout_, [&](std::size_t i, std::int64_t, std::int64_t, std::size_t column) {
    const std::size_t element = at.first + i;
    const double own = grant.given() ? grant.spread(element) : HUGE_VAL;
    const double whole = static_cast<double>(spread[i]) + own;
    spread[i] = call::f32_not_below(whole);
    const double golden = ledger.state[i];
    allowed.budget[i] =
        std::isfinite(golden) ? call::f32_not_below(grant.around(golden, whole)) : 0.0F;
    allowed.radius[i] = call::f32_not_below(
        ledger.error[column] + static_cast<double>(at.expected->exact.radius[element]));
  });
  allowed.vacuous = is_vacuous(layout_, allowed.golden, spread);
  return allowed;
}

}  // namespace goldenrule::chain
