// SPDX-License-Identifier: Apache-2.0
#include "reference/chain/step.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "fixtures/call/delta_axes.hpp"
#include "fixtures/call/error.hpp"
#include "fixtures/call/f32_bound.hpp"
#include "fixtures/call/integer_inputs.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/take.hpp"
#include "fixtures/call/token_tree.hpp"
#include "reference/delta/budget/running.hpp"
#include "reference/delta/rule/lane.hpp"
#include "reference/verdict/budget.hpp"

namespace goldenrule::chain {
namespace {

void put(const Block& block, std::int64_t row, call::Tensor& tensor) {
  const std::span<const std::byte> from = std::as_bytes(std::span(block));
  std::ranges::copy(from, tensor.bytes().begin() + row * std::ssize(from));
}

// These tokens of a call, each of which continues the one before it; without states.
call::Record chain_of(const call::Record& record, const call::Dims& dims,
                      const std::vector<std::int64_t>& which) {
  call::Record chain;
  chain.op = record.op;
  chain.mode = record.mode;
  chain.convention = record.convention;
  const std::size_t rank = call::token_rank(record);
  for (const auto& [name, tensor] : record.inputs) {
    const call::TensorRow& kind = *call::find_row(record, call::Group::kInput, name);
    if (kind.is_per_token()) {
      chain.inputs[name] = call::take(call::with_leading(tensor, rank, {dims.tokens}), 0, which);
    } else if (kind.storage == call::Storage::kFloat && !kind.has(call::extent::kState)) {
      chain.inputs[name] = tensor;  // A_log, dt_bias
    }
  }
  return chain;
}

}  // namespace

Step::Step(const verdict::Slice& slice, const contract::Contract& contract, const Layout& layout,
           const call::Record& tokens, std::span<const Known> starts)
    : contract_(&contract),
      layout_(layout),
      record_(tokens),
      starts_(starts.begin(), starts.end()) {
  const std::int64_t rows = std::ssize(starts_);
  std::vector<std::int64_t> slots;
  call::Tensor pool = pool_of(record_, layout, rows);
  bool any_noise = false;
  for (std::int64_t row = 0; row < rows; ++row) {
    const Ledger* start = starts_[static_cast<std::size_t>(row)].get();
    slots.push_back(start == nullptr ? -1 : row);
    if (start == nullptr) continue;
    put(start->state, row, pool);
    any_noise = any_noise || !std::ranges::all_of(start->noise, is_zero);
  }
  record_.inputs["state_indices"] = call::integer_tensor(slots);
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
      const Ledger* start = starts_[static_cast<std::size_t>(row)].get();
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

Step::Place Step::place(std::int64_t row, std::int64_t after) const {
  for (const call::Snapshot& s : plan_.sequences[static_cast<std::size_t>(row)].snapshots) {
    if (s.after != after) continue;
    const char* name = call::name_of(s.target).data();
    return {.expected = &expected_.outputs.at(name),
            .name = name,
            .first = static_cast<std::size_t>(s.block) * layout_.size()};
  }
  throw Error(ErrorKind::kArgument, "after", "a state that is known", std::to_string(after));
}

template <class F>
auto Step::along_path(std::int64_t row, std::int64_t after, F&& f) const {
  const call::Sequence& sequence = plan_.sequences[static_cast<std::size_t>(row)];
  if (sequence.parents.empty()) return f(record_, plan_.dims, sequence.first_token, after);
  std::vector<std::int64_t> path = call::path_to(sequence.parents, after);
  for (std::int64_t& t : path) t += sequence.first_token;
  const call::Record tokens = chain_of(record_, plan_.dims, path);
  call::Dims dims = plan_.dims;
  dims.rows = 1;
  dims.T = dims.tokens = std::ssize(path);
  return f(tokens, dims, 0, dims.tokens);
}

Ledger Step::carried(const Place& at, std::int64_t row, std::int64_t after) const {
  const auto block = [&](const verdict::Expectations& from) {
    const auto first =
        from.outputs.at(at.name).exact.golden.begin() + static_cast<std::ptrdiff_t>(at.first);
    return Block(first, first + static_cast<std::ptrdiff_t>(layout_.size()));
  };
  const Ledger& start = *starts_[static_cast<std::size_t>(row)];
  Ledger ledger{.state = block(expected_), .noise = {}, .error = start.error, .bias = start.bias};
  for (const verdict::Expectations& moved : moved_) ledger.noise.push_back(block(moved));
  if (moved_.empty()) ledger.noise = start.noise;
  along_path(row, after,
             [&](const call::Record& tokens, const call::Dims& dims, std::int64_t first,
                 std::int64_t count) {
               const delta::CallInputs inputs(tokens);
               for (std::int64_t h = 0; h < layout_.HV; ++h) {
                 const delta::Lane<double> lane =
                     delta::prepare_lane<double>(tokens, dims, inputs, first, count, h);
                 transport(layout_, h, transport_of(*contract_, lane), ledger);
               }
             });
  return ledger;
}

Known Step::after(std::int64_t row, std::int64_t after) const {
  if (after == 0) return starts_[static_cast<std::size_t>(row)];
  const Place at = place(row, after);
  Ledger ledger = carried(at, row, after);
  const verdict::Expected& e = *at.expected;
  const auto of_row = [&](const std::vector<float>& all) {
    return all.empty() ? std::span<const float>()
                       : std::span(all).subspan(at.first, layout_.size());
  };
  add_errors(layout_, *contract_,
             {.radius = of_row(e.exact.radius),
              .sigma = of_row(e.grant.sigma),
              .bias = of_row(e.grant.bias),
              .given = e.grant.given},
             along_path(row, after, content_of), ledger);
  return std::make_shared<Ledger>(std::move(ledger));
}

Allowed Step::allowed(std::int64_t row, std::int64_t after) const {
  if (after == 0) return allowed_now(layout_, *contract_, *starts_[static_cast<std::size_t>(row)]);
  const Place at = place(row, after);
  const Ledger ledger = carried(at, row, after);
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
        std::isfinite(golden) ? call::f32_not_below(grant.around(element, golden, whole)) : 0.0F;
    allowed.radius[i] = call::f32_not_below(
        ledger.error[column] + static_cast<double>(at.expected->exact.radius[element]));
  });
  allowed.vacuous = is_vacuous(layout_, allowed.golden, spread);
  return allowed;
}

// Adds to o of a row what its start is off by.
void Step::add_carried(std::int64_t row, double multiple, verdict::Expected& o) const {
  const Ledger& start = *starts_[static_cast<std::size_t>(row)];
  const call::Sequence& sequence = plan_.sequences[static_cast<std::size_t>(row)];
  const std::vector<double> channel = noise_of_channels(layout_, start);
  const delta::CallInputs inputs(record_);
  const auto squares_at = [&](std::size_t i) {
    double sum = 0.0;
    for (const verdict::Expectations& moved : moved_) {
      const double n = moved.outputs.at("o").exact.golden[i];
      sum += n * n;
    }
    return sum;
  };
  const auto width = static_cast<std::size_t>(layout_.V);
  for (std::int64_t h = 0; h < layout_.HV; ++h) {
    const delta::Lane<double> lane = delta::prepare_lane<double>(
        record_, plan_.dims, inputs, sequence.first_token, sequence.token_count, h);
    std::vector<double> rho(lane.bounds.size());
    for (std::size_t t = 0; t < rho.size(); ++t) {
      const std::int64_t parent =
          sequence.parents.empty() ? static_cast<std::int64_t>(t) - 1 : sequence.parents[t];
      rho[t] = delta::times(delta::error_transport(*contract_, lane.bounds[t]),
                            parent < 0 ? 1.0 : rho[static_cast<std::size_t>(parent)]);
      const double reach = delta::times(rho[t], lane.bounds[t].q_norm);
      const std::size_t token = static_cast<std::size_t>(sequence.first_token) + t;
      const std::size_t head = static_cast<std::size_t>(h);
      const std::size_t first = (token * static_cast<std::size_t>(layout_.HV) + head) * width;
      RowOfNoise noise;
      for (std::size_t x = 0; x < width; ++x) {
        noise.add(squares_at(first + x), channel[head * width + x]);
      }
      for (std::size_t x = 0; x < width; ++x) {
        const std::size_t i = first + x;
        const std::size_t column = head * width + x;
        const double random = multiple * noise.sigma(layout_, channel[column]);
        o.grant.spread[i] = call::f32_not_below(static_cast<double>(o.grant.spread[i]) + random +
                                                delta::times(reach, start.bias[column]));
        o.exact.radius[i] = call::f32_not_below(static_cast<double>(o.exact.radius[i]) +
                                                delta::times(reach, start.error[column]));
        o.exact.undefined[i] = !expected_.outputs.at("o").exact.is_defined(i);
      }
    }
  }
}

verdict::Expected Step::outputs_from_ledgers() const {
  verdict::Expected o = expected_.outputs.at("o");
  const std::size_t size = o.exact.golden.size();
  o.exact.undefined.assign(size, true);
  o.grant.spread.resize(size, 0.0F);
  if (size == 0) return o;
  const double multiple = layout_.multiple_for(static_cast<std::int64_t>(size));
  for (std::size_t row = 0; row < starts_.size(); ++row) {
    if (starts_[row]) add_carried(static_cast<std::int64_t>(row), multiple, o);
  }
  return o;
}

}  // namespace goldenrule::chain
