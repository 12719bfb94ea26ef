// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/spread.hpp"

#include <algorithm>
#include <boost/math/distributions/chi_squared.hpp>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "fixtures/call/dtype.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/delta/budget/grant.hpp"
#include "reference/delta/budget/nonfinite_inputs.hpp"
#include "reference/delta/budget/running.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/oracle/work.hpp"
#include "reference/verdict/confirm.hpp"
#include "reference/verdict/grants.hpp"

namespace goldenrule::delta {

double steps_of_runs(const call::Record& record, const call::Plan& plan,
                     const contract::Contract& contract) {
  const contract::Chunked* chunked = contract.chunked();
  const auto lanes = static_cast<double>(std::ssize(plan.sequences) * plan.dims.HV);
  return steps_of(record, plan, chunked == nullptr ? 0 : chunked->chunk) + lanes * kLaneSteps;
}

Runs runs_for(const call::Record& record, const call::Plan& plan,
              const contract::Contract& contract) {
  const double steps = std::max(steps_of_runs(record, plan, contract), 1.0);
  const auto V = static_cast<double>(std::max<std::int64_t>(plan.dims.V, 1));
  const double sample = std::min(kSamples / V, std::max(kSamples / 4, kSampleSteps / steps));
  const double wanted = std::max<double>(kUsualRuns, sample);
  const double fewest = std::max<double>(kFewestRuns, kFewestSamples / V);
  const auto runs = static_cast<int>(std::clamp(kSpreadSteps / steps, fewest, wanted));
  return {.random = runs / 2, .nearest = runs - runs / 2};
}

double multiple_for(std::int64_t n, int runs, std::int64_t V) {
  const double p = verdict::kFalseAlarm / (2.0 * static_cast<double>(std::max<std::int64_t>(n, 1)));
  const boost::math::chi_squared chi2(runs);
  const double r = boost::math::quantile(chi2, p) / runs;
  const double of_row = V == 1 ? r : 1.0;
  return verdict::deviation_multiple(2 * n) / std::sqrt((of_row + r) / 2.0);
}

namespace {

class SpreadEmulation {
 public:
  SpreadEmulation(const call::Record& record, const call::Plan& plan,
                  const contract::Contract& contract, bool confirms,
                  verdict::Expectations& expected)
      : record_(record),
        dims_(plan.dims),
        contract_(contract),
        confirms_(confirms),
        inputs_(record),
        index_(record, plan.dims),
        outputs_(expected.outputs) {}

  void run(const call::Sequence& sequence, std::int64_t head, const Runs& runs) {
    LaneCall lane{.lane = prepare_lane<double>(record_, dims_, inputs_, sequence, head),
                  .v = lane_values(inputs_, dims_, index_, sequence, head),
                  .start = lane_start(inputs_, dims_, index_, sequence, head),
                  .positions = call::state_positions(sequence),
                  .exact = {}};
    // The exact results are golden already; where a state is not kept it needs no spread.
    lane.exact.o = Matrix<double>::Zero(lane.v.rows(), lane.v.cols());
    lane.exact.states.assign(lane.positions.size(),
                             Matrix<double>::Zero(lane.start.rows(), lane.start.cols()));
    each_output(sequence, head, [&](std::int64_t t, std::int64_t x, std::size_t at) {
      lane.exact.o(t, x) = outputs_.at("o").exact.golden[at];
    });
    each_state(sequence, head, lane.positions,
               [&](verdict::Expected& to, std::size_t n, std::int64_t i, std::int64_t x,
                   std::size_t at) { lane.exact.states[n](i, x) = to.exact.golden[at]; });
    if (sequence.replay.ring >= 0) lane.exact.d = lane.v;
    each_correction(sequence, head, [&](std::int64_t t, std::int64_t x, std::size_t at) {
      lane.exact.d(t, x) = outputs_.at("ring_d").exact.golden[at];
    });
    if (contract_.chunked() != nullptr) {
      mark_lost(sequence, head, lane, mask_nonfinite(lane, contract_.chunked()->chunk));
    }
    const LaneErrors errors =
        lane_errors(lane, contract_, runs, sequence.first_token * dims_.HV + head);
    each_output(sequence, head, [&](std::int64_t t, std::int64_t x, std::size_t at) {
      put(outputs_.at("o").grant, at, errors.sigma.o(t, x), errors.bias.o(t, x));
    });
    each_correction(sequence, head, [&](std::int64_t t, std::int64_t x, std::size_t at) {
      put(outputs_.at("ring_d").grant, at, errors.sigma.d(t, x), errors.bias.d(t, x));
    });
    each_state(
        sequence, head, lane.positions,
        [&](verdict::Expected& to, std::size_t n, std::int64_t i, std::int64_t x, std::size_t at) {
          put(to.grant, at, errors.sigma.states[n](i, x), errors.bias.states[n](i, x));
        });
  }

  /// The finite elements of `outputs` that are out of budget in a lane.
  [[nodiscard]] std::int64_t count_out(const call::Sequence& sequence, std::int64_t head,
                                       const call::TensorMap& outputs) {
    const verdict::Compared o = compared("o", outputs), d = compared("ring_d", outputs);
    std::int64_t count = 0;
    each_output(sequence, head,
                [&](std::int64_t, std::int64_t, std::size_t at) { count += o.is_out(at) ? 1 : 0; });
    each_correction(sequence, head, [&](std::int64_t, std::int64_t, std::size_t at) {
      count += d.is_out(at) ? 1 : 0;
    });
    for (const call::Snapshot& snapshot : sequence.snapshots) {
      if (snapshot.target == call::Target::kIntermediateStates) continue;
      const verdict::Compared states =
          compared(std::string(call::name_of(snapshot.target)), outputs);
      for (std::int64_t i = 0; i < dims_.K * dims_.V; ++i) {
        count += states.is_out(index_(snapshot.block, head, i / dims_.V, i % dims_.V)) ? 1 : 0;
      }
    }
    return count;
  }

 private:
  [[nodiscard]] verdict::Compared compared(const std::string& name,
                                           const call::TensorMap& outputs) const {
    const auto expected = outputs_.find(name);
    return {name, outputs, expected == outputs_.end() ? nullptr : &expected->second, contract_};
  }

  // Of a confirmation, the larger of what is there and this.
  void put(verdict::Grant& to, std::size_t at, double sigma, double bias) const {
    const bool more = to.multiple * sigma + bias > static_cast<double>(to.spread[at]);
    if (!confirms_ || more) store_grant(to, at, sigma, bias);
  }

  // f(token of the lane, v, position in o) over the outputs of a lane.
  template <class F>
  void each_output(const call::Sequence& sequence, std::int64_t head, F&& f) {
    const std::int64_t replayed = sequence.replay.count;
    for (std::int64_t t = 0; t < sequence.token_count; ++t) {
      for (std::int64_t x = 0; x < dims_.V; ++x) {
        f(replayed + t, x, index_.o(sequence.first_token + t, head, x));
      }
    }
  }

  // The same over what it adds to its ring, position in ring_d.
  template <class F>
  void each_correction(const call::Sequence& sequence, std::int64_t head, F&& f) {
    if (sequence.replay.ring < 0) return;
    for (std::int64_t t = sequence.replay.count; t < sequence.lane_tokens(); ++t) {
      for (std::int64_t x = 0; x < dims_.V; ++x) f(t, x, index_.d(sequence, t, head, x));
    }
  }

  // f(tensor, n, i, v, position in it) over the states that a lane leaves after its last token and
  // at checkpoints; n is that of the position. The start state is exact, and nothing is granted to
  // states between the tokens of an MTP call.
  template <class F>
  void each_state(const call::Sequence& sequence, std::int64_t head,
                  const std::vector<std::int64_t>& positions, F&& f) {
    for (const call::Snapshot& snapshot : sequence.snapshots) {
      if (snapshot.target == call::Target::kIntermediateStates) continue;
      const auto found = std::ranges::find(positions, snapshot.after);
      if (found == positions.end()) continue;
      const auto n = static_cast<std::size_t>(found - positions.begin());
      verdict::Expected& to = outputs_.at(std::string(call::name_of(snapshot.target)));
      for (std::int64_t i = 0; i < dims_.K; ++i) {
        for (std::int64_t x = 0; x < dims_.V; ++x) {
          f(to, n, i, x, index_(snapshot.block, head, i, x));
        }
      }
    }
  }

  // What a NaN may cost the numbers of its chunk (nonfinite_inputs.hpp).
  void mark_lost(const call::Sequence& sequence, std::int64_t head, const LaneCall& lane,
                 const std::vector<std::int64_t>& lost) {
    if (std::ranges::all_of(lost, [&](std::int64_t t) { return t == lane.lane.tokens; })) return;
    std::call_once(some_lost_, [&] {
      for (auto& [name, e] : outputs_) e.grant.overflows.resize(e.exact.golden.size(), 0);
    });
    const auto from = [&](std::int64_t x) { return lost[static_cast<std::size_t>(x)]; };
    each_output(sequence, head, [&](std::int64_t t, std::int64_t x, std::size_t at) {
      if (t >= from(x)) outputs_.at("o").grant.overflows[at] = 1;
    });
    each_correction(sequence, head, [&](std::int64_t t, std::int64_t x, std::size_t at) {
      if (t >= from(x)) outputs_.at("ring_d").grant.overflows[at] = 1;
    });
    each_state(
        sequence, head, lane.positions,
        [&](verdict::Expected& to, std::size_t n, std::int64_t, std::int64_t x, std::size_t at) {
          if (lane.positions[n] > from(x)) to.grant.overflows[at] = 1;
        });
  }

  const call::Record& record_;
  const call::Dims& dims_;
  const contract::Contract& contract_;
  const bool confirms_;
  const CallInputs inputs_;
  const OutputIndex index_;
  std::map<std::string, verdict::Expected>& outputs_;
  std::once_flag some_lost_;
};

}  // namespace

void grant_by_emulation(const call::Record& record, const call::Plan& plan,
                        const contract::Contract& contract, verdict::GrantDetail detail,
                        verdict::Expectations& expected) {
  const Runs runs = runs_for(record, plan, contract);
  for (auto& [name, e] : expected.outputs) {
    if (name == "intermediate_states") continue;
    const auto n = std::ssize(e.exact.golden);
    e.grant = empty_grant(e.exact, multiple_for(n, runs.random, plan.dims.V), detail);
  }
  SpreadEmulation emulation(record, plan, contract, false, expected);
  const parallel::Phase phase("budget");
  const std::vector<LaneJob> jobs = lanes_of(plan);
  parallel::for_each_index(std::ssize(jobs), [&](std::int64_t i) {
    const LaneJob& job = jobs[static_cast<std::size_t>(i)];
    emulation.run(*job.sequence, job.head, runs);
  });
}

void confirm_by_emulation(const call::Record& record, const call::Plan& plan,
                          const contract::Contract& contract, const call::TensorMap& outputs,
                          verdict::Expectations& expected) {
  const parallel::Phase phase("budget");
  const std::vector<LaneJob> jobs = lanes_of(plan);
  const double steps = std::max(steps_of_runs(record, plan, contract), 1.0);
  SpreadEmulation emulation(record, plan, contract, true, expected);
  const auto job = [&](std::int64_t i) { return jobs[static_cast<std::size_t>(i)]; };
  verdict::confirm_parts(
      std::ssize(jobs), kSpreadSteps + steps * kFewestRuns, steps,
      [&](std::int64_t i) { return emulation.count_out(*job(i).sequence, job(i).head, outputs); },
      [&](std::int64_t i, int runs) {
        emulation.run(*job(i).sequence, job(i).head,
                      {.random = runs / 2, .nearest = runs - runs / 2});
      });
}

}  // namespace goldenrule::delta
