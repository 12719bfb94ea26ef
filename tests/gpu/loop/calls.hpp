// SPDX-License-Identifier: Apache-2.0
//
// The calls of the loop as records.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fixtures/call/record.hpp"
#include "tests/gpu/loop/model.hpp"

namespace goldenrule::test::loop {

/// A projection of every token: [tokens.., width..]; NaN for a token that is padding (position -1).
[[nodiscard]] call::Tensor projected(const std::string& name, call::DType type, call::Shape shape,
                                     std::span<const Hidden> tokens);

/// The inputs of the delta rule over tokens [B,T], or packed [tokens] where T is 0, without states.
[[nodiscard]] call::Record delta_record(call::Mode mode, std::span<const Hidden> tokens,
                                        std::int64_t T);

/// Attention of `model` ("draft" or "target") over these queries, `each` per request.
[[nodiscard]] call::Record attention_record(call::Mode mode, const std::string& model,
                                            std::span<const Hidden> queries,
                                            const std::vector<std::int64_t>& bounds);
/// Greedy draft acceptance of the rows, up to a stop token.
[[nodiscard]] call::Record acceptance_record(const std::vector<std::int64_t>& starts,
                                             const std::vector<std::int64_t>& drafts,
                                             const std::vector<std::int64_t>& chosen);
/// Key or value ("k", "v") of a token.
[[nodiscard]] std::vector<double> key_of(const std::string& model, const char* which,
                                         const Hidden& hidden);

}  // namespace goldenrule::test::loop
