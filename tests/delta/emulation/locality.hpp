// SPDX-License-Identifier: Apache-2.0
//
// Worlds of the delta rule for the law of tests/locality.hpp: a call, and what its value channels,
// rows and heads are made of.
#pragma once

#include <string>

#include "fixtures/call/plan.hpp"
#include "reference/delta/emulation/emulate.hpp"
#include "reference/delta/slice.hpp"
#include "tests/delta/emulation/support.hpp"
#include "tests/locality.hpp"

namespace goldenrule::test {

struct World {
  call::Record record;
  call::Dims dims;

  static const verdict::Slice& slice() { return delta::slice(); }
  explicit World(const std::string& line) : record(record_of(line)), dims(call::validate(record)) {}

  [[nodiscard]] bool is_vk() const {
    return record.convention.state_layout == call::StateLayout::kVK;
  }
  /// Value channel and key channel of element `i` of a pool of states.
  [[nodiscard]] std::int64_t value_of(std::int64_t i) const {
    return (is_vk() ? i / dims.K : i) % dims.V;
  }
  [[nodiscard]] std::int64_t key_of(std::int64_t i) const {
    return (is_vk() ? i : i / dims.V) % dims.K;
  }
};

using Place = PlaceOf<World>;
using Disturbed = DisturbedOf<World>;

/// What comes into value channel V / 2 of every head.
inline void change_channel(World& w, const Value& f) {
  const std::int64_t x = w.dims.V / 2;
  for (const char* name : {"v", "initial_ring_d"}) {
    change(w.record, name, [&](std::int64_t i, double v) { return i % w.dims.V == x ? f(v) : v; });
  }
  change(w.record, "initial_state",
         [&](std::int64_t i, double s) { return w.value_of(i) == x ? f(s) : s; });
}

/// v of the last row, and of the tokens of the first sequence behind a whole chunk.
inline void change_others(World& w, const Value& f) {
  const call::Plan plan = call::make_plan(w.record, true);
  const call::Sequence& first = plan.sequences.front();
  const call::Sequence& last = plan.sequences.back();
  constexpr std::int64_t kChunk = 64;  // of a contract; numbers meet in products of one chunk
  change(w.record, "v", [&](std::int64_t i, double v) {
    const std::int64_t token = i / (w.dims.HV * w.dims.V);
    const bool later =
        token >= first.first_token + kChunk && token < first.first_token + first.token_count;
    return later || token >= last.first_token ? f(v) : v;
  });
}

/// What comes into the last value head, of values and states.
inline void change_head(World& w, const Value& f) {
  const call::Dims& d = w.dims;
  change(w.record, "v",
         [&](std::int64_t i, double v) { return i / d.V % d.HV == d.HV - 1 ? f(v) : v; });
  change(w.record, "initial_state", [&](std::int64_t i, double s) {
    return i / d.state_size() % d.HV == d.HV - 1 ? f(s) : s;
  });
}

}  // namespace goldenrule::test
