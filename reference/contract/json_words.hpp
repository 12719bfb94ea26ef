// SPDX-License-Identifier: Apache-2.0
//
// What the models of contracts say of their own keys in JSON, so that reading, printing and
// refusing are one walk over them (contract_json.cpp) and a new model changes none of these.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "fixtures/call/dtype.hpp"
#include "reference/contract/rounding.hpp"

namespace goldenrule::contract {

/// What a kernel rounds to whose operands have the type of q, whichever that is.
inline constexpr std::string_view kRoundedToQ = "type of q";

/// A type whose values are words in JSON: `kNames`; the place of a value among them; the value at
/// a place. The place of a value without a word, which JSON writes as null, is no place of kNames.
template <class T>
struct JsonWords;

template <>
struct JsonWords<bool> {
  static constexpr std::array<std::string_view, 1> kNames{kRoundedToQ};
  static std::size_t place(bool rounds) { return rounds ? 0 : kNames.size(); }
  static bool at(std::size_t /*place*/) { return true; }
};

template <>
struct JsonWords<Rounding> {
  static constexpr auto kNames = kFormatNames;
  static std::size_t place(const Rounding& r) {
    return r ? static_cast<std::size_t>(*r) : kNames.size();
  }
  static Rounding at(std::size_t place) { return static_cast<Format>(place); }
};

/// Of states.
template <>
struct JsonWords<std::optional<call::DType>> {
  static constexpr std::array kTypes{call::DType::kF32, call::DType::kF16, call::DType::kBF16};
  static constexpr std::array<std::string_view, 3> kNames{"f32", "f16", "bf16"};
  static std::size_t place(const std::optional<call::DType>& type) {
    return type ? static_cast<std::size_t>(std::ranges::find(kTypes, *type) - kTypes.begin())
                : kNames.size();
  }
  static std::optional<call::DType> at(std::size_t place) { return kTypes.at(place); }
};

/// What a contract says that it cannot, though each of its values is legal.
struct Misfit {
  std::string where, expected, actual;
};

/// Of a family whose budgets are derived for sums in fp32 alone.
[[nodiscard]] std::optional<Misfit> misfit_of_unit(double unit_roundoff, std::string_view family);

}  // namespace goldenrule::contract
