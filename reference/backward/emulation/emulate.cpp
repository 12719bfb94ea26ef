// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/emulation/emulate.hpp"

#include "fixtures/call/operation.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/backward/emulation/kernel_group.hpp"

namespace goldenrule::backward {
namespace {

call::TensorMap exact_outputs(const call::Record& record) {
  verdict::Expectations expected = evaluate(record, scalar::Precision::kDouble, {.certify = false});
  call::TensorMap outputs;
  for (auto& [name, output] : expected.outputs) {
    outputs[name] = call::Tensor(call::DType::kF64, output.exact.shape, output.exact.golden);
  }
  return outputs;
}

// The tensors of a call, filled group by group.
class Outputs {
 public:
  Outputs(const call::Record& record, const call::Dims& dims)
      : c_(record.convention),
        d_(dims),
        state_(call::output_strides(record, dims, "dinitial_state")),
        gates_(call::gate_channels(record, dims.K)) {
    for (const char* name : {"dq", "dk", "dv", "dinitial_state"}) add(record, name);
    add(record, beta_output(c_));
    if (c_.gate != call::Gate::kNone) add(record, gate_output(c_));
    for (const char* name : {"A_log", "dt_bias"}) {
      if (call::has_logit_gate(c_) && record.find_input(name) != nullptr) {
        add(record, std::string("d") + name);
      }
    }
  }

  void store(const Group& group, const GroupOutputs& from) {
    const std::int64_t T = group.tokens.count;
    for (std::int64_t t = 0; t < T; ++t) {
      const std::int64_t to = ((group.tokens.first + t) * d_.H + group.qk_head) * d_.K;
      copy(from.dq, t * d_.K, d_.K, "dq", to);
      copy(from.dk, t * d_.K, d_.K, "dk", to);
      for (std::size_t lane = 0; lane < group.heads.size(); ++lane) {
        const LaneOutputs& part = from.lanes[lane];
        const std::int64_t at = (group.tokens.first + t) * d_.HV + group.heads[lane];
        copy(part.dv, t * d_.V, d_.V, "dv", at * d_.V);
        copy(part.dbeta, t, 1, beta_output(c_), at);
        if (!part.dgate.empty()) {
          copy(part.dgate, t * gates_, gates_, gate_output(c_), at * gates_);
        }
      }
    }
    for (std::size_t lane = 0; lane < group.heads.size(); ++lane) {
      call::Tensor& states = outputs_.at("dinitial_state");
      for (std::int64_t i = 0; i < d_.K; ++i) {
        for (std::int64_t c = 0; c < d_.V; ++c) {
          states.set(static_cast<std::int64_t>(state_(group.sequence, group.heads[lane], i, c)),
                     from.lanes[lane].dstart[static_cast<std::size_t>(i * d_.V + c)]);
        }
      }
    }
  }

  // Kernels add up over sequences in fp32.
  void add_parameters(const Group& group, const GroupOutputs& from) {
    for (std::size_t lane = 0; lane < group.heads.size(); ++lane) {
      const std::int64_t of = call::gate_head(c_, d_, group.heads[lane]);
      add_to("dA_log", of, from.lanes[lane].amplitude);
      for (std::int64_t i = 0; i < gates_; ++i) {
        add_to("ddt_bias", of * gates_ + i, from.lanes[lane].bias[static_cast<std::size_t>(i)]);
      }
    }
  }

  call::TensorMap take() { return std::move(outputs_); }

 private:
  void add(const call::Record& record, const std::string& name) {
    outputs_[name] = call::Tensor(call::DType::kF64, call::output_shape(record, d_, name));
  }
  void copy(const std::vector<double>& from, std::int64_t first, std::int64_t count,
            const std::string& name, std::int64_t to) {
    call::Tensor& tensor = outputs_.at(name);
    for (std::int64_t i = 0; i < count; ++i) {
      tensor.set(to + i, from[static_cast<std::size_t>(first + i)]);
    }
  }
  void add_to(const char* name, std::int64_t at, double x) {
    const auto it = outputs_.find(name);
    if (it == outputs_.end()) return;
    const auto sum = static_cast<float>(it->second[at]) + static_cast<float>(x);
    it->second.set(at, static_cast<double>(sum));
  }

  const call::Convention& c_;
  const call::Dims& d_;
  call::Strides state_;
  std::int64_t gates_;
  call::TensorMap outputs_;
};

}  // namespace

call::TensorMap emulate(const call::Record& record, const contract::Contract& contract,
                        std::uint64_t seed) {
  if (contract.adjoint() == nullptr) return exact_outputs(record);
  const call::Dims dims = call::validate(record);
  const std::vector<Sequence> sequences = sequences_of(record, dims);
  const std::int64_t count = std::ssize(sequences) * dims.H;
  Outputs outputs(record, dims);
  std::vector<Group> groups(static_cast<std::size_t>(count));
  std::vector<GroupOutputs> results(groups.size());
  parallel::for_each_index(count, [&](std::int64_t i) {
    Group& group = groups[static_cast<std::size_t>(i)];
    group = make_group(record, dims, contract, i / dims.H,
                       sequences[static_cast<std::size_t>(i / dims.H)], i % dims.H);
    results[static_cast<std::size_t>(i)] =
        run_group(record, group, contract, {.random = false, .seed = seed});
    outputs.store(group, results[static_cast<std::size_t>(i)]);
    group.lanes.clear();
    group.inputs.clear();
    group.gates.clear();
  });
  for (std::size_t i = 0; i < groups.size(); ++i) outputs.add_parameters(groups[i], results[i]);
  return outputs.take();
}

}  // namespace goldenrule::backward
