// SPDX-License-Identifier: Apache-2.0
//
// Length: one chunked adjoint with a switch for each mistake.
#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "fixtures/call/dtype.hpp"
#include "reference/backward/mistakes/variant.hpp"

namespace goldenrule::backward {
namespace {

using Block = Matrix<double>;

// What the forward pass makes of a chunk.
struct ChunkForward {
  Block q, k, v, d_o;
  Eigen::VectorXd beta;
  Block from_start, to_end;  // e^H and e^(H_C - H), [n,K]
  Block alpha;
  std::vector<Block> pairs;  // of column j: E_ij, i >= j, [n,K]
  Block before, after;       // states
  Block T, P, w, v_new;

  [[nodiscard]] std::int64_t rows() const { return q.rows(); }
};

Block scaled_rows(const Eigen::VectorXd& by, const Block& x) { return by.asDiagonal() * x; }

void set_decays(ChunkForward& c) {
  const std::int64_t n = c.rows();
  c.from_start = c.alpha;
  c.to_end = Block::Ones(n, c.alpha.cols());
  for (std::int64_t i = 1; i < n; ++i) {
    c.from_start.row(i).array() *= c.from_start.row(i - 1).array();
  }
  for (std::int64_t i = n - 2; i >= 0; --i) {
    c.to_end.row(i) = c.to_end.row(i + 1).cwiseProduct(c.alpha.row(i + 1));
  }
  for (std::int64_t j = 0; j < n; ++j) {
    Block E = Block::Zero(n, c.alpha.cols());
    E.row(j).setOnes();
    for (std::int64_t i = j + 1; i < n; ++i) E.row(i) = E.row(i - 1).cwiseProduct(c.alpha.row(i));
    c.pairs.push_back(std::move(E));
  }
}

ChunkForward run_chunk(const VariantLane& lane, std::int64_t first, std::int64_t n,
                       const Block& before) {
  ChunkForward c;
  c.q = lane.q.middleRows(first, n);
  c.k = lane.k.middleRows(first, n);
  c.v = lane.v.middleRows(first, n);
  c.d_o = lane.output_gradient.middleRows(first, n);
  c.alpha = lane.alpha.middleRows(first, n);
  c.beta = Eigen::Map<const Eigen::VectorXd>(lane.beta.data() + first, n);
  c.before = before;
  set_decays(c);
  Block A = Block::Zero(n, n);
  c.P = A;
  for (std::int64_t j = 0; j < n; ++j) {
    const Eigen::RowVectorXd k = c.k.row(j);
    const Block& E = c.pairs[static_cast<std::size_t>(j)];
    c.P.col(j) = c.q.cwiseProduct(E) * k.transpose();
    A.col(j) = c.k.cwiseProduct(E) * k.transpose();
    A(j, j) = 0.0;
  }
  A = scaled_rows(c.beta, A);
  c.T = (Block::Identity(n, n) + A)
            .triangularView<Eigen::UnitLower>()
            .solve(Block(Block::Identity(n, n)));
  c.w = c.T * scaled_rows(c.beta, c.k.cwiseProduct(c.from_start));
  c.v_new = c.T * scaled_rows(c.beta, c.v) - c.w * before;
  c.after = c.from_start.row(n - 1).transpose().asDiagonal() * before;
  c.after += c.k.cwiseProduct(c.to_end).transpose() * c.v_new;
  return c;
}

// x decay rounded to bf16, whatever the exponent of the decay: kernels take decays from nearby
// rows.
double rounded_side(double x, double decay) {
  if (decay == 0.0 || !std::isfinite(decay)) return x;
  int exponent = 0;
  const double mantissa = std::frexp(decay, &exponent);
  return call::round_to(call::DType::kBF16, x * mantissa) / mantissa;
}

// The decays of the pairs of a kernel, and what they meet: k_j and q_i.
struct Pairs {
  std::vector<Block> E;
  Block q, k;
};

Pairs pairs_of(PairDecay form, const ChunkForward& c) {
  Pairs pairs{c.pairs, c.q, c.k};
  const std::int64_t n = c.rows();
  for (std::int64_t x = 0; x < c.k.cols(); ++x) {
    for (std::int64_t j = 0; j < n && form != PairDecay::kExact; ++j) {
      const double e = c.from_start(j, x);
      if (form == PairDecay::kRoundedSides) {
        pairs.k(j, x) = rounded_side(c.k(j, x), 1.0 / e);
        pairs.q(j, x) = rounded_side(c.q(j, x), e);
      }
      Block& E = pairs.E[static_cast<std::size_t>(j)];
      for (std::int64_t i = j; i < n; ++i) {
        // e^(H_i - H_C) is one over the decay from i to the last row.
        if (form == PairDecay::kFromLastRow) {
          E(i, x) = static_cast<double>((1.0F / static_cast<float>(c.to_end(i, x))) *
                                        static_cast<float>(c.to_end(j, x)));
        } else if (form == PairDecay::kShifted && i > j) {
          E(i, x) = (i == j + 1 ? 1.0 : E(i - 1, x)) * c.alpha(i - 1, x);
        }
      }
    }
  }
  return pairs;
}

struct ChunkBack {
  const ChunkVariant& s;
  const ChunkForward& c;
  Block h;              // as it is read
  const Block& dh_end;  // dh'
  Block dh_read;        // dh' as all but the carry read it
  Pairs pairs;
  Block du, dw, dM, kw, ke, row, col, kb;

  ChunkBack(const ChunkVariant& variant, const ChunkForward& chunk, const Block& gradient)
      : s(variant),
        c(chunk),
        h(variant.state_after ? chunk.after : chunk.before),
        dh_end(gradient),
        dh_read(gradient),
        pairs(pairs_of(variant.pairs, chunk)) {
    if (s.state_f16) {
      h = h.unaryExpr([](double x) { return call::round_to(call::DType::kF16, x); }).eval();
    }
    if (s.stored_decayed) dh_read = decayed(gradient);
  }

  [[nodiscard]] Block decayed(const Block& x) const {
    return c.from_start.row(c.rows() - 1).transpose().asDiagonal() * x;
  }

  // du, and dh.
  [[nodiscard]] Block scan() {
    const Block local = c.P.transpose() * c.d_o;
    du = local + c.k.cwiseProduct(c.to_end) * dh_end;
    Block dh = decayed(dh_end) + c.q.cwiseProduct(c.from_start).transpose() * c.d_o;
    dh -= c.w.transpose() * (s.carry == Carry::kNoErase ? local : du);
    return dh;
  }

  // dq, and kw: what dP gives, and the states.
  [[nodiscard]] Block output_part() {
    const std::int64_t n = c.rows();
    const Block full = c.d_o * c.v_new.transpose();
    Block dq = (c.d_o * h.transpose()).cwiseProduct(c.from_start);
    kw = (c.v_new * dh_read.transpose()).cwiseProduct(c.to_end);
    for (std::int64_t j = 0; j < n; ++j) {
      const Block& E = pairs.E[static_cast<std::size_t>(j)];
      for (std::int64_t i = s.dp_diagonal ? j : j + 1; i < n; ++i) {
        // Reversed: the element above the diagonal, with the decay of its mirror image.
        const std::int64_t to = s.dp_reversed ? j : i;
        const std::int64_t from = s.dp_reversed ? i : j;
        dq.row(to) += full(to, from) * E.row(i).cwiseProduct(pairs.k.row(from));
        kw.row(from) += full(to, from) * E.row(i).cwiseProduct(pairs.q.row(to));
      }
    }
    return dq;
  }

  // dP as output_part reads it.
  [[nodiscard]] Block pair_gradients() const {
    const Block full = c.d_o * c.v_new.transpose();
    if (s.dp_reversed) return full.triangularView<Eigen::Upper>();
    if (!s.dp_diagonal) return full.triangularView<Eigen::StrictlyLower>();
    return full.triangularView<Eigen::Lower>();
  }

  [[nodiscard]] Block inverse_part(const Block& dT) const {
    const bool kept = s.inverse == InverseAdjoint::kDiagonal;
    const Block T = s.inverse == InverseAdjoint::kUntransposed ? c.T : Block(c.T.transpose());
    const Block lower = kept ? Block(dT.triangularView<Eigen::Lower>())
                             : Block(dT.triangularView<Eigen::StrictlyLower>());
    const Block left = s.inverse == InverseAdjoint::kOneFactor ? lower : Block(T * lower);
    const Block whole = (s.inverse == InverseAdjoint::kNegated ? 1.0 : -1.0) * (left * T);
    return kept ? Block(whole.triangularView<Eigen::Lower>())
                : Block(whole.triangularView<Eigen::StrictlyLower>());
  }

  // dv; and row, col, kb and ke.
  [[nodiscard]] Block erase_part(std::span<double> dbeta) {
    dw = -du * h.transpose();
    const Block decayed_keys = c.k.cwiseProduct(c.from_start);
    const Block& v = s.corrected_in_dt ? c.v_new : c.v;
    const std::int64_t columns = s.first_block_in_dt ? std::min(kBlock, v.cols()) : v.cols();
    Block dT = dw * scaled_rows(c.beta, decayed_keys).transpose();
    dT += du.leftCols(columns) * scaled_rows(c.beta, v.leftCols(columns)).transpose();
    dM = inverse_part(dT);
    const Block vb = c.T.transpose() * du;
    kb = c.T.transpose() * dw;
    row = Block::Zero(c.rows(), c.k.cols());
    col = row;
    for (std::int64_t j = 0; j < c.rows(); ++j) {
      const Block E = dM.col(j).asDiagonal() * pairs.E[static_cast<std::size_t>(j)];
      row += E * c.k.row(j).transpose().asDiagonal();
      col.row(j) = E.cwiseProduct(scaled_rows(c.beta, c.k)).colwise().sum();
    }
    ke = scaled_rows(c.beta, row + c.from_start.cwiseProduct(kb));
    const Block& of_beta = s.corrected_in_dbeta ? c.v_new : c.v;
    for (std::int64_t i = 0; i < c.rows(); ++i) {
      dbeta[static_cast<std::size_t>(i)] = vb.row(i).dot(of_beta.row(i)) +
                                           kb.row(i).dot(decayed_keys.row(i)) +
                                           row.row(i).dot(c.k.row(i));
    }
    return scaled_rows(c.beta, vb);
  }

  [[nodiscard]] Block gate_part(const Block& dq) const {
    Block raw = c.q.cwiseProduct(dq) - c.k.cwiseProduct(kw);
    if (s.raw != RawTerms::kNoErase) {
      Block erased = ke;
      if (s.raw == RawTerms::kNoRow) erased -= scaled_rows(c.beta, row);
      raw += c.k.cwiseProduct(erased - col);
    }
    const std::int64_t n = c.rows();
    if (s.last_row == LastRow::kFullChunks && n < kChunk) return raw;
    if (s.last_row != LastRow::kNoState) {
      raw.row(n - 1) += decayed(h).cwiseProduct(dh_read).rowwise().sum().transpose();
    }
    if (s.last_row != LastRow::kNoKeys) {
      const Block given = (c.v_new * dh_read.transpose()).cwiseProduct(c.to_end);
      raw.row(n - 1) += c.k.cwiseProduct(given).colwise().sum();
    }
    return raw;
  }
};

// Where a stage of a lane is made room for, its rows from `row` on.
void keep_rows(const char* name, std::int64_t row, const Block& x, VariantStages& to) {
  to.at(name).block(row, 0, x.rows(), x.cols()) = x;
}

void make_room(const VariantLane& lane, VariantStages& to) {
  const std::int64_t T = lane.tokens();
  const std::int64_t K = lane.k.cols();
  for (const char* name : {"T", "P", "dP", "dM"}) to[name] = Block::Zero(T, kChunk);
  for (const char* name : {"w", "dw", "dq", "dk", "raw"}) to[name] = Block::Zero(T, K);
  for (const char* name : {"v_new", "du"}) to[name] = Block::Zero(T, lane.v.cols());
  for (const char* name : {"h", "dh"}) {
    to[name] = Block::Zero((T + kChunk - 1) / kChunk * K, lane.v.cols());
  }
}

void keep_stages(const ChunkBack& back, std::int64_t first, VariantStages& to) {
  const ChunkForward& c = back.c;
  keep_rows("T", first, c.T, to);
  keep_rows("P", first, c.P, to);
  keep_rows("w", first, c.w, to);
  keep_rows("v_new", first, c.v_new, to);
  keep_rows("du", first, back.du, to);
  keep_rows("dw", first, back.dw, to);
  keep_rows("dM", first, back.dM, to);
  keep_rows("dP", first, back.pair_gradients(), to);
  keep_rows("h", first / kChunk * back.h.rows(), back.h, to);
  keep_rows("dh", first / kChunk * back.h.rows(), back.dh_read, to);
}

// dh; the rows of the chunk that begins at `first` are stored.
Block take_chunk(const ChunkVariant& variant, const ChunkForward& c, const Block& dh_end,
                 std::int64_t first, VariantGradients& to, VariantStages* stages) {
  const std::int64_t n = c.rows();
  ChunkBack back(variant, c, dh_end);
  Block dh = back.scan();
  const Block dq = back.output_part();
  to.dq.middleRows(first, n) = dq;
  to.dv.middleRows(first, n) = back.erase_part(
      std::span(to.dbeta).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(n)));
  to.dk.middleRows(first, n) = back.kw + back.ke + back.col;
  to.dg.middleRows(first, n) = back.gate_part(dq);
  if (stages != nullptr) keep_stages(back, first, *stages);
  return dh;
}

}  // namespace

VariantGradients chunk_adjoint(const ChunkVariant& variant, const VariantLane& lane,
                               VariantStages* stages) {
  VariantGradients to(lane);
  if (stages != nullptr) make_room(lane, *stages);
  std::vector<Block> starts;
  Block state = lane.start;
  const auto chunk_at = [&](std::int64_t first, const Block& before) {
    return run_chunk(lane, first, std::min(kChunk, lane.tokens() - first), before);
  };
  for (std::int64_t t = 0; t < lane.tokens(); t += kChunk) {
    starts.push_back(state);
    state = chunk_at(t, state).after;
  }
  Block& dh = to.dstart;
  for (std::int64_t i = std::ssize(starts) - 1; i >= 0; --i) {
    const ChunkForward c = chunk_at(i * kChunk, starts[static_cast<std::size_t>(i)]);
    dh = take_chunk(variant, c, dh, i * kChunk, to, stages);
    const bool at_rank = i % kSegment == 0 && i > 0;
    if (i > 0 && variant.carry == Carry::kStateGradient) dh += lane.state_gradient;
    if (at_rank && variant.carry == Carry::kLost) dh.setZero();
    if (at_rank && variant.carry == Carry::kWarmUp) {
      const Block nothing = Block::Zero(dh.rows(), dh.cols());
      dh = ChunkBack(variant, c, nothing).scan();
    }
  }
  if (stages != nullptr) {
    stages->at("dq") = to.dq;
    stages->at("dk") = to.dk;
    stages->at("raw") = to.dg;
  }
  return to;
}

}  // namespace goldenrule::backward
