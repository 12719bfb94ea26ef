// SPDX-License-Identifier: Apache-2.0
//
// The same call again: the same bits, alone and while another is in flight.
#include <array>
#include <utility>
#include <vector>

#include "tests/gpu/gpu_test.hpp"
#include "tests/gpu/judge.hpp"

namespace goldenrule::test {
namespace {

using call::Record;
using call::TensorMap;

TEST_CASE("100 runs give the same bits") {
  REQUIRE_GPU();
  for_each_case(kFamilies + "mode=mtp B=70 T={1,5} H=2 HV=4 K=128 V=128 keeps=0 separate=1",
                [](const LiveCase& c, const Record& record) {
                  LiveCall live(record,
                                c.placement);  // separate: each run starts from the same states
                  live.launch();
                  live.synchronize();
                  const TensorMap first = live.outputs();
                  CHECK(different_runs(live, first, 100) == 0);
                });
}

// Two calls in flight at once, each with memory of its own: nothing that they share but the device.
TEST_CASE("a thousand runs on two streams give the same bits") {
  REQUIRE_GPU();
  constexpr std::array kPairs{
      std::pair{"op=gdn mode=decode B=24 H=2 HV=4 K=128 V=128 separate=1",
                "op=kda mode=mtp B=12 T=5 H=2 HV=4 K=128 V=128 keeps=0 separate=1"},
      std::pair{"op=gdn mode=prefill lens=200,64,3 H=2 HV=4 K=128 V=128 gate=log h0=1 separate=1",
                "op=kda mode=prefill lens=130,70 H=2 HV=4 K=128 V=128 gate=log h0=1 separate=1"},
  };
  for (const auto& pair : kPairs) {
    struct Side {
      LiveCall live;
      gpu::Stream stream = gpu::make_stream();
      TensorMap first = {};
      int different = 0;
    };
    std::vector<Side> sides;
    for (const char* line : {pair.first, pair.second}) {
      const LiveCase c = parse_list(line).front();
      sides.push_back({LiveCall(make_record(c), c.placement)});
    }
    for (int round = 0; round < 100; ++round) {
      for (int run = 0; run < 10; ++run) {
        for (Side& side : sides) side.live.launch(side.stream.get());
      }
      for (Side& side : sides) {
        side.live.synchronize();
        const TensorMap outputs = side.live.outputs();
        if (round == 0) side.first = outputs;
        side.different += difference(side.first, outputs).empty() ? 0 : 1;
      }
    }
    for (const Side& side : sides) CHECK(side.different == 0);
  }
}

}  // namespace
}  // namespace goldenrule::test
