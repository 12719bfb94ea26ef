// SPDX-License-Identifier: Apache-2.0
//
// A contract while it is being written: what the keys of a JSON file and of its base say, of all
// models together. The order of keys has no meaning and a base may be of another kind, so whether
// they fit one model is known only when all have been read. Internal to reading
// (contract_json.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "reference/contract/contract.hpp"

namespace goldenrule::contract {

/// What a point of attention, or of the backward pass, rounds to, in JSON.
inline constexpr std::string_view kTypeOfQ = "type of q";

struct Draft {
  std::string name, meaning;
  std::size_t kind = 0;  ///< place in kModelNames
  std::optional<call::DType> state{};
  std::int64_t chunk = 0;    ///< 0: none
  std::int64_t segment = 0;  ///< 0: none
  Form form = Form::kWY;
  double unit_roundoff = 0.0;  ///< 0: none
  std::array<Rounding, kPoints> rounding{};
  FunctionErrors functions{};
  std::array<bool, kSoftmaxPoints> softmax_rounds{};  ///< of an attention kernel: to the type of q
  std::array<AdjointRounding, kAdjointPoints> adjoint{};  ///< of one of the backward pass
  double exp2 = 0.0, tanh = 0.0;                          ///< errors of its functions

  [[nodiscard]] bool is(std::string_view model) const { return kModelNames[kind] == model; }
};

[[nodiscard]] Draft draft_of(const Contract& contract);

/// What a draft says that its kind cannot have.
struct Misfit {
  std::string where, expected, actual;
};
/// The first of them; nothing: the draft fits its kind.
[[nodiscard]] std::optional<Misfit> misfit(const Draft& draft);

/// The contract of a draft that fits its kind.
[[nodiscard]] Contract contract_of(const Draft& draft);

}  // namespace goldenrule::contract
