// SPDX-License-Identifier: Apache-2.0
#include "reference/oracle/emulate.hpp"

#include <limits>

#include "fixtures/call/plan.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/bounds/chunk_emulator.hpp"
#include "reference/bounds/chunk_f32_emulator.hpp"
#include "reference/bounds/kernel_lane.hpp"
#include "reference/bounds/recurrent_emulator.hpp"
#include "reference/oracle/evaluate.hpp"
#include "reference/oracle/lane_io.hpp"

namespace goldenrule::oracle {
namespace {

using Values = std::map<std::string, std::vector<double>>;

// Writes the results of lanes into the tensors of a call.
class Emulation {
 public:
  Emulation(const call::Record& record, const call::Plan& plan, const bounds::Contract& contract,
            std::uint64_t seed, Values& values)
      : record_(record),
        dims_(plan.dims),
        contract_(contract),
        seed_(seed),
        inputs_(record),
        index_(record, plan.dims),
        unrounded_rows_(contract),
        values_(values) {
    // q^ and k^ are rounded by the chunk emulator, at points of its own.
    for (const bounds::Point point : {bounds::Point::kQuery, bounds::Point::kKey}) {
      unrounded_rows_.rounding[static_cast<std::size_t>(point)].reset();
    }
  }

  void run(const call::Sequence& sequence, std::int64_t head) {
    const auto lane = rule::prepare_lane<double>(record_, dims_, inputs_, sequence.first_token,
                                                 sequence.token_count, head);
    const auto v = lane_values(inputs_, dims_, sequence, head);
    const auto start = lane_start(inputs_, dims_, index_, sequence, head);
    const auto stream = static_cast<std::uint64_t>(sequence.first_token * dims_.HV + head);
    if (contract_.kind == bounds::Kind::kChunked && !contract_.has_coarse_operands()) {
      const auto result = bounds::emulate_chunks_f32(lane, v, start, contract_, seed_, stream);
      store_output(sequence, head, result.o);
      store_states(sequence, head, sequence.token_count, result.state);
    } else if (contract_.kind == bounds::Kind::kChunked) {
      const bounds::KernelHabits habits(seed_);
      const auto moved =
          bounds::with_numbers_of(lane, bounds::kernel_lane(lane, unrounded_rows_, habits));
      bounds::Rounder rounder(contract_, bounds::RoundingMode::kNearest, seed_, stream);
      const auto result = bounds::emulate_chunks(moved, v, start, contract_, rounder);
      store_output(sequence, head, result.o);
      store_states(sequence, head, sequence.token_count, result.state);
    } else {
      const auto sink = [&](std::int64_t tokens, const rule::Matrix<float>& state) {
        store_states(sequence, head, tokens, state);
      };
      store_output(sequence, head,
                   bounds::emulate_recurrent(lane, v, start, contract_, seed_, stream, sink));
    }
  }

 private:
  template <class M>
  void store_output(const call::Sequence& sequence, std::int64_t head, const M& o) {
    std::vector<double>& to = values_.at("o");
    for (std::int64_t t = 0; t < sequence.token_count; ++t) {
      const std::int64_t base = ((sequence.first_token + t) * dims_.HV + head) * dims_.V;
      for (std::int64_t x = 0; x < dims_.V; ++x) {
        to[static_cast<std::size_t>(base + x)] = static_cast<double>(o(t, x));
      }
    }
  }

  template <class M>
  void store_states(const call::Sequence& sequence, std::int64_t head, std::int64_t tokens,
                    const M& state) {
    for (const call::Snapshot& snapshot : sequence.snapshots) {
      if (snapshot.after != tokens) continue;
      const bool final = snapshot.target == call::Target::kFinalState;
      std::vector<double>& to = values_.at(final ? "final_state" : "intermediate_states");
      for (std::int64_t i = 0; i < dims_.K; ++i) {
        for (std::int64_t x = 0; x < dims_.V; ++x) {
          to[index_(snapshot.block, head, i, x)] = static_cast<double>(state(i, x));
        }
      }
    }
  }

  const call::Record& record_;
  const call::Dims& dims_;
  const bounds::Contract& contract_;
  const std::uint64_t seed_;
  const rule::CallInputs inputs_;
  const StateIndex index_;
  bounds::Contract unrounded_rows_;
  Values& values_;
};

call::DType state_type(const call::Record& record, const bounds::Contract& contract) {
  const call::Tensor* initial = record.find_input("initial_state");
  return contract.state_dtype.value_or(initial == nullptr ? call::DType::kF32 : initial->dtype());
}

}  // namespace

call::TensorMap emulate_unstored(const call::Record& record, const bounds::Contract& contract,
                                 std::uint64_t seed) {
  const bool chunked = contract.kind == bounds::Kind::kChunked;
  // The exact outputs hold what no lane writes: untouched slots, zero tokens, padded rows.
  Evaluation exact =
      evaluate(record, scalar::Precision::kDouble,
               {.certify = false, .contract = nullptr, .intermediate_states = !chunked});
  Values values;
  for (auto& [name, expected] : exact.outputs) {
    values[name] = std::move(expected.golden);
    for (std::size_t i = 0; i < expected.undefined.size(); ++i) {
      if (expected.undefined[i]) values[name][i] = std::numeric_limits<double>::quiet_NaN();
    }
  }
  if (contract.kind != bounds::Kind::kIdeal) {
    const call::Plan plan = call::make_plan(record, !chunked);
    Emulation emulation(record, plan, contract, seed, values);
    std::vector<std::pair<const call::Sequence*, std::int64_t>> jobs;
    for (const call::Sequence& sequence : plan.sequences) {
      for (std::int64_t head = 0; head < plan.dims.HV; ++head) {
        if (!sequence.padded && sequence.token_count > 0) jobs.emplace_back(&sequence, head);
      }
    }
    parallel::for_each_index(std::ssize(jobs), [&](std::int64_t i) {
      const auto& [sequence, head] = jobs[static_cast<std::size_t>(i)];
      emulation.run(*sequence, head);
    });
  }
  call::TensorMap outputs;
  for (const auto& [name, numbers] : values) {
    outputs.emplace(name, call::Tensor(call::DType::kF64, exact.outputs.at(name).shape, numbers));
  }
  return outputs;
}

call::TensorMap emulate(const call::Record& record, const bounds::Contract& contract,
                        std::uint64_t seed) {
  call::TensorMap outputs = emulate_unstored(record, contract, seed);
  for (auto& [name, tensor] : outputs) {
    const call::DType dtype =
        name == "o" ? record.inputs.at("v").dtype() : state_type(record, contract);
    tensor = call::Tensor(dtype, tensor.shape(), tensor.to_doubles());
  }
  return outputs;
}

}  // namespace goldenrule::oracle
