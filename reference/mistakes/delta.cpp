// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in the delta rule itself and in the inverse of its chunk form.
#include <array>

#include "reference/mistakes/groups.hpp"
#include "reference/mistakes/inputs.hpp"
#include "reference/mistakes/variant.hpp"
#include "reference/rule/gate.hpp"

namespace goldenrule::mistakes {
namespace {

using call::BetaForm;
using call::Record;
using call::TensorMap;

bool always(const Record&) { return true; }
bool has_beta_logit(const Record& r) { return r.convention.beta != BetaForm::kDirect; }
bool is_chunked(const Record& r, std::int64_t tokens) {
  return is_prefill(r) && longest_sequence(r) >= tokens;
}

TensorMap no_delta(const Record& r, const Kernel&) {
  return run_lanes(r, step_variant({.delta = false}));
}

TensorMap beta_ignored(const Record& r, const Kernel& kernel) {
  return kernel(with_beta(r, [](double, double) { return 1.0; }));
}

TensorMap beta_sigmoid_twice(const Record& r, const Kernel& kernel) {
  const double range = r.convention.beta == BetaForm::kSigmoid2 ? 2.0 : 1.0;
  return kernel(with_beta(r, [&](double, double beta) { return range * rule::sigmoid(beta); }));
}

TensorMap beta_raw_logit(const Record& r, const Kernel& kernel) {
  return kernel(with_beta(r, [](double b, double) { return b; }));
}

TensorMap beta_half(const Record& r, const Kernel& kernel) {
  return kernel(with_beta(r, [](double, double beta) { return 0.5 * beta; }));
}

TensorMap beta_doubled(const Record& r, const Kernel& kernel) {
  return kernel(with_beta(r, [](double, double beta) { return 2.0 * beta; }));
}

TensorMap read_before_update(const Record& r, const Kernel&) {
  return run_lanes(r, step_variant({.read_updated = false}));
}

TensorMap delta_diagonal(const Record& r, const Kernel&) {
  return run_lanes(r, chunk_variant({.inverse = Inverse::kDiagonal}));
}

TensorMap inverse_truncated(const Record& r, const Kernel&) {
  return run_lanes(r, chunk_variant({.inverse = Inverse::kFirstOrder}));
}

TensorMap inverse_fp16_neumann(const Record& r, const Kernel&) {
  return run_lanes(r, chunk_variant({.chunk = 16, .inverse = Inverse::kNeumannFp16}));
}

bool beta_bf16_applies(const Record& r) {
  return has_beta_logit(r) || call::info(r.inputs.at("beta").dtype()).significand_bits > 8;
}
TensorMap beta_bf16(const Record& r, const Kernel& kernel) {
  return kernel(
      with_beta(r, [](double, double beta) { return call::round_to(call::DType::kBF16, beta); }));
}

constexpr Meant kBetaOnce[] = {{"beta", "sigmoid2", "sigmoid"}};
constexpr Meant kBetaTwice[] = {{"beta", "sigmoid", "sigmoid2"}};
constexpr Meant kBetaLogit[] = {{"beta", "direct", "sigmoid"}};

constexpr std::string_view kGroup = "Delta rule";
constexpr std::array kTable{
    Mistake{"no_delta", kGroup,
            "the prediction S^T k is not subtracted from v: plain gated linear attention", always,
            no_delta},
    Mistake{"beta_ignored", kGroup, "beta is taken as 1", always, beta_ignored},
    Mistake{"beta_sigmoid_twice", kGroup, "beta goes through a sigmoid once more than it should",
            always, beta_sigmoid_twice, kBetaLogit},
    Mistake{"beta_raw_logit", kGroup, "the logit b is used as beta, without its sigmoid",
            has_beta_logit, beta_raw_logit},
    Mistake{
        "beta_bf16", kGroup, "beta is rounded to bf16", beta_bf16_applies, beta_bf16, {}, kRounds},
    Mistake{"beta_half", kGroup, "beta is sigmoid(b) where the call says 2 sigmoid(b)",
            [](const Record& r) { return r.convention.beta == BetaForm::kSigmoid2; }, beta_half,
            kBetaOnce},
    Mistake{"beta_doubled", kGroup,
            "beta is doubled, as for eigenvalues below 0, where the call does not say so",
            [](const Record& r) { return r.convention.beta != BetaForm::kSigmoid2; }, beta_doubled,
            kBetaTwice},
    Mistake{"read_before_update", kGroup,
            "o is read from the state before the token's decay and update", always,
            read_before_update},
    Mistake{"delta_diagonal", kGroup,
            "the matrix A of a chunk keeps its diagonal beta <k, k>: every write is damped by its "
            "own key",
            [](const Record& r) { return is_chunked(r, 1); }, delta_diagonal},
    Mistake{"inverse_truncated", kGroup,
            "the inverse (I + A)^-1 of a chunk is cut off after its first order, I - A",
            [](const Record& r) { return is_chunked(r, 3); }, inverse_truncated},
    Mistake{"inverse_fp16_neumann", kGroup,
            "the inverse of a 16-token chunk is the product (I - L)(I + L^2)(I + L^4)(I + L^8) in "
            "fp16, which cancels or overflows for near-collinear keys",
            [](const Record& r) { return is_chunked(r, 2); }, inverse_fp16_neumann},
};

}  // namespace

std::span<const Mistake> delta_mistakes() { return kTable; }

}  // namespace goldenrule::mistakes
