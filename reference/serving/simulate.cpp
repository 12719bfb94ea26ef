// SPDX-License-Identifier: Apache-2.0
#include "reference/serving/simulate.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/take.hpp"
#include "reference/calls/outputs.hpp"
#include "reference/serving/mistakes.hpp"
#include "reference/serving/tokens.hpp"
#include "reference/suites/slices.hpp"

namespace goldenrule::serving {
namespace {

using call::Mode;
using call::Record;
using call::Tensor;
using Where = Place::Where;

constexpr std::uint64_t kKernelSeed = 1;

class Server {
 public:
  explicit Server(const cases::Scenario& scenario)
      : scenario_(scenario),
        slice_(suites::slice_of(scenario.op)),
        scheduler_(scenario),
        tokens_(scenario, scheduler_.requests()),
        pool_(scenario.state, state_shape(scheduler_.slot_count())) {}

  [[nodiscard]] Scheduler& scheduler() { return scheduler_; }

  Record carry_out(const Step& step) {
    for (const Move& move : step.moves) carry_out(move);
    Record record = tokens_.call_of(step.mode, step.rows);
    record.source = "simulated server: " + cases::canonical(scenario_);
    add_slots(step, record);
    add_chain(step, record);
    record.inputs["initial_state"] = pool_;
    if (step.parameters) round_parameters(*step.parameters, record);
    record.outputs = outputs_of(record, step);
    last_keys_ = record.inputs.at("k");
    const auto after = record.outputs.find("final_state");
    if (after != record.outputs.end()) pool_ = after->second;
    for (const char* kept : {"intermediate_states", "checkpoints"}) {
      const auto states = record.outputs.find(kept);
      if (states != record.outputs.end()) kept_[kept] = states->second;
    }
    // Servers of the other forms have no such output.
    if (scenario_.verify != cases::VerifyForm::kCommit) record.outputs.erase("intermediate_states");
    return record;
  }

 private:
  [[nodiscard]] call::Shape state_shape(std::int64_t slots) const {
    const bool vk = scenario_.convention.state_layout == call::StateLayout::kVK;
    return {slots, scenario_.HV, vk ? scenario_.V : scenario_.K, vk ? scenario_.K : scenario_.V};
  }
  [[nodiscard]] std::int64_t block() const { return scenario_.HV * scenario_.K * scenario_.V; }

  static void round_parameters(call::DType type, Record& record) {
    for (const char* name : {"A_log", "dt_bias"}) {
      const auto found = record.inputs.find(name);
      if (found == record.inputs.end()) continue;
      Tensor& tensor = found->second;
      const Tensor rounded(type, tensor.shape(), tensor.to_doubles());
      tensor = Tensor(tensor.dtype(), tensor.shape(), rounded.to_doubles());
    }
  }

  // States in the type of the pool, whatever type the contract would store them in.
  call::TensorMap outputs_of(const Record& record, const Step& step) const {
    Record given = record;
    if (step.keys_of_last) {
      given.inputs["k"] =
          call::take(last_keys_, 0, call::all_indices(record.inputs.at("k").shape().front()));
    }
    call::TensorMap outputs;
    for (const auto& [name, tensor] :
         slice_.emulate(given, slice_.default_contract(record), kKernelSeed)) {
      const call::DType type =
          name == "o" ? step.outputs.value_or(record.inputs.at("v").dtype()) : scenario_.state;
      outputs.emplace(name, Tensor(type, tensor.shape(), tensor.to_doubles()));
    }
    return outputs;
  }

  void add_slots(const Step& step, Record& record) const {
    const std::vector<Row>& rows = step.rows;
    const bool scatter = step.mode == Mode::kMtp && !rows.front().columns.empty();
    if (scatter) {
      std::vector<std::int64_t> slots;
      for (const Row& row : rows) slots.insert(slots.end(), row.columns.begin(), row.columns.end());
      record.inputs["ssm_state_indices"] = integers(scenario_.T, slots);
      record.inputs["num_accepted_tokens"] =
          integers(1, of_rows(rows, [](const Row& r) { return r.column; }));
      return;
    }
    const std::vector<std::int64_t> from = of_rows(rows, [](const Row& r) { return r.slot; });
    const std::vector<std::int64_t> to = of_rows(rows, [](const Row& r) { return r.out; });
    record.inputs["state_indices"] = integers(1, from);
    if (step.mode == Mode::kMtp) {
      record.convention.disable_state_update = 1;
      return;
    }
    if (to != from) record.inputs["output_state_indices"] = integers(1, to);
    if (step.mode != Mode::kPrefill) return;
    record.inputs["has_initial_state"] =
        integers(1, of_rows(rows, [](const Row& r) { return !r.fresh; }));
    if (scenario_.block == 0) return;
    std::vector<std::int64_t> offsets;
    for (const Row& row : rows) {
      offsets.insert(offsets.end(), row.checkpoints.begin(), row.checkpoints.end());
    }
    record.inputs["checkpoint_offsets"] = integers(1, offsets);
    record.inputs["cu_checkpoints"] =
        bounds(of_rows(rows, [](const Row& r) { return std::ssize(r.checkpoints); }));
  }

  // What the server means, beside what the kernel is given.
  void add_chain(const Step& step, Record& record) const {
    const std::vector<Row>& rows = step.rows;
    record.inputs["request_ids"] =
        integers(1, of_rows(rows, [](const Row& r) { return r.request; }));
    record.inputs["positions"] =
        integers(1, of_rows(rows, [](const Row& r) { return r.position; }));
    record.inputs["restored_from"] =
        integers(1, of_rows(rows, [](const Row& r) { return r.restored_from; }));
    if (step.mode == Mode::kMtp) {
      record.inputs["accepted_counts"] =
          integers(1, of_rows(rows, [](const Row& r) { return r.accepted; }));
    }
    if (step.mode != Mode::kMtp || scenario_.tree == 0) return;
    std::vector<std::int64_t> parents;
    for (const Row& row : rows) {
      for (std::int64_t t = 0; t < row.count; ++t) {
        parents.push_back(row.parents.empty() ? t - 1  // padding
                                              : row.parents[static_cast<std::size_t>(t)]);
      }
    }
    record.inputs["parent_tokens"] = integers(scenario_.T, parents);
    record.inputs["accepted_last"] =
        integers(1, of_rows(rows, [](const Row& r) { return r.kept - 1; }));
  }

  // A place that nobody has written holds zeros.
  [[nodiscard]] Tensor load(const Place& place) const {
    Tensor state(scenario_.state, state_shape(1));
    const Tensor* from = nullptr;
    std::int64_t index = place.index;
    switch (place.where) {
      case Where::kNothing:
        return state;
      case Where::kSlot:
        from = &pool_;
        break;
      case Where::kIntermediate:
        from = &kept_.at("intermediate_states");
        break;
      case Where::kCheckpoint:
        from = &kept_.at("checkpoints");
        break;
      default: {
        const auto stored = store_.find(place);
        if (stored != store_.end()) from = &stored->second;
        index = 0;
      }
    }
    if (from != nullptr) calls::copy_blocks(*from, block(), {index}, state);
    return state;
  }

  void carry_out(const Move& move) {
    Tensor state = load(move.from);
    if (move.replay) state = replayed(*move.replay, state);
    if (move.through) {
      state = {scenario_.state, state.shape(),
               Tensor(*move.through, state.shape(), state.to_doubles()).to_doubles()};
    }
    if (move.heads != 0) {
      std::vector<std::int64_t> heads = call::all_indices(scenario_.HV);
      for (std::int64_t& head : heads) head = (head + move.heads) % scenario_.HV;
      state = call::take(state, 1, heads);
    }
    Tensor there = load(move.to);
    std::memcpy(there.bytes().data(), state.bytes().data(),
                state.bytes().size() / static_cast<std::size_t>(move.part));
    if (move.to.where != Where::kSlot) {
      store_[move.to] = std::move(there);
      return;
    }
    const std::size_t bytes = there.bytes().size();
    std::memcpy(pool_.bytes().data() + static_cast<std::size_t>(move.to.index) * bytes,
                there.bytes().data(), bytes);
  }

  [[nodiscard]] Tensor replayed(const Stretch& s, const Tensor& state) const {
    Row row;
    row.request = s.request;
    row.position = s.begin;
    row.count = row.accepted = s.count;
    Record record = tokens_.call_of(Mode::kMtp, {row});
    record.inputs["initial_state"] = state;
    return outputs_of(record, {}).at("final_state");
  }

  const cases::Scenario& scenario_;
  const verdict::Slice& slice_;
  Scheduler scheduler_;
  Tokens tokens_;
  Tensor pool_;
  std::map<std::string, Tensor> kept_;  // what the last calls that have them left
  std::map<Place, Tensor> store_;
  Tensor last_keys_;  // of the last call
};

// Calls f(step, index) for every step, with the mistake of the scenario in it, until it is false.
template <class F>
Simulated walk(const cases::Scenario& scenario, Scheduler& scheduler, F&& f) {
  const ServerMistake* mistake = find_server_mistake(scenario.mistake);
  Past past{.scenario = &scenario, .scheduler = &scheduler};
  Simulated done;
  while (done.calls < scenario.calls) {
    std::optional<Step> step = scheduler.next();
    if (!step) break;
    const Step meant = *step;
    if (mistake != nullptr && mistake->change(*step, past)) {
      if (done.occasions++ == 0) done.first = done.calls;
    }
    past.add(meant);
    for (const Row& row : meant.rows) done.tokens += row.request < 0 ? 0 : row.count;
    if (!f(*step, done.calls++)) break;
  }
  return done;
}

}  // namespace

Simulated simulate(const cases::Scenario& scenario,
                   const std::function<bool(chain::Call&& call)>& sink) {
  Server server(scenario);
  const std::string name = chain_name(scenario);
  return walk(scenario, server.scheduler(), [&](const Step& step, std::int64_t index) {
    return sink({.chain = name, .index = index, .record = server.carry_out(step)});
  });
}

std::int64_t occasions(const cases::Scenario& scenario) {
  Scheduler scheduler(scenario);
  return walk(scenario, scheduler, [](const Step&, std::int64_t) { return true; }).occasions;
}

double memory_needed(const cases::Scenario& s) {
  constexpr double kProcess = 48.0 * (1 << 20);  // program, libraries, tables
  const auto count = [](std::int64_t n) { return static_cast<double>(n); };
  const double lengths = count(s.requests) * count(s.prompt + s.output);
  const double gates = count(s.HV) * (s.op == call::Op::kKda ? count(s.K) : 1.0);
  // The numbers of a token in their types (gate and beta in f32 at most); those of all requests and
  // their rejected drafts are made before the first call, and those of one call are doubles as
  // well.
  constexpr double kPlaces = 32.0;  // of a token, while all are drawn
  const double vectors = 2.0 * count(s.H * s.K) + count(s.HV * s.V);
  const double scalars = gates + count(s.HV);
  const double token =
      kPlaces + 4.0 * scalars + vectors * count(static_cast<std::int64_t>(call::info(s.io).bytes));
  const double token_in_call = token + 8.0 * (vectors + scalars);
  const double resident = count(cases::resident_requests(s));
  const double in_call = resident * count(std::max(s.T, s.chunk));
  const double state = count(s.HV) * count(s.K) * count(s.V);
  const double bytes = count(static_cast<std::int64_t>(call::info(s.state).bytes));
  constexpr double kPathsOfTree = 16.0;  // kMostPathTokens of the oracle
  const double slots = resident * (s.verify == cases::VerifyForm::kScatter ? count(s.T) : 1.0);
  // The states that a call leaves on the way: after each token of a verify, at each boundary.
  const double on_the_way = resident * (count(s.T) * (s.tree == 0 ? 1.0 : kPathsOfTree) +
                                        (s.block == 0 ? 0.0 : count(s.chunk / s.block + 1)));
  const double kept =
      count(s.requests) * (1.0 + (s.rollback != 0 ? count(s.T) : 0.0) +
                           (s.block == 0 ? 0.0 : count((s.prompt + s.output) / s.block)));
  // The pool, as a call found and left it; what the kernel computes, in double, beside what is
  // stored of it; what is kept for requests.
  return kProcess + 2.0 * lengths * token + in_call * token_in_call +
         state * (slots * (4.0 * bytes + 16.0) + on_the_way * (2.0 * bytes + 16.0) + kept * bytes);
}

std::string chain_name(const cases::Scenario& scenario) {
  const std::uint64_t hash = random::fnv1a(cases::canonical(scenario));
  std::array<char, 16> hex{};
  std::snprintf(hex.data(), hex.size(), "_%08x", static_cast<unsigned>((hash >> 32) ^ hash));
  return std::string("chain_") + (scenario.op == call::Op::kKda ? "kda" : "gdn") + "_R" +
         std::to_string(scenario.requests) + "_C" + std::to_string(scenario.calls) + hex.data();
}

}  // namespace goldenrule::serving
