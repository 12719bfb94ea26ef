// SPDX-License-Identifier: Apache-2.0
//
// Every relation over a kernel of one's own: no file, no exact result. A kernel is a function from
// a call (its inputs and conventions) to its outputs; put the launch of yours in the place of
// `Decode`. Relations are called with changed calls: other rows, heads, slots, NaN among the
// inputs, one decode call after the other for MTP.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "fixtures/cases/case.hpp"
#include "reference/delta/relations/relation.hpp"

namespace {

using namespace goldenrule;

/// Decode and MTP of the gated delta rule in fp32: gate=log, beta=direct, no norm, grouped heads,
/// one slot per row, state in [V,K].
struct Decode {
  bool ignores_slots = false;  ///< the mistake that is shown below

  call::TensorMap operator()(const call::Record& call) const {
    const call::Dims d = call::validate(call);
    const auto floats = [&](const char* name) {
      const std::vector<double> x = call.inputs.at(name).to_doubles();
      return std::vector<float>(x.begin(), x.end());
    };
    const auto q = floats("q"), k = floats("k"), v = floats("v"), g = floats("g"),
               beta = floats("beta");
    auto pool = floats("initial_state");
    const auto scale = static_cast<float>(call::resolved_scale(call.convention, d.K));
    const call::Tensor* slots = ignores_slots ? nullptr : call.find_input("state_indices");
    std::vector<double> o(static_cast<std::size_t>(d.tokens * d.HV * d.V));
    std::vector<double> kept(static_cast<std::size_t>(d.tokens * d.HV * d.state_size()), NAN);
    for (std::int64_t lane = 0; lane < d.rows * d.HV; ++lane) {
      const std::int64_t b = lane / d.HV, j = lane % d.HV, h = j / (d.HV / d.H);
      const auto slot = slots == nullptr ? b : static_cast<std::int64_t>((*slots)[b]);
      if (slot == call.convention.pad_slot) continue;  // o = 0, no state is touched
      float* S = &pool[static_cast<std::size_t>((slot * d.HV + j) * d.state_size())];
      for (std::int64_t t = b * d.T; t < (b + 1) * d.T; ++t) {
        const float* qt = &q[static_cast<std::size_t>((t * d.H + h) * d.K)];
        const float* kt = &k[static_cast<std::size_t>((t * d.H + h) * d.K)];
        const std::size_t at = static_cast<std::size_t>(t * d.HV + j);
        const float alpha = std::exp(g[at]);
        for (std::int64_t x = 0; x < d.V; ++x) {
          float* row = S + x * d.K;
          float predicted = 0.0F, out = 0.0F;
          for (std::int64_t i = 0; i < d.K; ++i) predicted += (row[i] *= alpha) * kt[i];
          const std::size_t value =
              at * static_cast<std::size_t>(d.V) + static_cast<std::size_t>(x);
          const float delta = beta[at] * (v[value] - predicted);
          for (std::int64_t i = 0; i < d.K; ++i) out += (row[i] += kt[i] * delta) * scale * qt[i];
          o[value] = out;
        }
        std::copy_n(S, d.state_size(), &kept[at * static_cast<std::size_t>(d.state_size())]);
      }
    }
    // Outputs are tensors of doubles in the shapes of the call; relations round them to its types.
    const auto output = [&](const char* name, const std::vector<double>& values) {
      return call::Tensor(call::DType::kF64, call::output_shape(call, d, name), values);
    };
    call::TensorMap outputs;
    outputs["o"] = output("o", o);
    outputs["final_state"] = output("final_state", {pool.begin(), pool.end()});
    if (call.mode == call::Mode::kMtp) {
      outputs["intermediate_states"] = output("intermediate_states", kept);
    }
    return outputs;
  }
};

/// Tries every relation on one call and prints what it finds; how many are broken.
int broken_relations(const char* line, const relations::Kernel& kernel) {
  const call::Record call = cases::make_record(cases::parse(line));
  int broken = 0;
  for (const relations::Outcome& outcome : relations::check_all(
           call, kernel, contract::find_contract("recurrent_f32"),
           {.batch_invariant = true, .modes = {call::Mode::kDecode, call::Mode::kMtp}})) {
    if (outcome.holds()) continue;
    ++broken;
    for (const relations::Finding& f : outcome.findings) {
      std::printf("%s: %lld elements of %s, worst at %s: %g instead of %g, bound %g\n",
                  std::string(outcome.relation).c_str(), static_cast<long long>(f.violations),
                  f.tensor.c_str(), verdict::to_string(f.coordinates).c_str(), f.worst.value,
                  f.worst.golden, f.worst.budget);
    }
  }
  std::printf("%d relations broken: %s\n", broken, line);
  return broken;
}

}  // namespace

int main() {
  int broken = 0, seen = 0;
  for (const char* line :
       {"op=gdn mode=decode B=5 H=2 HV=4 K=32 V=16 gate=log beta=direct qk_l2norm=none "
        "slots=padded",
        "op=gdn mode=mtp B=3 T=6 H=1 HV=2 K=32 V=16 gate=log beta=direct qk_l2norm=none "
        "slots=permuted"}) {
    broken += broken_relations(line, Decode());
    seen += broken_relations(line, Decode{.ignores_slots = true}) > 0 ? 1 : 0;
  }
  return broken == 0 && seen == 2 ? 0 : 1;
}
