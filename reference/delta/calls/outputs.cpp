// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/calls/outputs.hpp"

#include <algorithm>
#include <cstring>

#include "fixtures/call/operation.hpp"

namespace goldenrule::calls {
namespace {

// Who writes a block of a state tensor, and after how many tokens.
struct Writer {
  std::int64_t sequence = -1;  // nobody
  std::int64_t after = 0;
};
std::vector<Writer> writers(const call::Plan& plan, call::Target target, std::int64_t blocks) {
  std::vector<Writer> writer(static_cast<std::size_t>(blocks));
  for (std::int64_t n = 0; n < std::ssize(plan.sequences); ++n) {
    for (const call::Snapshot& s : plan.sequences[static_cast<std::size_t>(n)].snapshots) {
      if (s.target == target) writer[static_cast<std::size_t>(s.block)] = {n, s.after};
    }
  }
  return writer;
}

}  // namespace

void change_outputs(
    const call::Record& record, call::TensorMap& outputs,
    const std::function<double(const call::Tensor&, const OutputPlace&, double)>& f) {
  const call::Plan plan = call::make_plan(record, true);
  const call::Dims& d = plan.dims;
  const auto o = outputs.find("o");
  if (o != outputs.end()) {
    const call::Tensor before = o->second;
    const call::Strides at = call::output_strides(record, d, "o");
    OutputPlace p{.unwritten = kUnwritten};
    for (std::int64_t n = 0; n < std::ssize(plan.sequences); ++n) {
      const call::Sequence& sequence = plan.sequences[static_cast<std::size_t>(n)];
      p.sequence = n;
      for (std::int64_t t = 0; t < sequence.token_count; ++t) {
        p.block = sequence.first_token + t;
        for (p.head = 0; p.head < d.HV; ++p.head) {
          for (p.value = 0; p.value < d.V; ++p.value) {
            p.index = static_cast<std::int64_t>(at(p.block, p.head, 0, p.value));
            o->second.set(p.index, f(before, p, before[p.index]));
          }
        }
      }
    }
  }
  const call::Tensor* initial = record.find_input("initial_state");
  const bool in_place = call::has_pool(record) && initial != nullptr;
  const call::Tensor* buffer = record.find_input("initial_intermediate_states");
  for (const auto target :
       {call::Target::kFinalState, call::Target::kIntermediateStates, call::Target::kCheckpoints}) {
    const bool final = target == call::Target::kFinalState;
    const bool kept = target == call::Target::kIntermediateStates;
    const auto state = outputs.find(std::string(call::name_of(target)));
    if (state == outputs.end()) continue;
    const call::Tensor before = state->second;
    const call::Strides at = call::output_strides(record, d, call::name_of(target));
    const auto writer = writers(plan, target, at.row == 0 ? 0 : before.size() / at.row);
    OutputPlace p{.is_state = true, .target = target};
    for (p.block = 0; p.block < std::ssize(writer); ++p.block) {
      p.sequence = writer[static_cast<std::size_t>(p.block)].sequence;
      p.after = writer[static_cast<std::size_t>(p.block)].after;
      if (p.sequence < 0) continue;
      for (p.head = 0; p.head < d.HV; ++p.head) {
        for (std::int64_t i = 0; i < d.state_size(); ++i) {
          p.key = i / at.key % d.K;
          p.value = i / at.value % d.V;
          p.index = p.block * at.row + p.head * at.head + i;
          const call::Tensor* before_call = final && in_place ? initial : kept ? buffer : nullptr;
          p.unwritten = before_call != nullptr ? (*before_call)[p.index] : kUnwritten;
          state->second.set(p.index, f(before, p, before[p.index]));
        }
      }
    }
  }
}

void drop_outputs(const call::Record& record, call::TensorMap& outputs,
                  const std::function<bool(const OutputPlace&)>& drops) {
  change_outputs(record, outputs, [&](const call::Tensor&, const OutputPlace& p, double x) {
    return drops(p) ? p.unwritten : x;
  });
}

void copy_blocks(const call::Tensor& from, std::int64_t block_size,
                 const std::vector<std::int64_t>& blocks, call::Tensor& tensor) {
  const std::size_t bytes = static_cast<std::size_t>(block_size) * call::info(tensor.dtype()).bytes;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    if (blocks[b] < 0) continue;
    if (from.dtype() == tensor.dtype()) {
      if (bytes > 0) {
        std::memcpy(tensor.bytes().data() + b * bytes,
                    from.bytes().data() + static_cast<std::size_t>(blocks[b]) * bytes, bytes);
      }
      continue;
    }
    for (std::int64_t i = 0; i < block_size; ++i) {
      tensor.set(static_cast<std::int64_t>(b) * block_size + i, from[blocks[b] * block_size + i]);
    }
  }
}

}  // namespace goldenrule::calls
