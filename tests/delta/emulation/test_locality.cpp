// SPDX-License-Identifier: Apache-2.0
//
// No element is paid for by another (locality.hpp): o, the corrections and the final states of
// decode, MTP and prefill, by a value channel, a row of the batch and a later token.
#include "tests/delta/emulation/locality.hpp"

using namespace goldenrule;
using namespace goldenrule::test;

namespace {

void follows(const std::string& line, const contract::Contract& contract) {
  CAPTURE(line);
  static const std::vector<Disturbed> kAll =
      disturbances<World>({{"channel", change_channel}, {"others", change_others}});
  CHECK(holds(World(line), contract, kAll, {"intermediate_states"}) > 0);
}

}  // namespace

TEST_CASE("no element is paid for by another: decode and MTP") {
  constexpr const char* kLines[] = {
      "op=gdn mode=decode B=4 H=1 HV=2 K=32 V=16 io=bf16",
      "op=kda mode=decode B=4 H=1 HV=2 K=32 V=16 io=bf16 state_layout=kv",
      "op=gdn mode=mtp B=4 T=3 H=1 HV=2 K=32 V=16 io=bf16"};
  for (const char* line : kLines) {
    for (const contract::Contract& contract : contract::contracts_of(call::Family::kDelta)) {
      follows(line, contract);
    }
  }
}

TEST_CASE("no element is paid for by another: prefill") {
  constexpr const char* kLines[] = {
      "op=gdn mode=prefill lens=70,40,20 H=1 HV=2 K=32 V=16 gate=log h0=1 io=bf16",
      "op=kda mode=prefill lens=70,40,20 H=1 HV=2 K=32 V=16 h0=1 io=bf16 state_layout=kv"};
  for (const char* line : kLines) {
    for (const char* name : {"ideal", "recurrent_f32", "chunk64_f32", "recurrent_bf16_state",
                             "chunk64_tf32", "chunk64_bf16", "chunk64_16bit", "chunk16_bf16_state",
                             "chunk64_bf16_direct_bf16_state_segments"}) {
      follows(line, contract::find_contract(name));
    }
  }
}
