// SPDX-License-Identifier: Apache-2.0
//
// Length: the tensors of a call and what runs leave in each, which are read together.
#include "reference/backward/budget/grant.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "fixtures/call/f32_bound.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/backward/emulation/kernel_group.hpp"
#include "reference/backward/rule/pooled.hpp"
#include "reference/delta/budget/spread.hpp"
#include "reference/verdict/confirm.hpp"
#include "reference/verdict/grants.hpp"

namespace goldenrule::backward {
namespace {

using verdict::Expected;

constexpr double kSamples = 512.0;
// Core-seconds of one run for each token and value head, by what a chunk multiplies, measured.
constexpr double kSecondsPerProduct = 0.15e-9;

double seconds_of_run(const call::Dims& d, const contract::Contract& contract) {
  const auto C = static_cast<double>(contract.adjoint()->chunk);
  const auto K = static_cast<double>(d.K);
  const auto V = static_cast<double>(d.V);
  const double products = 4 * K * V + C * (9 * K + 6 * V + 3 * C) + 40 * (K + V);
  return static_cast<double>(d.tokens * d.HV) * products * kSecondsPerProduct;
}

}  // namespace

class GroupGrant::Granting {
  // What runs of one kind leave in the tensors of a group.
  struct GroupErrors {
    MeanSquares dq, dk;
    struct OfLane {
      MeanSquares dv, dgate, dbeta, dstart;
    };
    std::vector<OfLane> lanes;
  };

  // What one lane adds to the parameters in each run, [runs] and [runs, gates], and the mean
  // squares of the errors of its terms in each kind of runs, [2] and [2, gates].
  struct ParameterRuns {
    std::vector<double> amplitude, bias;
    std::vector<double> amplitude_terms, bias_terms;
    double flushed = 0.0;
  };

 public:
  Granting(const call::Record& record, const call::Dims& dims, const contract::Contract& contract,
           verdict::Expectations& expected)
      : record_(record),
        c_(record.convention),
        d_(dims),
        contract_(contract),
        gates_(call::gate_channels(record, dims.K)),
        sequences_(sequences_of(record, dims)),
        state_(call::output_strides(record, dims, "dinitial_state")) {
    for (auto& [name, e] : expected.outputs) outputs_[name] = &e;
  }

  // Nothing, to be raised by what runs say.
  void begin(verdict::GrantDetail detail, int runs) {
    for (auto& [name, to] : outputs_) {
      Expected& e = *to;
      const auto n = std::ssize(e.exact.golden);
      const double multiple = delta::multiple_for(n, runs_of_kind(runs, true), kPooledRow);
      e.grant = verdict::empty_grant(e.exact, multiple, detail);
      e.grant.overflows.assign(e.exact.golden.size(), 0);
      e.grant.flushed.assign(e.exact.touched.size() * e.exact.channels, 0.0F);
      if (says_nothing_of(name)) e.grant.given = false;
    }
    parameters_.resize(static_cast<std::size_t>(std::ssize(sequences_) * d_.HV));
  }

  // A kernel that is given alpha differentiates its logarithm, or not: nobody has declared which.
  [[nodiscard]] bool says_nothing_of(const std::string& name) const {
    return c_.gate == call::Gate::kLinear && name == "dg";
  }

  void run(int runs) {
    parallel::for_each_index(group_count(),
                             [&](std::int64_t i) { grant_group(group_of(i), runs); });
    finish(runs);
  }

  // Behind the runs of all groups.
  void finish(int runs) const {
    const auto runs_of = [](auto member) {
      return [member](const ParameterRuns& p) -> const std::vector<double>& { return p.*member; };
    };
    grant_parameters("dA_log", 1, runs, runs_of(&ParameterRuns::amplitude),
                     runs_of(&ParameterRuns::amplitude_terms));
    grant_parameters("ddt_bias", static_cast<std::size_t>(gates_), runs,
                     runs_of(&ParameterRuns::bias), runs_of(&ParameterRuns::bias_terms));
    for (const auto& [name, e] : outputs_) admit_anything(*e);
  }

  // Asks again, of the groups in which `outputs` are out of budget; a run of all takes `of_run`.
  void confirm(const call::TensorMap& outputs, double of_run) {
    verdict::confirm_parts(
        group_count(), kUsualSeconds + of_run * kFewestRuns, of_run,
        [&](std::int64_t i) { return count_out(group_of(i), outputs); },
        [&](std::int64_t i, int runs) { grant_group(group_of(i), runs); });
  }

  // Of one group; `reader` may read its runs as well.
  void grant_group(const Group& g, int runs, const RunReader& reader = {}) {
    GroupErrors errors = no_errors(g);
    const double flushed = flushing_of(g, contract_);
    const auto take = [&](const GroupOutputs& run) {
      take_run(g, run, errors);
      keep_parameters(g, run);
      if (reader.take) reader.take(run);
    };
    const auto end = [&](int of_kind) {
      store_group(g, errors, flushed, of_kind);
      keep_terms(g, errors, flushed, of_kind);
      errors = no_errors(g);
      if (reader.end) reader.end(of_kind);
    };
    run_kinds(record_, g, contract_, runs, {.stages = reader.stages, .take = take, .end = end});
  }

 private:
  [[nodiscard]] std::int64_t group_count() const { return std::ssize(sequences_) * d_.H; }

  [[nodiscard]] Group group_of(std::int64_t i) const {
    return make_group(record_, d_, contract_, i / d_.H,
                      sequences_[static_cast<std::size_t>(i / d_.H)], i % d_.H);
  }

  // The finite elements of what a group alone leaves that are out of budget.
  [[nodiscard]] std::int64_t count_out(const Group& g, const call::TensorMap& outputs) const {
    std::int64_t out = 0;
    const auto add = [&](const std::string& name, auto&& place, std::int64_t count) {
      const auto to = outputs_.find(name);
      const verdict::Compared compared(name, outputs, to == outputs_.end() ? nullptr : to->second,
                                       contract_);
      for (std::int64_t i = 0; i < count; ++i) {
        out += compared.is_out(static_cast<std::size_t>(place(i))) ? 1 : 0;
      }
    };
    const std::int64_t T = g.tokens.count;
    const auto of_key = [&](std::int64_t i) {
      return q_place(g, i / d_.K) + static_cast<std::size_t>(i % d_.K);
    };
    add("dq", of_key, T * d_.K);
    add("dk", of_key, T * d_.K);
    for (std::size_t lane = 0; lane < g.heads.size(); ++lane) {
      const auto add_tokens = [&](const std::string& name, std::int64_t width) {
        const auto place = [&, width](std::int64_t i) {
          return head_place(g, lane, i / width) * static_cast<std::size_t>(width) +
                 static_cast<std::size_t>(i % width);
        };
        add(name, place, T * width);
      };
      const auto state = [&](std::int64_t i) {
        return state_(g.sequence, g.heads[lane], i / d_.V, i % d_.V);
      };
      add_tokens("dv", d_.V);
      add_tokens(beta_output(c_), 1);
      if (c_.gate != call::Gate::kNone) add_tokens(gate_output(c_), gates_);
      add("dinitial_state", state, d_.K * d_.V);
    }
    return out;
  }

  [[nodiscard]] std::size_t q_place(const Group& g, std::int64_t t) const {
    return static_cast<std::size_t>(((g.tokens.first + t) * d_.H + g.qk_head) * d_.K);
  }
  [[nodiscard]] std::size_t head_place(const Group& g, std::size_t lane, std::int64_t t) const {
    return static_cast<std::size_t>((g.tokens.first + t) * d_.HV + g.heads[lane]);
  }

  // The error of a run, where both are numbers.
  void take(Expected& e, std::size_t at, double value, MeanSquares& to, std::size_t index) const {
    if (!std::isfinite(e.exact.golden[at])) return;
    if (std::isfinite(value)) {
      to.add(index, value - e.exact.golden[at]);
    } else {
      e.grant.overflows[at] = 1;
    }
  }

  void take_run(const Group& g, const GroupOutputs& run, GroupErrors& to) const {
    const auto K = static_cast<std::size_t>(d_.K);
    const auto V = static_cast<std::size_t>(d_.V);
    const auto gates = static_cast<std::size_t>(gates_);
    Expected& dq = *outputs_.at("dq");
    Expected& dk = *outputs_.at("dk");
    for (std::int64_t t = 0; t < g.tokens.count; ++t) {
      const auto row = static_cast<std::size_t>(t);
      for (std::size_t i = 0; i < K; ++i) {
        take(dq, q_place(g, t) + i, run.dq[row * K + i], to.dq, row * K + i);
        take(dk, q_place(g, t) + i, run.dk[row * K + i], to.dk, row * K + i);
      }
    }
    Expected& dv = *outputs_.at("dv");
    Expected& dbeta = *outputs_.at(beta_output(c_));
    Expected* dgate = c_.gate == call::Gate::kNone ? nullptr : outputs_.at(gate_output(c_));
    Expected& states = *outputs_.at("dinitial_state");
    for (std::size_t lane = 0; lane < g.heads.size(); ++lane) {
      const LaneOutputs& part = run.lanes[lane];
      GroupErrors::OfLane& errors = to.lanes[lane];
      for (std::int64_t t = 0; t < g.tokens.count; ++t) {
        const auto row = static_cast<std::size_t>(t);
        const std::size_t at = head_place(g, lane, t);
        for (std::size_t i = 0; i < V; ++i) {
          take(dv, at * V + i, part.dv[row * V + i], errors.dv, row * V + i);
        }
        take(dbeta, at, part.dbeta[row], errors.dbeta, row);
        for (std::size_t i = 0; dgate != nullptr && i < gates; ++i) {
          take(*dgate, at * gates + i, part.dgate[row * gates + i], errors.dgate, row * gates + i);
        }
      }
      for (std::int64_t i = 0; i < d_.K; ++i) {
        for (std::int64_t c = 0; c < d_.V; ++c) {
          const auto index = static_cast<std::size_t>(i * d_.V + c);
          take(states, state_(g.sequence, g.heads[lane], i, c), part.dstart[index], errors.dstart,
               index);
        }
      }
    }
  }

  [[nodiscard]] GroupErrors no_errors(const Group& g) const {
    const std::int64_t T = g.tokens.count;
    GroupErrors errors{MeanSquares(T * d_.K), MeanSquares(T * d_.K), {}};
    for (std::size_t lane = 0; lane < g.heads.size(); ++lane) {
      errors.lanes.push_back({MeanSquares(T * d_.V), MeanSquares(T * gates_), MeanSquares(T),
                              MeanSquares(d_.K * d_.V)});
    }
    return errors;
  }

  [[nodiscard]] ParameterRuns& parameters_of(const Group& g, std::size_t lane) {
    return parameters_[static_cast<std::size_t>(g.sequence * d_.HV + g.heads[lane])];
  }

  void keep_parameters(const Group& g, const GroupOutputs& run) {
    if (parameters_.empty()) return;  // of a confirmation: they are sums over all groups
    for (std::size_t lane = 0; lane < g.heads.size(); ++lane) {
      ParameterRuns& to = parameters_of(g, lane);
      to.amplitude.push_back(run.lanes[lane].amplitude);
      to.bias.insert(to.bias.end(), run.lanes[lane].bias.begin(), run.lanes[lane].bias.end());
    }
  }

  // The gradients by a gate's input are the terms of ddt_bias; those of dA_log are as many times
  // them as the slope by A_log is of that by the input.
  void keep_terms(const Group& g, const GroupErrors& errors, double flushed, int runs) {
    if (parameters_.empty()) return;
    const auto gates = static_cast<std::size_t>(gates_);
    for (std::size_t lane = 0; lane < g.heads.size(); ++lane) {
      ParameterRuns& to = parameters_of(g, lane);
      to.flushed = flushed;
      const std::vector<double> squares = errors.lanes[lane].dgate.mean(runs);
      double amplitude = 0.0;
      std::vector<double> bias(gates, 0.0);
      for (std::size_t at = 0; at < g.gates[lane].size(); ++at) {
        const GateChain& chain = g.gates[lane][at];
        const double ratio = chain.input == 0.0 ? 0.0 : chain.amplitude / chain.input;
        amplitude += ratio * ratio * squares[at];
        bias[at % gates] += squares[at];
      }
      to.amplitude_terms.push_back(amplitude);
      to.bias_terms.insert(to.bias_terms.end(), bias.begin(), bias.end());
    }
  }

  // The larger of what is there and what a kind of runs says.
  static void store(Expected& e, std::size_t at, double sigma2, double flushed) {
    if (!std::isfinite(e.exact.golden[at])) return;
    e.grant.flushed[e.exact.channel(at)] = call::f32_not_below(flushed);
    const double sigma = std::sqrt(sigma2);
    const double before = e.grant.spread.empty() ? 0.0 : static_cast<double>(e.grant.spread[at]);
    if (sigma * e.grant.multiple > before) verdict::store_grant(e.grant, at, sigma, 0.0);
  }

  void store_group(const Group& g, const GroupErrors& errors, double flushed, int runs) const {
    const std::int64_t chunk = contract_.adjoint()->chunk;
    const auto K = static_cast<std::size_t>(d_.K);
    const auto rows = [&](const MeanSquares& from, std::int64_t width, std::int64_t together,
                          const std::function<void(std::size_t, double)>& put) {
      const std::vector<double> sigma2 = pooled(from.mean(runs), width, together);
      for (std::size_t i = 0; i < sigma2.size(); ++i) put(i, sigma2[i]);
    };
    for (const auto& [name, from] : {std::pair("dq", &errors.dq), std::pair("dk", &errors.dk)}) {
      Expected& e = *outputs_.at(name);
      rows(*from, d_.K, chunk, [&](std::size_t i, double s2) {
        store(e, q_place(g, static_cast<std::int64_t>(i / K)) + i % K, s2, flushed);
      });
    }
    for (std::size_t lane = 0; lane < g.heads.size(); ++lane) {
      const GroupErrors::OfLane& of = errors.lanes[lane];
      const auto in_lane = [&](Expected& e, std::int64_t channels) {
        const auto width = static_cast<std::size_t>(channels);
        return [&, width](std::size_t i, double s2) {
          store(e, head_place(g, lane, static_cast<std::int64_t>(i / width)) * width + i % width,
                s2, flushed);
        };
      };
      rows(of.dv, d_.V, chunk, in_lane(*outputs_.at("dv"), d_.V));
      Expected& dbeta = *outputs_.at(beta_output(c_));
      store_tokens(g, lane, of.dbeta.mean(runs), units_of(g, lane, dbeta), flushed, dbeta);
      if (c_.gate != call::Gate::kNone) {
        Expected& e = *outputs_.at(gate_output(c_));
        if (gates_ == 1) {
          std::vector<double> units = units_of(g, lane, e);
          add_later(units);
          store_tokens(g, lane, of.dgate.mean(runs), units, flushed, e);
        } else {
          rows(of.dgate, gates_, chunk, in_lane(e, gates_));
        }
      }
      Expected& states = *outputs_.at("dinitial_state");
      rows(of.dstart, d_.V, d_.K, [&](std::size_t i, double s2) {
        const auto at = static_cast<std::int64_t>(i);
        store(states, state_(g.sequence, g.heads[lane], at / d_.V, at % d_.V), s2, flushed);
      });
    }
  }

  // The sizes of a lane's tokens.
  [[nodiscard]] std::vector<double> units_of(const Group& g, std::size_t lane,
                                             const Expected& e) const {
    std::vector<double> units;
    for (std::int64_t t = 0; t < g.tokens.count; ++t) {
      const std::size_t at = head_place(g, lane, t);
      units.push_back(e.exact.unit.empty() ? 0.0 : static_cast<double>(e.exact.unit[at]));
    }
    return units;
  }

  // To each token those of its chunk that are added to it.
  void add_later(std::vector<double>& units) const {
    const auto chunk = static_cast<std::size_t>(contract_.adjoint()->chunk);
    for (std::size_t t = units.size(); t-- > 0;) {
      if ((t + 1) % chunk != 0 && t + 1 < units.size()) {
        units[t] = std::hypot(units[t], units[t + 1]);
      }
    }
  }

  // One number a token.
  void store_tokens(const Group& g, std::size_t lane, const std::vector<double>& mean_squares,
                    const std::vector<double>& units, double flushed, Expected& e) const {
    const std::vector<double> sigma2 =
        pooled_in_units(mean_squares, units, contract_.adjoint()->chunk);
    for (std::size_t t = 0; t < sigma2.size(); ++t) {
      store(e, head_place(g, lane, static_cast<std::int64_t>(t)), sigma2[t], flushed);
    }
  }

  // That of a lane of parameters_.
  [[nodiscard]] std::size_t parameter_head(const ParameterRuns& lane) const {
    return static_cast<std::size_t>(call::gate_head(c_, d_, (&lane - parameters_.data()) % d_.HV));
  }

  // `runs_of`: what a lane adds in one run, [width]. `terms_of`: the mean squares of the errors of
  // its terms in one kind of runs.
  template <class Runs, class Terms>
  void grant_parameters(const char* name, std::size_t width, int all_runs, Runs&& runs_of,
                        Terms&& terms_of) const {
    const auto it = outputs_.find(name);
    if (it == outputs_.end()) return;
    Expected& e = *it->second;
    const std::size_t size = e.exact.golden.size();
    std::vector<double> flushed(size / width, 0.0);
    for (const ParameterRuns& lane : parameters_) {
      double& of_head = flushed[parameter_head(lane)];
      of_head = std::max(of_head, lane.flushed);
    }
    // part(lane)[i] of every lane, summed.
    const auto summed = [&](auto&& part) {
      std::vector<double> sums(size, 0.0);
      for (const ParameterRuns& lane : parameters_) {
        const std::size_t first = parameter_head(lane) * width;
        for (std::size_t i = 0; i < width; ++i) sums[first + i] += part(lane)[i];
      }
      return sums;
    };
    std::size_t run = 0;
    for (const bool random : {true, false}) {
      const int runs = runs_of_kind(all_runs, random);
      MeanSquares errors(std::ssize(e.exact.golden));
      for (const std::size_t end = run + static_cast<std::size_t>(runs); run < end; ++run) {
        const std::vector<double> sums =
            summed([&](const ParameterRuns& lane) { return &runs_of(lane)[run * width]; });
        for (std::size_t i = 0; i < size; ++i) take(e, i, sums[i], errors, i);
      }
      const std::size_t kind = random ? 0 : 1;
      const std::vector<double> sigma2 = pooled_sums(
          errors.mean(runs),
          summed([&](const ParameterRuns& lane) { return &terms_of(lane)[kind * width]; }));
      for (std::size_t i = 0; i < size; ++i) store(e, i, sigma2[i], flushed[i / width]);
    }
  }

  const call::Record& record_;
  const call::Convention& c_;
  const call::Dims& d_;
  const contract::Contract& contract_;
  std::int64_t gates_;
  std::vector<Sequence> sequences_;
  call::Strides state_;
  std::map<std::string, Expected*> outputs_;
  std::vector<ParameterRuns> parameters_;  // [sequences, HV]
};

void run_kinds(const call::Record& record, const Group& group, const contract::Contract& contract,
               int runs, const RunReader& reader) {
  for (const bool random : {true, false}) {
    const int of_kind = runs_of_kind(runs, random);
    for (int run = 0; run < of_kind; ++run) {
      parallel::stop_if_asked();
      const RunOf one{.random = random, .seed = seed_of_run(run, random), .stages = reader.stages};
      reader.take(run_group(record, group, contract, one));
    }
    reader.end(of_kind);
  }
}

GroupGrant::GroupGrant(const call::Record& record, const call::Dims& dims,
                       const contract::Contract& contract, verdict::Expectations& expected)
    : runs_(runs_of(dims, contract)),
      granting_(std::make_unique<Granting>(record, dims, contract, expected)) {
  granting_->begin(verdict::GrantDetail::kSpread, runs_);
}
GroupGrant::~GroupGrant() = default;

void GroupGrant::run(const Group& group, const RunReader& reader) {
  granting_->grant_group(group, runs_, reader);
}
void GroupGrant::finish() { granting_->finish(runs_); }

int runs_of(const call::Dims& d, const contract::Contract& contract) {
  const double seconds = std::max(seconds_of_run(d, contract), 1e-9);
  const double wanted = std::clamp(kSamples / static_cast<double>(std::min(d.K, d.V)),
                                   static_cast<double>(kUsualRuns), static_cast<double>(kMostRuns));
  return static_cast<int>(
      std::clamp(kUsualSeconds / seconds, static_cast<double>(kFewestRuns), wanted));
}

int runs_of_kind(int runs, bool random) { return random ? runs / 2 : runs - runs / 2; }

std::uint64_t seed_of_run(int run, bool random) {
  return delta::kSpreadSeed + 2 * static_cast<std::uint64_t>(run) + (random ? 0 : 1);
}

void admit_anything(verdict::Expected& e) {
  e.grant.anything.assign(e.exact.touched.size(), 0);
  for (std::size_t i = 0; i < e.grant.spread.size(); ++i) {
    if (e.grant.overflows[i] == 0 || e.grant.spread[i] > 0.0F) continue;
    e.grant.spread[i] = std::numeric_limits<float>::max();
    e.grant.anything[i / e.exact.block] = 1;
  }
}

double flushing_of(const Group& group, const contract::Contract& contract) {
  double largest = 1.0;
  const auto see = [&](const std::vector<double>& numbers) {
    for (const double x : numbers) {
      if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
    }
  };
  double width = 0.0;
  for (std::size_t i = 0; i < group.lanes.size(); ++i) {
    const LaneInputs& given = group.inputs[i];
    see(given.v);
    see(given.output_gradient);
    see(given.start);
    see(given.state_gradient);
    width = static_cast<double>(group.lanes[i].K + given.V);
  }
  const auto chunk = static_cast<double>(contract.adjoint()->chunk);
  return 0x1p-126 * width * chunk * largest * largest;
}

double grant_seconds(const call::Record& record, const contract::Contract& contract) {
  if (contract.adjoint() == nullptr) return 0.0;
  const call::Dims dims = call::validate(record);
  return seconds_of_run(dims, contract) * runs_of(dims, contract);
}

void grant(const call::Record& record, const contract::Contract& contract,
           verdict::GrantDetail detail, verdict::Expectations& expected) {
  for (auto& [name, e] : expected.outputs) {
    e.grant = {};
    e.grant.given = contract.is_ideal();
  }
  if (contract.adjoint() == nullptr) return;
  const call::Dims dims = call::validate(record);
  const int runs = runs_of(dims, contract);
  GroupGrant::Granting granting(record, dims, contract, expected);
  granting.begin(detail, runs);
  granting.run(runs);
}

void confirm(const call::Record& record, const contract::Contract& contract,
             const call::TensorMap& outputs, verdict::Expectations& expected) {
  if (contract.adjoint() == nullptr) return;
  const call::Dims dims = call::validate(record);
  if (runs_of(dims, contract) < kUsualRuns) confirm_groups(record, contract, outputs, expected);
}

void confirm_groups(const call::Record& record, const contract::Contract& contract,
                    const call::TensorMap& outputs, verdict::Expectations& expected) {
  const call::Dims dims = call::validate(record);
  GroupGrant::Granting(record, dims, contract, expected)
      .confirm(outputs, std::max(seconds_of_run(dims, contract), 1e-9));
}

}  // namespace goldenrule::backward
