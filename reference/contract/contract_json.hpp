// SPDX-License-Identifier: Apache-2.0
//
// A contract of one's own, as JSON:
//
//   {
//     "name": "my_kernel",
//     "base": "chunk64_bf16",             everything that is not given is the base's
//     "inherits": ["functions", "state"], optional: only these are
//     "meaning": "chunks of 32, fp16 operands",
//     "kind": "chunked",                  ideal, recurrent, chunked or softmax
//     "state": "f32",                     storage of states: f32, bf16, f16; null: what is there
//     "chunk": 32,                        tokens of a chunk
//     "segment": 512,                     optional: longer sequences may be walked in segments of
//                                         so many tokens or more (delta/emulation/segments.hpp)
//     "form": "wy",                       of a chunked kernel: wy or direct (contract::Form)
//     "unit_roundoff": 5.9604644775390625e-08,    of state, products and sums
//     "round": {"query": "f16", "inverse": null}, f32, tf32, f16, bf16, any16, bf16x2;
//                                         null: none
//     "functions": {"exp": 2.4e-7, "log": 4.8e-7, "log_alpha": 4.8e-7, "softplus": 4.8e-7,
//                   "logit": 1.2e-7, "sigmoid": 4.8e-7, "norm": 4.8e-7}
//   }
//
// and for a kernel of attention
//
//   {
//     "name": "my_attention",
//     "kind": "softmax",                  base: flash_bf16, for instance
//     "unit_roundoff": 5.9604644775390625e-08,    sums are fp32: no other value
//     "round": {"weights": "type of q"},  scores, weights, sum (contract::SoftmaxPoint); null: none
//     "functions": {"exp2": 2.4e-7, "tanh": 4.9e-4}       relative errors
//   }
//
// and for a kernel of the backward pass
//
//   {
//     "name": "my_gradients",
//     "kind": "chunked_adjoint",          base: adjoint64_fp32_pairs, for instance
//     "chunk": 64,
//     "form": "wy",                       wy or direct
//     "unit_roundoff": 5.9604644775390625e-08,    sums are fp32: no other value
//     "adjoint": {"pair": "tf32", "u": "type of q"},      names of contract::AdjointPoint; null:
//                                         not rounded
//     "functions": {"exp": 2.4e-7, ..}
//   }
//
// The names under "round" are those of contract::Point, the ones under "functions" the fields of
// contract::FunctionErrors (relative errors but "log" and "softplus", which are absolute). Without
// a base, name and kind must be given, and unit_roundoff wherever the kind is not ideal: silence
// would mean exact arithmetic. `goldenrule contract NAME` prints a built-in contract in this form,
// `goldenrule budget` what each point costs. A base of another kind may have keys that this kind
// has not: they are refused unless they are 0 or null.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "reference/contract/contract.hpp"

namespace goldenrule::contract {

/// Throws Error: kFile for what is no JSON object, kSchema for unknown, repeated or missing keys,
/// kType for a value of the wrong type, kValue for one that has no meaning (a chunk below 1, an
/// unknown format, a name that is not made of letters, digits and "_.+-" or that a built-in
/// contract has) or that contracts of this kind do not have.
[[nodiscard]] Contract parse_contract(std::string_view json, const std::string& file);
[[nodiscard]] Contract load_contract(const std::filesystem::path& file);

/// All of a contract as JSON, with a newline at its end.
[[nodiscard]] std::string to_json(const Contract& contract);

}  // namespace goldenrule::contract
