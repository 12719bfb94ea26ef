// SPDX-License-Identifier: Apache-2.0
//
// What the calls of one layer have in common: one model is served, so its rule
//
//   S_t = (I - beta_t k^_t k^_t^T) diag(alpha_t) S_{t-1} + beta_t k^_t v_t^T,  o_t = q^_t^T S_t,
//   k^ = norm(k), q^ = scale norm(q), alpha and beta by their forms,
//
// has the same norm, scale, head map, forms and constants in all of them. A call alone cannot show
// that one has changed: it is judged by what it says of itself. Each attribute of a convention has
// a row that says whether it may differ between calls, and why.
//
// Forms. A server may compute alpha, beta or the norm before the kernel in one call and inside it
// in another, as engines do whose prefill takes log alpha and beta and whose decode takes logits.
// So forms that take the number itself (`given`) go with each other and with one that computes it.
// Of the norm q and k tell: rows of length 1 were normalised, and a longer one was not. Where eps
// stands in a norm is a question of the kernel, and of rounding.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "fixtures/call/record.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::chain {

enum class Between : std::uint8_t {
  kFree,      ///< calls may differ
  kConstant,  ///< they may not; numbers to the precision of fp32
  kForm,      ///< the forms that compute a number may not
};

struct LayerRule {
  std::string_view attribute;  ///< of the convention
  Between between;
  std::string_view why;
  std::array<std::string_view, 3> given = {};  ///< of a form: those that take the number
  /// Whether the call reads the attribute; nullptr: each does.
  bool (*reads)(const call::Convention& convention, const call::Dims& dims) = nullptr;
  bool is_norm = false;  ///< all forms compute the same, and q and k show what was done before
};

/// What a call has said of an attribute.
struct LayerValue {
  double number = 0.0;
  std::string text;
  std::int64_t call = 0;
  bool given = false;  ///< a form that takes the number itself
  /// Of such a form: what it is beside one that computes the number; kExact: the same.
  verdict::Verdict beside = verdict::Verdict::kExact;
};

[[nodiscard]] inline bool has_softplus(const call::Convention& c, const call::Dims&) {
  return c.gate == call::Gate::kSoftplus;
}
[[nodiscard]] inline bool has_bounded(const call::Convention& c, const call::Dims&) {
  return c.gate == call::Gate::kBounded;
}
[[nodiscard]] inline bool has_norm(const call::Convention& c, const call::Dims&) {
  return c.qk_l2norm != call::QkNorm::kNone;
}
[[nodiscard]] inline bool has_groups(const call::Convention&, const call::Dims& d) {
  return d.H > 1 && d.H != d.HV;  // else every map is the same
}
[[nodiscard]] inline bool has_gate_heads(const call::Convention& c, const call::Dims& d) {
  return (has_softplus(c, d) || has_bounded(c, d)) && d.H != d.HV;
}

/// One row per attribute that the delta rule reads, in the order of for_each_field_of.
inline constexpr std::array kLayerRules{
    LayerRule{"state_layout", Between::kFree, "of the pool: another one is an error of its own"},
    LayerRule{"gate",
              Between::kForm,
              "how the layer decays; log, log2 and linear take the same alpha in other units",
              {"log", "log2", "linear"}},
    LayerRule{"softplus_beta", Between::kConstant, "of the gate", {}, has_softplus},
    LayerRule{"softplus_threshold", Between::kConstant, "of the gate", {}, has_softplus},
    LayerRule{"lower_bound", Between::kConstant, "of the gate", {}, has_bounded},
    LayerRule{"beta", Between::kForm, "how much of a value is written", {"direct"}},
    LayerRule{"qk_l2norm", Between::kForm, "which keys the state knows", {"none"}, nullptr, true},
    LayerRule{"l2_eps", Between::kConstant, "of the norm", {}, has_norm},
    LayerRule{"scale", Between::kConstant, "of o: the logits of a model have one"},
    LayerRule{"head_map", Between::kConstant, "whose keys a value head has", {}, has_groups},
    LayerRule{"gate_head", Between::kConstant, "whose decay it has", {}, has_gate_heads},
    LayerRule{"pad_slot", Between::kFree, "names rows that are no request's"},
    LayerRule{"disable_state_update", Between::kFree,
              "says where the state of a call goes, not what it is"},
};

}  // namespace goldenrule::chain
