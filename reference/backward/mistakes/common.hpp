// SPDX-License-Identifier: Apache-2.0
//
// What the parts of the table ask of a call, and the kinds of rows that wrong steps of the chain
// and switches of the adjoint make.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "fixtures/call/dtype.hpp"
#include "fixtures/call/operation.hpp"
#include "reference/backward/mistakes/chain.hpp"
#include "reference/backward/mistakes/variant.hpp"
#include "reference/calls/mistake.hpp"
#include "reference/delta/calls/inputs.hpp"

namespace goldenrule::backward {

[[nodiscard]] inline bool has_tokens(const call::Record& r) { return call::validate(r).tokens > 0; }
[[nodiscard]] inline bool has_pairs(const call::Record& r) {
  return calls::longest_sequence(r) > 1;
}
[[nodiscard]] inline bool has_chunks(const call::Record& r) {
  return calls::longest_sequence(r) > kChunk;
}
/// Of some sequence the last chunk is not full.
[[nodiscard]] inline bool has_tail(const call::Record& r) {
  return std::ranges::any_of(sequences_of(r, call::validate(r)),
                             [](const Sequence& s) { return s.count % kChunk != 0; });
}
[[nodiscard]] inline bool has_start(const call::Record& r) {
  return r.inputs.contains("initial_state");
}
[[nodiscard]] inline bool has_state_gradient(const call::Record& r) {
  return r.inputs.contains("dfinal_state") && call::validate(r).rows > 0;
}
[[nodiscard]] inline bool has_groups(const call::Record& r) {
  const call::Dims d = call::validate(r);
  return d.HV > d.H && d.tokens > 0;
}
/// A token meets a state that is not 0: without one, no gate has a gradient.
[[nodiscard]] inline bool has_states(const call::Record& r) {
  return has_pairs(r) || (has_start(r) && has_tokens(r));
}
[[nodiscard]] inline bool has_gate(const call::Record& r) {
  return r.convention.gate != call::Gate::kNone && has_states(r);
}
[[nodiscard]] inline bool has_logit_gate(const call::Record& r) {
  return call::has_logit_gate(r.convention) && has_states(r);
}
[[nodiscard]] inline bool has_rate(const call::Record& r) {
  return has_logit_gate(r) && r.inputs.contains("A_log");
}
[[nodiscard]] inline bool has_bias(const call::Record& r) {
  return has_logit_gate(r) && r.inputs.contains("dt_bias");
}
/// Whether the gate is log alpha or what gives it: not alpha itself.
[[nodiscard]] inline bool has_log_gate(const call::Record& r) {
  return has_gate(r) && r.convention.gate != call::Gate::kLinear;
}
/// The variants have no gradient by an alpha that is 0 and given as such.
[[nodiscard]] inline bool has_chunk_form(const call::Record& r) {
  return r.convention.gate != call::Gate::kLinear && has_tokens(r);
}
[[nodiscard]] inline bool has_norm(const call::Record& r) {
  return r.convention.qk_l2norm != call::QkNorm::kNone && has_tokens(r);
}

/// Whether f changes some number of input `name`, which the call has.
template <class F>
[[nodiscard]] bool changes_input(const call::Record& r, const char* name, F&& f) {
  const std::vector<double> values = r.inputs.at(name).to_doubles();
  return std::ranges::any_of(values, [&](double x) { return f(x) != x; });
}
[[nodiscard]] inline double to_bf16(double x) { return call::round_to(call::DType::kBF16, x); }

/// Commits the chain that `change`, a function of Chain&, makes of the right one, behind the
/// kernel.
template <auto change>
call::TensorMap commit_chain(const call::Record& record, const calls::Kernel& kernel) {
  Chain chain = kRightChain;
  change(chain);
  return through(chain, record, kernel(plain_call(record)));
}

/// Commits a switch of the adjoint; `variant` is a ChunkVariant or a TokenVariant.
template <auto variant>
call::TensorMap commit_variant(const call::Record& record, const calls::Kernel& /*kernel*/) {
  return through(kRightChain, record, variant_outputs(variant, plain_call(record)));
}

/// A row of the table with such a switch.
template <auto variant>
constexpr calls::Mistake variant_row(std::string_view name, std::string_view group,
                                     std::string_view meaning, bool (*applies)(const call::Record&),
                                     std::string_view reported = {}, bool rounds = false) {
  return {.name = name,
          .group = group,
          .meaning = meaning,
          .applies = applies,
          .commit = commit_variant<variant>,
          .rounds = rounds,
          .reported = reported};
}

}  // namespace goldenrule::backward
