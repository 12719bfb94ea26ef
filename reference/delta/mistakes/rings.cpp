// SPDX-License-Identifier: Apache-2.0
//
// Mistakes with rings of pending tokens: cursors, what is folded into the state and when, and what
// is kept. Each is the right kernel asked for something else, or its outputs changed where it
// writes to the rings.
//
// Length: a function for each mistake.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/take.hpp"
#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/calls/outputs.hpp"
#include "reference/delta/mistakes/tables.hpp"
#include "reference/delta/rule/lane.hpp"

namespace goldenrule::delta {
namespace {

using call::Record;
using call::TensorMap;
using Integers = std::vector<std::int64_t>;

constexpr std::array kRings{"ring_d", "ring_k", "ring_g"};

call::Tensor integers_like(const call::Tensor& tensor, const Integers& values) {
  return {tensor.dtype(), tensor.shape(), std::vector<double>(values.begin(), values.end())};
}

// Whether f holds for some row that is no padding.
template <class F>
bool some_row(const Record& r, F&& f) {
  if (!call::has_ring(r)) return false;
  const call::Plan plan = call::make_plan(r, false);
  return std::ranges::any_of(plan.sequences,
                             [&](const call::Sequence& s) { return !s.padded && f(s); });
}
bool has_pending(const Record& r) {
  return some_row(r, [](const call::Sequence& s) { return s.replay.count > 0; });
}
bool has_decay(const Record& r) { return has_pending(r) && r.convention.gate != call::Gate::kNone; }
bool flushes(const call::Sequence& s) { return !s.snapshots.empty(); }

// The call with other cursors: f(row) for every row that is no padding.
template <class F>
Record with_cursors(const Record& r, const char* name, F&& f) {
  Record changed = calls::without_outputs(r);
  call::Tensor& tensor = changed.inputs.at(name);
  Integers values = tensor.to_integers();
  const call::Plan plan = call::make_plan(r, false);
  for (std::size_t b = 0; b < values.size(); ++b) {
    if (!plan.sequences[b].padded) values[b] = f(plan.sequences[b]);
  }
  tensor = integers_like(tensor, values);
  return changed;
}

// --- where the pending tokens lie and how many they are

bool has_other_place(const Record& r) {
  return some_row(
      r, [](const call::Sequence& s) { return s.replay.count > 0 && s.replay.places > 1; });
}
TensorMap start_late(const Record& r, const calls::Kernel& kernel) {
  return kernel(
      with_cursors(r, "ring_start", [](const call::Sequence& s) { return s.replay.place(1); }));
}

std::int64_t most_pending(const call::Sequence& s) { return s.replay.places - s.token_count; }
bool has_rejected(const Record& r) {
  return some_row(r, [](const call::Sequence& s) { return s.replay.count < most_pending(s); });
}
TensorMap rejected_replayed(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_cursors(r, "ring_count", [](const call::Sequence& s) {
    return std::min(s.replay.count + 1, most_pending(s));
  }));
}
TensorMap last_unread(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_cursors(r, "ring_count", [](const call::Sequence& s) {
    return std::max<std::int64_t>(s.replay.count - 1, 0);
  }));
}
bool has_other_ring(const Record& r) {
  const call::Tensor* given = r.find_input("ring_indices");
  if (given == nullptr || !call::has_ring(r)) return false;
  const call::Plan plan = call::make_plan(r, false);
  if (plan.dims.rows > plan.dims.rings) return false;
  for (std::size_t b = 0; b < plan.sequences.size(); ++b) {
    const call::Sequence& s = plan.sequences[b];
    const bool reads = s.replay.count > 0 || s.token_count > 0;
    if (!s.padded && reads && s.replay.ring != static_cast<std::int64_t>(b)) return true;
  }
  return false;
}
TensorMap ring_by_row(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  changed.inputs.erase("ring_indices");
  return kernel(changed);
}

// --- what is read: the kernel runs on other rings, and what it keeps of them is what was there

// Calls f(place of the ring, token of the row) with the flat index of its first element in the
// tensor, for every token of the call; `heads` are those of the tensor.
template <class F>
void for_each_written(const Record& r, const call::Tensor& ring, F&& f) {
  const call::Plan plan = call::make_plan(r, false);
  const std::int64_t heads = ring.shape()[1];
  const std::int64_t places = ring.shape()[2];
  const std::int64_t width =
      ring.size() / std::max<std::int64_t>(1, ring.shape()[0] * heads * places);
  for (const call::Sequence& s : plan.sequences) {
    if (s.padded) continue;
    for (std::int64_t t = s.replay.count; t < s.lane_tokens(); ++t) {
      for (std::int64_t h = 0; h < heads; ++h) {
        f(s, t, h, ((s.replay.ring * heads + h) * places + s.replay.place(t)) * width, width);
      }
    }
  }
}

TensorMap on_other_rings(const Record& r, const Record& changed, const calls::Kernel& kernel) {
  TensorMap outputs = kernel(changed);
  for (const char* name : kRings) {
    const auto found = outputs.find(name);
    if (found == outputs.end()) continue;
    call::Tensor kept = calls::widened(r.inputs.at("initial_" + std::string(name)));
    for_each_written(r, kept,
                     [&](const call::Sequence&, std::int64_t, std::int64_t, std::int64_t first,
                         std::int64_t width) {
                       for (std::int64_t i = first; i < first + width; ++i) {
                         kept.set(i, found->second[i]);
                       }
                     });
    found->second = std::move(kept);
  }
  return outputs;
}

// The ring tensors with the pending tokens changed as f(tensor, flat head, replay, t, width) says.
template <class F>
Record with_pending(const Record& r, F&& f) {
  Record changed = calls::without_outputs(r);
  const call::Plan plan = call::make_plan(r, false);
  for (const char* name : kRings) {
    const call::Tensor& before = r.inputs.at("initial_" + std::string(name));
    call::Tensor after = calls::widened(before);
    const std::int64_t heads = before.shape()[1];
    const std::int64_t width = before.size() / (before.shape()[0] * heads * before.shape()[2]);
    for (const call::Sequence& s : plan.sequences) {
      for (std::int64_t t = 0; t < s.replay.count; ++t) {
        for (std::int64_t h = 0; h < heads; ++h) {
          const std::int64_t head = s.replay.ring * heads + h;
          const std::int64_t to = (head * s.replay.places + s.replay.place(t)) * width;
          for (std::int64_t i = 0; i < width; ++i)
            after.set(to + i, f(name, before, s, head, t, i));
        }
      }
    }
    changed.inputs["initial_" + std::string(name)] = std::move(after);
  }
  return changed;
}

bool wraps(const Record& r) {
  return some_row(
      r, [](const call::Sequence& s) { return s.replay.start + s.replay.count > s.replay.places; });
}
TensorMap wrap_missing(const Record& r, const calls::Kernel& kernel) {
  const auto beyond = [](const char*, const call::Tensor& ring, const call::Sequence& s,
                         std::int64_t head, std::int64_t t, std::int64_t i) {
    const std::int64_t width = ring.size() / (ring.shape()[0] * ring.shape()[1] * ring.shape()[2]);
    const std::int64_t place = head * s.replay.places + s.replay.start + t;
    return ring[std::min(place * width, ring.size() - width) + i];
  };
  return on_other_rings(r, with_pending(r, beyond), kernel);
}

TensorMap gate_missing(const Record& r, const calls::Kernel& kernel) {
  const auto no_last_gate = [](const char* name, const call::Tensor& ring, const call::Sequence& s,
                               std::int64_t head, std::int64_t t, std::int64_t i) {
    const std::int64_t width = ring.size() / (ring.shape()[0] * ring.shape()[1] * ring.shape()[2]);
    if (std::string_view(name) == "ring_g" && t == s.replay.count - 1) return 0.0;
    return ring[(head * s.replay.places + s.replay.place(t)) * width + i];
  };
  return on_other_rings(r, with_pending(r, no_last_gate), kernel);
}

// --- when states are left

bool flushes_pending(const Record& r) {
  return some_row(r, [](const call::Sequence& s) { return flushes(s) && s.replay.count > 0; });
}
TensorMap never_flushed(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  changed.inputs.erase("ring_flush");
  return kernel(changed);
}

// The final states of `from` in the slots that rows of the call leave.
void take_states(const Record& r, const call::Tensor& from, call::Tensor& to) {
  const call::Dims d = call::validate(r);
  const std::int64_t size = d.HV * d.state_size();
  for (const call::Sequence& s : call::make_plan(r, false).sequences) {
    for (const call::Snapshot& left : s.snapshots) {
      for (std::int64_t i = left.block * size; i < (left.block + 1) * size; ++i) to.set(i, from[i]);
    }
  }
}

// Folds, and then reads the folded state and the ring once more.
TensorMap folded_twice(const Record& r, const calls::Kernel& kernel) {
  const call::Tensor folded = kernel(calls::without_outputs(r)).at("final_state");
  const call::Dims d = call::validate(r);
  const std::int64_t size = d.HV * d.state_size();
  Record again = calls::without_outputs(r);
  call::Tensor start = calls::widened(r.inputs.at("initial_state"));
  for (const call::Sequence& s : call::make_plan(r, false).sequences) {
    if (s.padded || !flushes(s)) continue;
    for (std::int64_t i = 0; i < size; ++i) {
      start.set(s.start_block * size + i, folded[s.snapshots.front().block * size + i]);
    }
  }
  again.inputs["initial_state"] = std::move(start);
  TensorMap outputs = kernel(again);
  call::Tensor states = calls::widened(r.inputs.at("initial_state"));
  take_states(r, outputs.at("final_state"), states);
  outputs["final_state"] = std::move(states);
  return outputs;
}

// The call that adds nothing to the rings `rings`, whose cursors say that the tokens of `r` were
// all accepted.
Record after_all(const Record& r, const TensorMap& rings) {
  Record next =
      with_cursors(r, "ring_count", [](const call::Sequence& s) { return s.lane_tokens(); });
  const call::Dims d = call::validate(r);
  call::for_each_input(r, d, [&](const auto& row, const auto& axes, const call::Tensor& tensor) {
    if (!row.has(call::extent::kTokens)) return;
    const bool packed = axes.front() == call::axis::kPackedToken;
    next.inputs[std::string(row.name)] = call::take(tensor, packed ? 0 : 1, Integers());
  });
  if (call::Tensor* bounds =
          next.inputs.contains("cu_seqlens") ? &next.inputs.at("cu_seqlens") : nullptr) {
    *bounds = integers_like(*bounds, Integers(static_cast<std::size_t>(bounds->size()), 0));
  }
  for (const char* name : kRings) next.inputs["initial_" + std::string(name)] = rings.at(name);
  return next;
}

bool flushes_beside_tokens(const Record& r) {
  return some_row(r, [](const call::Sequence& s) { return flushes(s) && s.token_count > 0; });
}
TensorMap drafts_folded(const Record& r, const calls::Kernel& kernel) {
  TensorMap outputs = kernel(calls::without_outputs(r));
  call::Tensor& states = outputs.at("final_state");
  take_states(r, kernel(after_all(r, outputs)).at("final_state"), states);
  return outputs;
}

// --- what is kept

bool adds_tokens(const Record& r) {
  return some_row(r, [](const call::Sequence& s) { return s.token_count > 0; });
}

// Replaces what is written to a ring by f(sequence, token of the row, head, element, x).
template <class F>
TensorMap with_written(const Record& r, const calls::Kernel& kernel, const char* name, F&& f) {
  TensorMap outputs = kernel(calls::without_outputs(r));
  call::Tensor ring = calls::widened(outputs.at(name));
  for_each_written(r, ring,
                   [&](const call::Sequence& s, std::int64_t t, std::int64_t h, std::int64_t first,
                       std::int64_t width) {
                     for (std::int64_t i = 0; i < width; ++i) {
                       ring.set(first + i, f(s, t, h, i, ring[first + i]));
                     }
                   });
  outputs[name] = std::move(ring);
  return outputs;
}

bool has_ring_norm(const Record& r) {
  return adds_tokens(r) && r.convention.qk_l2norm != call::QkNorm::kNone;
}
TensorMap raw_keys(const Record& r, const calls::Kernel& kernel) {
  const call::Dims d = call::validate(r);
  const call::Tensor& k = r.inputs.at("k");
  return with_written(
      r, kernel, "ring_k",
      [&](const call::Sequence& s, std::int64_t t, std::int64_t h, std::int64_t i, double) {
        const std::int64_t token = s.first_token + t - s.replay.count;
        return k[(token * d.H + h) * d.K + i];
      });
}
TensorMap alpha_kept(const Record& r, const calls::Kernel& kernel) {
  return with_written(r, kernel, "ring_g",
                      [](const call::Sequence&, std::int64_t, std::int64_t, std::int64_t,
                         double log_alpha) { return std::exp(log_alpha); });
}
TensorMap value_kept(const Record& r, const calls::Kernel& kernel) {
  const call::Dims d = call::validate(r);
  const call::Tensor& v = r.inputs.at("v");
  return with_written(
      r, kernel, "ring_d",
      [&](const call::Sequence& s, std::int64_t t, std::int64_t h, std::int64_t i, double) {
        const std::int64_t token = s.first_token + t - s.replay.count;
        return v[(token * d.HV + h) * d.V + i];
      });
}

constexpr std::string_view kRingsGroup = "Rings";

constexpr std::array kRingsMistakes{
    calls::Mistake{"ring_cursor_late", kRingsGroup,
                   "ring_start is taken for the place before the oldest pending token: every place "
                   "is one too far",
                   has_other_place, start_late},
    calls::Mistake{"ring_by_row", kRingsGroup, "row b uses ring b, whatever ring_indices says",
                   has_other_ring, ring_by_row},
    calls::Mistake{"ring_rejected_replayed", kRingsGroup,
                   "one more token than was accepted is read from the ring", has_rejected,
                   rejected_replayed},
    calls::Mistake{"ring_last_unread", kRingsGroup,
                   "the last accepted token is not read from the ring", has_pending, last_unread},
    calls::Mistake{"ring_wrap_missing", kRingsGroup,
                   "pending tokens behind the last place of a ring are read behind it, in the ring "
                   "of the next head, and not from its first place on",
                   wraps, wrap_missing},
    calls::Mistake{"ring_gate_missing", kRingsGroup,
                   "the last pending token does not decay what came before it", has_decay,
                   gate_missing},
    calls::Mistake{"ring_never_flushed", kRingsGroup,
                   "pending tokens are never folded into the state, whatever ring_flush says",
                   flushes_pending, never_flushed},
    calls::Mistake{"ring_folded_twice", kRingsGroup,
                   "pending tokens are folded into the state and then replayed on top of it",
                   flushes_pending, folded_twice},
    calls::Mistake{"ring_drafts_folded", kRingsGroup,
                   "the tokens of the call are folded into the state too, though nobody has "
                   "accepted them",
                   flushes_beside_tokens, drafts_folded},
    calls::Mistake{"ring_raw_key", kRingsGroup, "the ring keeps keys that are not normalised",
                   has_ring_norm, raw_keys},
    calls::Mistake{"ring_alpha_kept", kRingsGroup, "the ring keeps alpha, not its logarithm",
                   adds_tokens, alpha_kept},
    calls::Mistake{"ring_value_kept", kRingsGroup, "the ring keeps v, not the correction",
                   adds_tokens, value_kept},
};

}  // namespace

std::span<const calls::Mistake> ring_mistakes() { return kRingsMistakes; }

}  // namespace goldenrule::delta
