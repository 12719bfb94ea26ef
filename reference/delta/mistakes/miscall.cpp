// SPDX-License-Identifier: Apache-2.0
//
// A right kernel, called with other conventions than those of the call: what its caller and it
// understand by a gate, a beta, a scale or a norm is not the same. Other files have the mistakes of
// this kind that kernels themselves were seen to make (gate_log2, l2_ignored, ..). What a caller
// does under the name of such a mistake has that name here too: one mistake, made in two ways.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "fixtures/call/plan.hpp"
#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/mistakes/common.hpp"
#include "reference/delta/mistakes/gates.hpp"
#include "reference/delta/mistakes/tables.hpp"
#include "reference/delta/rule/gate.hpp"

namespace goldenrule::delta {
namespace {

using call::Gate;
using call::Record;
using call::TensorMap;

bool is_given_log(const Record& r) {
  return r.convention.gate == Gate::kLog || r.convention.gate == Gate::kLog2;
}
bool has_a_log(const Record& r) { return has_logit_gate(r) && r.find_input("A_log") != nullptr; }
bool has_dt_bias(const Record& r) {
  return has_logit_gate(r) && r.find_input("dt_bias") != nullptr;
}

// What a kernel makes of `a` with the A_log and dt_bias of a place.
double alpha_of(const Record& r, double a, const GatePlace& p) {
  const double A_log = std::log(p.amplitude);
  return gate<double>(r.convention, a, A_log, p.logit - p.input).alpha;
}

TensorMap alpha_for_log(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_alpha(r, [](const GatePlace& p) { return std::exp(p.alpha); }));
}

TensorMap gate_negated(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_alpha(r, [](const GatePlace& p) { return std::exp(-p.log_alpha); }));
}

TensorMap gate_raw(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_alpha(r, [](const GatePlace& p) { return std::exp(p.input); }));
}

TensorMap gate_twice(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_alpha(r, [&](const GatePlace& p) { return alpha_of(r, p.log_alpha, p); }));
}

bool other_bound_applies(const Record& r) {
  return r.convention.gate == Gate::kBounded &&
         r.convention.lower_bound != call::Convention{}.lower_bound;
}
TensorMap lower_bound_default(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  changed.convention.lower_bound = call::Convention{}.lower_bound;
  return kernel(changed);
}

TensorMap a_log_exp_twice(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  calls::change_input(changed, "A_log", [](std::int64_t, double x) { return std::exp(x); });
  return kernel(changed);
}

TensorMap dt_bias_twice(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  calls::change_input(changed, "dt_bias", [](std::int64_t, double x) { return 2 * x; });
  return kernel(changed);
}

bool beta_logit_applies(const Record& r) {
  if (r.convention.beta != call::BetaForm::kDirect) return false;
  return std::ranges::all_of(r.inputs.at("beta").to_doubles(),
                             [](double x) { return x > 0.0 && x < 1.0; });
}
TensorMap beta_logit_given(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_beta(r, [](double, double beta) { return std::log(beta / (1.0 - beta)); }));
}

// The product is stored in the type of v, as the kernel takes it.
TensorMap beta_on_v(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  std::vector<double> betas;
  (void)with_beta(r, [&](double, double beta) {
    betas.push_back(beta);
    return beta;
  });
  const std::int64_t V = call::validate(r).V;
  call::Tensor& v = changed.inputs.at("v");
  for (std::int64_t i = 0; i < v.size(); ++i)
    v.set(i, v[i] * betas[static_cast<std::size_t>(i / V)]);
  return kernel(changed);
}

bool scale_inverse_applies(const Record& r) {
  const double scale = scale_of(r);
  return scale != 0.0 && std::fabs(scale) != 1.0;
}
TensorMap scale_inverse(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  changed.convention.scale = 1.0 / scale_of(r);
  return kernel(changed);
}

double scale_by_value_dim(const Record& r) { return call::resolved_scale({}, call::validate(r).V); }
TensorMap scale_by_v(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  changed.convention.scale = scale_by_value_dim(r);
  return kernel(changed);
}

TensorMap qk_swapped(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  std::swap(changed.inputs.at("q"), changed.inputs.at("k"));
  return kernel(changed);
}

// The other state_not_written leaves old states in a pool and nothing without one; this one
// leaves zeros in a pool and old states without one.
bool elsewhere_applies(const Record& r) {
  return r.convention.disable_state_update == 0 &&
         (call::has_pool(r) || r.find_input("initial_state") != nullptr);
}
TensorMap state_elsewhere(const Record& r, const calls::Kernel& kernel) {
  TensorMap outputs = kernel(r);
  call::Tensor& state = outputs.at("final_state");
  const call::Tensor* initial = r.find_input("initial_state");
  for (std::int64_t i = 0; i < state.size(); ++i)
    state.set(i, call::has_pool(r) ? 0.0 : (*initial)[i]);
  return outputs;
}

constexpr calls::Meant kUsualBound[] = {{"lower_bound", "", "-5"}};

constexpr std::string_view kMiscallGroup = "Called with other conventions";
constexpr std::array kMiscallMistakes{
    calls::Mistake{
        "gate_linear", kMiscallGroup,
        "alpha itself is handed to a kernel that takes its logarithm: it decays by exp(alpha)",
        [](const Record& r) { return is_given_log(r) || has_logit_gate(r); }, alpha_for_log},
    calls::Mistake{"gate_negated", kMiscallGroup,
                   "the log gate has the wrong sign: the state grows by 1 / alpha", has_gate,
                   gate_negated},
    calls::Mistake{"gate_raw", kMiscallGroup,
                   "a is taken for the log gate: no bias, no activation, no exp(A_log)",
                   has_logit_gate, gate_raw},
    calls::Mistake{"gate_twice", kMiscallGroup,
                   "the finished log gate goes through bias, activation and exp(A_log) once more",
                   has_logit_gate, gate_twice},
    calls::Mistake{"lower_bound_default", kMiscallGroup,
                   "the bounded gate keeps its default lower bound of -5 whatever the call says",
                   other_bound_applies, lower_bound_default, kUsualBound},
    calls::Mistake{"a_log_exp_twice", kMiscallGroup,
                   "exp(A_log) is handed over as A_log: the rate is exp(exp(A_log))", has_a_log,
                   a_log_exp_twice},
    calls::Mistake{"dt_bias_twice", kMiscallGroup,
                   "dt_bias is added by the caller and by the kernel", has_dt_bias, dt_bias_twice},
    calls::Mistake{"beta_raw_logit", kMiscallGroup,
                   "the logit of beta is handed to a kernel that takes beta itself",
                   beta_logit_applies, beta_logit_given},
    calls::Mistake{"beta_on_v", kMiscallGroup,
                   "v is multiplied by beta before a kernel that does so itself", always,
                   beta_on_v},
    calls::Mistake{"scale_inverse", kMiscallGroup, "q is divided by the scale: K^0.5 for K^-0.5",
                   scale_inverse_applies, scale_inverse},
    calls::Mistake{"scale_by_v", kMiscallGroup, "the scale is V^-0.5 whatever the call says",
                   [](const Record& r) { return scale_of(r) != scale_by_value_dim(r); },
                   scale_by_v},
    calls::Mistake{"qk_swapped", kMiscallGroup, "q and k are handed over in the wrong order",
                   always, qk_swapped},
    calls::Mistake{
        "state_not_written", kMiscallGroup,
        "another buffer is taken for the final states: the initial states of a prefill, or "
        "zeros for the pool",
        elsewhere_applies, state_elsewhere},
};

}  // namespace

std::span<const calls::Mistake> miscall_mistakes() { return kMiscallMistakes; }

}  // namespace goldenrule::delta
