// SPDX-License-Identifier: Apache-2.0
//
// Claims about bits of prefill beyond the relations that any kernel keeps: sequences together and
// apart, repeatability, poison, absent start states, replayed graphs, sequences of no tokens.
#include <array>
#include <limits>

#include "fixtures/call/plan.hpp"
#include "fixtures/call/take.hpp"
#include "reference/delta/calls/rows.hpp"
#include "tests/gpu/gpu_test.hpp"
#include "tests/gpu/judge.hpp"

namespace goldenrule::test {
namespace {

using call::Record;
using call::Tensor;
using call::TensorMap;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// o and the final state of sequence n.
TensorMap sequence_of(const Record& record, const TensorMap& outputs, std::int64_t n) {
  const call::Plan plan = call::make_plan(record, false);
  const call::Sequence& s = plan.sequences[static_cast<std::size_t>(n)];
  std::vector<std::int64_t> tokens;
  for (std::int64_t t = 0; t < s.token_count; ++t) tokens.push_back(s.first_token + t);
  return {{"o", call::take(outputs.at("o"), 0, tokens)},
          {"final_state", call::take(outputs.at("final_state"), 0, std::span(&n, 1))}};
}

Record select(const Record& record, const std::vector<std::int64_t>& sequences) {
  return calls::select_rows(record, call::make_plan(record, false), sequences);
}

TEST_CASE("prefill sequences together and apart: the same bits") {
  REQUIRE_GPU();
  for_each_case(
      kFamilies + "mode=prefill lens=63,64,65,1,0,130 H=2 HV=4 K={128,60} V=64 h0=1 shift={0,1}",
      [](const LiveCase& c, const Record& record) {
        const TensorMap together = outputs_of(record, c.placement);
        for (std::int64_t n = 0; n < 6; ++n) {
          const Record one = select(record, {n});
          const TensorMap alone = outputs_of(one, c.placement);
          CHECK(difference(sequence_of(one, alone, 0), sequence_of(record, together, n)) == "");
        }
      });
}

/// Long enough for whatever is chosen by length; eight of them fill a device.
TEST_CASE("prefill a long sequence alone and among eight: the same bits") {
  REQUIRE_GPU();
  for_each_case("op={gdn,kda} mode=prefill lens=8x4100 H=1 HV=4 K=128 V=128 h0=1 never_split={0,1}",
                [](const LiveCase& c, const Record& record) {
                  const Record one = select(record, {5});
                  const TensorMap alone = sequence_of(one, outputs_of(one, c.placement), 0);
                  const TensorMap among = sequence_of(record, outputs_of(record, c.placement), 5);
                  CHECK(difference(alone, among) == "");
                });
}

TEST_CASE("prefill 100 runs give the same bits") {
  REQUIRE_GPU();
  for_each_case(
      "op={gdn,kda} mode=prefill lens=130,64,1,0,257 H=4 HV=8 K=128 V=128 h0=1 "
      "separate=1 dependent={0,1}",
      [](const LiveCase& c, const Record& record) {
        LiveCall live(record, c.placement);
        const TensorMap first = outputs_of(live, record.case_line);
        CHECK(different_runs(live, first, 100) == 0);
      });
}

TEST_CASE("prefill another poison gives the same bits") {
  REQUIRE_GPU();
  for_each_case(
      "op={gdn,kda} mode=prefill lens=9,0,70 H=2 HV=4 K={128,100} V=72 h0={0,1} gap={0,3} "
      "state_layout={vk,kv} state={f32,bf16}",
      [](const LiveCase& c, const Record& record) {
        const TensorMap first = outputs_of(record, c.placement);
        for (std::int64_t seed = 2; seed < 6; ++seed) {
          Placement other = c.placement;
          other.poison = seed;
          CHECK(difference(first, outputs_of(record, other)) == "");
        }
      });
}

/// Tensor by tensor, and infinity too: the relation `neighbour_nan` poisons all at once. The tails
/// of the sequences in front are where a neighbour gets in.
TEST_CASE("prefill NaN and infinity in one tensor stay in their sequence") {
  REQUIRE_GPU();
  for_each_case(
      kFamilies + "mode=prefill lens=20,33,7 H=2 HV=4 K={128,60} V=64 h0=1 precise={0,1}",
      [](const LiveCase& c, const Record& record) {
        const TensorMap clean = outputs_of(record, c.placement);
        for (const char* name : {"q", "k", "v", "a", "b", "initial_state"}) {
          for (const double bad : {kNaN, kInfinity}) {
            Record other = record;
            Tensor& t = other.inputs.at(name);
            const bool state = std::string(name) == "initial_state";
            const std::int64_t row = t.size() / (state ? 3 : 60);
            const std::int64_t begin = row * (state ? 1 : 20), end = row * (state ? 2 : 53);
            calls::change(
                t, [&](std::int64_t i, double x) { return i >= begin && i < end ? bad : x; });
            const TensorMap out = outputs_of(other, c.placement);
            for (const std::int64_t n : {0, 2}) {
              CHECK(difference(sequence_of(record, clean, n), sequence_of(record, out, n)) == "");
            }
            // Otherwise the test would not see a kernel that ignores the tensor.
            CHECK(difference(sequence_of(record, clean, 1), sequence_of(record, out, 1)) != "");
          }
        }
      });
}

TEST_CASE("prefill an absent start state and zeros: the same bits") {
  REQUIRE_GPU();
  for_each_case(
      "op={gdn,kda} mode=prefill lens=0,70,9 H=2 HV=4 K={128,60} V=64 "
      "state_layout={vk,kv} h0=1",
      [](const LiveCase& c, Record record) {
        calls::change(record.inputs.at("initial_state"), [](std::int64_t, double) { return 0.0; });
        Record absent = record;
        absent.inputs.erase("initial_state");
        CHECK(difference(outputs_of(record, c.placement), outputs_of(absent, c.placement)) == "");
      });
}

TEST_CASE("prefill a scale of 0: o is 0 and the states are those of any scale") {
  REQUIRE_GPU();
  for_each_case("op={gdn,kda} mode=prefill lens=70,9 H=2 HV=4 K={128,60} V=64 h0=1 scale=0",
                [](const LiveCase& c, Record record) {
                  const TensorMap none = outputs_of(record, c.placement);
                  record.convention.scale = 0.5;
                  const TensorMap some = outputs_of(record, c.placement);
                  CHECK(first_difference("final_state", none.at("final_state").bytes(),
                                         some.at("final_state").bytes()) == "");
                  for (const double x : none.at("o").to_doubles()) REQUIRE(x == 0.0);
                });
}

TEST_CASE("prefill sequences of no tokens: the final state is the start state") {
  REQUIRE_GPU();
  for_each_case(kFamilies +
                    "mode=prefill lens={0,3x0} H=1 HV=2 K={128,60} V=37 h0=1 "
                    "separate={0,1}",
                [](const LiveCase& c, const Record& record) {
                  const TensorMap outputs = outputs_of(record, c.placement);
                  CHECK(first_difference("state", record.inputs.at("initial_state").bytes(),
                                         outputs.at("final_state").bytes()) == "");
                });
  for_each_case(
      "op={gdn,kda} mode=prefill lens=3x0 H=1 HV=2 K={128,60} V=37",
      [](const LiveCase& c, const Record& record) {
        for (const double x : outputs_of(record, c.placement).at("final_state").to_doubles()) {
          REQUIRE(x == 0.0);
        }
      });
}

TEST_CASE("prefill a replayed graph follows the lengths of the moment") {
  REQUIRE_GPU();
  const std::array lengths{"63,64,65,1,0,130", "0,130,1,65,64,63", "323,0,0,0,0,0",
                           "1,2,3,4,5,308"};
  for (const char* words : {"op=gdn gate=log", "op=kda gate=bounded"}) {
    for (const std::string index : {"i32", "i64"}) {
      const auto record_with = [&](const char* lens, int seed) {
        return record_of(std::string(words) + " mode=prefill lens=" + lens +
                         " H=2 HV=4 K=128 V=128 h0=1 index=" + index +
                         " seed=" + std::to_string(seed));
      };
      LiveCall live(record_with(lengths[0], 0), {.separate = 1});
      const gpu::Stream stream = gpu::make_stream();
      const gpu::GraphExec graph =
          gpu::capture(stream.get(), [&](cudaStream_t at) { live.launch(at); });
      for (int i = 0; i < 4; ++i) {
        Record record = record_with(lengths[static_cast<std::size_t>(i)], i);
        live.reset(record);
        gpu::check_cuda(cudaGraphLaunch(graph.get(), stream.get()), "cudaGraphLaunch");
        live.synchronize();
        CHECK(live.stray_write() == "");
        record.outputs = live.outputs();
        record.contract = live.contract();
        Tally tally;
        CHECK(judge(record, false, tally) == "");
      }
    }
  }
}

}  // namespace
}  // namespace goldenrule::test
