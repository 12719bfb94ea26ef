// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/relations/trial.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "reference/delta/budget/running.hpp"
#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/calls/rows.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/slice.hpp"
#include "reference/scalar/infinity.hpp"
#include "reference/verdict/budget.hpp"
#include "reference/verdict/expectation.hpp"
#include "reference/verdict/grants.hpp"
#include "reference/verdict/kernels.hpp"

namespace goldenrule::relations {
namespace {

// Only numbers that are in no storage type yet are rounded: bits that a kernel has stored are its
// own.
call::TensorMap stored_once(const call::Record& record, const contract::Contract& contract,
                            call::TensorMap outputs) {
  call::TensorMap computed;
  for (const auto& [name, tensor] : outputs) {
    if (tensor.dtype() == call::DType::kF64) computed.emplace(name, tensor);
  }
  for (auto& [name, tensor] : calls::stored(record, contract, computed)) {
    outputs.insert_or_assign(name, std::move(tensor));
  }
  return outputs;
}

Run make_run(const Subject& subject, call::Record record, const Kernel& kernel,
             const contract::Contract& contract) {
  Run run{.record = std::move(record), .plan = {}, .outputs = {}};
  run.outputs = stored_once(run.record, contract, kernel(run.record));
  run.plan = call::make_plan(run.record, call::has_kept_states(run.outputs));
  for (const std::string_view required : subject.outputs) {
    const std::string name(required);
    if (!run.outputs.contains(name)) {
      throw Error(ErrorKind::kSchema, "/outputs/" + name, "an output of the kernel", "none");
    }
  }
  for (const auto& [name, tensor] : run.outputs) {
    const call::Shape expected = call::output_shape(run.record, run.plan.dims, name);
    if (tensor.shape() != expected) {
      throw Error(ErrorKind::kShape, "/outputs/" + name, call::to_string(expected),
                  call::to_string(tensor.shape()));
    }
  }
  return run;
}

constexpr std::array<std::string_view, 2> kDeltaOutputs{"o", "final_state"};

// No relation says yet what becomes of pending tokens: some would find fault with right kernels.
const call::Record& without_rings(const call::Record& record) {
  if (!call::has_ring(record)) return record;
  throw Error(ErrorKind::kSchema, "/inputs/initial_ring_d",
              "no dataset: relations follow no rings of pending tokens", "a dataset");
}

}  // namespace

Trial::Trial(const call::Record& record, const Kernel& kernel, const contract::Contract& contract,
             Options options)
    : Trial({.slice = &delta::slice(), .outputs = kDeltaOutputs}, record, kernel, contract,
            std::move(options)) {}

Trial::Trial(const Subject& subject, const call::Record& record, const Kernel& kernel,
             const contract::Contract& contract, Options options)
    : subject_(subject),
      kernel_(&kernel),
      contract_(&contract),
      options_(std::move(options)),
      base_(make_run(subject, calls::without_outputs(without_rings(record)), kernel, contract)) {}

void Trial::begin(const Relation& relation) {
  relation_ = &relation;
  claims_.clear();
}

Run Trial::run(call::Record record, const Kernel& kernel) const {
  return make_run(subject_, std::move(record), kernel, *contract_);
}

Grants Trial::granted(const Run& run) const {
  const verdict::Expectations evaluation = verdict::expect(
      slice(), run.record, *contract_, scalar::Precision::kDouble,
      {.kept_states = call::has_kept_states(run.outputs)}, verdict::GrantDetail::kTerms);
  Grants grants;
  for (const auto& [name, tensor] : run.outputs) {
    const verdict::Expected& expected = evaluation.outputs.at(name);
    const verdict::Budget budget(name, tensor.dtype(), expected, *contract_);
    std::vector<Grant>& to = grants[name];
    to.assign(expected.exact.golden.size(), Grant());
    if (!budget.given()) continue;
    const double multiple = expected.grant.sigma.empty()
                                ? verdict::deviation_multiple(std::ssize(to))
                                : expected.grant.multiple;
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (!expected.exact.is_defined(i)) continue;
      const double sigma =
          expected.grant.sigma.empty() ? 0.0 : static_cast<double>(expected.grant.sigma[i]);
      const double spread = budget.spread(i);
      const double own = std::fabs(tensor[static_cast<std::int64_t>(i)]);
      const double golden = std::fabs(expected.exact.golden[i]);
      const double value = std::isfinite(own) ? std::fmax(golden, own) : golden;
      const double half_ulp = budget.around(i, value, spread) - spread;
      const auto radius = static_cast<double>(expected.exact.radius[i]);
      to[i] = {.bound = spread + half_ulp + radius,
               .random2 = multiple * multiple * (sigma * sigma + half_ulp * half_ulp / 3.0),
               .sure = spread - multiple * sigma + radius};
    }
  }
  return grants;
}

const Grants& Trial::base_granted() {
  if (!base_granted_) base_granted_ = granted(base_);
  return *base_granted_;
}

void Trial::claim(const std::string& tensor, std::size_t at, double expected, double actual,
                  double bound) {
  Claims& claims = claims_[tensor];
  if (claims.bound.empty()) {
    const auto n = static_cast<std::size_t>(base_.outputs.at(tensor).size());
    claims.expected.assign(n, 0.0);
    claims.actual.assign(n, 0.0);
    claims.bound.assign(n, kNotGranted);
  }
  claims.expected[at] = expected;
  claims.actual[at] = actual;
  claims.bound[at] = bound;
}

void Trial::claim_pairs(const Run& other, const Pairs& pairs) {
  const bool same_bits = demands_bits(*relation_, options_);
  const Grants other_granted = same_bits ? Grants() : granted(other);
  for (const auto& [name, list] : pairs) {
    const auto from = other.outputs.find(name);
    if (from == other.outputs.end()) {
      throw Error(ErrorKind::kSchema, "/outputs/" + name, "an output of every call", "none");
    }
    const call::Tensor& to = base_.outputs.at(name);
    for (const Pair& p : list) {
      const double bound = same_bits ? 0.0
                                     : sum_of(base_granted().at(name)[p.base].bound,
                                              other_granted.at(name)[p.other].bound);
      claim(name, p.base, from->second[static_cast<std::int64_t>(p.other)],
            to[static_cast<std::int64_t>(p.base)], bound);
    }
  }
}

std::optional<Finding> Trial::finding(const std::string& tensor, const Claims& claims) const {
  Finding found;
  found.tensor = tensor;
  std::pair<double, double> worst{-1.0, -1.0};
  const call::Tensor& output = base_.outputs.at(tensor);
  for (std::size_t i = 0; i < claims.bound.size(); ++i) {
    const double expected = claims.expected[i];
    const double actual = claims.actual[i];
    const double error = std::fabs(actual - expected);
    if (claims.bound[i] < 0.0 || same(actual, expected) || error <= claims.bound[i]) continue;
    const call::Shape index = call::unravel(output.shape(), static_cast<std::int64_t>(i));
    if (found.violations++ == 0) found.first = index;
    // NaN is worse than any number; without a bound the largest error is the worst.
    const double size = std::isnan(error) ? kInfinity : error;
    const double ratio = claims.bound[i] > 0.0 ? size / claims.bound[i] : kInfinity;
    if (std::pair(ratio, size) <= worst) continue;
    worst = {ratio, size};
    found.worst = {.index = index,
                   .value = actual,
                   .golden = expected,
                   .error = error,
                   .budget = claims.bound[i],
                   .ulps = error / call::ulp(output.dtype(), expected)};
  }
  if (found.violations == 0) return std::nullopt;
  found.coordinates = verdict::coordinates(base_.record, tensor, found.worst.index);
  return found;
}

Outcome Trial::judge() const {
  Outcome outcome;
  outcome.relation = relation_->name;
  double bound2 = 0.0;
  double value2 = 0.0;
  for (const auto& [name, claims] : claims_) {
    for (std::size_t i = 0; i < claims.bound.size(); ++i) {
      const bool no_numbers = std::isnan(claims.actual[i]) && std::isnan(claims.expected[i]);
      if (claims.bound[i] < 0.0 || no_numbers) continue;  // NaN that stays NaN says nothing
      ++outcome.compared;
      if (!std::isfinite(claims.bound[i]) || !std::isfinite(claims.actual[i])) continue;
      bound2 += claims.bound[i] * claims.bound[i];
      value2 += claims.actual[i] * claims.actual[i];
    }
    if (auto found = finding(name, claims)) outcome.findings.push_back(std::move(*found));
  }
  if (bound2 > 0.0) outcome.bound_to_signal = std::sqrt(bound2 / value2);
  return outcome;
}

const call::Tensor& output_of(const Run& run, const std::string& name) {
  const auto found = run.outputs.find(name);
  if (found != run.outputs.end()) return found->second;
  throw Error(ErrorKind::kSchema, "/outputs/" + name, "an output of every call", "none");
}

void claim_halves(Trial& trial, const std::string& tokens, const std::string& states) {
  const Run& base = trial.base();
  const call::Dims& d = base.plan.dims;
  const auto part = [&](std::int64_t parity) {
    call::Record changed = base.record;
    calls::change(changed.inputs.at(tokens), [&](std::int64_t i, double x) {
      return i / (d.HV * d.V) % 2 == parity ? x : 0.0;
    });
    const auto of_states = changed.inputs.find(states);
    if (parity == 0 && of_states != changed.inputs.end()) {
      calls::change(of_states->second, [](std::int64_t, double) { return 0.0; });
    }
    return trial.run(std::move(changed));
  };
  const Run even = part(0);
  const Run odd = part(1);
  const Grants even_granted = trial.granted(even);
  const Grants odd_granted = trial.granted(odd);
  for (const auto& [name, tensor] : base.outputs) {
    const call::Tensor& of_even = output_of(even, name);
    const call::Tensor& of_odd = output_of(odd, name);
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double parts = sum_of(even_granted.at(name)[at].bound, odd_granted.at(name)[at].bound);
      trial.claim(name, at, of_even[i] + of_odd[i], tensor[i],
                  sum_of(trial.base_granted().at(name)[at].bound, parts));
    }
  }
}

void pair_sequences(const Run& base, std::int64_t n, const Run& other, std::int64_t m,
                    const std::vector<std::int64_t>& heads, Pairs& pairs) {
  const call::Dims& d = base.plan.dims;
  const call::Sequence& a = base.plan.sequences[static_cast<std::size_t>(n)];
  const call::Sequence& b = other.plan.sequences[static_cast<std::size_t>(m)];
  std::vector<Pair>& o = pairs["o"];
  const call::Strides output = call::output_strides(base.record, d, "o");
  for (std::int64_t t = 0; t < a.token_count; ++t) {
    for (std::int64_t j = 0; j < d.HV; ++j) {
      const std::int64_t head = heads[static_cast<std::size_t>(j)];
      for (std::int64_t x = 0; x < d.V; ++x) {
        o.push_back(
            {output(a.first_token + t, j, 0, x), output(b.first_token + t, head, 0, x), t + 1});
      }
    }
  }
  const std::int64_t size = d.state_size();
  for (std::size_t i = 0; i < a.snapshots.size(); ++i) {
    const call::Snapshot& from = a.snapshots[i];
    const call::Snapshot& to = b.snapshots.at(i);
    std::vector<Pair>& states = pairs[std::string(call::name_of(from.target))];
    for (std::int64_t j = 0; j < d.HV; ++j) {
      const std::int64_t at = (from.block * d.HV + j) * size;
      const std::int64_t there = (to.block * d.HV + heads[static_cast<std::size_t>(j)]) * size;
      for (std::int64_t x = 0; x < size; ++x) {
        states.push_back(
            {static_cast<std::size_t>(at + x), static_cast<std::size_t>(there + x), from.after});
      }
    }
  }
}

}  // namespace goldenrule::relations
