// SPDX-License-Identifier: Apache-2.0
//
// Length: one algorithm with its twenty rounding points, read beside rule/chunk_form.cpp.
#include "reference/delta/emulation/chunk_emulator.hpp"

#include <cmath>
#include <vector>

#include "reference/scalar/products.hpp"

namespace goldenrule::delta {
namespace {

Matrix<double> transposed(const Matrix<double>& x) { return x.transpose(); }

void multiply_add(double sign, const Matrix<double>& a, const Matrix<double>& b,
                  Matrix<double>& c) {
  scalar::multiply_add(sign, {a.data(), a.cols(), 1}, b.data(), b.cols(), c.data(), c.cols(),
                       a.rows(), a.cols(), b.cols());
}

// Matrix<double> products with the errors of fp32 sums (chunk_emulator.hpp).
class Products {
 public:
  Products(const contract::Chunked& chunked, Rounder& rounder)
      : rounder_(rounder), u_(rounder.of_sums()), coarse_(chunked.has_coarse_operands()) {}

  [[nodiscard]] bool coarse() const { return coarse_; }

  /// a b
  [[nodiscard]] Matrix<double> product(const Matrix<double>& a, const Matrix<double>& b) const {
    Matrix<double> p = Matrix<double>::Zero(a.rows(), b.cols());
    if (rounder_.rounds_sums()) {
      add_rounded(1.0, a, b, p);
      return p;
    }
    multiply_add(1.0, a, b, p);
    if (u_ > 0.0) add_errors(a, b, nullptr, p);
    return p;
  }

  /// c += sign a b, by a kernel that may accumulate onto c.
  void add_product(double sign, const Matrix<double>& a, const Matrix<double>& b,
                   Matrix<double>& c) const {
    if (rounder_.rounds_sums()) return add_rounded(sign, a, b, c);
    if (u_ == 0.0) return multiply_add(sign, a, b, c);
    Matrix<double> p = Matrix<double>::Zero(a.rows(), b.cols());
    multiply_add(sign, a, b, p);
    add_errors(a, b, &c, p);
    c += p;
  }

  /// Adds to p, sums of n terms whose squares add up to `squared`, what fp32 does to them.
  void add_errors(std::int64_t n, const Matrix<double>& squared, const Matrix<double>* carried,
                  Matrix<double>& p) const {
    const auto terms = static_cast<double>(n);
    const double of_sum = terms / 3;
    const double of_terms = terms / 6 + 2;
    rounder_.for_each_noise(p.size(), [&](std::int64_t first, std::int64_t count,
                                          const double* noise) {
      for (std::int64_t i = first; i < first + count; ++i) {
        const double x = std::fabs(p.data()[i]);
        const double c = carried == nullptr ? 0.0 : std::fabs(carried->data()[i]);
        const double variance = terms * c * (c + x) + of_sum * x * x + of_terms * squared.data()[i];
        p.data()[i] += u_ * noise[i - first] * __builtin_sqrt(variance);
      }
    });
  }

  /// What a few fp32 operations on each element do.
  void add_roundings(Matrix<double>& x) const {
    if (u_ > 0.0) rounder_.apply_arithmetic(x.data(), x.size());
  }

  [[nodiscard]] double u() const { return u_; }

 private:
  // c += sign a b in fp32, term by term.
  static void add_rounded(double sign, const Matrix<double>& a, const Matrix<double>& b,
                          Matrix<double>& c) {
    const Matrix<float> left = (sign * a).cast<float>();
    const Matrix<float> right = b.cast<float>();
    Matrix<float> sum = c.cast<float>();
    for (Eigen::Index i = 0; i < left.rows(); ++i) {
      for (Eigen::Index l = 0; l < left.cols(); ++l) {
        if (left(i, l) != 0.0F) sum.row(i) += left(i, l) * right.row(l);
      }
    }
    c = sum.cast<double>();
  }

  void add_errors(const Matrix<double>& a, const Matrix<double>& b, const Matrix<double>* carried,
                  Matrix<double>& p) const {
    Matrix<double> squared = Matrix<double>::Zero(a.rows(), b.cols());
    multiply_add(1.0, a.cwiseAbs2(), b.cwiseAbs2(), squared);
    add_errors(a.cols(), squared, carried, p);
  }

  Rounder& rounder_;
  const double u_;
  const bool coarse_;
};

// The decays and raw products of one chunk of c tokens.
struct ChunkProducts {
  Matrix<double> A;      // [c,c] strictly lower
  Matrix<double> QK;     // [c,c] lower
  Matrix<double> decay;  // [c,gates] E_i
  Matrix<double> out;    // [c,gates] D_Cj
};

class ChunkEmulator {
 public:
  ChunkEmulator(const Lane<double>& lane, const Matrix<double>& v, const Matrix<double>& initial,
                const contract::Chunked& chunked, Rounder& rounder, Keep keep)
      : lane_(lane),
        v_(v),
        chunked_(chunked),
        rounder_(rounder),
        products_(chunked, rounder),
        chunk_(chunked.chunk),
        keeps_(keep == Keep::kStages),
        state_(initial) {
    q_ = Eigen::Map<const Matrix<double>>(lane.q.data(), lane.tokens, lane.K);
    k_ = Eigen::Map<const Matrix<double>>(lane.k.data(), lane.tokens, lane.K);
    rounder_.apply(contract::Activation::kQuery, q_);
    rounder_.apply(contract::Activation::kKey, k_);
    d_ = Matrix<double>(lane.tokens, v.cols());
    if (!keeps_) return;
    stages_.G = Matrix<double>(lane.tokens, lane.gates);
    stages_.A = stages_.T = Matrix<double>::Zero(lane.tokens, chunk_);
    if (chunked.form != contract::Form::kWY) return;
    stages_.w = Matrix<double>(lane.tokens, lane.K);
    stages_.u = Matrix<double>(lane.tokens, v.cols());
  }

  FormResult<double> run() {
    FormResult<double> result{.o = Matrix<double>(lane_.tokens, v_.cols()), .state = {}};
    for (std::int64_t first = 0; first < lane_.tokens; first += chunk_) {
      const std::int64_t c = std::min(chunk_, lane_.tokens - first);
      if (rounder_.draws()) rounder_.begin(content_of(lane_, v_, first, first + c));
      result.o.middleRows(first, c) = run_chunk(first, c);
    }
    result.state = std::move(state_);
    if (keeps_) stages_.v_new = d_;
    result.d = std::move(d_);
    result.stages = std::move(stages_);
    return result;
  }

 private:
  [[nodiscard]] bool per_channel() const { return lane_.gates > 1; }
  [[nodiscard]] double beta(std::int64_t t) const {
    return lane_.beta[static_cast<std::size_t>(t)];
  }

  // What v is multiplied by: beta, but 1 where v is the correction itself, which predicts nothing
  // (its beta is 0).
  [[nodiscard]] double write_strength(std::int64_t t) const {
    return t < lane_.given ? 1.0 : beta(t);
  }

  // f_i = exp(error of the cumulated gate), per token and gate: what a sum in sequence loses, and
  // what one in a tree does.
  Matrix<double> gate_factors(std::int64_t first, std::int64_t c) {
    Matrix<double> f = Matrix<double>::Ones(c, lane_.gates);
    const bool rounds = rounder_.rounds(contract::Point::kGateSum);
    if (!rounds && !keeps_) return f;
    const double unit = rounder_.gate_unit();
    std::vector<double> scan(static_cast<std::size_t>(c));  // sums in a tree
    for (std::int64_t g = 0; g < lane_.gates; ++g) {
      const auto gate = [&](std::int64_t i) {
        return lane_.log_alpha[static_cast<std::size_t>((first + i) * lane_.gates + g)];
      };
      const auto floored = [&](std::int64_t i) {
        const double x = gate(i);
        return std::isinf(x) && x < 0.0 ? static_cast<double>(kFlooredGate) : x;
      };
      for (std::int64_t i = 0; i < c; ++i) scan[static_cast<std::size_t>(i)] = unit * floored(i);
      if (rounds) scan_gates(scan);
      double exact = 0.0;
      double sum = 0.0;
      double running = 0.0;  // of the kernel: a rounded sum goes into the next one
      for (std::int64_t i = 0; i < c; ++i) {
        exact += gate(i);
        sum += floored(i);
        if (keeps_) stages_.G(first + i, g) = exact;
        if (!rounds || !std::isfinite(sum)) continue;
        running += unit * floored(i);
        running += rounder_.error(contract::Point::kGateSum, running);
        const double cumulated = running + (scan[static_cast<std::size_t>(i)] - unit * sum);
        f(i, g) = std::exp(cumulated / unit - sum);
        if (keeps_ && std::isfinite(exact)) stages_.G(first + i, g) = cumulated / unit;
      }
    }
    return f;
  }

  // The sums from the first on, in log2(n) passes, each of which rounds.
  void scan_gates(std::vector<double>& x) {
    for (std::size_t step = 1; step < x.size(); step *= 2) {
      for (std::size_t i = x.size() - 1; i >= step; --i) {
        x[i] += x[i - step];
        x[i] += rounder_.error(contract::Point::kGateSum, x[i]);
      }
    }
  }

  // A and q^ k^^T with the decays D_ij as running products, so that alpha = 0 is no exception.
  ChunkProducts chunk_products(std::int64_t first, std::int64_t c) {
    const Matrix<double> f = gate_factors(first, c);
    const std::int64_t gates = lane_.gates;
    ChunkProducts m{.A = Matrix<double>::Zero(c, c),
                    .QK = Matrix<double>::Zero(c, c),
                    .decay = Matrix<double>(c, gates),
                    .out = Matrix<double>(c, gates)};
    Matrix<double> left_k = k_.middleRows(first, c);
    Matrix<double> left_q = q_.middleRows(first, c);
    Matrix<double> right = left_k;
    rounder_.apply(contract::Point::kIntra, left_k);
    rounder_.apply(contract::Point::kIntra, left_q);
    rounder_.apply(contract::Point::kIntra, right);
    scale_rows(left_k, f);
    scale_rows(left_q, f);
    scale_rows(right, f.cwiseInverse());
    if (per_channel()) {
      channel_products(first, c, left_k, left_q, right, f, m);
    } else {
      head_products(first, c, left_k, left_q, right, f, m);
    }
    scale_by_beta(first, m.A);
    products_.add_roundings(m.A);
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
  void head_products(std::int64_t first, std::int64_t c, const Matrix<double>& left_k,
                     const Matrix<double>& left_q, const Matrix<double>& right,
                     const Matrix<double>& f, ChunkProducts& m) const {
    const Matrix<double> columns = transposed(right);
    m.A = products_.product(left_k, columns);
    m.QK = products_.product(left_q, columns);
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
  void channel_products(std::int64_t first, std::int64_t c, const Matrix<double>& left_k,
                        const Matrix<double>& left_q, const Matrix<double>& right,
                        const Matrix<double>& f, ChunkProducts& m) const {
    Eigen::RowVectorXd decay(lane_.K);
    const auto decayed = [&](const Matrix<double>& k, const Matrix<double>& q,
                             const Matrix<double>& r, const double* alpha, std::int64_t j,
                             Matrix<double>& A, Matrix<double>& QK) {
      scalar::decayed_products(k.data(), q.data(), r.data(), alpha, c, lane_.K, j, A.data() + j,
                               QK.data() + j, c, decay.data());
    };
    const double* alpha = lane_.alpha.data() + first * lane_.K;
    for (std::int64_t j = 0; j < c; ++j) {
      decayed(left_k, left_q, right, alpha, j, m.A, m.QK);
      m.out.row(j) = decay.cwiseProduct(f.row(c - 1)).cwiseQuotient(f.row(j));
    }
    if (products_.u() == 0.0) return;
    // The squares of the terms are the same products of squares.
    const Matrix<double> k2 = left_k.cwiseAbs2();
    const Matrix<double> q2 = left_q.cwiseAbs2();
    const Matrix<double> r2 = right.cwiseAbs2();
    const Matrix<double> alpha2 = Eigen::Map<const Matrix<double>>(alpha, c, lane_.K).cwiseAbs2();
    Matrix<double> squared_k = Matrix<double>::Zero(c, c);
    Matrix<double> squared_q = Matrix<double>::Zero(c, c);
    for (std::int64_t j = 0; j < c; ++j) {
      decayed(k2, q2, r2, alpha2.data(), j, squared_k, squared_q);
    }
    products_.add_errors(lane_.K, squared_k, nullptr, m.A);
    products_.add_errors(lane_.K, squared_q, nullptr, m.QK);
  }

  // Row i of x times row i of s, which has one or K columns.
  void scale_rows(Matrix<double>& x, const Matrix<double>& s) const {
    if (s.cols() == 1) {
      x.array().colwise() *= s.col(0).array();
    } else {
      x.array() *= s.array();
    }
  }

  // Row i of x times beta of token first + i.
  void scale_by_beta(std::int64_t first, Matrix<double>& x) const {
    for (Eigen::Index i = 0; i < x.rows(); ++i) x.row(i) *= beta(first + i);
  }

  void scale_values(std::int64_t first, Matrix<double>& x) const {
    for (Eigen::Index i = 0; i < x.rows(); ++i) x.row(i) *= write_strength(first + i);
  }

  // T = (I + A)^-1, row by row: T_i = e_i - sum_{l < i} A_il T_l.
  [[nodiscard]] Matrix<double> inverse(const Matrix<double>& A) const {
    const Eigen::Index c = A.rows();
    Matrix<double> T = Matrix<double>::Identity(c, c);
    if (products_.coarse() || products_.u() == 0.0) {
      A.triangularView<Eigen::UnitLower>().solveInPlace(T);
      return T;
    }
    for (Eigen::Index i = 1; i < c; ++i) {
      const Matrix<double> left = A.row(i).head(i);
      Matrix<double> row = T.row(i);
      products_.add_product(-1.0, left, T.topRows(i), row);
      T.row(i).head(i) = row.row(0).head(i);
    }
    return T;
  }

  void keep_square(std::int64_t first, const Matrix<double>& A, const Matrix<double>& T) {
    if (!keeps_) return;
    stages_.A.block(first, 0, A.rows(), A.cols()) = A;
    stages_.T.block(first, 0, T.rows(), T.cols()) = T;
  }

  // v_new by w and u.
  Matrix<double> corrections_wy(std::int64_t first, std::int64_t c, const ChunkProducts& m,
                                const Matrix<double>& operand) {
    Matrix<double> T = inverse(m.A);
    keep_square(first, m.A, T);
    rounder_.apply(contract::Point::kInverse, T);
    Matrix<double> beta_v = v_.middleRows(first, c);
    Matrix<double> beta_k = k_.middleRows(first, c);
    scale_values(first, beta_v);
    scale_by_beta(first, beta_k);
    scale_rows(beta_k, m.decay);
    rounder_.apply(contract::Point::kBetaV, beta_v);
    rounder_.apply(contract::Point::kBetaK, beta_k);
    Matrix<double> u = products_.product(T, beta_v);
    Matrix<double> w = products_.product(T, beta_k);
    if (keeps_) {
      stages_.u.middleRows(first, c) = u;
      stages_.w.middleRows(first, c) = w;
    }
    rounder_.apply(contract::Point::kU, u);
    rounder_.apply(contract::Point::kW, w);
    products_.add_product(-1.0, w, operand, u);
    return u;
  }

  // v_new by the residual; (T - I) beta is the operand, the diagonal of T stays as it is.
  Matrix<double> corrections_direct(std::int64_t first, std::int64_t c, const ChunkProducts& m,
                                    const Matrix<double>& operand) {
    Matrix<double> T = inverse(m.A);
    keep_square(first, m.A, T);
    for (Eigen::Index i = 0; i < c; ++i) {
      T(i, i) = 0.0;
      T.col(i) *= write_strength(first + i);
    }
    rounder_.apply(contract::Point::kInverse, T);
    Matrix<double> k_in = k_.middleRows(first, c);
    Matrix<double> X = v_.middleRows(first, c);
    if (per_channel()) {
      scale_rows(k_in, m.decay);
      rounder_.apply(contract::Point::kKeyIn, k_in);
      products_.add_product(-1.0, k_in, operand, X);
    } else {
      Matrix<double> read = products_.product(k_in, operand);
      scale_rows(read, m.decay);
      X -= read;
    }
    for (std::int64_t i = 0; i < c && first + i < lane_.given; ++i) X.row(i) = v_.row(first + i);
    Matrix<double> v_new = X;
    scale_values(first, v_new);
    rounder_.apply(contract::Point::kResidual, X);
    products_.add_product(1.0, T, X, v_new);
    return v_new;
  }

  Matrix<double> run_chunk(std::int64_t first, std::int64_t c) {
    const ChunkProducts m = chunk_products(first, c);
    Matrix<double> operand = state_;
    if (keeps_) stages_.h.push_back(state_);
    if (rounder_.rounds(contract::Point::kStateOperand))
      rounder_.apply(contract::Point::kStateOperand, operand);
    const Matrix<double> v_new = chunked_.form == contract::Form::kWY
                                     ? corrections_wy(first, c, m, operand)
                                     : corrections_direct(first, c, m, operand);
    d_.middleRows(first, c) = v_new;
    Matrix<double> q_in = q_.middleRows(first, c);
    Matrix<double> attention = m.QK;
    Matrix<double> v_rounded = v_new;
    rounder_.apply(contract::Point::kAttention, attention);
    rounder_.apply(contract::Point::kVNew, v_rounded);
    Matrix<double> o;
    if (per_channel()) {
      scale_rows(q_in, m.decay);
      rounder_.apply(contract::Point::kQueryIn, q_in);
      o = products_.product(q_in, operand);
    } else {
      o = products_.product(q_in, operand);
      scale_rows(o, m.decay);
    }
    products_.add_product(1.0, attention, v_rounded, o);
    update_state(first, c, m, v_new, v_rounded);
    return o;
  }

  void update_state(std::int64_t first, std::int64_t c, const ChunkProducts& m,
                    const Matrix<double>& v_new, const Matrix<double>& v_rounded) {
    if (per_channel()) {
      Matrix<double> k_out = k_.middleRows(first, c);
      scale_rows(k_out, m.out);
      rounder_.apply(contract::Point::kUpdate, k_out);
      state_.array().colwise() *= m.decay.row(c - 1).transpose().array();
      products_.add_product(1.0, transposed(k_out), v_rounded, state_);
    } else {
      Matrix<double> decayed = v_new;
      scale_rows(decayed, m.out);
      rounder_.apply(contract::Point::kUpdate, decayed);
      state_ *= m.decay(c - 1, 0);
      products_.add_product(1.0, transposed(k_.middleRows(first, c)), decayed, state_);
    }
    rounder_.apply(contract::Point::kCarriedState, state_);
  }

  const Lane<double>& lane_;
  const Matrix<double>& v_;
  const contract::Chunked& chunked_;
  Rounder& rounder_;
  const Products products_;
  const std::int64_t chunk_;
  const bool keeps_;
  ChunkStages<double> stages_;
  Matrix<double> q_, k_, d_;
  Matrix<double> state_;
};

}  // namespace

delta::FormResult<double> emulate_chunks(const Lane<double>& lane, const Matrix<double>& v,
                                         const Matrix<double>& initial,
                                         const contract::Chunked& chunked, Rounder& rounder,
                                         Keep keep) {
  return ChunkEmulator(lane, v, initial, chunked, rounder, keep).run();
}

}  // namespace goldenrule::delta
