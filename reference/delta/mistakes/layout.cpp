// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in the layout of the state and in the map from value heads to q/k heads.
#include <algorithm>
#include <array>
#include <bit>

#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/calls/outputs.hpp"
#include "reference/delta/mistakes/common.hpp"
#include "reference/delta/mistakes/tables.hpp"

namespace goldenrule::delta {
namespace {

using call::Record;
using call::TensorMap;

// Flat position, within a state, where a kernel of the other layout looks for element i of this
// one. For K = V that is the transpose; otherwise the numbers come from elsewhere altogether.
std::int64_t in_other_layout(const Record& r, const call::Dims& d, std::int64_t i) {
  const bool vk = r.convention.state_layout == call::StateLayout::kVK;
  const std::int64_t inner = vk ? d.K : d.V;  // the last axis as it is declared
  const std::int64_t outer = vk ? d.V : d.K;
  return (i % inner) * outer + i / inner;
}

bool transposed_applies(const Record& r) {
  return r.find_input("initial_state") != nullptr && has_two_axes(r);
}
TensorMap state_transposed(const Record& r, const calls::Kernel& kernel) {
  const call::Dims d = call::validate(r);
  const call::Tensor given = r.inputs.at("initial_state");
  Record changed = calls::without_outputs(r);
  calls::change_input(changed, "initial_state", [&](std::int64_t at, double) {
    const std::int64_t i = at % d.state_size();
    return given[at - i + in_other_layout(r, d, i)];
  });
  TensorMap outputs = kernel(changed);
  // Slots that nobody writes were not touched.
  const call::Plan plan = call::make_plan(r, false);
  std::vector<std::int64_t> restored(static_cast<std::size_t>(d.slots));
  for (std::int64_t block = 0; block < d.slots; ++block) {
    restored[static_cast<std::size_t>(block)] = block;
  }
  for (const call::Sequence& s : plan.sequences) {
    for (const call::Snapshot& snapshot : s.snapshots) {
      restored[static_cast<std::size_t>(snapshot.block)] = -1;
    }
  }
  calls::copy_blocks(given, d.HV * d.state_size(), restored, outputs.at("final_state"));
  return outputs;
}

// What was computed for element i is written where the other layout has it, so position p holds the
// element whose other place is p.
TensorMap written_transposed(const Record& r, TensorMap outputs) {
  const call::Dims d = call::validate(r);
  std::vector<std::int64_t> element(static_cast<std::size_t>(d.state_size()));
  for (std::int64_t i = 0; i < d.state_size(); ++i) {
    element[static_cast<std::size_t>(in_other_layout(r, d, i))] = i;
  }
  calls::change_outputs(r, outputs,
                        [&](const call::Tensor& before, const calls::OutputPlace& p, double x) {
                          if (!p.is_state) return x;
                          const std::int64_t i = p.index % d.state_size();
                          return before[p.index - i + element[static_cast<std::size_t>(i)]];
                        });
  return outputs;
}
TensorMap state_transposed_out(const Record& r, const calls::Kernel& kernel) {
  return written_transposed(r, kernel(r));
}

// The kernel has the other layout throughout: what a wrong flag, or the wrong kernel, does.
TensorMap state_other_layout(const Record& r, const calls::Kernel& kernel) {
  return written_transposed(r, state_transposed(r, kernel));
}

bool tiled_applies(const Record& r) {
  const call::Dims d = call::validate(r);
  return d.H > 1 && d.HV > d.H;
}
TensorMap head_tiled(const Record& r, const calls::Kernel& kernel) {
  const call::Dims d = call::validate(r);
  const auto other = r.convention.head_map == call::HeadMap::kGrouped ? call::HeadMap::kTiled
                                                                      : call::HeadMap::kGrouped;
  return kernel(calls::with_qk_heads(r, [&](std::int64_t j) { return d.qk_head(other, j); }));
}

// HV % H != 0 cannot stand in a record (validate refuses it, and a kernel that takes it fails that
// test); what the accepted remainder does to the heads is what a group size that is rounded down
// to a power of two does.
bool floor_applies(const Record& r) {
  const call::Dims d = call::validate(r);
  return d.H > 1 && r.convention.head_map == call::HeadMap::kGrouped &&
         !std::has_single_bit(static_cast<std::uint64_t>(d.HV / d.H));
}
TensorMap head_floor(const Record& r, const calls::Kernel& kernel) {
  const call::Dims d = call::validate(r);
  const auto group =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(d.HV / d.H)));
  return kernel(
      calls::with_qk_heads(r, [&](std::int64_t j) { return std::min(j / group, d.H - 1); }));
}

TensorMap head_zero(const Record& r, const calls::Kernel& kernel) {
  return kernel(calls::with_qk_heads(r, [](std::int64_t) { return std::int64_t{0}; }));
}

constexpr calls::Meant kOtherLayout[] = {{"state_layout", "vk", "kv"},
                                         {"state_layout", "kv", "vk"}};
constexpr calls::Meant kOtherMap[] = {{"head_map", "grouped", "tiled"},
                                      {"head_map", "tiled", "grouped"}};

constexpr std::string_view kLayoutGroup = "Layout and heads";
constexpr std::array kLayoutMistakes{
    calls::Mistake{"state_transposed", kLayoutGroup,
                   "the initial state is read as [K,V] where it is [V,K], or the reverse",
                   transposed_applies, state_transposed},
    calls::Mistake{"state_transposed_out", kLayoutGroup,
                   "states are written as [K,V] where they belong as [V,K], or the reverse",
                   has_two_axes, state_transposed_out},
    calls::Mistake{
        "state_transposed", kLayoutGroup,
        "the kernel has the other state layout: it reads and writes [K,V] where the call has "
        "[V,K], or the reverse",
        transposed_applies, state_other_layout, kOtherLayout},
    calls::Mistake{
        "head_tiled", kLayoutGroup,
        "value head j reads q/k head j % H for j // (HV/H), or the reverse where the call is "
        "tiled",
        tiled_applies, head_tiled, kOtherMap},
    calls::Mistake{
        "head_floor", kLayoutGroup,
        "the group size HV/H is rounded down: a remainder of value heads, which HV % H != 0 "
        "leaves when it is accepted, reads the last q/k head",
        floor_applies, head_floor},
    calls::Mistake{"head_zero", kLayoutGroup, "all value heads read q/k head 0",
                   [](const Record& r) { return call::validate(r).H > 1; }, head_zero},
};

}  // namespace

std::span<const calls::Mistake> layout_mistakes() { return kLayoutMistakes; }

}  // namespace goldenrule::delta
