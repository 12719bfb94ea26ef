// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <vector>

#include "reference/backward/mistakes/mistake.hpp"

namespace goldenrule::backward {
namespace {

using contract::AdjointPoint;

// Why a contract permits a rounding: it declares one of that value.
template <AdjointPoint point>
std::string_view declared_at(const contract::Contract& contract) {
  const contract::ChunkedAdjoint* adjoint = contract.adjoint();
  const bool rounds =
      adjoint != nullptr && adjoint->at(point) == contract::AdjointRounding::kTypeOfQ;
  return rounds ? "the contract rounds this value to the type of q" : "";
}

struct Permit {
  std::string_view name;
  std::string_view (*permitted_by)(const contract::Contract& contract);
};
constexpr std::array kPermits{
    Permit{"state_tape_f16", declared_at<AdjointPoint::kState>},
    Permit{"ddt_bias_of_stored", declared_at<AdjointPoint::kGateGradient>},
    Permit{"group_sum_bf16", declared_at<AdjointPoint::kHeads>},
    Permit{"dbeta_bf16", declared_at<AdjointPoint::kBetaGradient>},
};

}  // namespace

std::span<const calls::Mistake> mistakes() {
  static const std::vector<calls::Mistake> all = [] {
    std::vector<calls::Mistake> joined;
    for (const auto part : {state_mistakes(), output_mistakes(), adjoint_mistakes(),
                            gate_sum_mistakes(), gate_chain_mistakes(), row_chain_mistakes()}) {
      joined.insert(joined.end(), part.begin(), part.end());
    }
    for (calls::Mistake& mistake : joined) {
      const auto* permit = std::ranges::find(kPermits, mistake.name, &Permit::name);
      if (permit != kPermits.end()) mistake.permitted_by = permit->permitted_by;
    }
    return joined;
  }();
  return all;
}

}  // namespace goldenrule::backward
