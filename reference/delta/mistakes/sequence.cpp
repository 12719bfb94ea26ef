// SPDX-License-Identifier: Apache-2.0
//
// Length: a row and a function per mistake between tokens and sequences.
//
// Mistakes in the state, in chunks and in the packing of sequences. Where a chunk size matters it
// is 64, that of the prefill kernels.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "fixtures/call/operation.hpp"
#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/calls/outputs.hpp"
#include "reference/delta/calls/segments.hpp"
#include "reference/delta/mistakes/common.hpp"
#include "reference/delta/mistakes/tables.hpp"
#include "reference/delta/mistakes/tail.hpp"
#include "reference/delta/mistakes/variant.hpp"

namespace goldenrule::delta {
namespace {

using call::Record;
using call::TensorMap;

bool has_initial_state(const Record& r) { return r.find_input("initial_state") != nullptr; }

std::vector<std::int64_t> sequence_bounds(const Record& r) {
  return r.inputs.at("cu_seqlens").to_integers();
}

// Whether f(first, end) holds for some sequence of a prefill call.
template <class F>
bool any_sequence(const Record& r, F&& f) {
  if (!calls::is_prefill(r)) return false;
  const std::vector<std::int64_t> bounds = sequence_bounds(r);
  for (std::size_t n = 1; n < bounds.size(); ++n) {
    if (f(bounds[n - 1], bounds[n])) return true;
  }
  return false;
}

// The outputs of a prefill whose kernel runs these segments instead of the sequences.
TensorMap segmented(const Record& r, const calls::Kernel& kernel,
                    const std::vector<calls::Segment>& segments) {
  const call::Plan plan = call::make_plan(r, true);
  TensorMap outputs = calls::nothing_written(r, plan);
  calls::store_segments(r, plan, segments, calls::run_segments(r, kernel, segments), outputs);
  return outputs;
}

// f(number, sequence) for those that are not padded.
template <class F>
void for_each_sequence(const call::Plan& plan, F&& f) {
  for (std::int64_t n = 0; n < std::ssize(plan.sequences); ++n) {
    const call::Sequence& s = plan.sequences[static_cast<std::size_t>(n)];
    if (!s.padded) f(n, s);
  }
}

// Blocks of final_state that the call writes.
std::vector<bool> written_blocks(const call::Plan& plan) {
  std::vector<bool> written(static_cast<std::size_t>(plan.dims.slots), false);
  for (const call::Sequence& s : plan.sequences) {
    for (const call::Snapshot& snapshot : s.snapshots) {
      if (snapshot.target == call::Target::kFinalState) {
        written[static_cast<std::size_t>(snapshot.block)] = true;
      }
    }
  }
  return written;
}
bool writes_states(const Record& r) {
  const std::vector<bool> written = written_blocks(call::make_plan(r, false));
  return std::ranges::find(written, true) != written.end();
}

TensorMap initial_state_ignored(const Record& r, const calls::Kernel& kernel) {
  const call::Plan plan = call::make_plan(r, false);
  const call::Tensor given = r.inputs.at("initial_state");
  Record changed = calls::without_outputs(r);
  calls::change_input(changed, "initial_state", [](std::int64_t, double) { return 0.0; });
  TensorMap outputs = kernel(changed);
  const std::vector<bool> written = written_blocks(plan);
  std::vector<std::int64_t> untouched;
  for (std::int64_t block = 0; block < plan.dims.slots; ++block) {
    untouched.push_back(written[static_cast<std::size_t>(block)] ? -1 : block);
  }
  calls::copy_blocks(given, block_size(plan.dims), untouched, outputs.at("final_state"));
  return outputs;
}

TensorMap state_carry_dropped(const Record& r, const calls::Kernel& kernel) {
  const call::Plan plan = call::make_plan(r, false);
  std::vector<calls::Segment> pieces;
  for_each_sequence(plan, [&](std::int64_t n, const call::Sequence& s) {
    std::int64_t done = 0;
    do {
      const std::int64_t count = std::min(kChunk, s.token_count - done);
      pieces.push_back({s.first_token + done, count, done == 0 ? s.start_block : -1, n, done});
      done += count;
    } while (done < s.token_count);
  });
  return segmented(r, kernel, pieces);
}

TensorMap state_not_written(const Record& r, const calls::Kernel& kernel) {
  TensorMap outputs = kernel(r);
  const call::Tensor before = outputs.at("final_state");
  call::TensorMap state{{"final_state", before}};
  calls::drop_outputs(r, state, [](const calls::OutputPlace&) { return true; });
  outputs["final_state"] = state.at("final_state");
  return outputs;
}

// One sequence after the other, each from where the one before it ended.
TensorMap state_leaks(const Record& r, const calls::Kernel& kernel) {
  const call::Plan plan = call::make_plan(r, true);
  TensorMap outputs = calls::nothing_written(r, plan);
  std::optional<call::Tensor> carried;
  for_each_sequence(plan, [&](std::int64_t n, const call::Sequence& s) {
    const calls::Segment segment{s.first_token, s.token_count, carried ? 0 : s.start_block, n, 0};
    const std::span one(&segment, 1);
    const TensorMap part = calls::run_segments(r, kernel, one, carried ? &*carried : nullptr);
    calls::store_segments(r, plan, one, part, outputs);
    carried = part.at("final_state");
  });
  return outputs;
}

// Prefill: each sequence without the tokens beyond keep(count). What is left out is not written.
template <class F>
TensorMap shortened(const Record& r, const calls::Kernel& kernel, F&& keep) {
  std::vector<calls::Segment> kept;
  for_each_sequence(call::make_plan(r, false), [&](std::int64_t n, const call::Sequence& s) {
    kept.push_back({s.first_token, keep(s.token_count), s.start_block, n, 0});
  });
  return segmented(r, kernel, kept);
}

// MTP: what belongs to the last token of each row is not written, and a final state that should
// stand after it is the one before it.
TensorMap last_token_dropped(const Record& r, const calls::Kernel& kernel) {
  if (calls::is_prefill(r)) {
    return shortened(r, kernel,
                     [](std::int64_t count) { return std::max<std::int64_t>(count - 1, 0); });
  }
  const call::Plan plan = call::make_plan(r, true);
  const call::Dims& d = plan.dims;
  const bool scatter = r.find_input("ssm_state_indices") != nullptr;
  TensorMap outputs = kernel(r);
  const call::Tensor states = outputs.at("intermediate_states");
  std::vector<bool> ends(static_cast<std::size_t>(d.slots), false);
  for (const call::Sequence& s : plan.sequences) {
    for (const call::Snapshot& snapshot : s.snapshots) {
      if (snapshot.target == call::Target::kFinalState && snapshot.after == s.token_count) {
        ends[static_cast<std::size_t>(snapshot.block)] = true;
      }
    }
  }
  calls::change_outputs(
      r, outputs, [&](const call::Tensor&, const calls::OutputPlace& p, double x) {
        const call::Sequence& s = plan.sequences[static_cast<std::size_t>(p.sequence)];
        const std::int64_t last = s.first_token + s.token_count - 1;
        if (p.target != call::Target::kFinalState) return p.block == last ? p.unwritten : x;
        if (!ends[static_cast<std::size_t>(p.block)]) return x;
        if (scatter || s.token_count < 2) return p.unwritten;
        return states[(last - 1) * block_size(d) + p.index % block_size(d)];
      });
  return outputs;
}

// o of a sequence is causal and stays right; its final state has seen what follows in the buffer.
TensorMap tail_chunk_unmasked(const Record& r, const calls::Kernel& kernel) {
  const call::Plan plan = call::make_plan(r, false);
  std::vector<calls::Segment> longer;
  for_each_sequence(plan, [&](std::int64_t n, const call::Sequence& s) {
    const std::int64_t full = (s.token_count + kChunk - 1) / kChunk * kChunk;
    longer.push_back(
        {s.first_token, std::min(full, plan.dims.tokens - s.first_token), s.start_block, n, 0});
  });
  TensorMap outputs = kernel(r);
  outputs["final_state"] = segmented(r, kernel, longer).at("final_state");
  return outputs;
}

TensorMap token_shifted(const Record& r, const calls::Kernel& kernel) {
  const call::Plan plan = call::make_plan(r, false);
  std::vector<std::int64_t> source(static_cast<std::size_t>(plan.dims.tokens));
  for (const call::Sequence& s : plan.sequences) {
    for (std::int64_t t = 0; t < s.token_count; ++t) {
      source[static_cast<std::size_t>(s.first_token + t)] =
          s.first_token + std::max<std::int64_t>(t - 1, 0);
    }
  }
  return kernel(calls::with_tokens(r, source));
}

bool is_finite(const call::Tensor& t, std::int64_t first, std::int64_t count) {
  for (std::int64_t i = first; i < first + count; ++i) {
    if (!std::isfinite(t[i])) return false;
  }
  return true;
}

// Tokens beyond a tail are multiplied by 0, and 0 * NaN is NaN: the rows of the tail chunk and the
// final state. A NaN in v reaches its channel, one in k all of them.
bool neighbour_applies(const Record& r) {
  if (!any_sequence(
          r, [](std::int64_t first, std::int64_t end) { return (end - first) % kChunk != 0; })) {
    return false;
  }
  const call::Tensor& v = r.inputs.at("v");
  const call::Tensor& k = r.inputs.at("k");
  return !is_finite(v, 0, v.size()) || !is_finite(k, 0, k.size());
}
TensorMap neighbour_nan(const Record& r, const calls::Kernel& kernel) {
  const call::Plan plan = call::make_plan(r, false);
  const call::Dims& d = plan.dims;
  const call::Tensor& v = r.inputs.at("v");
  const call::Tensor& k = r.inputs.at("k");
  std::vector<bool> poisoned(plan.sequences.size() * static_cast<std::size_t>(d.HV * d.V), false);
  const auto at = [&](std::int64_t sequence, std::int64_t head, std::int64_t value) {
    return static_cast<std::size_t>((sequence * d.HV + head) * d.V + value);
  };
  for (std::int64_t n = 0; n < std::ssize(plan.sequences); ++n) {
    const call::Sequence& s = plan.sequences[static_cast<std::size_t>(n)];
    const std::int64_t end = s.first_token + s.token_count;
    const std::int64_t beyond = (kChunk - s.token_count % kChunk) % kChunk;
    for (std::int64_t token = end; token < std::min(end + beyond, d.tokens); ++token) {
      for (std::int64_t j = 0; j < d.HV; ++j) {
        const std::int64_t qk = token * d.H + d.qk_head(r.convention.head_map, j);
        const bool all = !is_finite(k, qk * d.K, d.K);
        for (std::int64_t x = 0; x < d.V; ++x) {
          if (all || !std::isfinite(v[(token * d.HV + j) * d.V + x])) poisoned[at(n, j, x)] = true;
        }
      }
    }
  }
  TensorMap outputs = kernel(r);
  calls::change_outputs(
      r, outputs, [&](const call::Tensor&, const calls::OutputPlace& p, double x) {
        const call::Sequence& s = plan.sequences[static_cast<std::size_t>(p.sequence)];
        const std::int64_t tail = s.first_token + s.token_count / kChunk * kChunk;
        const bool reached = p.is_state ? s.first_token + p.after > tail : p.block >= tail;
        return reached && poisoned[at(p.sequence, p.head, p.value)]
                   ? std::numeric_limits<double>::quiet_NaN()
                   : x;
      });
  return outputs;
}

TensorMap zero_length_uninitialised(const Record& r, const calls::Kernel& kernel) {
  const call::Plan plan = call::make_plan(r, false);
  TensorMap outputs = kernel(r);
  calls::drop_outputs(r, outputs, [&](const calls::OutputPlace& p) {
    return p.is_state && plan.sequences[static_cast<std::size_t>(p.sequence)].token_count == 0;
  });
  return outputs;
}

bool keeps_f32_state(const Record& r) {
  const call::Tensor* initial = r.find_input("initial_state");
  return initial == nullptr || call::info(initial->dtype()).significand_bits >= 24;
}
TensorMap state_bf16_each_token(const Record& r, const calls::Kernel&) {
  return run_lanes(r, step_variant({.round_state = call::DType::kBF16}));
}

TensorMap state_bf16_before_read(const Record& r, const calls::Kernel&) {
  return run_lanes(r, step_variant({.round_state = call::DType::kBF16, .read_rounded = true}));
}

TensorMap state_f16_each_token(const Record& r, const calls::Kernel&) {
  return run_lanes(r, step_variant({.round_state = call::DType::kF16}));
}

// Once, on its way out; states in between are as they were.
TensorMap final_state_bf16(const Record& r, const calls::Kernel& kernel) {
  TensorMap outputs = kernel(r);
  TensorMap final{{"final_state", std::move(outputs.at("final_state"))}};
  calls::change_outputs(r, final, [](const call::Tensor&, const calls::OutputPlace&, double x) {
    return call::round_to(call::DType::kBF16, x);
  });
  outputs["final_state"] = std::move(final.at("final_state"));
  return outputs;
}

// Kernels that update a pool in place and are run again on the same buffers (an autotuner, a
// replayed graph): what the second run leaves.
bool stale_applies(const Record& r) {
  if (!call::has_pool(r)) return false;
  const call::Plan plan = call::make_plan(r, false);
  const std::vector<bool> written = written_blocks(plan);
  return std::ranges::any_of(plan.sequences, [&](const call::Sequence& s) {
    return !s.padded && s.token_count > 0 && written[static_cast<std::size_t>(s.start_block)];
  });
}
TensorMap stale_state(const Record& r, const calls::Kernel& kernel) {
  Record second = calls::without_outputs(r);
  second.inputs["initial_state"] = kernel(r).at("final_state");
  return kernel(second);
}

constexpr std::string_view kSequenceGroup = "State, chunks, sequences";
constexpr std::array kSequenceMistakes{
    calls::Mistake{"initial_state_ignored", kSequenceGroup,
                   "sequences start from zero whatever initial_state holds", has_initial_state,
                   initial_state_ignored},
    calls::Mistake{
        "state_carry_dropped", kSequenceGroup,
        "the state is not carried from one chunk of 64 tokens to the next",
        [](const Record& r) { return calls::is_prefill(r) && calls::longest_sequence(r) > kChunk; },
        state_carry_dropped},
    calls::Mistake{"state_not_written", kSequenceGroup,
                   "the final state is not stored: a pool keeps its old content", writes_states,
                   state_not_written},
    calls::Mistake{
        "state_leaks", kSequenceGroup,
        "a sequence starts from the final state of the sequence before it",
        [](const Record& r) { return calls::is_prefill(r) && call::validate(r).rows > 1; },
        state_leaks},
    calls::Mistake{"last_token_dropped", kSequenceGroup,
                   "the loop ends one token early: the last token is neither read nor written",
                   [](const Record& r) {
                     return r.mode != call::Mode::kDecode && !call::has_ring(r) &&
                            calls::longest_sequence(r) > 1;
                   },
                   last_token_dropped},
    calls::Mistake{"tail_chunk_dropped", kSequenceGroup,
                   "tokens beyond the last full chunk of 64 are not processed",
                   tail_applies<kTailChunkDropped>, commit_tail<kTailChunkDropped>},
    calls::Mistake{
        "tail_chunk_unmasked", kSequenceGroup,
        "the last chunk of 64 is not cut off at the end of its sequence: tokens of the next "
        "one enter the final state",
        [](const Record& r) {
          const std::int64_t tokens = call::validate(r).tokens;
          return any_sequence(r, [&](std::int64_t first, std::int64_t end) {
            return (end - first) % kChunk != 0 && end < tokens;
          });
        },
        tail_chunk_unmasked},
    calls::Mistake{"token_shifted", kSequenceGroup,
                   "every token reads the inputs of the token before it, the first its own",
                   [](const Record& r) { return calls::longest_sequence(r) > 1; }, token_shifted},
    calls::Mistake{
        "neighbour_nan", kSequenceGroup,
        "tokens beyond the end of a sequence are masked by multiplication with 0, which a NaN "
        "in the next sequence survives",
        neighbour_applies, neighbour_nan},
    calls::Mistake{"zero_length_uninitialised", kSequenceGroup,
                   "the final state of a sequence without tokens is not written",
                   [](const Record& r) {
                     return any_sequence(
                         r, [](std::int64_t first, std::int64_t end) { return first == end; });
                   },
                   zero_length_uninitialised},
    calls::Mistake{"state_bf16_each_token",
                   kSequenceGroup,
                   "the state is rounded to bf16 after every token where an fp32 state is declared",
                   keeps_f32_state,
                   state_bf16_each_token,
                   {},
                   calls::kRounds},
    calls::Mistake{
        "state_bf16_each_token",
        kSequenceGroup,
        "the state is rounded to bf16 at every token, before o is read from it, where an fp32 "
        "state is declared",
        keeps_f32_state,
        state_bf16_before_read,
        {},
        calls::kRounds},
    calls::Mistake{
        "state_f16_each_token",
        kSequenceGroup,
        "the state is rounded to fp16 after every token where an fp32 state is declared: "
        "inf from 65520 on",
        keeps_f32_state,
        state_f16_each_token,
        {},
        calls::kRounds},
    calls::Mistake{"final_state_bf16",
                   kSequenceGroup,
                   "the final state is rounded to bf16 on its way to an fp32 output",
                   keeps_f32_state,
                   final_state_bf16,
                   {},
                   calls::kRounds},
    calls::Mistake{
        "stale_state", kSequenceGroup,
        "the call ran twice on a pool that it updates in place, as an autotuner does: the "
        "update is applied twice",
        stale_applies, stale_state},
};

}  // namespace

std::span<const calls::Mistake> sequence_mistakes() { return kSequenceMistakes; }

}  // namespace goldenrule::delta
