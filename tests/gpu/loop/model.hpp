// SPDX-License-Identifier: Apache-2.0
//
// A toy of a hybrid target and of its DFlash drafter, small and deterministic. Embeddings, fixed
// random projections and heads are functions of counters, so a number of the model is the same
// wherever it is asked for. The target's one layer of each kind:
//
//   u_p = delta rule of E(x_p) + P(p), a state per request           (fp32 out)
//   h_p = signs of u_p - theta                                        (32 bits)
//   o_p = attention of E'(x_p) + P'(p) + F h_p over positions 0 .. p  (bf16 in and out)
//   x_{p+1} = argmax_z prior(z) + w <R_z, o_p>
//
// The drafter attends from its block, the anchor and masks behind it, to keys that are made of x_p
// and h_p of the target's committed tokens, as DFlash takes hidden states of the target's layers.
//
// Why signs. What two right kernels return differs, and a cache that stored a projection of it
// would store different bits sooner or later, with all that follows. Between the layers only
// decisions pass, so that with equal decisions the inputs of the next layer are equal bit for bit,
// and what a decision needs is a bound on one layer's output, not on the whole past. A decision is
// `clear` where no two numbers within their bounds of the reference's lead to another one:
//
//   sign: |u - theta| > bound(u)
//   argmax: l_z* - l_z > b_z* + b_z for every other z, b_z = |w| sum_e |R_ze| bound(o_e)
//
// and so, whenever the kernel's numbers are within their bounds, both sides decide alike. Where a
// decision is not clear to the reference, theta or R is drawn anew (draws.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "fixtures/call/tensor.hpp"

namespace goldenrule::test::loop {

inline constexpr std::int64_t kVocabulary = 16;
inline constexpr std::int64_t kMask = kVocabulary;  ///< the token of a place that is to be drafted
inline constexpr std::int64_t kStop = 0;
inline constexpr std::int64_t kHeads = 1, kGroup = 2;  ///< attention: key heads, queries of each
inline constexpr std::int64_t kDim = 64;               ///< of keys and of values
inline constexpr std::int64_t kStateHeads = 2, kStateKey = 128, kStateValue = 16;
inline constexpr std::int64_t kSignCount = kStateHeads * kStateValue;

/// A token at its place, and what the target's first layer made of it.
struct Hidden {
  std::int64_t token = 0, position = 0;
  std::uint32_t signs = 0;
  bool has_signs = true;
};

/// `width` numbers of the projection `name` of a token at its place.
[[nodiscard]] std::vector<double> project(const std::string& name, std::int64_t width,
                                          const Hidden& hidden);

/// A decision on numbers that are known within bounds.
struct Choice {
  std::int64_t value = 0;
  bool clear = false;
};

/// What is decided, and for whom: the signs of a token at `position`, or the token there.
enum class Kind : std::uint8_t { kSigns, kDraft, kTarget };
struct Question {
  Kind kind = Kind::kSigns;
  std::int64_t request = 0, position = 0;
  [[nodiscard]] bool operator<(const Question& other) const {
    return std::tie(kind, request, position) < std::tie(other.kind, other.request, other.position);
  }
};

/// The numbers of a layer and how far another right kernel may be from them; no bounds: none.
struct Numbers {
  std::span<const double> values, bounds;
  [[nodiscard]] double bound(std::size_t i) const { return bounds.empty() ? 0.0 : bounds[i]; }
};

/// The answer with the thresholds or the head of draw `draw`.
[[nodiscard]] Choice decide(const Question& question, int draw, const Numbers& numbers);

}  // namespace goldenrule::test::loop
