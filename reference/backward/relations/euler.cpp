// SPDX-License-Identifier: Apache-2.0
//
// Euler's identity. The loss L = <do, o> + <dS_T, S_T> of a sequence and value head is a linear
// function of (v, S_0): L = <dL/dv, v> + <dL/dS_0, S_0>, so
//
//   <v, dv> + <S_0, dS_0> = <do, o> + <dS_T, S_T>,    <a, b> the sum over tokens and channels,
//
// one number for each sequence and value head, whatever the gates, norms and betas are. o and S_T
// are those of the forward pass, by the oracle; no exact gradient is asked for. It sees what is
// lost or counted twice on the way from do and dS_T to dv and dS_0, and nothing of dq, dk, dg and
// dbeta. A finding stands at the first element of dv of its sequence and head.
//
// Bound. w of independent errors: their deviations, multiple and all, add in squares, what may be
// the same in every call adds linearly, and so do the roundings of the n terms of both sides in
// double, n 2^-52 of the sum of their sizes. Errors of dv of neighbouring tokens are not
// independent: composed.hpp.
#include <array>

#include "reference/backward/relations/composed.hpp"
#include "reference/backward/relations/forward.hpp"
#include "reference/backward/relations/pairing.hpp"
#include "reference/backward/relations/parts.hpp"
#include "reference/backward/relations/relation.hpp"
#include "reference/delta/calls/inputs.hpp"

namespace goldenrule::backward {
namespace {

using relations::Demand;
using relations::Relation;
using relations::Run;
using relations::Trial;

// The tensors of a call that the identity is of.
class Identity {
 public:
  explicit Identity(Trial& trial)
      : trial_(trial),
        record_(trial.base().record),
        d_(trial.base().plan.dims),
        forward_(forward_outputs(record_)) {}

  [[nodiscard]] std::vector<Sides> sides(const Run& made, bool grants) const {
    std::vector<Sides> all;
    const std::vector<Sequence> sequences = sequences_of(record_, d_);
    for (std::size_t n = 0; n < sequences.size(); ++n) {
      for (std::int64_t head = 0; head < d_.HV && sequences[n].count > 0; ++head) {
        all.push_back(lane(made, static_cast<std::int64_t>(n), sequences[n], head, grants));
      }
    }
    return all;
  }

 private:
  [[nodiscard]] Sides lane(const Run& made, std::int64_t n, const Sequence& tokens,
                           std::int64_t head, bool grants) const {
    Pairing gradients;
    Pairing losses;
    const call::Tensor& v = record_.inputs.at("v");
    const std::size_t first = token_place(tokens.first, head);
    for (std::int64_t t = tokens.first; t < tokens.first + tokens.count; ++t) {
      for (std::int64_t i = 0; i < d_.V; ++i) {
        const std::size_t at = token_place(t, head) + static_cast<std::size_t>(i);
        pair(v, made, "dv", at, grants, gradients);
        add(record_.inputs.at("do"), forward_.at("o"), at, losses);
      }
    }
    const call::Tensor* start = record_.find_input("initial_state");
    const call::Tensor* end = record_.find_input("dfinal_state");
    for (std::int64_t i = 0; i < d_.state_size(); ++i) {
      const auto at = static_cast<std::size_t>((n * d_.HV + head) * d_.state_size() + i);
      if (start != nullptr) pair(*start, made, "dinitial_state", at, grants, gradients);
      if (end != nullptr) add(*end, forward_.at("final_state"), at, losses);
    }
    const double independent =
        grants ? relations::sum_of(gradients.independent(), losses.rounding()) : 0.0;
    return {"dv", first, losses.sum(), gradients.sum(), independent};
  }

  [[nodiscard]] std::size_t token_place(std::int64_t t, std::int64_t head) const {
    return static_cast<std::size_t>((t * d_.HV + head) * d_.V);
  }
  static void add(const call::Tensor& x, const call::Tensor& y, std::size_t at, Pairing& to) {
    const auto i = static_cast<std::int64_t>(at);
    to.add(x[i], y[i]);
  }
  void pair(const call::Tensor& x, const Run& made, const std::string& gradient, std::size_t at,
            bool grants, Pairing& to) const {
    to.add_gradient(trial_, made, gradient, at, x[static_cast<std::int64_t>(at)], grants);
  }

  Trial& trial_;
  const call::Record& record_;
  const call::Dims& d_;
  call::TensorMap forward_;
};

bool has_loss(const call::Record& r, const contract::Contract&) {
  return call::validate(r).tokens > 0;
}

void euler(Trial& trial) {
  const bool starts = trial.base().record.find_input("initial_state") != nullptr;
  const call::TensorMap& outputs = trial.base().outputs;
  if (!outputs.contains("dv") || (starts && !outputs.contains("dinitial_state"))) return;
  const Identity identity(trial);
  claim_composed(trial, [&](const Run& whole, const Runner&, bool grants) {
    return identity.sides(whole, grants);
  });
}

constexpr std::array kEulerRelations{
    Relation{"euler",
             "<v, dv> + <initial_state, dinitial_state> = <do, o> + <dfinal_state, final_state> of "
             "every sequence and value head",
             Demand::kBudget, has_loss, euler},
};

}  // namespace

std::span<const Relation> euler_relations() { return kEulerRelations; }

}  // namespace goldenrule::backward
