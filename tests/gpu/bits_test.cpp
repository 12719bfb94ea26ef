// SPDX-License-Identifier: Apache-2.0
//
// Claims about bits that are these kernels' own, beyond the relations that any kernel keeps:
// independence of poison, alignment and of the kernel that served the call, of how many tokens
// follow, replayed graphs; what erases, and what stays.
#include <cstring>
#include <limits>
#include <vector>

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
using Indices = std::vector<std::int64_t>;

Indices range(std::int64_t begin, std::int64_t end) {
  Indices indices;
  for (std::int64_t i = begin; i < end; ++i) indices.push_back(i);
  return indices;
}

/// o, states between tokens and final state of row b; slots are rows.
TensorMap row_of(const TensorMap& outputs, std::int64_t b) {
  TensorMap row;
  for (const auto& [name, tensor] : outputs) row[name] = call::take(tensor, 0, std::span(&b, 1));
  return row;
}

Record first_rows(const Record& record, std::int64_t count) {
  return calls::select_rows(record, call::make_plan(record, false), range(0, count));
}

TEST_CASE("another poison gives the same bits") {
  REQUIRE_GPU();
  for (const char* line :
       {"op=gdn mode=mtp B=9 T=1 K=100 H=2 HV=4 V=128 slots=padded keeps=0 gap=3",
        "op=kda mode=mtp B=9 T=5 K=128 H=2 HV=4 V=128 slots=padded keeps=0",
        "op=kda mode=mtp B=9 T=5 K=128 H=2 HV=4 V=128 slots=permuted"}) {
    for_each_case(std::string(line) + " state_layout={vk,kv} state={f32,bf16} separate=1",
                  [](const LiveCase& c, const Record& record) {
                    const TensorMap first = outputs_of(record, c.placement);
                    for (std::int64_t seed = 2; seed < 8; ++seed) {
                      Placement other = c.placement;
                      other.poison = seed;
                      CHECK(difference(first, outputs_of(record, other)) == "");
                    }
                  });
  }
}

/// Whether the tensor cores serve this case of K = 128 and aligned bf16: their sums have another
/// order than those of all other kernels.
bool by_matrices(const Record& record, std::int64_t T) {
  return call::validate(record).K == 128 && T >= 2 && T <= 8;
}

TEST_CASE("a row does not depend on the batch, nor on the alignment") {
  REQUIRE_GPU();
  for_each_case(kFamilies + "mode=mtp B=70 T={1,6,9} H=2 HV=4 K=128 V=128 keeps=0",
                [](const LiveCase& c, const Record& record) {
                  const Record one = first_rows(record, 1);
                  const TensorMap alone = row_of(outputs_of(one, c.placement), 0);
                  const auto same = [&](const Record& r, Placement placement) {
                    placement.keeps = 0;
                    return difference(alone, row_of(outputs_of(r, placement), 0));
                  };
                  for (const std::int64_t B : {2, 40, 70}) {
                    CHECK(same(first_rows(record, B), {}) == "");
                  }
                  // Off every alignment: the general kernel.
                  if (!by_matrices(record, c.call.T)) CHECK(same(one, {.shift = 1}) == "");
                  CHECK(same(one, {.dependent = 1}) == "");
                  CHECK(same(one, {.dependent = 1, .trigger = 1}) == "");
                  CHECK(same(one, {.dependent = 1, .ready = 1}) == "");
                });
}

TEST_CASE("a row does not depend on how many heads keep all their states") {
  REQUIRE_GPU();
  for_each_case(
      "op={gdn,kda} mode=mtp B=270 T=4 H=2 HV=4 K=128 V=128 state_layout={vk,kv} "
      "state={f32,bf16}",
      [](const LiveCase&, const Record& record) {
        const auto before = hits_by_name();
        const TensorMap alone = row_of(outputs_of(first_rows(record, 1)), 0);
        const auto between = hits_by_name();
        CHECK(difference(alone, row_of(outputs_of(record), 0)) == "");  // 1,080 heads
        int served_both = 0;
        for (const auto& [name, hits] : hits_by_name()) {
          served_both += hits > between.at(name) && between.at(name) > before.at(name) ? 1 : 0;
        }
        CHECK_MESSAGE(served_both == 0, "one kernel served both: nothing was compared");
      });
}

/// The first `count` tokens as a call of their own.
Record prefix(Record record, std::int64_t count) {
  take_inputs(record, call::axis::kToken, range(0, count));
  return record;
}

/// The bits of the first `count` tokens of o and of the states after them; B = 1.
TensorMap past(const TensorMap& outputs, std::int64_t count) {
  TensorMap first;
  for (const char* name : {"o", "intermediate_states"}) {
    first[name] = call::take(outputs.at(name), 1, range(0, count));
  }
  return first;
}

TEST_CASE("MTP gives a token the same bits however many follow") {
  REQUIRE_GPU();
  for_each_case(
      "op={gdn,kda} mode=mtp B=1 T=11 H=2 HV=4 K={128,100} V=128 state_layout={vk,kv}",
      [](const LiveCase&, const Record& record) {
        const TensorMap all = outputs_of(record);
        const TensorMap eight = outputs_of(prefix(record, 8));
        for (const std::int64_t T : {1, 2, 7, 8, 9}) {
          const TensorMap some = outputs_of(prefix(record, T));
          const TensorMap& whole = by_matrices(record, T) ? eight : all;
          CHECK(difference(past(some, T), past(whole, T)) == "");
          // The state after the last token is what is kept after it.
          const Tensor last = call::take(whole.at("intermediate_states"), 1, range(T - 1, T));
          CHECK(first_difference("state", last.bytes(), some.at("final_state").bytes()) == "");
        }
      });
}

TEST_CASE("an accepted count is a shorter call") {
  REQUIRE_GPU();
  for_each_case(
      kFamilies + "mode=mtp B=4 T=6 H=1 HV=2 K={128,60} V=37 accepted=mixed",
      [](const LiveCase&, const Record& record) {
        const TensorMap outputs = outputs_of(record);
        const Indices accepted = record.inputs.at("accepted_tokens").to_integers();
        for (std::int64_t b = 0; b < 4; ++b) {
          const std::int64_t n = accepted[static_cast<std::size_t>(b)];
          if (n == 0) continue;
          const TensorMap row = row_of(outputs, b);
          const Tensor state = call::take(row.at("intermediate_states"), 1, range(n - 1, n));
          CHECK(first_difference("state", state.bytes(), row.at("final_state").bytes()) == "");
        }
      });
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("a token sees nothing of the tokens behind it, wherever these begin") {
  REQUIRE_GPU();
  for_each_case(kFamilies + "mode=mtp B=1 T=8 H=1 HV=2 K={128,60} V={37,64}",
                [](const LiveCase&, const Record& record) {
                  const TensorMap clean = outputs_of(record);
                  for (const std::int64_t begin : {1, 5, 7}) {
                    Record other = record;
                    for (const char* name : {"q", "k", "v", "a", "b"}) {
                      Tensor& t = other.inputs.at(name);
                      calls::change(t, [&](std::int64_t i, double x) {
                        return i / (t.size() / 8) >= begin ? kNaN : x;
                      });
                    }
                    const TensorMap poisoned = outputs_of(other);
                    CHECK(difference(past(clean, begin), past(poisoned, begin)) == "");
                    CHECK(difference(past(clean, begin + 1), past(poisoned, begin + 1)) != "");
                  }
                });
}

/// Tensor by tensor, and infinity too: the relation `neighbour_nan` poisons all at once.
TEST_CASE("NaN and infinity in one tensor stay in their row") {
  REQUIRE_GPU();
  for_each_case(kFamilies + "mode=mtp B=3 T=2 H=2 HV=4 K={128,60} V=128 keeps=0",
                [](const LiveCase& c, const Record& record) {
                  const TensorMap clean = outputs_of(record, c.placement);
                  for (const char* name : {"q", "k", "v", "a", "b", "initial_state"}) {
                    for (const double bad : {kNaN, std::numeric_limits<double>::infinity()}) {
                      Record other = record;
                      Tensor& t = other.inputs.at(name);
                      const std::int64_t row = t.size() / 3;
                      calls::change(
                          t, [&](std::int64_t i, double x) { return i / row == 1 ? bad : x; });
                      const TensorMap out = outputs_of(other, c.placement);
                      for (const std::int64_t b : {0, 2}) {
                        CHECK(difference(row_of(clean, b), row_of(out, b)) == "");
                      }
                      // Otherwise the test would not see a kernel that ignores the tensor.
                      CHECK(difference(row_of(clean, 1), row_of(out, 1)) != "");
                    }
                  }
                });
}

TEST_CASE("alpha = 0 erases; with beta = 0 and no gate the state stays, bit for bit") {
  REQUIRE_GPU();
  const std::string shape = "mode=mtp B=2 T=2 H=1 HV=2 K={128,60} V=37 ";
  for_each_case(kFamilies + shape + "gate=linear", [](const LiveCase&, Record record) {
    const TensorMap kept = outputs_of(record);
    Tensor& g = record.inputs.at("g");
    const std::int64_t token = g.size() / 4;  // the first one of both rows
    calls::change(g, [&](std::int64_t i, double x) { return i / token % 2 == 0 ? 0.0 : x; });
    Record other = record;
    calls::change(other.inputs.at("initial_state"),
                  [](std::int64_t, double x) { return -1e3 * x; });
    CHECK(difference(outputs_of(record), outputs_of(other)) == "");
    CHECK(difference(outputs_of(record), kept) != "");
  });
  for_each_case(kFamilies + shape + "gate=none beta=direct", [](const LiveCase&, Record record) {
    calls::change(record.inputs.at("beta"), [](std::int64_t, double) { return 0.0; });
    CHECK(first_difference("state", record.inputs.at("initial_state").bytes(),
                           outputs_of(record).at("final_state").bytes()) == "");
  });
}

TEST_CASE("a replayed graph follows the slots and counts of the moment") {
  REQUIRE_GPU();
  for_each_case(
      "op=gdn mode=mtp B=4 T=3 H=2 HV=4 K=128 V=128 P=11 slots=permuted accepted=mixed separate=1 "
      "dependent={0,1} trigger={0,1}",
      [](const LiveCase& c, Record record) {
        LiveCall live(record, c.placement);
        const gpu::Stream stream = gpu::make_stream();
        const gpu::GraphExec graph =
            gpu::capture(stream.get(), [&](cudaStream_t at) { live.launch(at); });
        const auto replay_and_judge = [&] {
          gpu::check_cuda(cudaGraphLaunch(graph.get(), stream.get()), "cudaGraphLaunch");
          live.synchronize();
          CHECK(live.stray_write() == "");
          record.outputs = live.outputs();
          Tally tally;
          CHECK(judge(record, false, tally) == "");
          record.outputs.clear();
        };
        replay_and_judge();
        for (std::int64_t b = 0; b < 4; ++b) {
          record.inputs.at("state_indices").set(b, static_cast<double>(b == 2 ? -1 : 2 * (4 - b)));
          record.inputs.at("accepted_tokens").set(b, static_cast<double>(b == 3 ? 2 : 3 - b));
        }
        live.reset(record);
        replay_and_judge();
      });
}

}  // namespace
}  // namespace goldenrule::test
