// SPDX-License-Identifier: Apache-2.0
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/backward/emulation/emulate.hpp"
#include "reference/backward/emulation/kernel_group.hpp"
#include "reference/backward/rule/stages.hpp"

namespace goldenrule::backward {

call::TensorMap emulate_stages(const call::Record& record, const contract::Contract& contract,
                               std::uint64_t seed) {
  const call::Dims d = call::validate(record);
  const std::vector<Sequence> sequences = sequences_of(record, d);
  const std::int64_t C = contract.adjoint()->chunk;
  const std::vector<std::int64_t> first = first_chunks(sequences, C);
  call::TensorMap to;
  for (const auto& [name, shape] : stage_shapes(record, d, C, first.back())) {
    to[name] = call::Tensor(call::DType::kF64, shape);
  }
  parallel::for_each_index(std::ssize(sequences) * d.H, [&](std::int64_t job) {
    const std::int64_t n = job / d.H;
    const auto sequence = static_cast<std::size_t>(n);
    const Group group = make_group(record, d, contract, n, sequences[sequence], job % d.H);
    const GroupOutputs outputs =
        run_group(record, group, contract, {.random = false, .seed = seed, .stages = true});
    for (std::size_t lane = 0; lane < group.heads.size(); ++lane) {
      const LanePlaces places(record, d, sequences[sequence], first[sequence], group.heads[lane]);
      for_each_stage(outputs.lanes[lane].stages, [&](const std::string& name, const Floats& x) {
        call::Tensor& tensor = to.at(name);
        for (Eigen::Index i = 0; i < x.size(); ++i) {
          const std::size_t at = places.of(name, i / x.cols(), i % x.cols(), x.cols());
          tensor.set(static_cast<std::int64_t>(at), static_cast<double>(x.data()[i]));
        }
      });
    }
  });
  return to;
}

}  // namespace goldenrule::backward
