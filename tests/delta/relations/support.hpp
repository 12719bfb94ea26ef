// SPDX-License-Identifier: Apache-2.0
//
// Calls on which relations are tried: every mode, operation and layout, with pools, pads, accepted
// counts, scatter, disabled updates and empty sequences.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <string>

#include "fixtures/cases/case.hpp"
#include "reference/contract/contract.hpp"
#include "reference/delta/relations/relation.hpp"
#include "reference/verdict/kernels.hpp"
#include "tests/record_of.hpp"

namespace goldenrule::relations::test {

using goldenrule::cases::record_of;

inline constexpr std::array kPools{
    "op=gdn mode=decode B=5 H=2 HV=4 K=16 V=8 slots=padded",
    "op=kda mode=decode B=5 H=2 HV=4 K=16 V=8 slots=separate_padded state_layout=kv",
    "op=gdn mode=decode B=4 H=2 HV=4 K=16 V=8 slots=padded pad_slot=0 head_map=tiled",
    "op=kda mode=mtp B=5 T=6 H=2 HV=4 K=16 V=8 slots=padded accepted=mixed gate_head=qk",
    "op=gdn mode=mtp B=4 T=5 H=2 HV=4 K=16 V=8 slots=scatter_padded state_layout=kv",
    "op=gdn mode=mtp B=3 T=4 H=2 HV=4 K=16 V=8 disable_state_update=1 state=bf16",
};
inline constexpr std::array kPrefills{
    "op=gdn mode=prefill lens=20,0,7,33 H=2 HV=4 K=16 V=8 gate=log h0=1",
    "op=kda mode=prefill lens=9,35 H=2 HV=4 K=16 V=8 gate=bounded state_layout=kv",
    "op=kda mode=prefill lens=34,17 H=2 HV=4 K=16 V=8 gate=linear pattern=Derase h0=1 io=f16",
    "op=gdn mode=prefill lens=21,12 H=2 HV=4 K=16 V=16 gate=none beta=sigmoid2 head_map=tiled h0=1",
    "op=kda mode=prefill lens=130,3 H=1 HV=2 K=16 V=8 gate=log h0=1",
    "op=gdn mode=prefill lens=70,0,33 H=1 HV=2 K=16 V=8 gate=log h0=1 checkpoints=before every=32",
};

template <class F>
void for_each_call(F&& f) {
  for (const char* line : kPools) f(line);
  for (const char* line : kPrefills) f(line);
}

/// A failing relation in words.
inline std::string to_text(const Outcome& outcome) {
  std::string text(outcome.relation);
  for (const Finding& f : outcome.findings) {
    text += "; " + f.tensor + ": " + std::to_string(f.violations) + " elements, worst at " +
            verdict::to_string(f.coordinates) + ": expected " + std::to_string(f.worst.golden) +
            ", actual " + std::to_string(f.worst.value) + ", bound " +
            std::to_string(f.worst.budget);
  }
  return text;
}

}  // namespace goldenrule::relations::test
