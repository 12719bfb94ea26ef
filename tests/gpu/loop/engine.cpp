// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/loop/engine.hpp"

#include "reference/attention/slice.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/budget.hpp"
#include "tests/gpu/live_call.hpp"

namespace goldenrule::test::loop {

Output compute_exactly(const call::Record& record, const std::string& name) {
  const verdict::Slice& slice =
      record.op == call::Op::kAttention ? attention::slice() : delta::slice();
  const contract::Contract& contract = contract::find_contract(gpu::contract_of(record));
  const verdict::Expectations all =
      verdict::expect(slice, record, contract, scalar::Precision::kDouble);
  const verdict::Expected& expected = all.outputs.at(name);
  const char* typed = name == "final_state" ? "initial_state" : call::type_of_o(record.op);
  const verdict::Budget budget(name, record.inputs.at(typed).dtype(), expected, contract);
  Output output{.values = expected.exact.golden, .bounds = {}};
  for (std::size_t i = 0; i < output.values.size(); ++i) {
    output.bounds.push_back(budget(i) + static_cast<double>(expected.exact.radius[i]));
  }
  return output;
}

Output compute_by_kernel(const call::Record& record, const std::string& name) {
  const Placement placement{.keeps = 0, .output = name == "final_state" ? 0 : 1};
  return {.values = outputs_of(record, placement).at(name).to_doubles(), .bounds = {}};
}

}  // namespace goldenrule::test::loop
