// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/lane_spread.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "reference/delta/budget/perturbed_recurrence.hpp"
#include "reference/delta/budget/spread.hpp"
#include "reference/delta/emulation/chunk_emulator.hpp"
#include "reference/delta/emulation/segments.hpp"

namespace goldenrule::delta {
namespace {

using Form = KeptForm<double>;

Form zeros(const Form& like) {
  Form form{.o = Matrix<double>::Zero(like.o.rows(), like.o.cols()), .states = {}};
  form.d = Matrix<double>::Zero(like.d.rows(), like.d.cols());
  for (const Matrix<double>& state : like.states) {
    form.states.push_back(Matrix<double>::Zero(state.rows(), state.cols()));
  }
  return form;
}

// f(matrix of a, matrix of b) for o, each state and, where they are asked for, the corrections.
template <class F>
void for_each_matrix(Form& a, const Form& b, F&& f) {
  f(a.o, b.o);
  if (a.d.size() > 0 && b.d.size() > 0) f(a.d, b.d);
  for (std::size_t i = 0; i < a.states.size(); ++i) f(a.states[i], b.states[i]);
}

void raise_to(Form& a, const Form& b) {
  for_each_matrix(a, b,
                  [](Matrix<double>& x, const Matrix<double>& y) { x = x.cwiseMax(y).eval(); });
}

// sum (run - exact)^2 over the runs, turned into sigma in place.
void to_sigma(Matrix<double>& squares, int runs) {
  for (Eigen::Index row = 0; row < squares.rows(); ++row) {
    const double mean = squares.row(row).mean();
    for (Eigen::Index x = 0; x < squares.cols(); ++x) {
      squares(row, x) = std::sqrt(0.5 * (squares(row, x) + mean) / runs);
    }
  }
}

// What errs the same way throughout, and whether the difference that the one before made is that of
// the same function: then the larger of the two counts.
struct SystematicError {
  Perturbation perturbation;
  bool opposite = false;
  RoundingMode mode = RoundingMode::kExact;
};

std::vector<SystematicError> systematic_errors_of(const contract::Contract& contract) {
  std::vector<SystematicError> errors;
  // Beside roundings of operands, errors of functions are noise of the random runs.
  const contract::Chunked* chunked = contract.chunked();
  if (chunked == nullptr || !chunked->has_coarse_operands()) {
    errors = {{{.alpha = 1.0}}, {{.alpha = -1.0}, true}, {{.beta = 1.0}}, {{.key = 1.0}}};
  }
  const auto roundings = contract.roundings();
  if (std::ranges::find(roundings, contract::Rounding(contract::Format::kTF32)) !=
      roundings.end()) {
    errors.push_back({.perturbation = {}, .mode = RoundingMode::kTruncated});
  }
  return errors;
}

class LaneSpread {
 public:
  LaneSpread(const LaneCall& call, const contract::Contract& contract, int runs, ChunkEnds ends,
             bool cuts)
      : call_(call), contract_(contract), runs_(runs), ends_(ends), cuts_(cuts) {}

  [[nodiscard]] Form random_errors(std::int64_t lane_index) const {
    Form squares = zeros(call_.exact);
    for (int run = 0; run < runs_; ++run) {
      Form result = random_run(run, static_cast<std::uint64_t>(lane_index * kMostRuns + run));
      for_each_matrix(result, call_.exact, [](Matrix<double>& x, const Matrix<double>& exact) {
        x = (x - exact).cwiseAbs2().eval();
      });
      for_each_matrix(squares, result,
                      [](Matrix<double>& sum, const Matrix<double>& x) { sum += x; });
    }
    for_each_matrix(squares, squares,
                    [&](Matrix<double>& x, const Matrix<double>&) { to_sigma(x, runs_); });
    return squares;
  }

  [[nodiscard]] Form systematic_errors() const {
    Form bias = zeros(call_.exact);
    Form before = zeros(call_.exact);
    for (const SystematicError& error : systematic_errors_of(contract_)) {
      Form moved = run_kernel(error.perturbation, error.mode);
      for_each_matrix(moved, call_.exact, [](Matrix<double>& x, const Matrix<double>& exact) {
        x = (x - exact).cwiseAbs().eval();
      });
      if (error.opposite) {
        for_each_matrix(before, moved, [](Matrix<double>& earlier, const Matrix<double>& x) {
          earlier = (x - earlier).cwiseMax(0.0).eval();
        });
      }
      for_each_matrix(bias, error.opposite ? before : moved,
                      [](Matrix<double>& sum, const Matrix<double>& x) { sum += x; });
      before = std::move(moved);
    }
    // The norm of q only scales an output.
    if (call_.lane.k_error > 0.0) bias.o += contract_.functions.norm * call_.exact.o.cwiseAbs();
    return bias;
  }

 private:
  [[nodiscard]] Form run_kernel(const Perturbation& p, RoundingMode mode) const {
    const contract::Chunked* chunked = contract_.chunked();
    if (chunked == nullptr) {
      return perturbed_recurrence(call_.lane, call_.v, call_.start, call_.positions, contract_, p);
    }
    Rounder rounder(*chunked, mode, p.seed, p.stream);
    const auto walk = [&](const Lane<double>& lane, const Matrix<double>& v,
                          const Matrix<double>& start) {
      return emulate_chunks(lane, v, start, *chunked, rounder);
    };
    const auto round = [&](Matrix<double>& x) { rounder.apply(contract::Point::kSegmentMap, x); };
    const auto run = [&](const Lane<double>& lane, const Matrix<double>& v,
                         const Matrix<double>& start) {
      return run_in_segments<double>(lane, v, start, cuts_ ? chunked->segment : lane.tokens, walk,
                                     round);
    };
    return run_in_pieces<double>(perturbed_lane(call_.lane, contract_, p), call_.v, call_.start,
                                 call_.positions, chunked->chunk, ends_, run);
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

  const LaneCall& call_;
  const contract::Contract& contract_;
  const int runs_;
  const ChunkEnds ends_;
  const bool cuts_;
};

}  // namespace

LaneErrors lane_errors(const LaneCall& call, const contract::Contract& contract, int runs,
                       std::int64_t lane_index) {
  const auto of = [&](ChunkEnds ends, bool cuts) -> LaneErrors {
    const LaneSpread spread(call, contract, runs, ends, cuts);
    return {.sigma = spread.random_errors(lane_index), .bias = spread.systematic_errors()};
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
