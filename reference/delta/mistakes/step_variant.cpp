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
  if (variant.order.predicts != StateAt::kNothing) {
    Row prediction = operand(variant, k) * operand(variant, state);
    if (variant.beta_on == BetaOn::kPrediction) prediction *= beta;
    d -= prediction;
  }
  if (variant.beta_on == BetaOn::kBoth) d *= beta;
  return d;
}

// The states of one token that its steps may meet.
class States {
 public:
  States(const StepVariant& variant, const Lane<double>& lane, std::int64_t t,
         const Matrix<double>& old)
      : variant_(variant),
        lane_(lane),
        t_(t),
        old_(old),
        decayed_(decayed(variant, lane, t, old)) {}

  /// k^ and d of the token, of which what is asked before may know nothing.
  void write(const Row& k, const Row& d) {
    k_ = k;
    d_ = d;
  }

  [[nodiscard]] Matrix<double> at(StateAt which) const {
    switch (which) {
      case StateAt::kNothing:
        break;
      case StateAt::kOld:
        return old_;
      case StateAt::kDecayed:
        return decayed_;
      case StateAt::kOldAndWrite:
        return old_ + k_.transpose() * d_;
      case StateAt::kDecayedAndWrite:
        return decayed_ + k_.transpose() * d_;
      case StateAt::kDecayOfBoth:
        return decayed(variant_, lane_, t_, old_ + k_.transpose() * d_);
    }
    return Matrix<double>::Zero(old_.rows(), old_.cols());
  }

 private:
  const StepVariant& variant_;
  const Lane<double>& lane_;
  const std::int64_t t_;
  const Matrix<double>& old_;
  const Matrix<double> decayed_;
  Row k_, d_;
};

void step(const StepVariant& variant, const Lane<double>& lane, const Matrix<double>& v,
          std::int64_t t, Matrix<double>& state, Matrix<double>& o, Matrix<double>& d) {
  const Row k = Eigen::Map<const Row>(lane.k_row(t), lane.K);
  const Row q = operand(variant, Row(Eigen::Map<const Row>(lane.q_row(t), lane.K)));
  const TokenOrder& order = variant.order;
  const auto read = [&](const Matrix<double>& from) { o.row(t) = q * operand(variant, from); };
  States states(variant, lane, t, state);
  d.row(t) = correction(variant, lane, v, t, states.at(order.predicts));
  states.write(k, d.row(t));
  const bool reads_new = order.reads == order.leaves;
  if (!reads_new) read(states.at(order.reads));
  state = states.at(order.leaves);
  const auto store = [&] {
    if (!variant.round_state) return;
    state =
        state.unaryExpr([&](double x) { return call::round_to(*variant.round_state, x); }).eval();
  };
  if (variant.read_rounded) store();
  if (reads_new) read(state);
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
