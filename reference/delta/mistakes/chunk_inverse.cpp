// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/mistakes/chunk_inverse.hpp"

namespace goldenrule::delta {
namespace {

Matrix<double> rounded(call::DType type, const Matrix<double>& x) {
  return x.unaryExpr([type](double y) { return call::round_to(type, y); });
}

// (I - L)(I + L^2)(I + L^4).. up to the power L^(terms - 1), L = A and every result in `type`.
Matrix<double> product(call::DType type, std::int64_t terms, const Matrix<double>& A) {
  const Matrix<double> L = rounded(type, A);
  Matrix<double> T = Matrix<double>::Identity(A.rows(), A.cols()) - L;
  Matrix<double> power = L;
  for (std::int64_t covered = 2; covered < terms; covered *= 2) {
    power = rounded(type, power * power);
    T = rounded(type, T + T * power);
  }
  return T;
}

}  // namespace

Matrix<double> inverse_of(Inverse how, std::int64_t chunk, const Matrix<double>& A) {
  const Matrix<double> I = Matrix<double>::Identity(A.rows(), A.cols());
  switch (how) {
    case Inverse::kExact:
    case Inverse::kDiagonal: {
      Matrix<double> T = I;
      const Matrix<double> left = I + A;
      left.triangularView<Eigen::Lower>().solveInPlace(T);
      return T;
    }
    case Inverse::kFirstOrder:
      return I - A;
    case Inverse::kNeumannFp16:
      return rounded(call::DType::kBF16, product(call::DType::kF16, chunk, A));
    case Inverse::kDoublingF32:
      return product(call::DType::kF32, chunk, A);
    case Inverse::kThreeRounds:
      return product(call::DType::kF64, 8, A);
  }
  return I;  // unreachable: every value is handled above
}

}  // namespace goldenrule::delta
