// SPDX-License-Identifier: Apache-2.0
//
// The contracts of attention.
#include <array>
#include <initializer_list>

#include "reference/contract/contract.hpp"

namespace goldenrule::contract {
namespace {

Contract softmax(const char* name, const char* meaning,
                 std::initializer_list<SoftmaxPoint> rounded) {
  Softmax model;
  for (const SoftmaxPoint point : rounded) model.rounds[static_cast<std::size_t>(point)] = true;
  return {.name = name, .meaning = meaning, .model = model};
}

}  // namespace

std::vector<Contract> attention_contracts() {
  return {
      // FlashAttention 2 and 3, cuDNN, Triton, Diffulex, SGLang.
      softmax("flash_bf16",
              "attention in fp32; the weights are rounded to the type of q for the product with V, "
              "not in the sum that divides",
              {SoftmaxPoint::kWeights}),
      // FlashInfer's tensor-core kernels: the row sum is a product with the rounded fragment.
      softmax("flash_bf16_rounded_sum", "as flash_bf16; the sum is one of the rounded weights",
              {SoftmaxPoint::kWeights, SoftmaxPoint::kSum}),
      // Three calls of a framework, each of which stores its result.
      softmax("eager_bf16",
              "attention whose products, scaled scores and normalised weights are stored in the "
              "type of q",
              {SoftmaxPoint::kScores, SoftmaxPoint::kWeights}),
  };
}

std::string_view name_of(SoftmaxPoint point) {
  constexpr std::array<std::string_view, kSoftmaxPoints> kNames{"scores", "weights", "sum"};
  return kNames[static_cast<std::size_t>(point)];
}

std::optional<Misfit> misfit(const Softmax& c) {
  if (const auto found = misfit_of_unit(c.unit_roundoff, "attention")) return found;
  if (c.at(SoftmaxPoint::kScores) && !c.at(SoftmaxPoint::kWeights)) {
    return Misfit{"round.scores", "rounded weights beside stored scores", "weights that are not"};
  }
  if (c.at(SoftmaxPoint::kSum) && (!c.at(SoftmaxPoint::kWeights) || c.at(SoftmaxPoint::kScores))) {
    return Misfit{"round.sum", "rounded weights beside it, and no stored scores",
                  c.at(SoftmaxPoint::kScores) ? "stored scores" : "weights that are not rounded"};
  }
  return std::nullopt;
}

bool is_no_wider(const Softmax& a, const Softmax& b) {
  return a.rounds == b.rounds && a.unit_roundoff <= b.unit_roundoff &&
         a.exp2_error <= b.exp2_error && a.tanh_error <= b.tanh_error;
}

}  // namespace goldenrule::contract
