// SPDX-License-Identifier: Apache-2.0
//
// A sequence in two calls. The backward pass of tokens 1 .. T is that of c+1 .. T from the state
// S_c, and that of 1 .. c with what the first of these gives for S_c in place of dfinal_state:
//
//   (do_(c+1 .. T), dS_T, S_c) -> gradients of tokens c+1 .. T, dS_c
//   (do_(1 .. c),   dS_c, S_0) -> gradients of tokens 1 .. c, dS_0.
//
// Parameters' gradients add up. S_c is that of the forward pass by the oracle, in fp32: as a
// forward kernel would hand it over. A finding names an element of the whole call.
//
// Bound. The second call is an honest one on what it was given, and what it was given is off by
// what the first call was granted; the adjoint of the step contracts that, in sums with k^, q^ and
// the states which are no elements of an output. So w is what the whole call and the part are
// granted, and how much more comes through dS_c is measured (composed.hpp).
#include <array>
#include <cmath>

#include "reference/backward/relations/composed.hpp"
#include "reference/backward/relations/forward.hpp"
#include "reference/backward/relations/parts.hpp"
#include "reference/backward/relations/relation.hpp"
#include "reference/delta/calls/inputs.hpp"

namespace goldenrule::backward {
namespace {

using calls::Stretch;
using relations::Demand;
using relations::Relation;
using relations::Run;
using relations::Trial;

// Row n of `from` becomes row rows[n] of `to`, which it is converted to.
void copy_states(const call::Tensor& from, const std::vector<Stretch>& parts, call::Tensor& to) {
  if (parts.empty()) return;
  const std::int64_t size = from.size() / std::ssize(parts);
  for (std::size_t n = 0; n < parts.size(); ++n) {
    for (std::int64_t i = 0; i < size; ++i) {
      to.set(parts[n].sequence * size + i, from[static_cast<std::int64_t>(n) * size + i]);
    }
  }
}

class TwoCalls {
 public:
  explicit TwoCalls(Trial& trial)
      : trial_(trial), record_(trial.base().record), d_(trial.base().plan.dims) {
    const std::vector<Sequence> sequences = sequences_of(record_, d_);
    for (std::size_t n = 0; n < sequences.size(); ++n) {
      const auto row = static_cast<std::int64_t>(n);
      const std::int64_t cut = (sequences[n].count + 1) / 2;
      first_.push_back({row, 0, cut});
      if (cut < sequences[n].count) second_.push_back({row, cut, sequences[n].count - cut});
    }
    first_call_ = call_of_parts(record_, d_, first_);
    second_call_ = call_of_parts(record_, d_, second_);
    const call::TensorMap forward = forward_outputs(first_call_);
    const call::Tensor& states = forward.at("final_state");
    std::vector<std::int64_t> rows;
    for (const Stretch& s : second_) rows.push_back(s.sequence);
    const call::Tensor cut_states = call::take(states, 0, rows);
    second_call_.inputs["initial_state"] =
        call::Tensor(call::DType::kF32, cut_states.shape(), cut_states.to_doubles());
  }

  [[nodiscard]] std::vector<Sides> sides(const Run& whole, const Runner& run, bool grants) const {
    const Run later = run(second_call_);
    call::Record given = first_call_;
    call::Tensor& handed = given.inputs["dfinal_state"];
    const call::Tensor* last = first_call_.find_input("dfinal_state");
    const call::Tensor& start = output_of(later, "dinitial_state");
    handed = call::Tensor(call::DType::kF32, whole.outputs.at("dinitial_state").shape());
    for (std::int64_t i = 0; last != nullptr && i < handed.size(); ++i) handed.set(i, (*last)[i]);
    copy_states(start, second_, handed);
    const Run earlier = run(std::move(given));
    std::vector<Sides> all;
    add_part(whole, later, second_, grants, all);
    add_part(whole, earlier, first_, grants, all);
    add_parameters(whole, earlier, later, grants, all);
    return all;
  }

 private:
  // The rows of a part. The states that the later call starts from are no output of the whole one.
  void add_part(const Run& whole, const Run& part, const std::vector<Stretch>& stretches,
                bool grants, std::vector<Sides>& all) const {
    const relations::Grants granted = grants ? trial_.granted(part) : relations::Grants();
    const PartPlaces places(record_, d_, stretches);
    for (const auto& [name, tensor] : whole.outputs) {
      const RowOf kind = row_of(name);
      if (kind == RowOf::kParameter || (kind == RowOf::kSequence && &stretches == &second_)) {
        continue;
      }
      const call::Tensor& other = output_of(part, name);
      places.for_each(
          name, tensor, [&, &output = name, &to = tensor](std::size_t at, std::size_t there) {
            const double w = grants ? relations::sum_of(trial_.base_granted().at(output)[at].bound,
                                                        granted.at(output)[there].bound)
                                    : 0.0;
            all.push_back({output, at, other[static_cast<std::int64_t>(there)],
                           to[static_cast<std::int64_t>(at)], w});
          });
    }
  }

  void add_parameters(const Run& whole, const Run& earlier, const Run& later, bool grants,
                      std::vector<Sides>& all) const {
    relations::Grants of_earlier;
    relations::Grants of_later;
    if (grants) {
      of_earlier = trial_.granted(earlier);
      of_later = trial_.granted(later);
    }
    for (const auto& [name, tensor] : whole.outputs) {
      if (row_of(name) != RowOf::kParameter) continue;
      for (std::int64_t i = 0; i < tensor.size(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        double w = 0.0;
        if (grants) {
          w = relations::sum_of(of_earlier.at(name)[at].bound, of_later.at(name)[at].bound);
          w = relations::sum_of(w, trial_.base_granted().at(name)[at].bound);
        }
        all.push_back(
            {name, at, output_of(earlier, name)[i] + output_of(later, name)[i], tensor[i], w});
      }
    }
  }

  Trial& trial_;
  const call::Record& record_;
  const call::Dims& d_;
  std::vector<Stretch> first_, second_;
  call::Record first_call_, second_call_;
};

bool has_two_parts(const call::Record& r, const contract::Contract&) {
  return calls::longest_sequence(r) > 1;
}

void split(Trial& trial) {
  if (!trial.base().outputs.contains("dinitial_state")) return;
  const TwoCalls calls(trial);
  claim_composed(trial, [&](const Run& whole, const Runner& run, bool grants) {
    return calls.sides(whole, run, grants);
  });
}

constexpr std::array kSplitRelations{
    Relation{"split",
             "the second half of every sequence from its state, then the first half with what that "
             "gives for dinitial_state as dfinal_state",
             Demand::kBudget, has_two_parts, split},
};

}  // namespace

std::span<const Relation> split_relations() { return kSplitRelations; }

}  // namespace goldenrule::backward
