// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/lane_spread.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "fixtures/random/philox.hpp"
#include "reference/delta/budget/lane_sizes.hpp"
#include "reference/delta/budget/nearest_recurrence.hpp"
#include "reference/delta/budget/perturbed_recurrence.hpp"
#include "reference/delta/budget/relative_errors.hpp"
#include "reference/delta/budget/spread.hpp"
#include "reference/delta/emulation/chunk_emulator.hpp"
#include "reference/delta/emulation/noise_table.hpp"
#include "reference/delta/emulation/segments.hpp"

namespace goldenrule::delta {
namespace {

using Form = KeptForm<double>;

Form zeros(const Form& like) {
  Form form{.o = Matrix<double>::Zero(like.o.rows(), like.o.cols()), .states = {}};
  form.d = Matrix<double>::Zero(like.d.rows(), like.d.cols());
  for (const Matrix<double>& state : like.states) {
    form.states.emplace_back(Matrix<double>::Zero(state.rows(), state.cols()));
  }
  form.stages.T = Matrix<double>::Zero(like.stages.T.rows(), like.stages.T.cols());
  form.stages.w = Matrix<double>::Zero(like.stages.w.rows(), like.stages.w.cols());
  form.stages.u = Matrix<double>::Zero(like.stages.u.rows(), like.stages.u.cols());
  for (const Matrix<double>& h : like.stages.h) {
    form.stages.h.emplace_back(Matrix<double>::Zero(h.rows(), h.cols()));
  }
  return form;
}

// f(matrix of a, matrix of b) for T and w, where stages are asked for.
template <class F>
void for_each_scaled_matrix(Form& a, const Form& b, F&& f) {
  if (a.stages.T.size() > 0 && b.stages.T.size() > 0) f(a.stages.T, b.stages.T);
  if (a.stages.w.size() > 0 && b.stages.w.size() > 0) f(a.stages.w, b.stages.w);
}

// The same for each state, those at the starts of chunks included.
template <class F>
void for_each_state(Form& a, const Form& b, F&& f) {
  for (std::size_t i = 0; i < a.states.size(); ++i) f(a.states[i], b.states[i]);
  const std::size_t chunks = std::min(a.stages.h.size(), b.stages.h.size());
  for (std::size_t i = 0; i < chunks; ++i) f(a.stages.h[i], b.stages.h[i]);
}

// The same for all: o, states and, where they are asked for, the corrections (v_new is one) and
// other stages.
template <class F>
void for_each_matrix(Form& a, const Form& b, F&& f) {
  f(a.o, b.o);
  if (a.d.size() > 0 && b.d.size() > 0) f(a.d, b.d);
  for_each_state(a, b, f);
  if (a.stages.u.size() > 0 && b.stages.u.size() > 0) f(a.stages.u, b.stages.u);
  for_each_scaled_matrix(a, b, f);
}

// NaN stays: of what one of two honest kernels loses in a product with a number that is not finite,
// the other's errors say nothing. With chunks that end at checkpoints other tokens share one with
// it than without, and a kernel that does so would be accused of its NaN there.
void raise_to(Form& a, const Form& b) {
  for_each_matrix(a, b, [](Matrix<double>& x, const Matrix<double>& y) {
    x = x.binaryExpr(y, [](double p, double q) { return std::isnan(p) || p >= q ? p : q; }).eval();
  });
}

// What errs the same way throughout, and whether it is another error of the function before it:
// then the largest difference of them counts.
struct SystematicError {
  Perturbation perturbation;
  bool is_another = false;
  RoundingMode mode = RoundingMode::kExact;
};

std::vector<SystematicError> systematic_errors_of(const contract::Contract& contract) {
  std::vector<SystematicError> errors;
  // Beside roundings of operands, errors of functions are noise of the random runs.
  const contract::Chunked* chunked = contract.chunked();
  if (chunked == nullptr || !chunked->has_coarse_operands()) {
    errors = {{{.alpha = 1.0}},        {{.alpha = -1.0}, true}, {{.alpha = 0.5}, true},
              {{.alpha = -0.5}, true}, {{.beta = 1.0}},         {{.key = 1.0}}};
  }
  const auto roundings = contract.roundings();
  if (std::ranges::find(roundings, contract::Rounding(contract::Format::kTF32)) !=
      roundings.end()) {
    errors.push_back({.perturbation = {}, .mode = RoundingMode::kTruncated});
  }
  return errors;
}

// The call with every column of v, of corrections that are given, and of the state, and q,
// multiplied by a number on (1/2, 1). The rule is linear in each of these, so the exact result is
// that of the call, multiplied alike.
class Rescaled {
 public:
  Rescaled(const LaneCall& call, std::uint64_t seed, std::uint64_t stream)
      : lane_(call.lane), v_(call.v), start_(call.start), scales_(1, v_.cols()) {
    const random::Stream numbers(seed, "scales/" + std::to_string(stream));
    for (Eigen::Index x = 0; x < scales_.cols(); ++x) {
      scales_(x) = std::exp2(-numbers.uniform(x));
      v_.col(x) *= scales_(x);
      start_.col(x) *= scales_(x);
    }
    query_ = std::exp2(-numbers.uniform(scales_.cols()));
    for (double& q : lane_.q) q *= query_;
  }

  [[nodiscard]] const Lane<double>& lane() const { return lane_; }
  [[nodiscard]] const Matrix<double>& v() const { return v_; }
  [[nodiscard]] const Matrix<double>& start() const { return start_; }

  [[nodiscard]] Form undone(Form result) const {
    result.o = result.o.array().rowwise() / (query_ * scales_);
    if (result.d.size() > 0) result.d = result.d.array().rowwise() / scales_;
    for (Matrix<double>& state : result.states) state = state.array().rowwise() / scales_;
    if (result.stages.u.size() > 0) result.stages.u = result.stages.u.array().rowwise() / scales_;
    for (Matrix<double>& h : result.stages.h) h = h.array().rowwise() / scales_;
    return result;
  }

 private:
  Lane<double> lane_;
  Matrix<double> v_, start_;
  Eigen::Array<double, 1, Eigen::Dynamic> scales_;
  double query_ = 1.0;
};

class LaneSpread {
 public:
  LaneSpread(const LaneCall& call, const contract::Contract& contract, const LaneSizes& sizes,
             ChunkEnds ends, bool cuts)
      : call_(call), contract_(contract), ends_(ends), cuts_(cuts), sizes_(sizes) {
    for (std::int64_t t = 0; contract.chunked() == nullptr && t < call.lane.tokens; ++t) {
      content_.push_back(content_of(call.lane, call.v, t, t + 1));
    }
  }

  /// The root mean square error of random runs and of nearest runs, the larger of every element.
  [[nodiscard]] Form random_errors(const Runs& runs, std::int64_t lane_index) const {
    const auto stream = [&](int run) {
      return static_cast<std::uint64_t>(lane_index * static_cast<std::int64_t>(kSamples) + run);
    };
    Form sigma = mean_errors(runs.random, [&](int run) { return random_run(run, stream(run)); });
    raise_to(sigma, mean_errors(runs.nearest, [&](int run) { return nearest_run(stream(run)); }));
    return sigma;
  }

  [[nodiscard]] Form systematic_errors() const {
    Form bias = zeros(call_.exact);
    Form largest = bias;  // of one function
    const auto add_largest = [&] {
      for_each_matrix(bias, largest,
                      [](Matrix<double>& sum, const Matrix<double>& x) { sum += x; });
      largest = zeros(call_.exact);
    };
    for (const SystematicError& error : systematic_errors_of(contract_)) {
      Form moved = run_kernel(error.perturbation, error.mode);
      for_each_matrix(moved, call_.exact, [](Matrix<double>& x, const Matrix<double>& exact) {
        x = (x - exact).cwiseAbs().eval();
      });
      if (!error.is_another) add_largest();
      raise_to(largest, moved);
    }
    add_largest();
    // The norm of q only scales an output.
    if (call_.lane.k_error > 0.0) bias.o += contract_.functions.norm * call_.exact.o.cwiseAbs();
    return bias;
  }

 private:
  template <class F>
  [[nodiscard]] Form mean_errors(int runs, F&& run_of) const {
    Form squares = zeros(call_.exact);
    for (int run = 0; run < runs; ++run) {
      Form result = run_of(run);
      for_each_matrix(result, call_.exact, [](Matrix<double>& x, const Matrix<double>& exact) {
        x = (x - exact).cwiseAbs2().eval();
      });
      for_each_matrix(squares, result,
                      [](Matrix<double>& sum, const Matrix<double>& x) { sum += x; });
    }
    const double smallest = smallest_value();
    to_sigma(squares.o, sizes_.o, smallest, 1, runs);
    if (squares.d.size() > 0) to_sigma(squares.d, sizes_.d, smallest, 1, runs);
    if (squares.stages.u.size() > 0) to_sigma(squares.stages.u, sizes_.u, smallest, 1, runs);
    // These are in units of errors, of which the smallest fp32 number has some.
    constexpr double kSmallestError = 0x1p-150;
    for_each_state(squares, squares, [&](Matrix<double>& x, const Matrix<double>&) {
      to_sigma(x, channel_errors(x), kSmallestError, 1, runs);
    });
    if (call_.scales.T.size() > 0) {
      const std::int64_t chunk = contract_.chunked()->chunk;
      to_sigma(squares.stages.T, call_.scales.T, kSmallestError, chunk, runs);
      to_sigma(squares.stages.w, call_.scales.w, kSmallestError, chunk, runs);
    }
    return squares;
  }

  // What a number must exceed for its roundings to be relative ones.
  [[nodiscard]] double smallest_value() const {
    const bool f16 = std::ranges::any_of(contract_.roundings(), [](const contract::Rounding& r) {
      return r == contract::Format::kF16 || r == contract::Format::kAny16;
    });
    return f16 ? 0x1p-12 : 0x1p-110;
  }

  // The call, perturbed, by the kernel that the contract declares.
  [[nodiscard]] Form run_kernel(const Perturbation& p, RoundingMode mode) const {
    if (contract_.chunked() == nullptr) {
      return perturbed_recurrence(call_.lane, call_.v, call_.start, call_.positions, contract_, p,
                                  content_);
    }
    return run_chunks(perturbed_lane(call_.lane, contract_, p), call_.v, call_.start, mode,
                      p.stream);
  }

  [[nodiscard]] Form run_chunks(const Lane<double>& of, const Matrix<double>& values,
                                const Matrix<double>& initial, RoundingMode mode,
                                std::uint64_t stream) const {
    const contract::Chunked& chunked = *contract_.chunked();
    Rounder rounder(chunked, mode, kSpreadSeed, stream);
    const Keep keep = call_.exact.stages.T.size() > 0 ? Keep::kStages : Keep::kOutputs;
    const auto walk = [&](const auto&... piece) {
      return emulate_chunks(piece..., chunked, rounder, keep);
    };
    const auto round = [&](Matrix<double>& x) { rounder.apply(contract::Point::kSegmentMap, x); };
    const auto run = [&](const Lane<double>& lane, const Matrix<double>& v,
                         const Matrix<double>& start) {
      return run_in_segments<double>(lane, v, start, cuts_ ? chunked.segment : lane.tokens, walk,
                                     round);
    };
    return run_in_pieces<double>(of, values, initial, call_.positions, chunked.chunk, ends_, run);
  }

  // Beside operands that are rounded further, alpha is wrong by the full amount throughout a run,
  // with either sign in turn: so sigma is that amount where nothing else errs.
  [[nodiscard]] Form random_run(int run, std::uint64_t stream) const {
    const contract::Chunked* chunked = contract_.chunked();
    const bool coarse = chunked != nullptr && chunked->has_coarse_operands();
    return run_kernel({.alpha = !coarse        ? 0.0
                                : run % 2 == 0 ? 1.0
                                               : -1.0,
                       .random = true,
                       .seed = kSpreadSeed,
                       .stream = stream},
                      RoundingMode::kRandom);
  }

  [[nodiscard]] Form nearest_run(std::uint64_t stream) const {
    const Rescaled call(call_, kSpreadSeed, stream);
    return call.undone(
        contract_.chunked() == nullptr
            ? nearest_recurrence(call.lane(), call.v(), call.start(), call_.positions, contract_)
            : run_chunks(call.lane(), call.v(), call.start(), RoundingMode::kNearest, stream));
  }

  const LaneCall& call_;
  const contract::Contract& contract_;
  const ChunkEnds ends_;
  const bool cuts_;
  const LaneSizes& sizes_;
  std::vector<std::uint64_t> content_;  // of each token of a recurrence
};

}  // namespace

LaneErrors lane_errors(const LaneCall& call, const contract::Contract& contract, const Runs& runs,
                       std::int64_t lane_index) {
  const bool stages = call.exact.stages.u.size() > 0;
  const LaneSizes sizes =
      lane_sizes(call.lane, call.v, call.start, stages ? contract.chunked()->chunk : 0);
  const auto of = [&](ChunkEnds ends, bool cuts) -> LaneErrors {
    const LaneSpread spread(call, contract, sizes, ends, cuts);
    return {.sigma = spread.random_errors(runs, lane_index), .bias = spread.systematic_errors()};
  };
  LaneErrors errors = of(ChunkEnds::kKeep, false);
  const auto raise_to_those_of = [&](ChunkEnds ends, bool cuts) {
    const LaneErrors others = of(ends, cuts);
    raise_to(errors.sigma, others.sigma);
    raise_to(errors.bias, others.bias);
  };
  const contract::Chunked* chunked = contract.chunked();
  if (chunked != nullptr && splits_chunks(call.positions, call.lane.tokens, chunked->chunk)) {
    raise_to_those_of(ChunkEnds::kSplit, false);
  }
  if (chunked != nullptr && chunked->segment > 0 && call.lane.tokens > chunked->segment) {
    raise_to_those_of(ChunkEnds::kKeep, true);
  }
  return errors;
}

}  // namespace goldenrule::delta
