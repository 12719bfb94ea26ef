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
#include <span>
#include <string>
#include <string_view>

#include "reference/contract/contract.hpp"

namespace goldenrule::contract {

/// Models that a file can describe: contracts of attention are built in.
inline constexpr std::span<const std::string_view> kDraftedModels(kModelNames.data(), 3);

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

  [[nodiscard]] bool is(std::string_view model) const { return kModelNames[kind] == model; }
};

[[nodiscard]] Draft draft_of(const Contract& contract);
/// Of the built-in contract of that name. Throws Error where there is none that a file can
/// describe.
[[nodiscard]] Draft draft_of_built_in(std::string_view name);

/// The contract of a draft that fits its kind: whatever that kind cannot have is not there.
[[nodiscard]] Contract contract_of(const Draft& draft);

}  // namespace goldenrule::contract
