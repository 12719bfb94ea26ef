// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/mistakes/permitted_by.hpp"

namespace goldenrule::delta {
namespace {

// Significand bits that a rounding keeps; 53 where nothing is rounded.
int bits(const contract::Rounding& rounding) {
  return rounding ? contract::info(*rounding).significand_bits : 53;
}

}  // namespace

std::string permitted_by(std::string_view name, const contract::Contract& contract) {
  using contract::Activation;
  using contract::Point;
  // The rounded 1 + exp(x) is off by 2^-24 up to x = 0 and by 2^-24 of itself beyond, and so is its
  // logarithm: 2^-24 at most.
  if (name == "softplus_no_log1p" && contract.functions.softplus >= 0x1p-24) {
    return "softplus may be off by 2^-24 and more, which is what the rounded 1 + exp(x) costs";
  }
  const contract::Chunked* chunked = contract.chunked();
  if (chunked == nullptr) return {};
  constexpr int kBF16 = 8;
  const auto narrow = [&](auto... points) { return ((bits(chunked->at(points)) <= kBF16) && ...); };
  // tf32 keeps 11 bits and truncates: an error of at most 2^-10, where rounding to 8 bits grants
  // 2^-9.
  if (name == "tf32_operands" &&
      narrow(Activation::kQuery, Activation::kKey, Point::kStateOperand)) {
    return "q, k and the state operand are rounded to 8 bits, tf32 keeps 11";
  }
  // Rounding the sum of squares, its reciprocal root and the products to bf16 leaves a factor
  // (1 + e) common to a row, |e| <= 2^-10 + 2^-9, and 2^-9 per element. The budget grants each
  // element of q^ and k^ (and everything made of them) its 2^-9 about lambda / sqrt(3) >= 3 times.
  if (name == "norm_bf16" && narrow(Activation::kQuery, Activation::kKey)) {
    return "q^ and k^ are rounded to 8 bits, and the budget covers several such errors; what bf16 "
           "arithmetic adds is a factor within 1.5 of them";
  }
  // o is a sum of products of operands that are rounded to 8 bits themselves, v_new among them,
  // whose error is common to all keys of a value column and so reaches o undiminished.
  if (name == "output_bf16_for_fp16" &&
      narrow(Point::kVNew, Point::kAttention, Point::kStateOperand)) {
    return "o is made of operands that are rounded to 8 bits, and the budget covers several such "
           "errors";
  }
  if (name == "gate_sum_f32" && bits(chunked->at(Point::kGateSum)) <= 24) {
    return "cumulated gates are rounded to 24 bits before differences of them are taken";
  }
  // The rounding of beta is a factor (1 + e), |e| <= 2^-9, of both operands in which beta stands,
  // and each of them is granted that for every element.
  if (name == "beta_bf16" && narrow(Point::kBetaV, Point::kBetaK)) {
    return "both operands that beta is a factor of are rounded to 8 bits";
  }
  // A log gate that is off by 2^-9 of itself moves a decay e^-G by at most G e^-G 2^-9 <= 2^-9 / e
  // of what decays. That is rounded to 2^-9 of itself where operands carry the decays, and once
  // more where the state is carried from chunk to chunk. Not a proof for numbers that have decayed
  // far: of all suites and of calls without writes and with gates to -20 the worst took .68 of its
  // budget.
  if (name == "gate_bf16" && narrow(Point::kIntra, Point::kCarriedState)) {
    return "operands that carry the decays, and the state of every chunk, are rounded to 8 bits";
  }
  return {};
}

}  // namespace goldenrule::delta
