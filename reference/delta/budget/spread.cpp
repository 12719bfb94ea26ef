// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/spread.hpp"

#include <algorithm>
#include <boost/math/distributions/chi_squared.hpp>
#include <cmath>
#include <optional>
#include <vector>

#include "fixtures/call/dtype.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/delta/budget/grant.hpp"
#include "reference/delta/budget/perturbed_recurrence.hpp"
#include "reference/delta/budget/running.hpp"
#include "reference/delta/emulation/chunk_emulator.hpp"
#include "reference/delta/oracle/lane_io.hpp"

namespace goldenrule::delta {
namespace {

int runs_for(const call::Dims& dims) {
  const std::int64_t steps = std::max<std::int64_t>(dims.tokens * dims.HV * dims.state_size(), 1);
  return static_cast<int>(std::clamp<std::int64_t>(kSpreadSteps / steps, kFewestRuns, kMostRuns));
}

double multiple_for(std::int64_t n, int runs) {
  const double p = kFalseAlarm / (2.0 * static_cast<double>(std::max<std::int64_t>(n, 1)));
  const boost::math::chi_squared chi2(runs);
  const double r = boost::math::quantile(chi2, p) / runs;
  return deviation_multiple(2 * n) / std::sqrt((1.0 + r) / 2.0);
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

class SpreadEmulation {
 public:
  SpreadEmulation(const call::Record& record, const call::Plan& plan,
                  const contract::Contract& contract, verdict::Expectations& expected)
      : record_(record),
        dims_(plan.dims),
        contract_(contract),
        systematic_(systematic_errors_of(contract)),
        runs_(runs_for(plan.dims)),
        inputs_(record),
        index_(record, plan.dims),
        outputs_(expected.outputs) {}

  void run(const call::Sequence& sequence, std::int64_t head) {
    const auto lane = prepare_lane<double>(record_, dims_, inputs_, sequence.first_token,
                                           sequence.token_count, head);
    const Matrix<double> v = lane_values(inputs_, dims_, sequence, head);
    const Matrix<double> start = lane_start(inputs_, dims_, index_, sequence, head);
    // The exact results are golden already; where no final state is kept none needs a spread.
    Matrix<double> exact_o(v.rows(), v.cols());
    each_output(sequence, head, [&](std::int64_t t, std::int64_t x, std::size_t at) {
      exact_o(t, x) = golden("o")[at];
    });
    Matrix<double> exact_state = Matrix<double>::Zero(start.rows(), start.cols());
    each_state(sequence, head, [&](std::int64_t i, std::int64_t x, std::size_t at) {
      exact_state(i, x) = golden("final_state")[at];
    });
    const Form exact{.o = std::move(exact_o), .state = std::move(exact_state)};
    const Form sigma = random_errors(lane, v, start, exact, sequence.first_token * dims_.HV + head);
    const Form bias = systematic_errors(lane, v, start, exact);
    each_output(sequence, head, [&](std::int64_t t, std::int64_t x, std::size_t at) {
      store_grant(outputs_.at("o").grant, at, sigma.o(t, x), bias.o(t, x));
    });
    each_state(sequence, head, [&](std::int64_t i, std::int64_t x, std::size_t at) {
      store_grant(outputs_.at("final_state").grant, at, sigma.state(i, x), bias.state(i, x));
    });
  }

 private:
  using Form = FormResult<double>;

  [[nodiscard]] const std::vector<double>& golden(const char* name) const {
    return outputs_.at(name).exact.golden;
  }

  [[nodiscard]] Form run_kernel(const Lane<double>& lane, const Matrix<double>& v,
                                const Matrix<double>& start, const Perturbation& p,
                                RoundingMode mode) const {
    const contract::Chunked* chunked = contract_.chunked();
    if (chunked == nullptr) return perturbed_recurrence(lane, v, start, contract_, p);
    Rounder rounder(*chunked, mode, p.seed, p.stream);
    return emulate_chunks(perturbed_lane(lane, contract_, p), v, start, *chunked, rounder);
  }

  // Beside operands that are rounded further, alpha is wrong by the full amount throughout a run,
  // with either sign in turn: so sigma is that amount where nothing else errs.
  [[nodiscard]] Form random_run(const Lane<double>& lane, const Matrix<double>& v,
                                const Matrix<double>& start, int run, std::uint64_t stream) const {
    const contract::Chunked* chunked = contract_.chunked();
    const bool coarse = chunked != nullptr && chunked->has_coarse_operands();
    return run_kernel(lane, v, start,
                      {.alpha = !coarse        ? 0.0
                                : run % 2 == 0 ? 1.0
                                               : -1.0,
                       .random = true,
                       .seed = kSpreadSeed,
                       .stream = stream},
                      RoundingMode::kRandom);
  }

  [[nodiscard]] Form random_errors(const Lane<double>& lane, const Matrix<double>& v,
                                   const Matrix<double>& start, const Form& exact,
                                   std::int64_t lane_index) const {
    Form squares = zeros(exact);
    for (int run = 0; run < runs_; ++run) {
      const Form result =
          random_run(lane, v, start, run, static_cast<std::uint64_t>(lane_index * kMostRuns + run));
      squares.o += (result.o - exact.o).cwiseAbs2();
      squares.state += (result.state - exact.state).cwiseAbs2();
    }
    to_sigma(squares.o, runs_);
    to_sigma(squares.state, runs_);
    return squares;
  }

  [[nodiscard]] Form systematic_errors(const Lane<double>& lane, const Matrix<double>& v,
                                       const Matrix<double>& start, const Form& exact) const {
    Form bias = zeros(exact);
    Form before = zeros(exact);
    for (const SystematicError& error : systematic_) {
      Form moved = run_kernel(lane, v, start, error.perturbation, error.mode);
      moved.o = (moved.o - exact.o).cwiseAbs();
      moved.state = (moved.state - exact.state).cwiseAbs();
      if (error.opposite) {
        bias.o += (moved.o - before.o).cwiseMax(0.0);
        bias.state += (moved.state - before.state).cwiseMax(0.0);
      } else {
        bias.o += moved.o;
        bias.state += moved.state;
      }
      before = std::move(moved);
    }
    // The norm of q only scales an output.
    if (lane.k_error > 0.0) bias.o += contract_.functions.norm * exact.o.cwiseAbs();
    return bias;
  }

  [[nodiscard]] static Form zeros(const Form& like) {
    return {.o = Matrix<double>::Zero(like.o.rows(), like.o.cols()),
            .state = Matrix<double>::Zero(like.state.rows(), like.state.cols())};
  }

  // f(t, v, position in o) over the outputs of a lane.
  template <class F>
  void each_output(const call::Sequence& sequence, std::int64_t head, F&& f) {
    for (std::int64_t t = 0; t < sequence.token_count; ++t) {
      const std::int64_t base = ((sequence.first_token + t) * dims_.HV + head) * dims_.V;
      for (std::int64_t x = 0; x < dims_.V; ++x) f(t, x, static_cast<std::size_t>(base + x));
    }
  }

  // f(i, v, position in final_state) over the states that a lane leaves after its last token.
  template <class F>
  void each_state(const call::Sequence& sequence, std::int64_t head, F&& f) {
    for (const call::Snapshot& snapshot : sequence.snapshots) {
      if (snapshot.target != call::Target::kFinalState || snapshot.after != sequence.token_count) {
        continue;
      }
      for (std::int64_t i = 0; i < dims_.K; ++i) {
        for (std::int64_t x = 0; x < dims_.V; ++x) {
          f(i, x, index_(snapshot.block, head, i, x));
        }
      }
    }
  }

  const call::Record& record_;
  const call::Dims& dims_;
  const contract::Contract& contract_;
  const std::vector<SystematicError> systematic_;
  const int runs_;
  const CallInputs inputs_;
  const StateIndex index_;
  std::map<std::string, verdict::Expected>& outputs_;
};

}  // namespace

void grant_by_emulation(const call::Record& record, const call::Plan& plan,
                        const contract::Contract& contract, verdict::GrantDetail detail,
                        verdict::Expectations& expected) {
  for (auto& [name, e] : expected.outputs) {
    if (name == "intermediate_states") continue;
    const auto n = std::ssize(e.exact.golden);
    e.grant = empty_grant(e.exact, multiple_for(n, runs_for(plan.dims)), detail);
  }
  SpreadEmulation emulation(record, plan, contract, expected);
  const parallel::Phase phase("budget");
  const std::vector<LaneJob> jobs = lanes_of(plan);
  parallel::for_each_index(std::ssize(jobs), [&](std::int64_t i) {
    const LaneJob& job = jobs[static_cast<std::size_t>(i)];
    emulation.run(*job.sequence, job.head);
  });
}

}  // namespace goldenrule::delta
