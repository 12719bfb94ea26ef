// SPDX-License-Identifier: Apache-2.0
//
// The contracts of the backward pass.
#include <array>
#include <initializer_list>
#include <span>

#include "reference/contract/contract.hpp"

namespace goldenrule::contract {
namespace {

using enum AdjointPoint;

// What kernels of 16-bit inputs hand to tensor cores.
constexpr std::array kOperands{
    kQuery,         kKey,   kBetaV,         kBetaK,           kInverse,      kU,           kW,
    kState,         kVNew,  kUpdate,        kAttention,       kLocal,        kCorrection,  kQueryIn,
    kStateGradient, kKeyIn, kKeyCorrection, kInverseGradient, kBetaGradient, kGateGradient};

struct RoundedPoint {
  AdjointPoint at;
  AdjointRounding to;
};

Contract adjoint(const char* name, const char* meaning, std::span<const AdjointPoint> to_type_of_q,
                 std::initializer_list<RoundedPoint> others = {}) {
  ChunkedAdjoint model;
  for (const AdjointPoint p : to_type_of_q) {
    model.points[static_cast<std::size_t>(p)] = AdjointRounding::kTypeOfQ;
  }
  for (const RoundedPoint& point : others)
    model.points[static_cast<std::size_t>(point.at)] = point.to;
  return {.name = name, .meaning = meaning, .functions = kFastFp32, .model = model};
}

Contract adjoint16(const char* name, const char* meaning) {
  constexpr auto kQ = AdjointRounding::kTypeOfQ;
  ChunkedAdjoint model{.chunk = 16};
  for (const AdjointPoint p : kOperands) model.points[static_cast<std::size_t>(p)] = kQ;
  model.points[static_cast<std::size_t>(kPairDiagonal)] = kQ;
  model.points[static_cast<std::size_t>(kGateGradient)] = AdjointRounding::kNone;
  return {.name = name, .meaning = meaning, .functions = kFastFp32, .model = model};
}

Contract direct(const char* name, const char* meaning) {
  constexpr std::array kRounded{kQuery,
                                kKey,
                                kInverse,
                                kInverseBeta,
                                kState,
                                kResidual,
                                kVNew,
                                kUpdate,
                                kUpdateKey,
                                kAttention,
                                kCorrection,
                                kRecall,
                                kResidualGradient,
                                kQueryIn,
                                kStateGradient,
                                kPair,
                                kInverseGradient,
                                kErase,
                                kBetaSummand,
                                kHeads,
                                kBetaGradient};
  Contract contract = adjoint(name, meaning, kRounded);
  std::get<ChunkedAdjoint>(contract.model).form = Form::kDirect;
  return contract;
}

}  // namespace

std::vector<Contract> backward_contracts() {
  constexpr auto kQ = AdjointRounding::kTypeOfQ;
  return {
      // Automatic differentiation of an implementation in fp32.
      adjoint("adjoint_f32", "gradients in fp32 throughout, by chunks of tokens or one by one", {}),
      // The torch functions of transformers 5.24 under autograd (the model of Qwen3-Next).
      // q and k are repeated for the value heads in the type that they come in (409), and cast to
      // fp32 (414), in which norm (419), products and solves are. On the way back the adjoint of
      // the cast rounds, behind that of the norm, and that of the repetition adds up in fp32. With
      // fp32 inputs, or as many heads of q as of v, it is adjoint_f32.
      adjoint("adjoint_f32_repeated_heads",
              "as adjoint_f32; dq and dk of each value head are rounded to the type of q before "
              "those of a head are added up",
              {}, {{kRepeated, kQ}}),
      // flash-linear-attention's KDA. The product of two bf16 tiles is a bf16 tile: beta k^ on one
      // side of a pair, and h dh', which is added up so too (reference/disputes.md).
      adjoint("adjoint64_fp32_pairs",
              "chunks of 64 tokens, operands in the type of q, pairs of tokens in fp32 on the "
              "diagonal blocks and in tf32 beside them, gradients in fp32 to the end",
              kOperands, {{kPair, AdjointRounding::kTF32}, {kStateGate, kQ}, {kEraseKey, kQ}}),
      // The same with safe_gate. On an H100 (Triton 3.6) the errors of da near the bound of the
      // gate are those of operands with 17 significant bits: 4.9 % of the elements are off by half
      // of themselves, 4.7 % emulated so. With tf32 it would be 48 %, with 15 bits 12 %.
      adjoint("adjoint64_two_factors",
              "as adjoint64_fp32_pairs; pairs on the diagonal blocks as two products with decays "
              "folded into operands of two bf16 terms, which cancel but for their roundings",
              kOperands,
              {{kPair, AdjointRounding::kTF32},
               {kPairDiagonal, AdjointRounding::kTwoBF16},
               {kStateGate, kQ},
               {kEraseKey, kQ}}),
      // cuDNN's KDA (its frost kernel kda_bprop_f16): chunks of one block, whose
      // pairs are two products of 16-bit operands with decays folded in, k e^H and k / e^H; dg is
      // q dq + k (2 dk of the decayed keys - dk) in fp32; dbeta is in the type of q only where it
      // goes on to a logit, and ddt_bias adds up what was not rounded.
      adjoint16(
          "adjoint16_two_factors",
          "chunks of 16 tokens, operands in the type of q, pairs of tokens as two products of "
          "such operands with decays folded in, which cancel but for their roundings; "
          "gradients in fp32 to the end"),
      // flash-linear-attention's GDN: one rounded dP D for both sides of a pair.
      adjoint("adjoint64_16bit_pairs",
              "chunks of 64 tokens, operands in the type of q, one rounded factor for both sides "
              "of a pair of tokens, gradients of a value head stored in the type of q",
              kOperands, {{kPair, kQ}, {kErase, kQ}, {kKeyHalves, kQ}, {kHeads, kQ}}),
      // FlashQLA's GDN (c18a486, its kernels fused_bwd and prepare_h for sm90), as its source
      // rounds.
      // T is inverted without decays, which the rows and columns of dP P and of the gradient by
      // T beta D bring into dg in fp32. P^T do stays in the accumulator of L k^ dh', and beta is
      // in T: nothing is rounded at local, beta_v and beta_k. The kernel takes beta and log alpha;
      // their own inputs are differentiated outside, beta's in the type that it has. A kernel that
      // drops what has decayed (auto_cp) does more than this.
      direct("adjoint64_direct",
             "chunks of 64 tokens in the direct form: T of keys without decays, operands and the "
             "gradients of a value head in the type of q, gradients of gates in fp32 to the end"),
  };
}

std::string_view name_of(AdjointPoint point) {
  constexpr std::array<std::string_view, kAdjointPoints> kNames{"query",
                                                                "key",
                                                                "beta_v",
                                                                "beta_k",
                                                                "inverse",
                                                                "u",
                                                                "w",
                                                                "state_operand",
                                                                "v_new",
                                                                "update",
                                                                "attention",
                                                                "local",
                                                                "correction",
                                                                "query_in",
                                                                "state_gradient",
                                                                "pair",
                                                                "pair_diagonal",
                                                                "key_in",
                                                                "dw",
                                                                "inverse_gradient",
                                                                "erase",
                                                                "key_halves",
                                                                "heads",
                                                                "repeated",
                                                                "beta_gradient",
                                                                "gate_gradient",
                                                                "state_gate",
                                                                "erase_key",
                                                                "residual",
                                                                "inverse_beta",
                                                                "update_key",
                                                                "recall",
                                                                "residual_gradient",
                                                                "beta_summand"};
  return kNames[static_cast<std::size_t>(point)];
}

std::optional<Misfit> misfit(const ChunkedAdjoint& c) {
  return misfit_of_unit(c.unit_roundoff, "the backward pass");
}

bool is_no_wider(const ChunkedAdjoint& a, const ChunkedAdjoint& b) {
  const auto coarseness = [](AdjointRounding r) {
    constexpr std::array<int, 4> kOf{0, 3, 2, 1};  // in the order of AdjointRounding
    return kOf[static_cast<std::size_t>(r)];
  };
  ChunkedAdjoint granted = b;
  // The adjoint of the norm enlarges no error: behind it a rounding costs no more than before it.
  const auto repeated = static_cast<std::size_t>(kRepeated);
  if (coarseness(b.at(kHeads)) > coarseness(b.at(kRepeated))) {
    granted.points[repeated] = b.at(kHeads);
  }
  for (std::size_t i = 0; i < kAdjointPoints; ++i) {
    if (coarseness(a.points[i]) > coarseness(granted.points[i])) return false;
  }
  return a.chunk == b.chunk && a.form == b.form && a.unit_roundoff <= b.unit_roundoff;
}

}  // namespace goldenrule::contract
