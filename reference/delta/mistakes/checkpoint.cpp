// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in the states on the way of a prefill call. A prefix cache that restores such a state is
// wrong from there on, and o and the final state of the call that made it are right. Most mistakes
// take the state after another number of tokens: they are the right kernel asked for something
// else. In public: SGLang #31474 (never written), #34299 and ATOM #2045 (the wrong position),
// SGLang #34820 (rounded), FlashInfer #4436 (not written where a sequence is split).
#include <algorithm>
#include <array>
#include <numeric>

#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/calls/outputs.hpp"
#include "reference/delta/mistakes/common.hpp"
#include "reference/delta/mistakes/tables.hpp"

namespace goldenrule::delta {
namespace {

using call::Record;
using call::TensorMap;
using Offsets = std::vector<std::int64_t>;

constexpr std::int64_t kNeverReached = -1;

// The steps in which the call asks for states, as far as its positions tell.
struct Steps {
  std::int64_t every = 0;  // the greatest number that divides all positions
  bool from_start = false;
};

// After how many tokens the kernel takes the state that belongs into row i of a sequence.
using Takes = std::int64_t (*)(const call::Sequence& s, std::size_t i, const Steps& steps);

std::int64_t one_early(const call::Sequence& s, std::size_t i, const Steps&) {
  return std::max<std::int64_t>(s.checkpoints[i] - 1, 0);
}
std::int64_t one_late(const call::Sequence& s, std::size_t i, const Steps&) {
  return std::min(s.checkpoints[i] + 1, s.token_count);
}
std::int64_t row_before(const call::Sequence& s, std::size_t i, const Steps&) {
  return i == 0 ? 0 : s.checkpoints[i - 1];
}
std::int64_t row_after(const call::Sequence& s, std::size_t i, const Steps&) {
  return i + 1 < s.checkpoints.size() ? s.checkpoints[i + 1] : kNeverReached;
}
// The kernel passes the token of that number in the batch, or has passed it before the sequence.
std::int64_t from_batch_start(const call::Sequence& s, std::size_t i, const Steps&) {
  return s.checkpoints[i] < s.first_token ? kNeverReached : s.checkpoints[i] - s.first_token;
}
// Every n tokens of the batch instead of the sequence.
std::int64_t on_batch_steps(const call::Sequence& s, std::size_t i, const Steps& steps) {
  if (steps.every < 2) return s.checkpoints[i];
  const std::int64_t missing = (steps.every - s.first_token % steps.every) % steps.every;
  const std::int64_t first = missing == 0 && !steps.from_start ? steps.every : missing;
  const std::int64_t at = first + static_cast<std::int64_t>(i) * steps.every;
  return at < s.token_count + (steps.from_start ? 0 : 1) ? at : kNeverReached;
}
std::int64_t at_chunk_start(const call::Sequence& s, std::size_t i, const Steps&) {
  return s.checkpoints[i] == s.token_count ? s.token_count : s.checkpoints[i] / kChunk * kChunk;
}

Steps steps_of(const call::Plan& plan) {
  Steps steps;
  for (const call::Sequence& s : plan.sequences) {
    for (const std::int64_t offset : s.checkpoints) {
      steps.every = std::gcd(steps.every, offset);
      steps.from_start = steps.from_start || offset == 0;
    }
  }
  return steps;
}

template <Takes takes>
bool takes_another(const Record& r) {
  if (r.find_input("checkpoint_offsets") == nullptr) return false;
  const call::Plan plan = call::make_plan(r, true);
  const Steps steps = steps_of(plan);
  return std::ranges::any_of(plan.sequences, [&](const call::Sequence& s) {
    for (std::size_t i = 0; !s.padded && i < s.checkpoints.size(); ++i) {
      if (takes(s, i, steps) != s.checkpoints[i]) return true;
    }
    return false;
  });
}

// Rows that the kernel never reaches are not written.
template <Takes takes>
TensorMap take_another(const Record& r, const calls::Kernel& kernel) {
  const call::Plan plan = call::make_plan(r, true);
  const Steps steps = steps_of(plan);
  Offsets offsets;
  std::vector<bool> unwritten;
  for (const call::Sequence& s : plan.sequences) {
    std::int64_t last = 0;
    for (std::size_t i = 0; i < s.checkpoints.size(); ++i) {
      const std::int64_t at = takes(s, i, steps);
      unwritten.push_back(at == kNeverReached);
      if (at != kNeverReached) last = at;
      offsets.push_back(last);
    }
  }
  Record changed = calls::without_outputs(r);
  call::Tensor& given = changed.inputs.at("checkpoint_offsets");
  given = call::Tensor(given.dtype(), given.shape(),
                       std::vector<double>(offsets.begin(), offsets.end()));
  TensorMap outputs = kernel(changed);
  TensorMap kept{{"checkpoints", std::move(outputs.at("checkpoints"))}};
  calls::drop_outputs(r, kept, [&](const calls::OutputPlace& p) {
    return unwritten[static_cast<std::size_t>(p.block)];
  });
  outputs["checkpoints"] = std::move(kept.at("checkpoints"));
  return outputs;
}

template <Takes takes>
constexpr calls::Mistake taken(std::string_view name, std::string_view meaning) {
  return {name, "States on the way", meaning, takes_another<takes>, take_another<takes>};
}

bool asks(const Record& r) {
  return r.find_input("checkpoint_offsets") != nullptr && call::validate(r).checkpoints > 0;
}

TensorMap not_written(const Record& r, const calls::Kernel& kernel) {
  TensorMap outputs = kernel(r);
  call::Tensor& kept = outputs.at("checkpoints");
  kept = calls::unwritten_tensor(kept.shape());
  return outputs;
}

bool keeps_f32(const Record& r) {
  const call::Tensor* initial = r.find_input("initial_state");
  return asks(r) && (initial == nullptr || call::info(initial->dtype()).significand_bits >= 24);
}
TensorMap rounded_to_bf16(const Record& r, const calls::Kernel& kernel) {
  TensorMap outputs = kernel(r);
  call::Tensor& kept = outputs.at("checkpoints");
  for (std::int64_t i = 0; i < kept.size(); ++i) {
    kept.set(i, call::round_to(call::DType::kBF16, kept[i]));
  }
  return outputs;
}

constexpr std::array kCheckpointMistakes{
    taken<one_early>("checkpoint_shifted",
                     "a checkpoint is the state one token before the one that it belongs to"),
    taken<one_late>("checkpoint_shifted",
                    "a checkpoint is the state one token behind the one that it belongs to"),
    taken<row_before>("checkpoint_before_for_after",
                      "the first checkpoint of a sequence is its start state, every other one the "
                      "state that belongs to the row before: states before an interval where "
                      "those after it are wanted"),
    taken<row_after>("checkpoint_after_for_before",
                     "every checkpoint is the state that belongs to the next row, and the last is "
                     "not written: states after an interval where those before it are wanted"),
    taken<from_batch_start>("checkpoint_packed_offset",
                            "positions of checkpoints are counted from the start of the batch, "
                            "not of their sequence"),
    taken<on_batch_steps>("checkpoint_packed_offset",
                          "the intervals between checkpoints are counted from the start of the "
                          "batch, not of the sequence"),
    taken<at_chunk_start>("checkpoint_at_chunk_start",
                          "a checkpoint inside of a chunk of 64 tokens is the state at the start "
                          "of the chunk"),
    calls::Mistake{"checkpoint_not_written", "States on the way", "checkpoints are not written",
                   asks, not_written},
    calls::Mistake{"checkpoint_bf16",
                   "States on the way",
                   "checkpoints are rounded to bf16 on their way to an fp32 output",
                   keeps_f32,
                   rounded_to_bf16,
                   {},
                   calls::kRounds},
};

}  // namespace

std::span<const calls::Mistake> checkpoint_mistakes() { return kCheckpointMistakes; }

}  // namespace goldenrule::delta
