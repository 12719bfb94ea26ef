// SPDX-License-Identifier: Apache-2.0
//
// Parts of the JSON of a report that more than one section has.
#pragma once

#include <nlohmann/json.hpp>

#include "reference/verdict/coordinates.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::report {

/// JSON has no NaN and no infinity: they are the strings "nan", "inf" and "-inf", which float() of
/// Python takes.
[[nodiscard]] nlohmann::ordered_json json_number(double x);
/// {"sequence": 2, "token": 17}
[[nodiscard]] nlohmann::ordered_json named(const verdict::Coordinates& coordinates);
[[nodiscard]] nlohmann::ordered_json worst_json(const verdict::Worst& worst);
[[nodiscard]] nlohmann::ordered_json tensor_json(const verdict::TensorReport& tensor);

}  // namespace goldenrule::report
