// SPDX-License-Identifier: Apache-2.0
//
// The whole table against itself: kernels that make each known mistake on calls of every mode and
// of the families that show it. How often does the right name, or one with the same outputs, come
// first? What does not is printed as a table of confusions.
//
// Kernels are the emulated ones of the call's contract, so a mistake is looked for under roundings
// that the explanation does not know.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>

#include "reference/mistakes/kernels.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

// Small calls in which different mistakes are visible: every gate, beta and layout, tails in K, V
// and T, both operations.
const std::vector<std::string> kCalls{
    "op=gdn mode=decode B=3 H=2 HV=4 K=64 V=64 slots=permuted",
    "op=gdn mode=decode B=5 H=2 HV=4 K=128 V=136 slots=padded family=production",
    "op=kda mode=decode B=3 H=2 HV=4 K=64 V=32 gate=bounded slots=separate_padded",
    "op=kda mode=decode B=4 H=2 HV=6 K=136 V=128 gate=log slots=permuted state_layout=kv",
    "op=gdn mode=decode B=4 H=1 HV=2 K=64 V=64 slots=padded pad_slot=0 family=J20p",
    "op=gdn mode=decode B=3 H=1 HV=2 K=64 V=64 beta=sigmoid2 gate=log2 io=f16 family=E",
    "op=gdn mode=decode B=3 H=1 HV=2 K=64 V=64 family=I",
    "op=gdn mode=decode B=3 H=1 HV=2 K=64 V=64 family=J100",
    "op=gdn mode=decode B=3 H=1 HV=2 K=64 V=64 family=J17",
    "op=gdn mode=mtp B=2 T=4 H=2 HV=4 K=64 V=64 slots=permuted P=7",
    "op=gdn mode=mtp B=3 T=5 H=2 HV=4 K=32 V=48 slots=padded accepted=mixed",
    "op=kda mode=mtp B=3 T=3 H=2 HV=4 K=32 V=32 gate=linear beta=direct slots=separate",
    "op=gdn mode=mtp B=3 T=4 H=1 HV=2 K=64 V=32 slots=permuted disable_state_update=1",
    "op=gdn mode=mtp B=4 T=4 H=1 HV=2 K=64 V=32 slots=scatter",
    "op=gdn mode=mtp B=3 T=8 H=1 HV=2 K=64 V=64 slots=permuted family=B95",
    "op=gdn mode=prefill lens=70,33,1 H=2 HV=4 K=64 V=64 gate=log h0=1",
    "op=kda mode=prefill lens=70,0,130 H=2 HV=4 K=64 V=64 gate=bounded h0=1 family=Dslow",
    "op=gdn mode=prefill lens=137,63 H=2 HV=4 K=64 V=136 gate=softplus h0=1 family=production",
    "op=kda mode=prefill lens=137,63 H=1 HV=2 K=136 V=64 gate=log h0=1 family=B95",
    "op=gdn mode=prefill lens=137,63 H=1 HV=2 K=64 V=64 gate=linear beta=direct family=B999",
    "op=gdn mode=prefill lens=137,63 H=1 HV=2 K=64 V=64 gate=log io=f16 h0=1 family=F",
    "op=kda mode=prefill lens=137,63 H=1 HV=2 K=64 V=64 gate=log h0=1 family=C100",
};

// Calls per mistake: the first of each mode that shows it, and one more.
constexpr int kPerMode = 2;

struct Tally {
  int shown = 0, first = 0, explained = 0;
  std::map<std::string, int> confused_with;
};

bool names(const Explanation& e, std::string_view mistake) {
  return e.name() == mistake || std::ranges::find(e.same, mistake) != e.same.end();
}

TEST_CASE("the right name comes first for the whole table") {
  std::vector<Record> calls;
  for (const std::string& line : kCalls) calls.push_back(make_call(line));
  std::map<std::string, Tally> tallies;
  int shown = 0;
  int first = 0;
  for (const Mistake& mistake : mistakes::table()) {
    Tally& tally = tallies[std::string(mistake.name)];
    std::map<call::Mode, int> per_mode;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      Record record = calls[i];
      if (per_mode[record.mode] >= kPerMode || !mistake.applies(record)) continue;
      const bounds::Contract& contract = bounds::find_contract(
          record.mode == call::Mode::kPrefill ? "chunk64_bf16" : "recurrent_f32");
      record.contract = contract.name;
      record.outputs = mistakes::stored(
          record, contract, mistake.commit(record, mistakes::emulated_kernel(contract, 3)));
      if (contract.chunk > 0) record.outputs.erase("intermediate_states");
      const Diagnosis d = diagnosis_of(record, mistakes::table());
      if (d.pattern.empty()) continue;  // this call does not show it
      ++per_mode[record.mode];
      ++tally.shown;
      ++shown;
      const bool right = !d.explanations.empty() && d.explanations[0].explains &&
                         names(d.explanations[0], mistake.name);
      if (right) {
        ++first;
        ++tally.first;
        continue;
      }
      const bool any = !d.explanations.empty() && d.explanations[0].explains;
      const std::string what = any ? d.explanations[0].name() : "none";
      ++tally.confused_with[what];
      fmt::print("  {:<26} {:<26} in {}\n", mistake.name, what, kCalls[i]);
      for (const Explanation& e : d.explanations) {
        fmt::print("      {} explains {} ratio {:.3g} accounted {:.4f} failing {} same {}\n",
                   e.name(), e.explains, e.residual_ratio, e.accounted, e.failing,
                   fmt::join(e.same, ","));
      }
    }
  }
  int never = 0;
  for (const auto& [name, tally] : tallies) {
    if (tally.shown == 0) {
      fmt::print("  {} is not shown by any call here\n", name);
      ++never;
    }
  }
  fmt::print("{} mistakes, {} captures: the right name or an equal one first in {} ({:.1f} %)\n",
             tallies.size(), shown, first, 100.0 * first / shown);
  CHECK(shown >= 150);
  CHECK(never <= 4);
  CHECK(first >= 0.95 * shown);
}

}  // namespace
}  // namespace goldenrule::explain::test
