// SPDX-License-Identifier: Apache-2.0
//
// Length: a few lines for every stage in which authors err.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "fixtures/call/plan.hpp"
#include "reference/delta/mistakes/chunk_inverse.hpp"
#include "reference/delta/mistakes/common.hpp"
#include "reference/delta/mistakes/variant.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/oracle/stage_tensors.hpp"

namespace goldenrule::delta {
namespace {

using Decays = std::vector<double>;  // one per gate

constexpr double kSmallestNormal = 0x1p-126;
constexpr double kLargestF32 = 0x1.fffffep127;

// fp32 with subnormal numbers flushed to 0, and inf beyond its range.
double flushed(double x) {
  const double y = call::round_to(call::DType::kF32, x);
  return std::fabs(y) < kSmallestNormal ? 0.0 : y;
}

// Where element (key, value) of a state in [V,K] is looked for by a reader of [K,V].
Matrix<double> read_transposed(const Matrix<double>& state) {
  const std::int64_t K = state.rows();
  const std::int64_t V = state.cols();
  Matrix<double> read(K, V);
  for (std::int64_t i = 0; i < K; ++i) {
    for (std::int64_t x = 0; x < V; ++x) read(i, x) = state((i * V + x) % K, (i * V + x) / K);
  }
  return read;
}

// One chunk of c tokens.
class Chunk {
 public:
  /// `stages` of the whole lane may be null.
  Chunk(const ChunkVariant& variant, const Lane<double>& lane, std::int64_t first, std::int64_t c,
        ChunkStages<double>* stages)
      : variant_(variant), lane_(lane), first_(first), c_(c), stages_(stages) {
    cumulate();
  }

  void run(const Matrix<double>& v, Matrix<double>& state, Matrix<double>& o,
           Matrix<double>& corrections) {
    const std::int64_t K = lane_.K;
    const ChunkOrder& order = variant_.order;
    Matrix<double> A = Matrix<double>::Zero(c_, c_);
    Matrix<double> QK = Matrix<double>::Zero(c_, c_);
    Matrix<double> k_out = Matrix<double>::Zero(c_, K);
    for (std::int64_t j = 0; j < c_; ++j) column(j, A, QK, k_out);
    Matrix<double> k_in(c_, K);
    Matrix<double> q_in(c_, K);
    for (std::int64_t i = 0; i < c_; ++i) {
      for (std::int64_t x = 0; x < K; ++x) {
        const double d = outside(from_start(i, x));
        k_in(i, x) = beta(i) * lane_.k_row(first_ + i)[x] *
                     (order.predicted && !variant_.w_decay_outside ? d : 1.0);
        q_in(i, x) = lane_.q_row(first_ + i)[x] * (order.read ? d : 1.0);
      }
    }
    Matrix<double> beta_v = v.middleRows(first_, c_);
    for (std::int64_t i = 0; i < c_; ++i) beta_v.row(i) *= first_ + i < lane_.given ? 1.0 : beta(i);
    if (variant_.inverse == Inverse::kNeumannFp16) round_operands(A, k_in);
    const Matrix<double> T = inverse_of(variant_.inverse, variant_.chunk, A);
    Matrix<double> w = T * k_in;
    if (variant_.w_decay_outside) decay_outside(w);
    const Matrix<double> start = operand(state);
    const Matrix<double> u = T * beta_v;
    Matrix<double> v_new = u - w * start;
    poison_behind(first_growth(variant_.mask_inverse_late), v_new);
    if (stages_ != nullptr) keep(A, T, w, u, v_new, state);
    corrections.middleRows(first_, c_) = v_new;
    o.middleRows(first_, c_) = q_in * (reads_transposed() ? read_transposed(start) : start) +
                               QK * (order.o_corrected ? v_new : u);
    if (variant_.mask_attention_late) poison_attention(o);
    if (variant_.swap_tail_output) swap_tail(o, first_);
    if (!order.writes_corrected) v_new = u;
    if (order.writes_along_values) decay_along_values(v_new);
    if (variant_.swap_tail_writes) swap_tail(v_new, 0);
    decay_to_end(state);
    state += k_out.transpose() * v_new;
    if (variant_.split_end) wipe(state);
  }

 private:
  [[nodiscard]] Decays ones() const { return Decays(static_cast<std::size_t>(lane_.gates), 1.0); }
  [[nodiscard]] double at(const Decays& d, std::int64_t x) const {
    return d[lane_.gates == 1 ? 0 : static_cast<std::size_t>(x)];
  }
  [[nodiscard]] double from_start(std::int64_t i, std::int64_t x) const {
    return at(from_start_[static_cast<std::size_t>(i)], x);
  }
  [[nodiscard]] double beta(std::int64_t i) const {
    return lane_.beta[static_cast<std::size_t>(first_ + i)];
  }
  [[nodiscard]] bool is_tail() const { return c_ < variant_.chunk; }
  [[nodiscard]] bool restarts(std::int64_t i) const { return i > 0 && i == variant_.restart_row; }
  [[nodiscard]] bool reads_transposed() const {
    return variant_.transposed_from >= 0 && first_ / variant_.chunk >= variant_.transposed_from;
  }
  // The row whose decay is taken for that of the end, for channel x; -1: 0 is.
  [[nodiscard]] std::int64_t end_row(std::int64_t x) const {
    switch (variant_.end_row) {
      case EndRow::kLast:
        break;
      case EndRow::kEarly:
        return c_ > 1 ? c_ - 2 : 0;
      case EndRow::kZeroInTail:
        return is_tail() ? -1 : c_ - 1;
      case EndRow::kByKey:
      case EndRow::kByValue:
        return std::max<std::int64_t>(c_ - 7 + 2 * (x / 2 % 4), 0);
    }
    return c_ - 1;
  }
  // ... as the writes of the chunk have it.
  [[nodiscard]] std::int64_t end_row_of_key(std::int64_t x) const {
    return variant_.end_row == EndRow::kByValue ? c_ - 1 : end_row(x);
  }

  // exp(G_i) of every row, and from the starts of blocks of factored_rows.
  void cumulate() {
    Decays d = ones();
    Decays block = ones();
    for (std::int64_t i = 0; i < c_; ++i) {
      if (restarts(i)) d = ones();
      if (variant_.factored_rows > 0 && i % variant_.factored_rows == 0) block = ones();
      multiply(d, i);
      multiply(block, i);
      from_start_.push_back(d);
      from_block_.push_back(block);
    }
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

  // What a kernel makes of the decay d between rows j and i.
  [[nodiscard]] double taken(std::int64_t i, std::int64_t j, std::int64_t x, double d) const {
    if (variant_.drop_growth && d > 1.0) return 0.0;
    if (const std::int64_t rows = variant_.wrong_base_rows; rows > 0 && i / rows != j / rows) {
      return std::pow(d, kLog2OfE);
    }
    const std::int64_t rows = variant_.factored_rows;
    if (rows == 0 || i / rows != j / rows) return d;
    const double in = flushed(at(from_block_[static_cast<std::size_t>(i)], x));
    const double out = flushed(1.0 / at(from_block_[static_cast<std::size_t>(j)], x));
    return in != 0.0 && out != 0.0 && std::isfinite(in) && std::isfinite(out) ? d : in * out;
  }
  // ... of one from the start or to the end of the chunk.
  [[nodiscard]] double outside(double d) const {
    return variant_.wrong_base_outside ? std::pow(d, kLog2OfE) : d;
  }

  // Column j of A and of the masked q k^T, and k_j decayed to the end of the chunk.
  void column(std::int64_t j, Matrix<double>& A, Matrix<double>& QK, Matrix<double>& k_out) const {
    const double* kj = lane_.k_row(first_ + j);
    const ChunkOrder& order = variant_.order;
    const std::int64_t rows = variant_.inverse_rows;
    write_before(j, k_out);
    Decays d = ones();
    for (std::int64_t i = j; i < c_; ++i) {
      if (i > j && restarts(i)) forget(d, j);
      if (i > j) multiply(d, i);
      const double* ki = lane_.k_row(first_ + i);
      const double* qi = lane_.q_row(first_ + i);
      double kk = 0.0;
      double qk = 0.0;
      for (std::int64_t x = 0; x < lane_.K; ++x) {
        const double decayed = kj[x] * taken(i, j, x, at(d, x));
        kk += ki[x] * (order.pairs ? decayed : kj[x]);
        qk += qi[x] * (order.attention ? decayed : kj[x]);
        if (i == end_row_of_key(x)) k_out(j, x) = kj[x] * written(at(d, x));
      }
      QK(i, j) = qk;
      const bool coupled = rows == 0 || i / rows == j / rows;
      if ((i > j || variant_.inverse == Inverse::kDiagonal) && coupled) A(i, j) = beta(i) * kk;
    }
  }
  // What a kernel makes of the decay d of a write to the end of the chunk.
  [[nodiscard]] double written(double d) const {
    if (!variant_.order.writes || variant_.order.writes_along_values) return 1.0;
    return outside(variant_.drop_growth && d > 1.0 ? 0.0 : d);
  }
  // Row i, value channel x of a block as wide as it is high has the decay of row x of the block.
  void decay_along_values(Matrix<double>& writes) const {
    for (std::int64_t i = 0; i < c_; ++i) {
      for (std::int64_t x = 0; x < writes.cols(); ++x) {
        double d = 1.0;
        for (std::int64_t l = i / writes.cols() * writes.cols() + x % c_ + 1; l < c_; ++l) {
          d *= lane_.alpha_at(first_ + l, 0);
        }
        writes(i, x) *= d;
      }
    }
  }

  // k_j decayed to an end that lies before it: exp(G_end - G_j) with a positive exponent.
  void write_before(std::int64_t j, Matrix<double>& k_out) const {
    for (std::int64_t x = 0; x < lane_.K; ++x) {
      const std::int64_t end = end_row_of_key(x);
      if (j <= end) continue;
      double d = 1.0;
      for (std::int64_t l = end + 1; l <= j; ++l) {
        d /= lane_.alpha_at(first_ + l, lane_.gates == 1 ? 0 : x);
      }
      k_out(j, x) = lane_.k_row(first_ + j)[x] * (end < 0 ? flushed(d) : d);
    }
  }

  void decay_outside(Matrix<double>& w) const {
    for (std::int64_t i = 0; i < c_; ++i) {
      for (std::int64_t x = 0; x < lane_.K; ++x) w(i, x) *= from_start(i, x);
    }
  }

  void decay_to_end(Matrix<double>& state) const {
    if (!variant_.keep_state) state.setZero();
    if (!variant_.order.carried) return;
    for (std::int64_t x = 0; x < state.rows(); ++x) {
      for (std::int64_t y = 0; y < state.cols(); ++y) {
        const std::int64_t end = end_row(variant_.end_row == EndRow::kByValue ? y : x);
        if (end >= 0) state(x, y) *= outside(from_start(end, x));
      }
    }
  }

  [[nodiscard]] Matrix<double> operand(const Matrix<double>& state) const {
    if (!variant_.state_operand_f16) return state;
    return state.unaryExpr([](double x) { return call::round_to(call::DType::kF16, x); });
  }

  // The first row in front of which a decay that the mask should hide is inf in fp32; c: none.
  [[nodiscard]] std::int64_t first_growth(bool asked) const {
    std::int64_t i = 0;
    while (asked && i < c_ && !grows_behind(i)) ++i;
    return asked ? i : c_;
  }
  // Whether exp(G_i - G_j) is inf for some j > i.
  [[nodiscard]] bool grows_behind(std::int64_t i) const {
    for (std::int64_t g = 0; g < lane_.gates; ++g) {
      double d = 1.0;
      for (std::int64_t j = i + 1; j < c_; ++j) d *= lane_.alpha_at(first_ + j, g);
      if (!(1.0 / d <= kLargestF32)) return true;
    }
    return false;
  }
  void poison_behind(std::int64_t i, Matrix<double>& x) const {
    if (i < c_) x.bottomRows(c_ - i).setConstant(std::numeric_limits<double>::quiet_NaN());
  }
  void poison_attention(Matrix<double>& o) const {
    for (std::int64_t i = 0; i < c_; ++i) {
      if (grows_behind(i)) o.row(first_ + i).setConstant(std::numeric_limits<double>::quiet_NaN());
    }
  }

  void swap_tail(Matrix<double>& x, std::int64_t first) const {
    constexpr std::int64_t kFragment = 16;
    const std::int64_t begin = (c_ - 1) / kFragment * kFragment;
    for (std::int64_t i = begin + 4; is_tail() && i < begin + 8 && i + 4 < c_; ++i) {
      x.row(first + i).swap(x.row(first + i + 4));
    }
  }

  void wipe(Matrix<double>& state) const {
    for (std::int64_t x = 0; x < state.rows(); ++x) {
      if (flushed(lane_.alpha_at(first_, lane_.gates == 1 ? 0 : x)) == 0.0) state.row(x).setZero();
    }
  }

  // A and beta k^ exp(G) from bf16 operands that carry the decay, k^ exp(G) and k^ exp(-G): without
  // their roundings identical keys would give a matrix of equal entries, whose powers cancel as in
  // no kernel. Left as they are where exp(-G) leaves the range of bf16, which is another mistake.
  void round_operands(Matrix<double>& A, Matrix<double>& k_in) const {
    Matrix<double> in(c_, lane_.K);
    Matrix<double> out(c_, lane_.K);
    for (std::int64_t i = 0; i < c_; ++i) {
      for (std::int64_t x = 0; x < lane_.K; ++x) {
        const double d = from_start(i, x);
        if (!(d > 0x1p-120)) return;
        const double k = bf16(lane_.k_row(first_ + i)[x]);
        in(i, x) = bf16(k * bf16(d));
        out(i, x) = bf16(k * bf16(1.0 / d));
      }
    }
    for (std::int64_t i = 0; i < c_; ++i) {
      for (std::int64_t j = 0; j < i; ++j) A(i, j) = beta(i) * in.row(i).dot(out.row(j));
      k_in.row(i) = beta(i) * in.row(i);
    }
  }

  void keep(const Matrix<double>& A, const Matrix<double>& T, const Matrix<double>& w,
            const Matrix<double>& u, const Matrix<double>& v_new, const Matrix<double>& state) {
    for (std::int64_t g = 0; g < lane_.gates; ++g) {
      double G = 0.0;  // not the logarithm of a product, which near 1 has few digits of it
      for (std::int64_t i = 0; i < c_; ++i) {
        if (restarts(i)) G = 0.0;
        G += lane_.log_alpha[static_cast<std::size_t>((first_ + i) * lane_.gates + g)];
        stages_->G(first_ + i, g) = G;
      }
    }
    stages_->A.block(first_, 0, c_, c_) = A;
    stages_->T.block(first_, 0, c_, c_) = T;
    stages_->w.middleRows(first_, c_) = w;
    stages_->u.middleRows(first_, c_) = u;
    stages_->v_new.middleRows(first_, c_) = v_new;
    stages_->h.push_back(state);
  }

  const ChunkVariant& variant_;
  const Lane<double>& lane_;
  const std::int64_t first_, c_;
  ChunkStages<double>* const stages_;
  std::vector<Decays> from_start_, from_block_;
};

}  // namespace

Advance chunk_variant(const ChunkVariant& variant) {
  return [variant](const Lane<double>& lane, const Matrix<double>& v, std::int64_t begin,
                   std::int64_t end, Matrix<double>& state, Matrix<double>& o, Matrix<double>& d) {
    for (std::int64_t first = begin; first < end; first += variant.chunk) {
      Chunk(variant, lane, first, std::min(variant.chunk, end - first), nullptr)
          .run(v, state, o, d);
    }
  };
}

call::TensorMap variant_stages(const call::Record& record, const ChunkVariant& variant) {
  const call::Dims dims = call::validate(record);
  const CallInputs inputs(record);
  const OutputIndex index(record, dims);
  return stage_tensors(
      record, variant.chunk, [&](const call::Sequence& sequence, std::int64_t head) -> LaneStages {
        const auto lane = prepare_lane<double>(record, dims, inputs, sequence, head);
        const Matrix<double> v = lane_values(inputs, dims, index, sequence, head);
        Matrix<double> state = lane_start(inputs, dims, index, sequence, head);
        const std::int64_t n = lane.tokens;
        const std::int64_t C = variant.chunk;
        Matrix<double> o(n, dims.V);
        Matrix<double> d(n, dims.V);
        LaneStages stages{.chunk = {.G = Matrix<double>(n, lane.gates),
                                    .A = Matrix<double>::Zero(n, C),
                                    .T = Matrix<double>::Zero(n, C),
                                    .w = Matrix<double>(n, dims.K),
                                    .u = Matrix<double>(n, dims.V),
                                    .v_new = Matrix<double>(n, dims.V),
                                    .h = {}},
                          .q = Eigen::Map<const Matrix<double>>(lane.q.data(), n, dims.K),
                          .k = Eigen::Map<const Matrix<double>>(lane.k.data(), n, dims.K),
                          .beta = Eigen::Map<const Matrix<double>>(lane.beta.data(), n, 1)};
        for (std::int64_t first = 0; first < n; first += C) {
          Chunk(variant, lane, first, std::min(C, n - first), &stages.chunk).run(v, state, o, d);
        }
        return stages;
      });
}

}  // namespace goldenrule::delta
