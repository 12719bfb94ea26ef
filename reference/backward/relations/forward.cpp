// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/relations/forward.hpp"

#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/kernels.hpp"

namespace goldenrule::backward {

call::Record forward_call(const call::Record& record) {
  call::Record forward = calls::without_outputs(record);
  const bool per_channel = record.op == call::Op::kKdaBackward;
  forward.op = per_channel ? call::Op::kKda : call::Op::kGatedDeltaRule;
  forward.inputs.erase("do");
  forward.inputs.erase("dfinal_state");
  return forward;
}

call::TensorMap forward_outputs(const call::Record& record) {
  return verdict::exact_outputs(delta::slice(), forward_call(record));
}

}  // namespace goldenrule::backward
