// SPDX-License-Identifier: Apache-2.0
//
// The model of kernels of the backward pass: the adjoint of the chunk form, chunk by chunk, with
// sums in fp32. What they round on the way they round to the type of q, or to what tensor cores
// read of an fp32 operand. Names follow backward/emulation/chunked_adjoint.hpp: D is a decay from
// one token to another, E from the start of the chunk, L to its end, T = (I + A)^-1. In the direct
// form with one gate per head T is that of keys without decays, which T beta D puts back.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "reference/contract/delta_models.hpp"
#include "reference/contract/json_words.hpp"
#include "reference/contract/rounding.hpp"

namespace goldenrule::contract {

/// Where a kernel of the backward pass may round.
enum class AdjointPoint : std::uint8_t {
  kQuery,            ///< q^, the result of the norm
  kKey,              ///< k^
  kBetaV,            ///< beta v, operand of T
  kBetaK,            ///< beta k^ E, operand of T
  kInverse,          ///< T
  kU,                ///< T beta v
  kW,                ///< T beta k^ E
  kState,            ///< h, the state at the start of a chunk, as an operand
  kVNew,             ///< v_new
  kUpdate,           ///< L v_new or (direct) L X (one gate per head), L k^ (per channel)
  kAttention,        ///< P, masked q^ D k^^T
  kLocal,            ///< P^T do
  kCorrection,       ///< du, the gradient by v_new
  kQueryIn,          ///< q^ E, or (direct, one gate per head) do E: in the gradient of the state
  kStateGradient,    ///< dh as an operand
  kPair,             ///< dP D (one gate per head); operands with decays folded in (per channel)
  kPairDiagonal,     ///< on blocks of 16: two products, decays folded about row 8; none: see below
  kKeyIn,            ///< k^ E in the gradient of T (in X, if direct), with beta applied behind it
  kKeyCorrection,    ///< dw
  kInverseGradient,  ///< the gradient by T, before and between its products with T^T
  kErase,            ///< that by A; direct: one triangle of beta times it, and the sum of both
  kKeyHalves,        ///< the parts of dk^ that two kernels leave
  kHeads,            ///< dq^ and dk^ of a value head, before those of a head are added up
  kRepeated,         ///< dq and dk of a value head behind the norm, where q and k are repeated
  kBetaGradient,     ///< the gradient by beta, before that by its logit
  kGateGradient,     ///< da, before it is added up to ddt_bias
  kStateGate,        ///< h dh', the gradient by a chunk's whole decay: products and partial sums
  kEraseKey,         ///< beta k^ of products for z by A (per channel), where beta has 16 bits
  // Of the direct form alone.
  kResidual,          ///< X = v - E k^ h, operand of T
  kInverseBeta,       ///< T beta D
  kUpdateKey,         ///< beta T^T k^, operand of the update
  kRecall,            ///< k^ h in the gradient by E (one gate per head)
  kResidualGradient,  ///< -E dX (one gate per head) or -dX, operand of dh and dk^
  kBetaSummand,       ///< what a pair of tokens adds to the gradient by beta
};
inline constexpr std::size_t kAdjointPoints = 34;
[[nodiscard]] std::string_view name_of(AdjointPoint point);

enum class AdjointRounding : std::uint8_t { kNone, kTypeOfQ, kTF32, kTwoBF16 };
template <>
struct JsonWords<AdjointRounding> {
  static constexpr std::array<std::string_view, 3> kNames{kRoundedToQ, "tf32", "bf16x2"};
  static std::size_t place(AdjointRounding r) { return static_cast<std::size_t>(r) - 1; }
  static AdjointRounding at(std::size_t place) { return static_cast<AdjointRounding>(place + 1); }
};

/// By chunks of tokens. Without a rounding at kPairDiagonal pairs on the diagonal are element by
/// element in fp32.
struct ChunkedAdjoint {
  static constexpr auto kFamily = call::Family::kBackward;
  double unit_roundoff = kFp32;  ///< of products and sums
  std::int64_t chunk = 64;       ///< tokens of a chunk, at least 1
  Form form = Form::kWY;         ///< direct: v_new = T beta D X, without u and w
  std::array<AdjointRounding, kAdjointPoints> points{};

  [[nodiscard]] AdjointRounding at(AdjointPoint p) const {
    return points[static_cast<std::size_t>(p)];
  }
};

/// Visits every key that a contract of this model has in JSON, as f(path, field).
template <class C, class M, class F>
requires std::same_as<std::remove_const_t<M>, ChunkedAdjoint>
void for_each_key(C& contract, M& model, F&& f) {
  f("unit_roundoff", model.unit_roundoff);
  f("chunk", model.chunk);
  f("form", model.form);
  for (std::size_t i = 0; i < kAdjointPoints; ++i) {
    f("adjoint." + std::string(name_of(static_cast<AdjointPoint>(i))), model.points[i]);
  }
  for_each_function(contract.functions, [&](std::string_view name, auto& error) {
    f("functions." + std::string(name), error);
  });
}

/// What is wrong with a contract of this model, whose values are legal one by one.
[[nodiscard]] std::optional<Misfit> misfit(const ChunkedAdjoint& model);

struct Contract;
/// The contracts that kernels of the backward pass alone may declare.
[[nodiscard]] std::vector<Contract> backward_contracts();

/// Whether whatever keeps `a` keeps `b` as well: every value is rounded no more. Two terms of
/// bf16 have more digits than tf32, and that more than the types of q that are rounded to.
[[nodiscard]] bool is_no_wider(const ChunkedAdjoint& a, const ChunkedAdjoint& b);

}  // namespace goldenrule::contract
