// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/emulation/emulate.hpp"

#include "fixtures/call/plan.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/calls/kernel.hpp"
#include "reference/delta/emulation/honest_chunks.hpp"
#include "reference/delta/emulation/kernel_lane.hpp"
#include "reference/delta/emulation/recurrent_emulator.hpp"
#include "reference/delta/oracle/evaluate.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/oracle/ring.hpp"
#include "reference/delta/oracle/tree.hpp"

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
        choices_(seed),
        inputs_(record),
        index_(record, plan.dims),
        values_(values) {}

  void run(const call::Sequence& sequence, std::int64_t head) {
    const auto lane = prepare_lane<double>(record_, dims_, inputs_, sequence, head);
    const auto v = lane_values(inputs_, dims_, index_, sequence, head);
    const auto start = lane_start(inputs_, dims_, index_, sequence, head);
    const auto stream = static_cast<std::uint64_t>(sequence.first_token * dims_.HV + head);
    if (contract_.chunked() != nullptr) {
      const std::vector<std::int64_t> positions = call::state_positions(sequence);
      const KeptForm<double> result =
          honest_chunks(lane, v, start, positions, contract_, seed_, stream);
      store_output(sequence, head, result.o);
      store_corrections(sequence, head, result.d);
      // The states of an MTP call are stored after its last token only.
      for (std::size_t i = 0; i < positions.size(); ++i) {
        store_states(sequence, head, positions[i], result.states[i]);
      }
    } else {
      const auto sink = [&](std::int64_t tokens, const Matrix<float>& state) {
        store_states(sequence, head, tokens, state);
      };
      const auto result = emulate_recurrent(lane, v, start, contract_, seed_, stream, sink);
      store_output(sequence, head, result.o);
      store_corrections(sequence, head, result.d);
    }
    if (sequence.replay.ring >= 0) {
      store_rows(sequence, head, kernel_lane(lane, contract_, choices_));
    }
  }

 private:
  template <class M>
  void store_output(const call::Sequence& sequence, std::int64_t head, const M& o) {
    std::vector<double>& to = values_.at("o");
    for (std::int64_t t = 0; t < sequence.token_count; ++t) {
      for (std::int64_t x = 0; x < dims_.V; ++x) {
        to[index_.o(sequence.first_token + t, head, x)] =
            static_cast<double>(o(sequence.replay.count + t, x));
      }
    }
  }

  template <class M>
  void store_corrections(const call::Sequence& sequence, std::int64_t head, const M& d) {
    if (sequence.replay.ring < 0) return;
    std::vector<double>& to = values_.at("ring_d");
    for (std::int64_t t = sequence.replay.count; t < sequence.lane_tokens(); ++t) {
      for (std::int64_t x = 0; x < dims_.V; ++x) {
        to[index_.d(sequence, t, head, x)] = static_cast<double>(d(t, x));
      }
    }
  }

  // Keys and gates as the kernel has them.
  void store_rows(const call::Sequence& sequence, std::int64_t head, const KernelLane& kernel) {
    const call::Replay& replay = sequence.replay;
    const std::int64_t qk_head = dims_.qk_head(record_.convention.head_map, head);
    const RingIndex& ring = index_.ring;
    if (stores_keys(record_, dims_, head)) {
      store_row("ring_k", ring.k(replay.ring, qk_head, 0), replay, kernel.k);
    }
    store_row("ring_g", ring.g(replay.ring, head, 0), replay, kernel.log_alpha);
  }
  void store_row(const char* name, std::int64_t first, const call::Replay& replay,
                 const Matrix<float>& rows) {
    std::vector<double>& to = values_.at(name);
    for (std::int64_t t = replay.count; t < rows.rows(); ++t) {
      const std::int64_t at = first + replay.place(t) * rows.cols();
      for (std::int64_t i = 0; i < rows.cols(); ++i) {
        to[static_cast<std::size_t>(at + i)] = static_cast<double>(rows(t, i));
      }
    }
  }

  template <class M>
  void store_states(const call::Sequence& sequence, std::int64_t head, std::int64_t tokens,
                    const M& state) {
    for (const call::Snapshot& snapshot : sequence.snapshots) {
      if (snapshot.after != tokens) continue;
      std::vector<double>& to = values_.at(std::string(call::name_of(snapshot.target)));
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
  const KernelChoices choices_;
  const CallInputs inputs_;
  const OutputIndex index_;
  Values& values_;
};

}  // namespace

call::TensorMap emulate_unstored(const call::Record& record, const contract::Contract& contract,
                                 std::uint64_t seed) {
  if (call::has_tree(record)) {
    const Paths paths(record);
    call::TensorMap outputs = emulate_unstored(paths.without_tree(), contract, seed);
    paths.fold(emulate_unstored(paths.unfolded(), contract, seed), outputs);
    return outputs;
  }
  const bool is_chunked = contract.chunked() != nullptr;
  // Chunks have no states between their tokens.
  const bool kept = !is_chunked || record.mode == call::Mode::kPrefill;
  // The exact outputs hold what no lane writes: untouched slots, zero tokens, padded rows.
  verdict::Expectations exact =
      evaluate(record, scalar::Precision::kDouble, {.certify = false, .kept_states = kept});
  Values values;
  for (auto& [name, e] : exact.outputs) values[name] = e.exact.take_output();
  if (!contract.is_ideal()) {
    const call::Plan plan = call::make_plan(record, kept);
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
