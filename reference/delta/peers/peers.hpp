// SPDX-License-Identifier: Apache-2.0
//
// How other projects decide, on the inputs that they draw: FLA, FlashKDA, FlashInfer, SGLang, vLLM,
// ggml, and DeepGEMM's metric. A rule is only as good as its inputs, so the two belong together:
// each peer is a list of small calls filled from its own distributions (heads and rows are fewer
// than in its tests) with the rule that it applies to them. Versions: flash-linear-attention
// bc3b101, FlashKDA 1ce47ea, FlashInfer fb28d72, ggml d99724f, DeepGEMM 54e2261; SGLang and vLLM as
// of 2026.
#pragma once

#include <string>
#include <vector>

#include "fixtures/call/record.hpp"

namespace goldenrule::peers {

/// Whether a kernel's outputs pass. `exact` is f64, `right` what a right kernel stores.
using PeerRule = bool (*)(const call::TensorMap& outputs, const call::TensorMap& exact,
                          const call::TensorMap& right);

struct PeerCase {
  call::Record record;
  std::string contract;  ///< by which this project judges the same call
  PeerRule rule;
};

struct Peer {
  std::string name, rule, inputs;  ///< for the table
  std::vector<PeerCase> cases;
  /// Mistakes that its own reference makes too, and which it therefore cannot see.
  std::vector<std::string> shared;
};

[[nodiscard]] std::vector<Peer> peers();

}  // namespace goldenrule::peers
