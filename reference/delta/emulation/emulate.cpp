// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/emulation/emulate.hpp"

#include "fixtures/call/plan.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/calls/kernel.hpp"
#include "reference/delta/emulation/chunk_emulator.hpp"
#include "reference/delta/emulation/chunk_f32_emulator.hpp"
#include "reference/delta/emulation/kernel_lane.hpp"
#include "reference/delta/emulation/recurrent_emulator.hpp"
#include "reference/delta/oracle/evaluate.hpp"
#include "reference/delta/oracle/lane_io.hpp"

namespace goldenrule::delta {
namespace {

using Values = std::map<std::string, std::vector<double>>;

// Writes the results of lanes into the tensors of a call.
class Emulation {
 public:
  Emulation(const call::Record& record, const call::Plan& plan, const contract::Contract& contract,
            std::uint64_t seed, Values& values)
      : record_(record),
        dims_(plan.dims),
        contract_(contract),
        seed_(seed),
        inputs_(record),
        index_(record, plan.dims),
        unrounded_rows_(with_unrounded_rows(contract)),
        values_(values) {}

  void run(const call::Sequence& sequence, std::int64_t head) {
    const auto lane = prepare_lane<double>(record_, dims_, inputs_, sequence.first_token,
                                           sequence.token_count, head);
    const auto v = lane_values(inputs_, dims_, sequence, head);
    const auto start = lane_start(inputs_, dims_, index_, sequence, head);
    const auto stream = static_cast<std::uint64_t>(sequence.first_token * dims_.HV + head);
    const contract::Chunked* chunked = contract_.chunked();
    if (chunked == nullptr) {
      const auto sink = [&](std::int64_t tokens, const Matrix<float>& state) {
        store_states(sequence, head, tokens, state);
      };
      store_output(sequence, head,
                   emulate_recurrent(lane, v, start, contract_, seed_, stream, sink));
    } else if (chunked->has_coarse_operands()) {
      const KernelChoices choices(seed_);
      const auto moved = with_numbers_of(lane, kernel_lane(lane, unrounded_rows_, choices));
      Rounder rounder(*chunked, RoundingMode::kNearest, seed_, stream);
      store(sequence, head, emulate_chunks(moved, v, start, *chunked, rounder));
    } else {
      store(sequence, head,
            emulate_chunks_f32(lane, v, start, contract_, chunked->chunk, seed_, stream));
    }
  }

 private:
  // The chunk emulator rounds q^ and k^ itself, with the other operands of its products.
  static contract::Contract with_unrounded_rows(contract::Contract contract) {
    if (auto* chunked = std::get_if<contract::Chunked>(&contract.model)) {
      chunked->at(contract::Activation::kQuery).reset();
      chunked->at(contract::Activation::kKey).reset();
    }
    return contract;
  }

  template <class S>
  void store(const call::Sequence& sequence, std::int64_t head, const FormResult<S>& result) {
    store_output(sequence, head, result.o);
    store_states(sequence, head, sequence.token_count, result.state);
  }

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
  const contract::Contract& contract_;
  const std::uint64_t seed_;
  const CallInputs inputs_;
  const StateIndex index_;
  const contract::Contract unrounded_rows_;
  Values& values_;
};

}  // namespace

call::TensorMap emulate_unstored(const call::Record& record, const contract::Contract& contract,
                                 std::uint64_t seed) {
  const bool chunked = contract.chunked() != nullptr;
  // The exact outputs hold what no lane writes: untouched slots, zero tokens, padded rows.
  verdict::Expectations exact = evaluate(record, scalar::Precision::kDouble,
                                         {.certify = false, .intermediate_states = !chunked});
  Values values;
  for (auto& [name, e] : exact.outputs) values[name] = e.exact.take_output();
  if (!contract.is_ideal()) {
    const call::Plan plan = call::make_plan(record, !chunked);
    Emulation emulation(record, plan, contract, seed, values);
    const std::vector<LaneJob> jobs = lanes_of(plan);
    parallel::for_each_index(std::ssize(jobs), [&](std::int64_t i) {
      const LaneJob& job = jobs[static_cast<std::size_t>(i)];
      emulation.run(*job.sequence, job.head);
    });
  }
  call::TensorMap outputs;
  for (const auto& [name, numbers] : values) {
    outputs.emplace(name,
                    call::Tensor(call::DType::kF64, exact.outputs.at(name).exact.shape, numbers));
  }
  return outputs;
}

call::TensorMap emulate(const call::Record& record, const contract::Contract& contract,
                        std::uint64_t seed) {
  return calls::stored(record, contract, emulate_unstored(record, contract, seed));
}

}  // namespace goldenrule::delta
