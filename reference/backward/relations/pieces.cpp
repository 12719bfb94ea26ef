// SPDX-License-Identifier: Apache-2.0
//
// Sequences and tokens that have nothing to do with each other.
//
// Each sequence alone. Gradients of tokens and of initial states are those of the packed call;
// those of A_log and dt_bias are sums over the sequences, in another order.
//
// Later do = 0. The gradient by the state behind a token is that of do behind it and of
// dfinal_state. Where both are 0 from token c on, every later gradient is a sum of products with a
// zero, in the token form and in the chunked one: rows >= c of do, du, dw, dP, dT and dM are 0, and
// with them all that is summed of these rows. No rounding makes anything else of it.
//
// Truncated. Then the tokens before c are the backward pass of a call that ends there, whose chunks
// end elsewhere: within both budgets. And the gradient of a later gate is 0, but as a sum over the
// tokens from t to the end of the chunk:
//
//   dg_t = sum_(s >= t) raw_s,    raw_s = 0 for s >= c.
//
// A kernel may take it as the sum of all less that of the tokens before t, in fp32: n terms, each
// partial sum below sum |raw_s|, and |raw_s| = |dg_s - dg_(s+1)| <= |dg_s| + |dg_(s+1)|. Two such
// sums differ by at most
//
//   2 n u 2 sum_s |dg_s|,    u = 2^-24,
//
// which is granted, with the sum over s < c: behind it dg is 0, and what a kernel returns there
// must not grant itself. Where the call has logits, da is dg times a slope of its own for each
// token, and nothing is said of it.
#include <algorithm>
#include <array>
#include <cmath>

#include "reference/backward/relations/parts.hpp"
#include "reference/backward/relations/relation.hpp"
#include "reference/delta/calls/inputs.hpp"

namespace goldenrule::backward {
namespace {

using call::Record;
using calls::Stretch;
using relations::Demand;
using relations::Relation;
using relations::Run;
using relations::Trial;

bool has_pieces(const Record& r, const contract::Contract&) {
  const call::Dims d = call::validate(r);
  return d.rows > 1 && d.tokens > 0;
}

// The sums of the parameters over calls, and of what is granted to each.
class ParameterSums {
 public:
  explicit ParameterSums(Trial& trial)
      : trial_(trial),
        sums_(zeros_like(trial.base().outputs)),
        bounds_(zeros_like(trial.base().outputs)) {}

  void add(const Run& run, const relations::Grants& granted) {
    for (auto& [name, sum] : sums_) {
      if (row_of(name) != RowOf::kParameter) continue;
      const call::Tensor& part = output_of(run, name);
      std::vector<double>& bounds = bounds_.at(name);
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] += part[static_cast<std::int64_t>(i)];
        bounds[i] = relations::sum_of(bounds[i], granted.at(name)[i].bound);
      }
    }
  }

  void claim() {
    for (const auto& [name, sum] : sums_) {
      if (row_of(name) != RowOf::kParameter) continue;
      const call::Tensor& whole = trial_.base().outputs.at(name);
      for (std::size_t i = 0; i < sum.size(); ++i) {
        trial_.claim(
            name, i, sum[i], whole[static_cast<std::int64_t>(i)],
            relations::sum_of(trial_.base_granted().at(name)[i].bound, bounds_.at(name)[i]));
      }
    }
  }

 private:
  Trial& trial_;
  OutputSums sums_, bounds_;
};

bool has_parameter(const Run& run) {
  return std::ranges::any_of(run.outputs,
                             [](const auto& o) { return row_of(o.first) == RowOf::kParameter; });
}

void each_alone(Trial& trial) {
  const Run& base = trial.base();
  const call::Dims& d = base.plan.dims;
  const std::vector<Sequence> sequences = sequences_of(base.record, d);
  const bool sums = has_parameter(base);
  ParameterSums parameters(trial);
  for (std::size_t n = 0; n < sequences.size(); ++n) {
    if (sequences[n].count == 0) continue;
    const std::array part{Stretch{static_cast<std::int64_t>(n), 0, sequences[n].count}};
    const Run alone = trial.run(call_of_parts(base.record, d, part));
    if (sums) parameters.add(alone, trial.granted(alone));
    relations::Pairs pairs;
    const PartPlaces places(base.record, d, part);
    for (const auto& [name, tensor] : base.outputs) {
      if (row_of(name) == RowOf::kParameter) continue;
      places.for_each(name, tensor, [&, to = &pairs[name]](std::size_t at, std::size_t other) {
        to->push_back({at, other, 0});
      });
    }
    trial.claim_pairs(alone, pairs);
  }
  if (sums) parameters.claim();
}

std::int64_t kept_tokens(const Sequence& s) { return (s.count + 1) / 2; }

// do of the first half of every sequence.
Record first_halves_matter(const Record& record, const call::Dims& d) {
  Record changed = calls::without_outputs(record);
  const std::int64_t width = d.HV * d.V;
  call::Tensor& output_gradient = changed.inputs.at("do");
  for (const Sequence& s : sequences_of(record, d)) {
    const std::int64_t end = (s.first + s.count) * width;
    for (std::int64_t i = (s.first + kept_tokens(s)) * width; i < end; ++i) {
      output_gradient.set(i, 0.0);
    }
  }
  const auto of_states = changed.inputs.find("dfinal_state");
  if (of_states != changed.inputs.end()) {
    calls::change(of_states->second, [](std::int64_t, double) { return 0.0; });
  }
  return changed;
}

bool has_halves(const Record& r, const contract::Contract&) {
  return calls::longest_sequence(r) > 1;
}

bool is_by_logarithm(call::Gate gate) {
  return gate == call::Gate::kLog || gate == call::Gate::kLog2;
}

void later_zero(Trial& trial) {
  const Run& base = trial.base();
  const call::Dims& d = base.plan.dims;
  const Run other = trial.run(first_halves_matter(base.record, d));
  for (const auto& [name, original] : base.outputs) {
    if (row_of(name) != RowOf::kToken || name == gate_output(base.record.convention)) continue;
    const call::Tensor& gradient = output_of(other, name);
    const std::int64_t width = original.size() / d.tokens;
    for (const Sequence& s : sequences_of(base.record, d)) {
      const std::int64_t end = (s.first + s.count) * width;
      for (std::int64_t i = (s.first + kept_tokens(s)) * width; i < end; ++i) {
        trial.claim(name, static_cast<std::size_t>(i), 0.0, gradient[i], 0.0);
      }
    }
  }
}

// The later dg of a call whose later do is 0.
void claim_later_gates(const Run& other, Trial& trial) {
  const Run& base = trial.base();
  const call::Dims& d = base.plan.dims;
  const call::Convention& c = base.record.convention;
  const std::string name = gate_output(c);
  if (!is_by_logarithm(c.gate) || !base.outputs.contains(name)) return;
  const call::Tensor& dg = output_of(other, name);
  const std::int64_t width = dg.size() / d.tokens;
  for (const Sequence& s : sequences_of(base.record, d)) {
    for (std::int64_t i = 0; i < width; ++i) {
      double sum = 0.0;
      for (std::int64_t t = s.first; t < s.first + kept_tokens(s); ++t) {
        sum += std::fabs(dg[t * width + i]);
      }
      const double bound = sum * static_cast<double>(s.count) * 0x1p-22;
      for (std::int64_t t = s.first + kept_tokens(s); t < s.first + s.count; ++t) {
        trial.claim(name, static_cast<std::size_t>(t * width + i), 0.0, dg[t * width + i], bound);
      }
    }
  }
}

void truncated(Trial& trial) {
  const Run& base = trial.base();
  const call::Dims& d = base.plan.dims;
  const std::vector<Sequence> sequences = sequences_of(base.record, d);
  std::vector<Stretch> parts;
  for (std::size_t n = 0; n < sequences.size(); ++n) {
    parts.push_back({static_cast<std::int64_t>(n), 0, kept_tokens(sequences[n])});
  }
  const Run whole = trial.run(first_halves_matter(base.record, d));
  Record cut = call_of_parts(base.record, d, parts);
  cut.inputs.erase("dfinal_state");
  const Run part = trial.run(std::move(cut));
  const relations::Grants of_whole = trial.granted(whole);
  const relations::Grants of_part = trial.granted(part);
  const PartPlaces places(base.record, d, parts);
  for (const auto& [name, original] : base.outputs) {
    const call::Tensor& actual = output_of(whole, name);
    const call::Tensor& expected = output_of(part, name);
    const auto claim = [&, &tensor = name](std::size_t at, std::size_t other) {
      trial.claim(
          tensor, at, expected[static_cast<std::int64_t>(other)],
          actual[static_cast<std::int64_t>(at)],
          relations::sum_of(of_whole.at(tensor)[at].bound, of_part.at(tensor)[other].bound));
    };
    if (row_of(name) == RowOf::kParameter) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(original.size()); ++i) claim(i, i);
    } else {
      places.for_each(name, original, claim);
    }
  }
  claim_later_gates(whole, trial);
}

constexpr std::array kPieceRelations{
    Relation{"rows_alone", "each sequence in a call of its own", Demand::kSameBitsIfInvariant,
             has_pieces, each_alone},
    Relation{"later_zero",
             "do = 0 in the second half of every sequence, dfinal_state = 0: dq, dk, dv and the "
             "gradient of beta there are 0",
             Demand::kSameBits, has_halves, later_zero},
    Relation{"truncated",
             "do = 0 in the second half of every sequence, dfinal_state = 0: the gradients of the "
             "first half are those of a call that ends there, and dg of the second half is 0",
             Demand::kBudget, has_halves, truncated},
};

}  // namespace

std::span<const Relation> piece_relations() { return kPieceRelations; }

}  // namespace goldenrule::backward
