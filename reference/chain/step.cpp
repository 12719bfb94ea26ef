// SPDX-License-Identifier: Apache-2.0
#include "reference/chain/step.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/call/integer_inputs.hpp"
#include "reference/delta/rule/lane.hpp"
#include "reference/verdict/budget.hpp"

namespace goldenrule::chain {
namespace {

void put(const Block& block, std::int64_t row, call::Tensor& tensor) {
  const std::span<const std::byte> from = std::as_bytes(std::span(block));
  std::ranges::copy(from, tensor.bytes().begin() + row * std::ssize(from));
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
  const delta::CallInputs inputs(record_);
  const call::Sequence& sequence = plan_.sequences[static_cast<std::size_t>(row)];
  for (std::int64_t h = 0; h < layout_.HV; ++h) {
    const delta::Lane<double> lane =
        delta::prepare_lane<double>(record_, plan_.dims, inputs, sequence.first_token, tokens, h);
    transport(layout_, h, transport_of(*contract_, lane), ledger);
  }
  return ledger;
}

Known Step::after(std::int64_t row, std::int64_t tokens) const {
  if (tokens == 0) return starts_[static_cast<std::size_t>(row)];
  const call::Sequence& sequence = plan_.sequences[static_cast<std::size_t>(row)];
  const Place at = place(row, tokens);
  Ledger ledger = carried(at, row, tokens);
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
             content_of(record_, plan_.dims, sequence.first_token, tokens), ledger);
  return std::make_shared<Ledger>(std::move(ledger));
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
        std::isfinite(golden) ? call::f32_not_below(grant.around(element, golden, whole)) : 0.0F;
    allowed.radius[i] = call::f32_not_below(
        ledger.error[column] + static_cast<double>(at.expected->exact.radius[element]));
  });
  allowed.vacuous = is_vacuous(layout_, allowed.golden, spread);
  return allowed;
}

}  // namespace goldenrule::chain
