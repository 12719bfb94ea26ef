// SPDX-License-Identifier: Apache-2.0
//
// Mistakes where a kernel meets the server that calls it: what a slot held before, tokens that fill
// up a rectangular batch, which of the states on the way are left, and states that are a token or
// an update behind o.
#include <algorithm>
#include <array>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/call/take.hpp"
#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/calls/outputs.hpp"
#include "reference/delta/mistakes/common.hpp"
#include "reference/delta/mistakes/gates.hpp"
#include "reference/delta/mistakes/tables.hpp"

namespace goldenrule::delta {
namespace {

using call::Record;
using call::TensorMap;

// Some sequence is new and its block of initial_state holds something else than zeros.
bool has_stale_state(const Record& r) {
  const call::Tensor* flags = r.find_input("has_initial_state");
  if (flags == nullptr) return false;
  const std::vector<std::int64_t> continued = flags->to_integers();
  return std::ranges::find(continued, 0) != continued.end();
}
TensorMap initial_state_stale(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  changed.inputs.erase("has_initial_state");
  return kernel(changed);
}

// How far a sequence of `tokens` tokens is filled up.
using FilledTo = std::int64_t (*)(std::int64_t tokens, std::int64_t longest);
std::int64_t to_longest(std::int64_t, std::int64_t longest) { return longest; }
std::int64_t to_chunk(std::int64_t tokens, std::int64_t) {
  return (tokens + kChunk - 1) / kChunk * kChunk;
}

enum class Pad { kZeros, kLastToken };

// The call with every sequence filled up, so that pads are tokens like others. Of states on the way
// nothing changes: they are counted from the start of a sequence.
template <FilledTo filled_to, Pad pad>
struct Filled {
  explicit Filled(const Record& r) : plan(call::make_plan(r, false)) {
    const std::int64_t longest = calls::longest_sequence(r);
    for (const call::Sequence& s : plan.sequences) {
      const std::int64_t last = s.first_token + s.token_count - 1;
      const std::int64_t count = pad == Pad::kLastToken && s.token_count == 0
                                     ? 0
                                     : std::max(filled_to(s.token_count, longest), s.token_count);
      for (std::int64_t t = 0; t < count; ++t) {
        tokens.push_back(std::min(s.first_token + t, std::max<std::int64_t>(last, 0)));
        added.push_back(t >= s.token_count);
      }
      bounds.push_back(static_cast<double>(tokens.size()));
    }
  }

  // Packed batches of very many short sequences are what nobody fills up.
  static bool applies(const Record& r) {
    constexpr std::size_t kMost = 4096;
    if (!calls::is_prefill(r) || call::validate(r).tokens == 0) return false;
    if (pad == Pad::kZeros && !has_logit_gate(r) && r.convention.gate != call::Gate::kLinear) {
      return false;  // log alpha = 0 and k = 0 leave the state as it is
    }
    const Filled filled(r);
    const std::size_t tokens = filled.tokens.size();
    return tokens > static_cast<std::size_t>(filled.plan.dims.tokens) && tokens <= kMost;
  }

  static TensorMap commit(const Record& r, const calls::Kernel& kernel) {
    const Filled filled(r);
    Record changed = calls::without_outputs(r);
    call::for_each_input(changed, filled.plan.dims, [&](const auto& row, const auto&, auto& x) {
      if (!row.is_per_token()) return;
      x = call::take(x, 0, filled.tokens);
      const std::int64_t size = x.size() / std::max<std::int64_t>(std::ssize(filled.tokens), 1);
      for (std::int64_t i = 0; pad == Pad::kZeros && i < x.size(); ++i) {
        if (filled.added[static_cast<std::size_t>(i / size)]) x.set(i, 0.0);
      }
    });
    changed.inputs["cu_seqlens"] =
        call::Tensor(call::DType::kI64, {std::ssize(filled.bounds)}, filled.bounds);
    TensorMap outputs = kernel(r);
    outputs["final_state"] = kernel(changed).at("final_state");
    return outputs;
  }

  call::Plan plan;
  std::vector<std::int64_t> tokens;
  std::vector<bool> added;
  std::vector<double> bounds{0.0};
};

// A rectangular batch: of the T tokens of a row the first accepted_tokens are its own.
bool has_accepted(const Record& r) {
  return leaves_states(r) && r.find_input("accepted_tokens") != nullptr;
}
bool accepts_fewer(const Record& r) {
  if (!has_accepted(r) || r.convention.disable_state_update != 0) return false;
  const call::Plan plan = call::make_plan(r, false);
  return std::ranges::any_of(plan.sequences, [](const call::Sequence& s) {
    return !s.snapshots.empty() && s.snapshots.back().after < s.token_count;
  });
}
TensorMap all_tokens_accepted(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  changed.inputs.erase("accepted_tokens");
  return kernel(changed);
}

// The state of a row that accepts nothing, at index accepted - 1 = -1 of the states on the way.
bool accepts_nothing(const Record& r) {
  if (!has_accepted(r) || call::validate(r).tokens == 0 || r.convention.disable_state_update != 0) {
    return false;
  }
  const call::Plan plan = call::make_plan(r, false);
  return std::ranges::any_of(plan.sequences, [](const call::Sequence& s) {
    return s.token_count > 0 && !s.snapshots.empty() && s.snapshots.front().after == 0;
  });
}
TensorMap zero_wraps(const Record& r, const calls::Kernel& kernel, bool within_row) {
  const call::Plan plan = call::make_plan(r, false);
  const call::Dims& d = plan.dims;
  const std::int64_t block = d.HV * d.state_size();
  TensorMap outputs = kernel(r);
  const call::Tensor& states = outputs.at("intermediate_states");
  for (const call::Sequence& row : plan.sequences) {
    for (const call::Snapshot& s : row.snapshots) {
      if (s.after != 0 || row.token_count == 0) continue;
      const std::int64_t from = row.first_token + (within_row ? row.token_count - 1 : -1);
      for (std::int64_t i = 0; i < block; ++i) {
        const double x = from < 0 ? calls::kUnwritten : states[from * block + i];
        outputs.at("final_state").set(s.block * block + i, x);
      }
    }
  }
  return outputs;
}

TensorMap intermediate_unwritten(const Record& r, const calls::Kernel& kernel, std::int64_t from) {
  std::vector<std::int64_t> place;  // of each token in its row
  for (const call::Sequence& s : call::make_plan(r, false).sequences) {
    for (std::int64_t t = 0; t < s.token_count; ++t) place.push_back(t);
  }
  TensorMap outputs = kernel(r);
  TensorMap kept{{"intermediate_states", std::move(outputs.at("intermediate_states"))}};
  calls::drop_outputs(r, kept, [&](const calls::OutputPlace& p) {
    return place[static_cast<std::size_t>(p.block)] >= from;
  });
  outputs["intermediate_states"] = std::move(kept.at("intermediate_states"));
  return outputs;
}

bool has_last_token(const Record& r) {
  return calls::is_prefill(r) && calls::longest_sequence(r) > 0;
}
// Everything but the final states is right. beta = 0 leaves the state as it is.
TensorMap final_state_early(const Record& r, const calls::Kernel& kernel) {
  const call::Plan plan = call::make_plan(r, false);
  std::vector<bool> last(static_cast<std::size_t>(plan.dims.tokens), false);
  for (const call::Sequence& s : plan.sequences) {
    if (s.token_count > 0) last[static_cast<std::size_t>(s.first_token + s.token_count - 1)] = true;
  }
  const auto is_last = [&](std::int64_t token) { return last[static_cast<std::size_t>(token)]; };
  std::int64_t place = 0;
  const std::int64_t heads = plan.dims.HV;
  Record changed =
      with_beta(r, [&](double, double x) { return is_last(place++ / heads) ? 0.0 : x; });
  if (has_gate(r)) {
    changed =
        with_alpha(changed, [&](const GatePlace& p) { return is_last(p.token) ? 1.0 : p.alpha; });
  }
  TensorMap outputs = kernel(r);
  outputs["final_state"] = kernel(changed).at("final_state");
  return outputs;
}

TensorMap state_decayed_only(const Record& r, const calls::Kernel& kernel) {
  TensorMap outputs = kernel(r);
  outputs["final_state"] =
      kernel(with_beta(r, [](double, double) { return 0.0; })).at("final_state");
  return outputs;
}

template <FilledTo filled_to, Pad pad>
constexpr calls::Mistake filled(std::string_view meaning) {
  return {"pad_tokens_active", "Serving", meaning, Filled<filled_to, pad>::applies,
          Filled<filled_to, pad>::commit};
}

constexpr std::string_view kServingGroup = "Serving";
constexpr std::array kServingMistakes{
    calls::Mistake{
        "initial_state_stale", kServingGroup,
        "a new sequence starts from what its slot holds, whatever has_initial_state says",
        has_stale_state, initial_state_stale},
    calls::Mistake{"pad_tokens_active", kServingGroup,
                   "all T tokens of a row update its state, whatever accepted_tokens says",
                   accepts_fewer, all_tokens_accepted},
    filled<to_longest, Pad::kZeros>(
        "sequences are filled up with zeros to the length of the longest, and these tokens decay "
        "the state"),
    filled<to_chunk, Pad::kZeros>(
        "sequences are filled up with zeros to a multiple of 64, and these tokens decay the state"),
    filled<to_longest, Pad::kLastToken>(
        "sequences are filled up with their last token to the length of the longest, and these "
        "tokens update the state"),
    filled<to_chunk, Pad::kLastToken>("sequences are filled up with their last token to a multiple "
                                      "of 64, and these tokens update "
                                      "the state"),
    calls::Mistake{
        "accepted_zero_wraps", kServingGroup,
        "a row that accepts no token ends with the state at index -1 of its own: the one "
        "after its last token",
        accepts_nothing,
        [](const Record& r, const calls::Kernel& kernel) { return zero_wraps(r, kernel, true); }},
    calls::Mistake{
        "accepted_zero_wraps", kServingGroup,
        "a row that accepts no token ends with the state before its first in memory: the "
        "last one of the row before",
        accepts_nothing,
        [](const Record& r, const calls::Kernel& kernel) { return zero_wraps(r, kernel, false); }},
    calls::Mistake{
        "intermediate_unwritten", kServingGroup,
        "of the states on the way of a row only the first is written",
        [](const Record& r) { return leaves_states(r) && calls::longest_sequence(r) > 1; },
        [](const Record& r, const calls::Kernel& kernel) {
          return intermediate_unwritten(r, kernel, 1);
        }},
    calls::Mistake{"intermediate_unwritten", kServingGroup, "intermediate_states is not written",
                   [](const Record& r) { return leaves_states(r) && call::validate(r).tokens > 0; },
                   [](const Record& r, const calls::Kernel& kernel) {
                     return intermediate_unwritten(r, kernel, 0);
                   }},
    calls::Mistake{"final_state_early", kServingGroup,
                   "the final state is the one before the last token; o of that token is right",
                   has_last_token, final_state_early},
    calls::Mistake{"state_decayed_only", kServingGroup,
                   "the state is stored after its decay and before its update; o is right",
                   [](const Record& r) {
                     return r.mode == call::Mode::kDecode &&
                            r.find_input("initial_state") != nullptr;
                   },
                   state_decayed_only},
};

}  // namespace

std::span<const calls::Mistake> serving_mistakes() { return kServingMistakes; }

}  // namespace goldenrule::delta
