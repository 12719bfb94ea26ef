// SPDX-License-Identifier: Apache-2.0
//
// A GPU test's call is a case line (fixtures/cases) with more words on it: how its tensors lie in
// memory, how the kernel is launched, and what a case cannot say of the numbers:
//
//   op=kda mode=mtp B=5 T=4 H=1 HV=2 K=128 V=64 slots=padded gap=3 shift=1 stray=1
//
// One such line replays a failure (live_call.hpp). None of the words changes what is right: that
// follows from the record alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "fixtures/cases/case.hpp"

namespace goldenrule::test {

struct Placement {
  std::int64_t gap = 0;          ///< elements of poison behind every outer axis
  std::int64_t shift = 0;        ///< elements by which all data are off their alignment
  std::int64_t separate = 0;     ///< 1: final states go into another pool
  std::int64_t keeps = 1;        ///< 0: an MTP call without intermediate_states
  std::int64_t spare = 0;        ///< rows of intermediate_states beyond T
  std::int64_t stray = 0;        ///< 1: pad slots are given as slots outside the pool
  std::int64_t dependent = 0;    ///< 1: programmatic dependent launch
  std::int64_t output = 1;       ///< 0: o is not wanted (decode, MTP)
  std::int64_t columns = 1;      ///< lists of slots and counts are the first of so many columns
  std::int64_t trigger = 0;      ///< 1: with GOLDENRULE_GPU_FLAG_TRIGGER_EARLY (decode, MTP)
  std::int64_t ready = 0;        ///< 1: with GOLDENRULE_GPU_FLAG_STATE_READY (decode, MTP)
  std::int64_t precise = 0;      ///< 1: with GOLDENRULE_GPU_FLAG_PRECISE (prefill)
  std::int64_t never_split = 0;  ///< 1: with GOLDENRULE_GPU_FLAG_NEVER_SPLIT (prefill)
  std::int64_t splits = 0;       ///< blocks that share the keys of a request (attention)
  std::int64_t poison = 1;       ///< chooses what unwritten memory holds
};

/// Visits every field as f(name, field). `P` is Placement or const Placement.
template <class P, class F>
void for_each_field(P& p, F&& f) {
  f("gap", p.gap);
  f("shift", p.shift);
  f("separate", p.separate);
  f("keeps", p.keeps);
  f("spare", p.spare);
  f("stray", p.stray);
  f("dependent", p.dependent);
  f("output", p.output);
  f("columns", p.columns);
  f("trigger", p.trigger);
  f("ready", p.ready);
  f("precise", p.precise);
  f("never_split", p.never_split);
  f("splits", p.splits);
  f("poison", p.poison);
}

/// A change of the record that no case expresses.
struct Change {
  std::string_view name;  ///< of the line: change=NAME
  std::string_view meaning;
  void (*apply)(call::Record& record);
};
[[nodiscard]] const std::vector<Change>& changes();

struct LiveCase {
  cases::Case call;
  std::string change;  ///< empty: none
  Placement placement;
};

/// Throws Error(kArgument) and Error(kValue) as cases::parse does.
[[nodiscard]] LiveCase parse_live(std::string_view line);
/// The line, with what has its default left out.
[[nodiscard]] std::string canonical(const LiveCase& c);
/// Every line of `text`, braces expanded (cases::expand); lines that begin with # are comments.
[[nodiscard]] std::vector<LiveCase> parse_list(std::string_view text);
/// The record of the case, changed; case_line is the whole line.
[[nodiscard]] call::Record make_record(const LiveCase& c);
/// Likewise of a line.
[[nodiscard]] inline call::Record record_of(std::string_view line) {
  return make_record(parse_live(line));
}

/// Element [.., indices[i], ..] of axis `axis` becomes element i, in every input that has the axis.
void take_inputs(call::Record& record, call::Axis axis, const std::vector<std::int64_t>& indices);

}  // namespace goldenrule::test
