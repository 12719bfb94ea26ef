// SPDX-License-Identifier: Apache-2.0
//
// Sums over tokens. dt_bias is added to the input of every gate of its head, so that
//
//   ddt_bias = sum of da over the tokens and value heads that read it,
//
// whatever da is. A_log is a factor of the same gates: with s_a and s_A the slopes of log alpha by
// the input and by A_log (rule/slopes.hpp),
//
//   dA_log = sum of da s_A / s_a,
//
// of heads where no slope is 0 that hides a term. Both are made of the gradients that the kernel
// itself returns; no exact result is asked for. Bounds: composed.hpp.
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "reference/backward/emulation/kernel_group.hpp"
#include "reference/backward/relations/composed.hpp"
#include "reference/backward/relations/pairing.hpp"
#include "reference/backward/relations/relation.hpp"

namespace goldenrule::backward {
namespace {

using relations::Demand;
using relations::Relation;
using relations::Run;
using relations::Trial;

// What a parameter's gradient is a sum of.
struct Terms {
  Pairing sum;
  bool is_known = true;
};

class ParameterSides {
 public:
  explicit ParameterSides(Trial& trial)
      : trial_(trial),
        record_(trial.base().record),
        d_(trial.base().plan.dims),
        gates_(call::gate_channels(record_, d_.K)),
        gate_(gate_output(record_.convention)),
        groups_(groups_of(record_, d_, trial.contract())) {}

  [[nodiscard]] std::vector<Sides> sides(const Run& made, bool grants) const {
    std::vector<Sides> all;
    const auto add = [&](const char* name, std::int64_t width, const auto& factor) {
      const auto found = trial_.base().outputs.find(name);
      if (found == trial_.base().outputs.end()) return;
      std::vector<Terms> terms(static_cast<std::size_t>(found->second.size()));
      for (const Group& g : groups_) add_group(g, made, grants, width, factor, terms);
      for (std::size_t i = 0; i < terms.size(); ++i) {
        if (!terms[i].is_known) continue;
        Pairing returned;
        returned.add_gradient(trial_, made, name, i, 1.0, grants);
        all.push_back({name, i, terms[i].sum.sum(), returned.sum(),
                       relations::sum_of(returned.independent(), terms[i].sum.independent())});
      }
    };
    add("ddt_bias", gates_, [](const GateChain&) { return 1.0; });
    add("dA_log", 1, [](const GateChain& chain) {
      return chain.amplitude == 0.0 ? 0.0 : chain.amplitude / chain.input;
    });
    return all;
  }

 private:
  // Of one sequence and key head; `width` gates have a parameter of their own each, or one.
  template <class F>
  void add_group(const Group& g, const Run& made, bool grants, std::int64_t width, const F& factor,
                 std::vector<Terms>& terms) const {
    for (std::size_t lane = 0; lane < g.heads.size(); ++lane) {
      const std::int64_t j = g.heads[lane];
      const std::int64_t head = call::gate_head(record_.convention, d_, j);
      for (std::int64_t i = 0; i < g.tokens.count * gates_; ++i) {
        const std::int64_t t = g.tokens.first + i / gates_;
        const auto at = static_cast<std::size_t>((t * d_.HV + j) * gates_ + i % gates_);
        Terms& to = terms[static_cast<std::size_t>(head * width + i % width)];
        const double x = factor(g.gates[lane][static_cast<std::size_t>(i)]);
        to.is_known = to.is_known && std::isfinite(x);
        if (to.is_known) to.sum.add_gradient(trial_, made, gate_, at, x, grants);
      }
    }
  }

  Trial& trial_;
  const call::Record& record_;
  const call::Dims& d_;
  std::int64_t gates_;
  std::string gate_;
  std::vector<Group> groups_;
};

bool has_parameters(const call::Record& r, const contract::Contract&) {
  return call::has_logit_gate(r.convention) && call::validate(r).tokens > 0;
}

void parameters(Trial& trial) {
  if (!trial.base().outputs.contains(gate_output(trial.base().record.convention))) return;
  const ParameterSides all(trial);
  claim_composed(
      trial, [&](const Run& made, const Runner&, bool grants) { return all.sides(made, grants); });
}

constexpr std::array kParameterRelations{
    Relation{
        "parameters",
        "ddt_bias is the sum of the gradients by the inputs of the gates, dA_log that of these "
        "times the ratio of the slopes",
        Demand::kBudget, has_parameters, parameters},
};

}  // namespace

std::span<const Relation> parameter_relations() { return kParameterRelations; }

}  // namespace goldenrule::backward
