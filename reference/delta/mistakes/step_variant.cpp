// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "fixtures/call/dtype.hpp"
#include "reference/delta/mistakes/variant.hpp"

namespace goldenrule::delta {
namespace {

using Row = Eigen::RowVectorXd;

// tf32 has the exponent of fp32 and 10 fraction bits; a tensor core ignores the bits below.
double truncated_tf32(double x) {
  constexpr std::uint64_t kFractionBelow = (std::uint64_t{1} << 42) - 1;
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & ~kFractionBelow);
}

Matrix<double> operand(const StepVariant& variant, const Matrix<double>& x) {
  return variant.tf32_operands ? Matrix<double>(x.unaryExpr(&truncated_tf32)) : x;
}
Row operand(const StepVariant& variant, const Row& x) {
  return variant.tf32_operands ? Row(x.unaryExpr(&truncated_tf32)) : x;
}

Matrix<double> decayed(const StepVariant& variant, const Lane<double>& lane, std::int64_t t,
                       const Matrix<double>& state) {
  Matrix<double> result = state;
  for (std::int64_t i = 0; i < state.rows(); ++i) {
    if (variant.gate_by_value) {
      for (std::int64_t x = 0; x < state.cols(); ++x) result(i, x) *= lane.alpha_at(t, x % lane.K);
    } else {
      result.row(i) *= lane.alpha_at(t, i);
    }
  }
  return result;
}

// d of token t from the state that predicts.
Row correction(const StepVariant& variant, const Lane<double>& lane, const Matrix<double>& v,
               std::int64_t t, const Matrix<double>& state) {
  if (t < lane.given) return v.row(t);
  const Row k = Eigen::Map<const Row>(lane.k_row(t), lane.K);
  const double beta = lane.beta[static_cast<std::size_t>(t)];
  Row d = v.row(t);
  if (variant.beta_on == BetaOn::kValue) d *= beta;
  if (variant.delta) {
    Row prediction = operand(variant, k) * operand(variant, state);
    if (variant.beta_on == BetaOn::kPrediction) prediction *= beta;
    d -= prediction;
  }
  if (variant.beta_on == BetaOn::kBoth) d *= beta;
  return d;
}

void step(const StepVariant& variant, const Lane<double>& lane, const Matrix<double>& v,
          std::int64_t t, Matrix<double>& state, Matrix<double>& o, Matrix<double>& d) {
  const Row k = Eigen::Map<const Row>(lane.k_row(t), lane.K);
  const Row q = operand(variant, Row(Eigen::Map<const Row>(lane.q_row(t), lane.K)));
  const auto read = [&] { o.row(t) = q * operand(variant, state); };
  if (!variant.read_updated && !variant.read_decayed) read();
  if (variant.decay_first) state = decayed(variant, lane, t, state);
  if (!variant.read_updated && variant.read_decayed) read();
  d.row(t) = correction(variant, lane, v, t, state);
  state += k.transpose() * d.row(t);
  if (!variant.decay_first) state = decayed(variant, lane, t, state);
  const auto store = [&] {
    if (!variant.round_state) return;
    state =
        state.unaryExpr([&](double x) { return call::round_to(*variant.round_state, x); }).eval();
  };
  if (variant.read_rounded) store();
  if (variant.read_updated) read();
  if (!variant.read_rounded) store();
}

}  // namespace

Advance step_variant(const StepVariant& variant) {
  return [variant](const Lane<double>& lane, const Matrix<double>& v, std::int64_t begin,
                   std::int64_t end, Matrix<double>& state, Matrix<double>& o, Matrix<double>& d) {
    for (std::int64_t t = begin; t < end; ++t) step(variant, lane, v, t, state, o, d);
  };
}

}  // namespace goldenrule::delta
