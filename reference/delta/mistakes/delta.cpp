// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in the delta rule itself and in the inverse of its chunk form.
#include <array>

#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/mistakes/common.hpp"
#include "reference/delta/mistakes/gates.hpp"
#include "reference/delta/mistakes/permits.hpp"
#include "reference/delta/mistakes/tables.hpp"
#include "reference/delta/mistakes/variant.hpp"
#include "reference/delta/rule/gate.hpp"

namespace goldenrule::delta {
namespace {

using call::BetaForm;
using call::Record;
using call::TensorMap;
using contract::Activation;
using contract::Point;

bool has_beta_logit(const Record& r) { return r.convention.beta != BetaForm::kDirect; }
bool is_chunked(const Record& r, std::int64_t tokens) {
  return calls::is_prefill(r) && calls::longest_sequence(r) >= tokens;
}

TensorMap no_delta(const Record& r, const calls::Kernel&) {
  return run_lanes(r, step_variant({.order = kNoDelta}));
}

TensorMap beta_ignored(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_beta(r, [](double, double) { return 1.0; }));
}

TensorMap beta_sigmoid_twice(const Record& r, const calls::Kernel& kernel) {
  const double range = r.convention.beta == BetaForm::kSigmoid2 ? 2.0 : 1.0;
  return kernel(with_beta(r, [&](double, double beta) { return range * sigmoid(beta); }));
}

TensorMap beta_raw_logit(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_beta(r, [](double b, double) { return b; }));
}

TensorMap beta_half(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_beta(r, [](double, double beta) { return 0.5 * beta; }));
}

TensorMap beta_doubled(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_beta(r, [](double, double beta) { return 2.0 * beta; }));
}

TensorMap read_before_update(const Record& r, const calls::Kernel&) {
  return run_lanes(r, step_variant({.order = kReadBeforeUpdate}));
}

TensorMap own_token_unread(const Record& r, const calls::Kernel&) {
  return run_lanes(r, step_variant({.order = kOwnTokenUnread}));
}

TensorMap beta_v_only(const Record& r, const calls::Kernel&) {
  return run_lanes(r, step_variant({.beta_on = BetaOn::kValue}));
}

TensorMap beta_prediction_only(const Record& r, const calls::Kernel&) {
  return run_lanes(r, step_variant({.beta_on = BetaOn::kPrediction}));
}

TensorMap delta_diagonal(const Record& r, const calls::Kernel&) {
  return run_lanes(r, chunk_variant({.inverse = Inverse::kDiagonal}));
}

TensorMap inverse_truncated(const Record& r, const calls::Kernel&) {
  return run_lanes(r, chunk_variant({.inverse = Inverse::kFirstOrder}));
}

TensorMap inverse_fp16_neumann(const Record& r, const calls::Kernel&) {
  return run_lanes(r, chunk_variant({.chunk = 16, .inverse = Inverse::kNeumannFp16}));
}

bool beta_bf16_applies(const Record& r) {
  return has_beta_logit(r) || call::info(r.inputs.at("beta").dtype()).significand_bits > 8;
}
TensorMap beta_bf16(const Record& r, const calls::Kernel& kernel) {
  return kernel(
      with_beta(r, [](double, double beta) { return call::round_to(call::DType::kBF16, beta); }));
}

constexpr calls::Meant kBetaOnce[] = {{"beta", "sigmoid2", "sigmoid"}};
constexpr calls::Meant kBetaTwice[] = {{"beta", "sigmoid", "sigmoid2"}};
constexpr calls::Meant kBetaLogit[] = {{"beta", "direct", "sigmoid"}};

// The rounding of beta is a factor (1 + e), |e| <= 2^-9, of both operands in which beta stands, and
// each of them is granted that for every element.
std::string_view beta_bf16_permitted(const contract::Contract& c) {
  if (keeps_at_most(8, c, Activation::kBeta)) return "beta is rounded to 8 bits";
  if (!keeps_at_most(8, c, Point::kBetaV, Point::kBetaK)) return {};
  return "both operands that beta is a factor of are rounded to 8 bits";
}

constexpr std::string_view kDeltaGroup = "Delta rule";
constexpr std::array kDeltaMistakes{
    calls::Mistake{"no_delta", kDeltaGroup,
                   "the prediction S^T k is not subtracted from v: plain gated linear attention",
                   always, no_delta},
    calls::Mistake{"beta_ignored", kDeltaGroup, "beta is taken as 1", always, beta_ignored},
    calls::Mistake{"beta_sigmoid_twice", kDeltaGroup,
                   "beta goes through a sigmoid once more than it should", always,
                   beta_sigmoid_twice, kBetaLogit},
    calls::Mistake{"beta_raw_logit", kDeltaGroup,
                   "the logit b is used as beta, without its sigmoid", has_beta_logit,
                   beta_raw_logit},
    calls::Mistake{"beta_bf16",
                   kDeltaGroup,
                   "beta is rounded to bf16",
                   beta_bf16_applies,
                   beta_bf16,
                   {},
                   calls::kRounds,
                   beta_bf16_permitted},
    calls::Mistake{"beta_half", kDeltaGroup, "beta is sigmoid(b) where the call says 2 sigmoid(b)",
                   [](const Record& r) { return r.convention.beta == BetaForm::kSigmoid2; },
                   beta_half, kBetaOnce},
    calls::Mistake{"beta_doubled", kDeltaGroup,
                   "beta is doubled, as for eigenvalues below 0, where the call does not say so",
                   [](const Record& r) { return r.convention.beta != BetaForm::kSigmoid2; },
                   beta_doubled, kBetaTwice},
    calls::Mistake{"read_before_update", kDeltaGroup,
                   "o is read from the state before the token's decay and update", always,
                   read_before_update},
    calls::Mistake{"own_token_unread", kDeltaGroup,
                   "o of a token lacks its own write: it is read after the decay and before the "
                   "update, or the mask of q k^T lacks its diagonal",
                   always, own_token_unread},
    calls::Mistake{"beta_v_only", kDeltaGroup,
                   "d = beta v - S^T k: beta does not multiply the prediction", always,
                   beta_v_only},
    calls::Mistake{"beta_prediction_only", kDeltaGroup,
                   "d = v - beta S^T k: beta does not multiply v", always, beta_prediction_only},
    calls::Mistake{
        "delta_diagonal", kDeltaGroup,
        "the matrix A of a chunk keeps its diagonal beta <k, k>: every write is damped by its "
        "own key",
        [](const Record& r) { return is_chunked(r, 1); }, delta_diagonal},
    calls::Mistake{"inverse_truncated", kDeltaGroup,
                   "the inverse (I + A)^-1 of a chunk is cut off after its first order, I - A",
                   [](const Record& r) { return is_chunked(r, 3); }, inverse_truncated},
    calls::Mistake{
        "inverse_fp16_neumann", kDeltaGroup,
        "the inverse of a 16-token chunk is the product (I - L)(I + L^2)(I + L^4)(I + L^8) in "
        "fp16, which cancels or overflows for near-collinear keys",
        [](const Record& r) { return is_chunked(r, 2); }, inverse_fp16_neumann},
};

}  // namespace

std::span<const calls::Mistake> delta_mistakes() { return kDeltaMistakes; }

}  // namespace goldenrule::delta
