// SPDX-License-Identifier: Apache-2.0
//
// The pool of a simulated server and what else it keeps: carries out the steps of its schedule,
// whatever a mistake has made of them. A step is a call of the layer with states; with a cache one
// of attention follows it, and behind an MTP call a draft acceptance.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/take.hpp"
#include "fixtures/random/philox.hpp"
#include "reference/delta/calls/outputs.hpp"
#include "reference/serving/cache_layer.hpp"
#include "reference/serving/tokens.hpp"
#include "reference/suites/slices.hpp"

namespace goldenrule::serving {

class Server {
 public:
  explicit Server(const cases::Scenario& scenario)
      : scenario_(scenario),
        slice_(suites::slice_of(scenario.op)),
        scheduler_(scenario),
        tokens_(scenario, scheduler_.requests()),
        attention_(scenario, scheduler_.requests()),
        pool_(scenario.state, state_shape(scheduler_.slot_count())),
        noise_(scenario.seed, "serving/noise") {}

  [[nodiscard]] Scheduler& scheduler() { return scheduler_; }

  [[nodiscard]] std::vector<call::Record> carry_out(const Step& step) {
    std::vector<call::Record> records{call_of(step)};
    if (scenario_.cache > 0) attention_.add_calls(step, records);
    return records;
  }

 private:
  call::Record call_of(const Step& step) {
    for (const Move& move : step.moves) carry_out(move);
    call::Record record = tokens_.call_of(step.mode, step.rows);
    record.source = "simulated server: " + cases::canonical(scenario_);
    add_slots(step, record);
    add_chain(step, record);
    record.inputs["initial_state"] = pool_;
    if (step.convention) record.convention = *step.convention;
    if (step.parameters || step.other_parameters) change_parameters(step, record);
    record.outputs = outputs_of(record, step);
    before_ = pool_;
    last_keys_ = record.inputs.at("k");
    const auto after = record.outputs.find("final_state");
    if (after != record.outputs.end()) pool_ = after->second;
    for (const char* kept : {"intermediate_states", "checkpoints"}) {
      const auto states = record.outputs.find(kept);
      if (states != record.outputs.end()) kept_[kept] = states->second;
    }
    // Servers of the other forms have no such output.
    if (scenario_.mtp != cases::MtpForm::kCommit) record.outputs.erase("intermediate_states");
    spoil_outputs(step, record);
    if (!step.stored) leave_states_out(step, record);
    return record;
  }

  [[nodiscard]] call::Shape state_shape(std::int64_t slots) const {
    const bool vk = scenario_.convention.state_layout == call::StateLayout::kVK;
    return {slots, scenario_.HV, vk ? scenario_.V : scenario_.K, vk ? scenario_.K : scenario_.V};
  }
  [[nodiscard]] std::int64_t block() const { return scenario_.HV * scenario_.K * scenario_.V; }

  static void change_parameters(const Step& step, call::Record& record) {
    constexpr double kOther = 0.5;
    for (const char* name : {"A_log", "dt_bias"}) {
      const auto found = record.inputs.find(name);
      if (found == record.inputs.end()) continue;
      call::Tensor& tensor = found->second;
      if (step.parameters) {
        const call::Tensor rounded(*step.parameters, tensor.shape(), tensor.to_doubles());
        tensor = call::Tensor(tensor.dtype(), tensor.shape(), rounded.to_doubles());
      }
      for (std::int64_t i = 0; step.other_parameters && i < tensor.size(); ++i) {
        tensor.set(i, tensor[i] + kOther);
      }
    }
  }

  // So many numbers of the size of these; of size 1 where they are zero.
  [[nodiscard]] std::vector<double> noise_like(const call::Tensor& like, std::int64_t count) {
    double square = 0.0;
    for (const double x : like.to_doubles()) square += x * x;
    const double size = square == 0.0 ? 1.0 : std::sqrt(square / static_cast<double>(like.size()));
    std::vector<double> noise(static_cast<std::size_t>(count));
    for (double& x : noise) x = size * noise_.normal(drawn_++);
    return noise;
  }

  void spoil_outputs(const Step& step, call::Record& record) {
    if (step.spoiled == Spoiled::kNothing) return;
    call::Tensor& o = record.outputs.at("o");
    const std::int64_t size = o.size() / std::ssize(step.rows);  // decode calls alone have this
    std::vector<std::int64_t> live;
    for (std::int64_t b = 0; b < std::ssize(step.rows); ++b) {
      if (step.rows[static_cast<std::size_t>(b)].request >= 0) live.push_back(b);
    }
    if (step.spoiled == Spoiled::kNan) {
      o.set(live.back() * size, std::numeric_limits<double>::quiet_NaN());
      return;
    }
    const bool noisy = step.spoiled == Spoiled::kNoise;
    const call::Tensor other =
        noisy ? call::Tensor(o.dtype(), o.shape(), noise_like(o, o.size())) : o;
    for (std::size_t n = 0; n < live.size(); ++n) {
      const std::int64_t from = noisy ? live[n] : live[(n + 1) % live.size()];
      for (std::int64_t i = 0; i < size; ++i) o.set(live[n] * size + i, other[from * size + i]);
    }
  }

  void leave_states_out(const Step& step, call::Record& record) const {
    record.inputs["initial_state"] =
        call::Tensor(step.empty_pool.value_or(scenario_.state), state_shape(0));
    for (const char* name : {"final_state", "intermediate_states", "checkpoints"}) {
      record.outputs.erase(name);
    }
  }

  // States in the type of the pool, whatever type the contract would store them in.
  call::TensorMap outputs_of(const call::Record& record, const Step& step) const {
    call::Record given = record;
    if (step.keys_of_last) {
      given.inputs["k"] =
          call::take(last_keys_, 0, call::all_indices(record.inputs.at("k").shape().front()));
    }
    call::TensorMap outputs;
    for (const auto& [name, tensor] :
         slice_.emulate(given, slice_.default_contract(record), kKernelSeed)) {
      const call::DType type =
          name == "o" ? step.outputs.value_or(record.inputs.at("v").dtype()) : scenario_.state;
      outputs.emplace(name, call::Tensor(type, tensor.shape(), tensor.to_doubles()));
    }
    return outputs;
  }

  void add_slots(const Step& step, call::Record& record) const {
    const std::vector<Row>& rows = step.rows;
    const bool scatter = step.mode == call::Mode::kMtp && !rows.front().columns.empty();
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
    if (step.mode == call::Mode::kMtp) {
      record.convention.disable_state_update = 1;
      return;
    }
    if (to != from) record.inputs["output_state_indices"] = integers(1, to);
    if (step.mode != call::Mode::kPrefill) return;
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
  void add_chain(const Step& step, call::Record& record) const {
    const std::vector<Row>& rows = step.rows;
    add_ids(rows, record);
    if (step.mode == call::Mode::kMtp) {
      record.inputs["accepted_counts"] =
          integers(1, of_rows(rows, [](const Row& r) { return said_of(r).accepted; }));
    }
    if (step.mode != call::Mode::kMtp || scenario_.tree == 0) return;
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
  [[nodiscard]] call::Tensor load(const Place& place) {
    call::Tensor state(scenario_.state, state_shape(1));
    const call::Tensor* from = nullptr;
    std::int64_t index = place.index;
    switch (place.where) {
      case Place::Where::kNothing:
        return state;
      case Place::Where::kSlot:
        from = &pool_;
        break;
      case Place::Where::kFormer:
        from = &before_;
        break;
      case Place::Where::kNoise:
        return {scenario_.state, state_shape(1), noise_like(pool_, block())};
      case Place::Where::kIntermediate:
        from = &kept_.at("intermediate_states");
        break;
      case Place::Where::kCheckpoint:
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
    call::Tensor state = load(move.from);
    if (move.replay) state = replayed(move, state);
    if (move.through) {
      state = {scenario_.state, state.shape(),
               call::Tensor(*move.through, state.shape(), state.to_doubles()).to_doubles()};
    }
    if (move.heads != 0 || move.first_half) {
      std::vector<std::int64_t> heads = call::all_indices(scenario_.HV);
      for (std::int64_t& head : heads) {
        head = move.first_half ? head % (scenario_.HV / 2) : (head + move.heads) % scenario_.HV;
      }
      state = call::take(state, 1, heads);
    }
    if (move.transposed || move.factor != 1.0) state = rewritten(move, state);
    call::Tensor there = load(move.to);
    std::memcpy(there.bytes().data(), state.bytes().data(),
                state.bytes().size() / static_cast<std::size_t>(move.part));
    if (move.to.where != Place::Where::kSlot) {
      store_[move.to] = std::move(there);
      return;
    }
    const std::size_t bytes = there.bytes().size();
    std::memcpy(pool_.bytes().data() + static_cast<std::size_t>(move.to.index) * bytes,
                there.bytes().data(), bytes);
  }

  [[nodiscard]] call::Tensor replayed(const Move& move, const call::Tensor& state) const {
    call::Record record = tokens_.call_of(*move.replay, move.decay_only);
    record.inputs["initial_state"] = state;
    return outputs_of(record, {}).at("final_state");
  }

  [[nodiscard]] call::Tensor rewritten(const Move& move, const call::Tensor& state) const {
    const std::int64_t rows = state.shape()[2];
    const std::int64_t columns = state.shape()[3];
    call::Tensor to(state.dtype(), state.shape());
    for (std::int64_t i = 0; i < state.size(); ++i) {
      const std::int64_t within = i % (rows * columns);
      const std::int64_t other = (within % columns) * rows + within / columns;
      to.set(i, move.factor * state[move.transposed ? i - within + other : i]);
    }
    return to;
  }

  const cases::Scenario& scenario_;
  const verdict::Slice& slice_;
  Scheduler scheduler_;
  Tokens tokens_;
  CacheLayer attention_;
  call::Tensor pool_;
  call::Tensor before_ = pool_;               // as the last call found it
  std::map<std::string, call::Tensor> kept_;  // what the last calls that have them left
  std::map<Place, call::Tensor> store_;
  call::Tensor last_keys_;  // of the last call
  random::Stream noise_;
  std::int64_t drawn_ = 0;
};

}  // namespace goldenrule::serving
