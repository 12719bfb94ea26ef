// SPDX-License-Identifier: Apache-2.0
#include "reference/bounds/chunk_emulator.hpp"

#include <bit>
#include <cmath>

#include "fixtures/random/philox.hpp"
#include "reference/scalar/products.hpp"

namespace goldenrule::bounds {
namespace {

using rule::Lane;
using Matrix = rule::Matrix<double>;

// Half an ulp of a type at x, from the exponent field of the double; 0 at 0, which every type has.
struct HalfUlp {
  double scale, smallest;

  explicit HalfUlp(const call::DTypeInfo& type)
      : scale(std::ldexp(1.0, -type.significand_bits)),
        smallest(std::ldexp(1.0, type.min_exponent)) {}

  [[nodiscard]] double operator()(double x) const {
    const auto exponent = std::bit_cast<std::uint64_t>(x) & 0x7ff0000000000000U;
    const double power = std::max(std::bit_cast<double>(exponent), smallest);
    return x == 0.0 ? 0.0 : power * scale;
  }
};

// a b; c += sign a b; c += a^T b.
Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c = Matrix::Zero(a.rows(), b.cols());
  scalar::multiply_add(1.0, {a.data(), a.cols(), 1}, b.data(), b.cols(), c.data(), c.cols(),
                       a.rows(), a.cols(), b.cols());
  return c;
}

void add_product(double sign, const Matrix& a, const Matrix& b, Matrix& c) {
  scalar::multiply_add(sign, {a.data(), a.cols(), 1}, b.data(), b.cols(), c.data(), c.cols(),
                       a.rows(), a.cols(), b.cols());
}

void add_transposed_product(const Matrix& a, const Matrix& b, Matrix& c) {
  scalar::multiply_add(1.0, {a.data(), 1, a.cols()}, b.data(), b.cols(), c.data(), c.cols(),
                       a.cols(), a.rows(), b.cols());
}

// The decays and raw products of one chunk of c tokens.
struct ChunkProducts {
  Matrix A;      // [c,c] strictly lower
  Matrix QK;     // [c,c] lower
  Matrix decay;  // [c,gates] E_i
  Matrix out;    // [c,gates] D_Cj
};

class ChunkEmulator {
 public:
  ChunkEmulator(const Lane<double>& lane, const Matrix& v, const Matrix& initial,
                const Contract& contract, Rounder& rounder)
      : lane_(lane), v_(v), rounder_(rounder), chunk_(contract.chunk), state_(initial) {
    q_ = Eigen::Map<const Matrix>(lane.q.data(), lane.tokens, lane.K);
    k_ = Eigen::Map<const Matrix>(lane.k.data(), lane.tokens, lane.K);
    rounder_.apply(Point::kQuery, q_);
    rounder_.apply(Point::kKey, k_);
  }

  rule::FormResult<double> run() {
    rule::FormResult<double> result{.o = Matrix(lane_.tokens, v_.cols()), .state = {}};
    for (std::int64_t first = 0; first < lane_.tokens; first += chunk_) {
      const std::int64_t c = std::min(chunk_, lane_.tokens - first);
      result.o.middleRows(first, c) = run_chunk(first, c);
    }
    result.state = std::move(state_);
    return result;
  }

 private:
  [[nodiscard]] bool per_channel() const { return lane_.gates > 1; }
  [[nodiscard]] double beta(std::int64_t t) const {
    return lane_.beta[static_cast<std::size_t>(t)];
  }

  // f_i = exp(error of the cumulated gate), per token and gate.
  Matrix gate_factors(std::int64_t first, std::int64_t c) {
    Matrix f = Matrix::Ones(c, lane_.gates);
    if (!rounder_.rounds(Point::kGateSum)) return f;
    for (std::int64_t g = 0; g < lane_.gates; ++g) {
      double sum = 0.0;
      for (std::int64_t i = 0; i < c; ++i) {
        sum += std::log(lane_.alpha_at(first + i, g));
        if (std::isfinite(sum)) f(i, g) = std::exp(rounder_.error(Point::kGateSum, sum));
      }
    }
    return f;
  }

  // A and q^ k^^T with the decays D_ij as running products, so that alpha = 0 is no exception.
  ChunkProducts products(std::int64_t first, std::int64_t c, const Matrix& f) {
    const std::int64_t gates = lane_.gates;
    ChunkProducts m{.A = Matrix::Zero(c, c),
                    .QK = Matrix::Zero(c, c),
                    .decay = Matrix(c, gates),
                    .out = Matrix(c, gates)};
    Matrix left_k = k_.middleRows(first, c);
    Matrix left_q = q_.middleRows(first, c);
    Matrix right = left_k;
    rounder_.apply(Point::kIntra, left_k);
    rounder_.apply(Point::kIntra, left_q);
    rounder_.apply(Point::kIntra, right);
    scale_rows(left_k, f);
    scale_rows(left_q, f);
    scale_rows(right, f.cwiseInverse());
    if (per_channel()) {
      channel_products(first, c, left_k, left_q, right, f, m);
    } else {
      head_products(first, c, left_k, left_q, right, f, m);
    }
    for (std::int64_t i = 0; i < c; ++i) m.A.row(i) *= beta(first + i);
    m.A.diagonal().setZero();
    m.A.triangularView<Eigen::StrictlyUpper>().setZero();
    m.QK.triangularView<Eigen::StrictlyUpper>().setZero();
    Eigen::RowVectorXd d = Eigen::RowVectorXd::Ones(gates);
    for (std::int64_t i = 0; i < c; ++i) {
      for (std::int64_t g = 0; g < gates; ++g) d(g) *= lane_.alpha_at(first + i, g);
      m.decay.row(i) = d.cwiseProduct(f.row(i));
    }
    return m;
  }

  // One gate per head: the decays multiply finished products.
  void head_products(std::int64_t first, std::int64_t c, const Matrix& left_k, const Matrix& left_q,
                     const Matrix& right, const Matrix& f, ChunkProducts& m) const {
    const Matrix transposed = right.transpose();
    m.A = product(left_k, transposed);
    m.QK = product(left_q, transposed);
    for (std::int64_t j = 0; j < c; ++j) {
      double d = 1.0;
      for (std::int64_t i = j; i < c; ++i) {
        if (i > j) d *= lane_.alpha_at(first + i, 0);
        m.A(i, j) *= d;
        m.QK(i, j) *= d;
      }
      m.out(j, 0) = d * f(c - 1, 0) / f(j, 0);
    }
  }

  // One gate per key channel: the decays stand inside the sums over channels.
  void channel_products(std::int64_t first, std::int64_t c, const Matrix& left_k,
                        const Matrix& left_q, const Matrix& right, const Matrix& f,
                        ChunkProducts& m) const {
    Eigen::RowVectorXd decay(lane_.K);
    for (std::int64_t j = 0; j < c; ++j) {
      scalar::decayed_products(left_k.data(), left_q.data(), right.data(),
                               lane_.alpha.data() + first * lane_.K, c, lane_.K, j, m.A.data() + j,
                               m.QK.data() + j, c, decay.data());
      m.out.row(j) = decay.cwiseProduct(f.row(c - 1)).cwiseQuotient(f.row(j));
    }
  }

  // Row i of x times row i of s, which has one or K columns.
  void scale_rows(Matrix& x, const Matrix& s) const {
    if (s.cols() == 1) {
      x.array().colwise() *= s.col(0).array();
    } else {
      x.array() *= s.array();
    }
  }

  Matrix run_chunk(std::int64_t first, std::int64_t c) {
    const Matrix f = gate_factors(first, c);
    ChunkProducts m = products(first, c, f);
    Matrix T = Matrix::Identity(c, c);
    m.A.triangularView<Eigen::UnitLower>().solveInPlace(T);
    rounder_.apply(Point::kInverse, T);

    Matrix beta_v = v_.middleRows(first, c);
    Matrix beta_k = k_.middleRows(first, c);
    for (std::int64_t i = 0; i < c; ++i) {
      beta_v.row(i) *= beta(first + i);
      beta_k.row(i) *= beta(first + i);
    }
    scale_rows(beta_k, m.decay);
    rounder_.apply(Point::kBetaV, beta_v);
    rounder_.apply(Point::kBetaK, beta_k);
    Matrix u = product(T, beta_v);
    Matrix w = product(T, beta_k);
    rounder_.apply(Point::kU, u);
    rounder_.apply(Point::kW, w);

    Matrix operand = state_;
    rounder_.apply(Point::kStateOperand, operand);
    Matrix v_new = u;
    add_product(-1.0, w, operand, v_new);

    Matrix q_in = q_.middleRows(first, c);
    scale_rows(q_in, m.decay);
    if (per_channel()) rounder_.apply(Point::kQueryIn, q_in);
    rounder_.apply(Point::kAttention, m.QK);
    Matrix v_rounded = v_new;
    rounder_.apply(Point::kVNew, v_rounded);
    Matrix o = product(q_in, operand);
    add_product(1.0, m.QK, v_rounded, o);

    update_state(first, c, m, v_new, v_rounded);
    return o;
  }

  void update_state(std::int64_t first, std::int64_t c, const ChunkProducts& m, const Matrix& v_new,
                    const Matrix& v_rounded) {
    if (per_channel()) {
      Matrix k_out = k_.middleRows(first, c);
      scale_rows(k_out, m.out);
      rounder_.apply(Point::kUpdate, k_out);
      state_.array().colwise() *= m.decay.row(c - 1).transpose().array();
      add_transposed_product(k_out, v_rounded, state_);
    } else {
      Matrix decayed = v_new;
      scale_rows(decayed, m.out);
      rounder_.apply(Point::kUpdate, decayed);
      state_ *= m.decay(c - 1, 0);
      add_transposed_product(k_.middleRows(first, c), decayed, state_);
    }
    rounder_.apply(Point::kCarriedState, state_);
  }

  const Lane<double>& lane_;
  const Matrix& v_;
  Rounder& rounder_;
  const std::int64_t chunk_;
  Matrix q_, k_;
  Matrix state_;
};

}  // namespace

double Rounder::uniform() {
  if (left_ == 0) {
    bits_ = random::philox4x32(
        {static_cast<std::uint32_t>(block_), static_cast<std::uint32_t>(block_ >> 32),
         static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
        {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
    ++block_;
    left_ = 16;
  }
  --left_;
  const std::uint32_t word = bits_[static_cast<std::size_t>(left_ / 4)];
  const std::uint32_t byte = (word >> (8 * (left_ % 4))) & 0xffU;
  // Odd multiples of 2^-8: symmetric about 0, variance 1/3 to 2^-16.
  return (static_cast<double>(byte) - 127.5) * 0x1p-7;
}

void Rounder::apply(Point point, double* x, std::int64_t count) {
  const auto& type = contract_->at(point);
  if (!type) return;
  if (mode_ == RoundingMode::kNearest) {
    for (std::int64_t i = 0; i < count; ++i) {
      x[i] = call::round_to(*type, x[i] * (1.0 + 0x1p-22 * uniform()));
    }
    return;
  }
  const HalfUlp half_ulp(call::info(*type));
  for (std::int64_t i = 0; i < count; ++i) x[i] += half_ulp(x[i]) * uniform();
}

double Rounder::error(Point point, double magnitude) {
  const auto& type = contract_->at(point);
  if (!type) return 0.0;
  if (mode_ == RoundingMode::kNearest) return call::round_to(*type, magnitude) - magnitude;
  return HalfUlp(call::info(*type))(magnitude) * uniform();
}

rule::FormResult<double> emulate_chunks(const Lane<double>& lane, const Matrix& v,
                                        const Matrix& initial, const Contract& contract,
                                        Rounder& rounder) {
  return ChunkEmulator(lane, v, initial, contract, rounder).run();
}

}  // namespace goldenrule::bounds
