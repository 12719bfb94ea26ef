// SPDX-License-Identifier: Apache-2.0
//
// A contract of one's own, as JSON. Everything but the name may be left out:
//
//   {
//     "name": "my_kernel",
//     "meaning": "chunks of 32, fp16 operands",
//     "state": "f32",                     storage of states: f32, bf16 or f16
//     "chunk": 32,                        tokens of a chunk; 0 or absent: token by token
//     "round": {"query": "f16", "key": "f16", "inverse": "bf16", ..},   points of a chunked kernel
//     "unit_roundoff": 5.9604644775390625e-08,                          of a recurrent kernel
//     "functions": {"exp": 2.4e-7, "log_alpha": 4.8e-7, "softplus": 4.8e-7,
//                   "logit": 1.2e-7, "sigmoid": 4.8e-7, "norm": 4.8e-7}
//   }
//
// The names under "round" are those of bounds::Point, the ones under "functions" the fields of
// bounds::FunctionErrors (relative errors but "softplus", which is absolute). `goldenrule budget`
// prints what each of them costs.
#pragma once

#include <filesystem>
#include <string_view>

#include "reference/bounds/contract.hpp"

namespace goldenrule::bounds {

/// Throws Error: kFile for what is no JSON object, kSchema for unknown or missing keys, kType for a
/// value of the wrong type, kValue for one that has no meaning (a chunk below 0, an unknown type).
[[nodiscard]] Contract parse_contract(std::string_view json, const std::string& file);
[[nodiscard]] Contract load_contract(const std::filesystem::path& file);

}  // namespace goldenrule::bounds
