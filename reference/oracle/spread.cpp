// SPDX-License-Identifier: Apache-2.0
#include "reference/oracle/spread.hpp"

#include <algorithm>
#include <boost/math/distributions/chi_squared.hpp>
#include <cmath>
#include <optional>
#include <vector>

#include "fixtures/call/dtype.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/bounds/chunk_emulator.hpp"
#include "reference/bounds/perturbed_recurrence.hpp"
#include "reference/bounds/running.hpp"
#include "reference/oracle/lane_io.hpp"

namespace goldenrule::oracle {
namespace {

using Matrix = rule::Matrix<double>;

int runs_for(const call::Dims& dims) {
  const std::int64_t steps = std::max<std::int64_t>(dims.tokens * dims.HV * dims.state_size(), 1);
  return static_cast<int>(std::clamp<std::int64_t>(kSpreadSteps / steps, kFewestRuns, kMostRuns));
}

double multiple_for(std::int64_t n, int runs) {
  const double p = bounds::kFalseAlarm / (2.0 * static_cast<double>(std::max<std::int64_t>(n, 1)));
  const boost::math::chi_squared chi2(runs);
  const double r = boost::math::quantile(chi2, p) / runs;
  return bounds::deviation_multiple(2 * n) / std::sqrt((1.0 + r) / 2.0);
}

// sum (run - exact)^2 over the runs, turned into sigma in place.
void to_sigma(Matrix& squares, int runs) {
  for (Eigen::Index row = 0; row < squares.rows(); ++row) {
    const double mean = squares.row(row).mean();
    for (Eigen::Index x = 0; x < squares.cols(); ++x) {
      squares(row, x) = std::sqrt(0.5 * (squares(row, x) + mean) / runs);
    }
  }
}

// What errs the same way throughout, and whether the difference that the one before made is that of
// the same function: then the larger of the two counts.
struct Habit {
  bounds::Perturbation perturbation;
  bool opposite = false;
  bounds::RoundingMode mode = bounds::RoundingMode::kExact;
};

std::vector<Habit> habits_of(const bounds::Contract& contract) {
  std::vector<Habit> habits;
  // Beside roundings of operands, errors of functions are noise of the random runs.
  if (!contract.has_coarse_operands() || contract.kind == bounds::Kind::kRecurrent) {
    habits = {{{.alpha = 1.0}}, {{.alpha = -1.0}, true}, {{.beta = 1.0}}, {{.key = 1.0}}};
  }
  if (std::ranges::find(contract.rounding, std::optional(bounds::Format::kTF32)) !=
      contract.rounding.end()) {
    habits.push_back({.perturbation = {}, .mode = bounds::RoundingMode::kTruncated});
  }
  return habits;
}

class SpreadEmulation {
 public:
  SpreadEmulation(const call::Record& record, const call::Plan& plan,
                  const rule::CallInputs& inputs, const bounds::Contract& contract,
                  Evaluation& evaluation)
      : record_(record),
        dims_(plan.dims),
        contract_(contract),
        habits_(habits_of(contract)),
        runs_(runs_for(plan.dims)),
        inputs_(inputs),
        index_(record, plan.dims),
        outputs_(evaluation.outputs) {}

  void run(const call::Sequence& sequence, std::int64_t head) {
    const auto lane = rule::prepare_lane<double>(record_, dims_, inputs_, sequence.first_token,
                                                 sequence.token_count, head);
    const Matrix v = lane_values(inputs_, dims_, sequence, head);
    const Matrix start = lane_start(inputs_, dims_, index_, sequence, head);
    // The exact results are golden already; where no final state is kept none needs a spread.
    Matrix exact_o(v.rows(), v.cols());
    each_output(sequence, head, [&](std::int64_t t, std::int64_t x, Expected& e, std::size_t at) {
      exact_o(t, x) = e.golden[at];
    });
    Matrix exact_state = Matrix::Zero(start.rows(), start.cols());
    each_state(sequence, head, [&](std::int64_t i, std::int64_t x, Expected& e, std::size_t at) {
      exact_state(i, x) = e.golden[at];
    });
    const Form exact{.o = std::move(exact_o), .state = std::move(exact_state)};
    const Form sigma = random_errors(lane, v, start, exact, sequence.first_token * dims_.HV + head);
    const Form bias = systematic_errors(lane, v, start, exact);
    each_output(sequence, head, [&](std::int64_t t, std::int64_t x, Expected& e, std::size_t at) {
      grant(e, at, sigma.o(t, x), bias.o(t, x));
    });
    each_state(sequence, head, [&](std::int64_t i, std::int64_t x, Expected& e, std::size_t at) {
      grant(e, at, sigma.state(i, x), bias.state(i, x));
    });
  }

 private:
  using Lane = rule::Lane<double>;
  using Form = rule::FormResult<double>;

  static void grant(Expected& e, std::size_t at, double sigma, double bias) {
    e.spread[at] = call::f32_not_below(e.multiple * sigma + bias);
    if (e.sigma.empty()) return;
    e.sigma[at] = call::f32_not_below(sigma);
    e.bias[at] = call::f32_not_below(bias);
  }

  [[nodiscard]] bool chunked() const { return contract_.kind == bounds::Kind::kChunked; }

  [[nodiscard]] Form run_kernel(const Lane& lane, const Matrix& v, const Matrix& start,
                                const bounds::Perturbation& p, bounds::RoundingMode mode) const {
    if (!chunked()) return bounds::perturbed_recurrence(lane, v, start, contract_, p);
    bounds::Rounder rounder(contract_, mode, p.seed, p.stream);
    return bounds::emulate_chunks(bounds::perturbed_lane(lane, contract_, p), v, start, contract_,
                                  rounder);
  }

  // Beside operands that are rounded further, alpha is wrong by the full amount throughout a run,
  // with either sign in turn: so sigma is that amount where nothing else errs.
  [[nodiscard]] Form random_run(const Lane& lane, const Matrix& v, const Matrix& start, int run,
                                std::uint64_t stream) const {
    const bool coarse = chunked() && contract_.has_coarse_operands();
    return run_kernel(lane, v, start,
                      {.alpha = !coarse        ? 0.0
                                : run % 2 == 0 ? 1.0
                                               : -1.0,
                       .random = true,
                       .seed = kSpreadSeed,
                       .stream = stream},
                      bounds::RoundingMode::kRandom);
  }

  [[nodiscard]] Form random_errors(const Lane& lane, const Matrix& v, const Matrix& start,
                                   const Form& exact, std::int64_t lane_index) const {
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

  [[nodiscard]] Form systematic_errors(const Lane& lane, const Matrix& v, const Matrix& start,
                                       const Form& exact) const {
    Form bias = zeros(exact);
    Form before = zeros(exact);
    for (const Habit& habit : habits_) {
      Form moved = run_kernel(lane, v, start, habit.perturbation, habit.mode);
      moved.o = (moved.o - exact.o).cwiseAbs();
      moved.state = (moved.state - exact.state).cwiseAbs();
      if (habit.opposite) {
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
    return {.o = Matrix::Zero(like.o.rows(), like.o.cols()),
            .state = Matrix::Zero(like.state.rows(), like.state.cols())};
  }

  // f(t, v, o, position in it) over the outputs of a lane.
  template <class F>
  void each_output(const call::Sequence& sequence, std::int64_t head, F&& f) {
    Expected& o = outputs_.at("o");
    for (std::int64_t t = 0; t < sequence.token_count; ++t) {
      const std::int64_t base = ((sequence.first_token + t) * dims_.HV + head) * dims_.V;
      for (std::int64_t x = 0; x < dims_.V; ++x) f(t, x, o, static_cast<std::size_t>(base + x));
    }
  }

  // f(i, v, final_state, position in it) over the states that a lane leaves after its last token.
  template <class F>
  void each_state(const call::Sequence& sequence, std::int64_t head, F&& f) {
    for (const call::Snapshot& snapshot : sequence.snapshots) {
      if (snapshot.target != call::Target::kFinalState || snapshot.after != sequence.token_count) {
        continue;
      }
      Expected& states = outputs_.at("final_state");
      for (std::int64_t i = 0; i < dims_.K; ++i) {
        for (std::int64_t x = 0; x < dims_.V; ++x) {
          f(i, x, states, index_(snapshot.block, head, i, x));
        }
      }
    }
  }

  const call::Record& record_;
  const call::Dims& dims_;
  const bounds::Contract& contract_;
  const std::vector<Habit> habits_;
  const int runs_;
  const rule::CallInputs& inputs_;
  const StateIndex index_;
  std::map<std::string, Expected>& outputs_;
};

}  // namespace

bool is_emulated(const call::Record& record, const bounds::Contract& contract) {
  if (contract.kind == bounds::Kind::kIdeal) return false;
  return contract.kind == bounds::Kind::kChunked || record.mode == call::Mode::kPrefill;
}

void emulate_spread(const call::Record& record, const call::Plan& plan,
                    const rule::CallInputs& inputs, const bounds::Contract& contract,
                    bool components, Evaluation& evaluation) {
  for (auto& [name, expected] : evaluation.outputs) {
    if (name == "intermediate_states") continue;
    expected.spread.assign(expected.golden.size(), 0.0F);
    if (components) {
      expected.sigma.assign(expected.golden.size(), 0.0F);
      expected.bias.assign(expected.golden.size(), 0.0F);
    }
    expected.multiple = multiple_for(std::ssize(expected.golden), runs_for(plan.dims));
  }
  SpreadEmulation emulation(record, plan, inputs, contract, evaluation);
  struct Job {
    const call::Sequence* sequence;
    std::int64_t head;
  };
  const parallel::Phase phase("budget");
  std::vector<Job> jobs;
  for (const call::Sequence& sequence : plan.sequences) {
    for (std::int64_t head = 0; head < plan.dims.HV; ++head) {
      if (!sequence.padded && sequence.token_count > 0) jobs.push_back({&sequence, head});
    }
  }
  parallel::for_each_index(std::ssize(jobs), [&](std::int64_t i) {
    const Job& job = jobs[static_cast<std::size_t>(i)];
    emulation.run(*job.sequence, job.head);
  });
}

}  // namespace goldenrule::oracle
