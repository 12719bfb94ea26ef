// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "fixtures/call/dtype.hpp"
#include "reference/delta/mistakes/variant.hpp"

namespace goldenrule::delta {
namespace {

using Decays = std::vector<double>;  // one per gate

double bf16(double x) { return call::round_to(call::DType::kBF16, x); }
double fp16(double x) { return call::round_to(call::DType::kF16, x); }
Matrix<double> fp16(const Matrix<double>& x) {
  return x.unaryExpr([](double y) { return fp16(y); });
}

// One chunk of c tokens.
class Chunk {
 public:
  Chunk(const ChunkVariant& variant, const Lane<double>& lane, std::int64_t first, std::int64_t c)
      : variant_(variant), lane_(lane), first_(first), c_(c) {}

  void run(const Matrix<double>& v, Matrix<double>& state, Matrix<double>& o) {
    const std::int64_t K = lane_.K;
    Matrix<double> A = Matrix<double>::Zero(c_, c_);
    Matrix<double> QK = Matrix<double>::Zero(c_, c_);
    Matrix<double> k_out(c_, K);
    for (std::int64_t j = 0; j < c_; ++j) column(j, A, QK, k_out);
    Matrix<double> k_in(c_, K);
    Matrix<double> q_in(c_, K);
    Decays d = ones();
    Decays end = ones();
    for (std::int64_t i = 0; i < c_; ++i) {
      if (restarts(i)) d = ones();
      multiply(d, i);
      if (i == end_row()) end = d;
      for (std::int64_t x = 0; x < K; ++x) {
        k_in(i, x) = beta(i) * lane_.k_row(first_ + i)[x] * at(d, x);
        q_in(i, x) = lane_.q_row(first_ + i)[x] * at(d, x);
      }
    }
    Matrix<double> beta_v = v.middleRows(first_, c_);
    for (std::int64_t i = 0; i < c_; ++i) beta_v.row(i) *= beta(i);
    if (variant_.inverse == Inverse::kNeumannFp16) round_operands(A, k_in);
    const Matrix<double> T = inverse(A);
    const Matrix<double> v_new = T * beta_v - (T * k_in) * state;
    o.middleRows(first_, c_) = q_in * state + QK * v_new;
    for (std::int64_t x = 0; x < K; ++x) state.row(x) *= at(end, x);
    state += k_out.transpose() * v_new;
  }

 private:
  [[nodiscard]] Decays ones() const { return Decays(static_cast<std::size_t>(lane_.gates), 1.0); }
  [[nodiscard]] double at(const Decays& d, std::int64_t x) const {
    return d[lane_.gates == 1 ? 0 : static_cast<std::size_t>(x)];
  }
  [[nodiscard]] double beta(std::int64_t i) const {
    return lane_.beta[static_cast<std::size_t>(first_ + i)];
  }
  [[nodiscard]] bool restarts(std::int64_t i) const { return i > 0 && i == variant_.restart_row; }
  [[nodiscard]] std::int64_t end_row() const {
    return variant_.end_row_early && c_ > 1 ? c_ - 2 : c_ - 1;
  }
  void multiply(Decays& d, std::int64_t i) const {
    for (std::int64_t g = 0; g < lane_.gates; ++g) {
      d[static_cast<std::size_t>(g)] *= lane_.alpha_at(first_ + i, g);
    }
  }
  void divide(Decays& d, std::int64_t i) const {
    for (std::int64_t g = 0; g < lane_.gates; ++g) {
      d[static_cast<std::size_t>(g)] /= lane_.alpha_at(first_ + i, g);
    }
  }

  // exp(G_i - G_j) for a G that restarts between j and i: the sum up to i from the restart, less
  // the sum up to j from the start of the chunk.
  void forget(Decays& d, std::int64_t j) const {
    d = ones();
    for (std::int64_t l = 0; l <= j; ++l) divide(d, l);
  }

  // What a kernel makes of the decay d.
  [[nodiscard]] double taken(double d) const { return variant_.drop_growth && d > 1.0 ? 0.0 : d; }

  // Column j of A and of the masked q k^T, and k_j decayed to the end of the chunk.
  void column(std::int64_t j, Matrix<double>& A, Matrix<double>& QK, Matrix<double>& k_out) const {
    const double* kj = lane_.k_row(first_ + j);
    Decays d = ones();
    const auto store_end = [&] {
      for (std::int64_t x = 0; x < lane_.K; ++x) k_out(j, x) = kj[x] * taken(at(d, x));
    };
    if (j > end_row()) {  // exp(G_end - G_j) with the end before j
      Decays inverted = ones();
      divide(inverted, j);
      for (std::int64_t x = 0; x < lane_.K; ++x) k_out(j, x) = kj[x] * at(inverted, x);
    }
    for (std::int64_t i = j; i < c_; ++i) {
      if (i > j && restarts(i)) forget(d, j);
      if (i > j) multiply(d, i);
      const double* ki = lane_.k_row(first_ + i);
      const double* qi = lane_.q_row(first_ + i);
      double kk = 0.0;
      double qk = 0.0;
      for (std::int64_t x = 0; x < lane_.K; ++x) {
        const double decayed = kj[x] * taken(at(d, x));
        kk += ki[x] * decayed;
        qk += qi[x] * decayed;
      }
      QK(i, j) = qk;
      if (i > j || variant_.inverse == Inverse::kDiagonal) A(i, j) = beta(i) * kk;
      if (i == end_row()) store_end();
    }
  }

  // A and beta k^ exp(G) from bf16 operands that carry the decay, k^ exp(G) and k^ exp(-G): without
  // their roundings identical keys would give a matrix of equal entries, whose powers cancel as in
  // no kernel. Left as they are where exp(-G) leaves the range of bf16, which is another mistake.
  void round_operands(Matrix<double>& A, Matrix<double>& k_in) const {
    Matrix<double> in(c_, lane_.K);
    Matrix<double> out(c_, lane_.K);
    Decays d = ones();
    for (std::int64_t i = 0; i < c_; ++i) {
      multiply(d, i);
      for (std::int64_t x = 0; x < lane_.K; ++x) {
        if (!(at(d, x) > 0x1p-120)) return;
        const double k = bf16(lane_.k_row(first_ + i)[x]);
        in(i, x) = bf16(k * bf16(at(d, x)));
        out(i, x) = bf16(k * bf16(1.0 / at(d, x)));
      }
    }
    for (std::int64_t i = 0; i < c_; ++i) {
      for (std::int64_t j = 0; j < i; ++j) A(i, j) = beta(i) * in.row(i).dot(out.row(j));
      k_in.row(i) = beta(i) * in.row(i);
    }
  }

  [[nodiscard]] Matrix<double> inverse(const Matrix<double>& A) const {
    const Matrix<double> I = Matrix<double>::Identity(c_, c_);
    switch (variant_.inverse) {
      case Inverse::kExact:
      case Inverse::kDiagonal: {
        Matrix<double> T = I;
        const Matrix<double> left = I + A;
        left.triangularView<Eigen::Lower>().solveInPlace(T);
        return T;
      }
      case Inverse::kFirstOrder:
        return I - A;
      case Inverse::kNeumannFp16: {
        const Matrix<double> L = fp16(A);
        Matrix<double> T = I - L;
        Matrix<double> power = L;
        for (std::int64_t covered = 2; covered < variant_.chunk; covered *= 2) {
          power = fp16(Matrix<double>(power * power));
          T = fp16(Matrix<double>(T + T * power));
        }
        return T.unaryExpr([](double x) { return bf16(x); });
      }
    }
    return I;  // unreachable: every value is handled above
  }

  const ChunkVariant& variant_;
  const Lane<double>& lane_;
  const std::int64_t first_, c_;
};

}  // namespace

Advance chunk_variant(const ChunkVariant& variant) {
  return [variant](const Lane<double>& lane, const Matrix<double>& v, std::int64_t begin,
                   std::int64_t end, Matrix<double>& state, Matrix<double>& o) {
    for (std::int64_t first = begin; first < end; first += variant.chunk) {
      Chunk(variant, lane, first, std::min(variant.chunk, end - first)).run(v, state, o);
    }
  };
}

}  // namespace goldenrule::delta
