// SPDX-License-Identifier: Apache-2.0
//
// What only the device can see: slots and counts of any value. A call with them may have no defined
// result, but it touches nothing outside its buffers, and no slot that no index names. And calls
// that the host refuses write nothing at all.
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "fixtures/random/philox.hpp"
#include "tests/gpu/gpu_test.hpp"

namespace goldenrule::test {
namespace {

const char* const kIndices[] = {"state_indices",
                                "output_state_indices",
                                "ssm_state_indices",
                                "num_accepted_tokens",
                                "accepted_tokens",
                                "ring_indices",
                                "ring_start",
                                "ring_count",
                                "ring_flush",
                                "parent_tokens",
                                "checkpoint_tokens",
                                "checkpoint_state_indices",
                                "intermediate_state_indices",
                                "cu_seqlens"};

/// Slots, counts, and what lies around them and around the ends of the types.
std::vector<std::int64_t> hostile_values(const call::Dims& d, bool wide) {
  using Wide = std::numeric_limits<std::int64_t>;
  using Narrow = std::numeric_limits<std::int32_t>;
  std::vector<std::int64_t> values{0,           1,  d.T, d.T + 1,       d.slots - 1,  d.slots,
                                   d.slots + 1, -1, -2,  Narrow::max(), Narrow::min()};
  if (d.kept_rows > 0) values.insert(values.end(), {d.kept_rows - 1, d.kept_rows});
  if (d.T == 0) values.insert(values.end(), {2, 3, 5, d.tokens - 1, d.tokens, d.tokens + 1});
  if (d.ring_places > 0) {
    values.insert(values.end(), {d.rings - 1, d.rings, d.ring_places - d.T, d.ring_places - d.T + 1,
                                 d.ring_places - 1, d.ring_places});
  }
  if (wide) values.insert(values.end(), {Wide::max(), Wide::min(), std::int64_t{1} << 32});
  return values;
}

/// Not by way of double, which cannot hold the largest.
void set_integer(call::Tensor& tensor, std::int64_t i, std::int64_t x) {
  const std::size_t bytes = call::info(tensor.dtype()).bytes;
  const auto narrow = static_cast<std::int32_t>(x);
  const void* from = bytes == sizeof x ? static_cast<const void*>(&x) : &narrow;
  std::memcpy(&tensor.bytes()[static_cast<std::size_t>(i) * bytes], from, bytes);
}

/// Hostile numbers in every index tensor of the call. Everything may be written then but the slots
/// of the pool that no index names.
WriteSet make_hostile(const call::Record& record, std::uint64_t seed, LiveCall& live) {
  const call::Dims d = call::validate(record);
  WriteSet writes{
      .o = true,
      .final_state = std::vector<bool>(static_cast<std::size_t>(d.slots)),
      .kept_states = std::vector<bool>(static_cast<std::size_t>(kept_blocks(record, d)), true),
      .rings = std::vector<bool>(static_cast<std::size_t>(d.rings * d.ring_places), true)};
  for (const char* name : kIndices) {
    const auto it = record.inputs.find(name);
    if (it == record.inputs.end()) continue;
    call::Tensor tensor = it->second;
    const auto values = hostile_values(d, tensor.dtype() == call::DType::kI64);
    const random::Stream stream(seed, name);
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      const std::int64_t x = values[stream.bits(i) % values.size()];
      set_integer(tensor, i, x);
      const bool slot = std::string_view(name).ends_with("state_indices");
      if (slot && x >= 0 && x < d.slots && x != record.convention.pad_slot) {
        writes.final_state[static_cast<std::size_t>(x)] = true;
      }
    }
    live.overwrite(name, tensor);
  }
  return writes;
}

TEST_CASE("any slot and any count: nothing outside the buffers is touched") {
  REQUIRE_GPU();
  int calls = 0;
  const std::string shape =
      "op=gdn mode=mtp B=7 T={1,4} H=1 HV=1 K={128,60} V=64 state_layout={vk,kv} state={f32,bf16} "
      "index={i32,i64} pad_slot={-1,2} seed={1,2,3} keeps=0 columns={1,3} ";
  for_each_case(
      shape + "slots={permuted,separate} accepted=mixed\n" + shape +
          "slots={scatter,scatter_from}\nop={gdn,kda} mode=mtp B=7 T={1,4} H=1 HV=1 K={128,60} "
          "V=64 state_layout={vk,kv} slots={permuted,separate} ring=io window=9 index={i32,i64} "
          "seed={1,2,3,4,5,6} columns={1,3}",
      [&](const LiveCase& c, const call::Record& record) {
        LiveCall live(record, c.placement);
        const WriteSet writes = make_hostile(record, c.call.seed, live);
        live.launch();
        live.synchronize();
        CHECK(live.stray_write(writes) == "");
        ++calls;
      });
  std::printf("%d hostile calls\n", calls);
}

TEST_CASE("drafts: any list: nothing outside the buffers is touched") {
  REQUIRE_GPU();
  int calls = 0;
  for_each_case(
      "op={gdn,kda} mode=mtp lens=3,0,16,8,12 H=1 HV=1 K={128,60} V=64 slots={permuted,separate} "
      "tree=mixed kept={rows,buffer,buffer_bf16} track=mixed accepted=mixed index={i32,i64} "
      "seed={1,2}\n"
      "op=gdn mode=mtp lens=3,0,16,8,12 H=1 HV=1 K=60 V=64 slots={scatter,scatter_from} "
      "index={i32,i64} seed={1,2,3}\n"
      "op=gdn mode=mtp lens=3,0,1,8,5 H=1 HV=1 K=60 V=64 slots=permuted ring=io window=9 "
      "index={i32,i64} seed={1,2,3} columns=3",
      [&](const LiveCase& c, const call::Record& record) {
        LiveCall live(record, c.placement);
        const WriteSet writes = make_hostile(record, c.call.seed, live);
        live.launch();
        live.synchronize();
        CHECK(live.stray_write(writes) == "");
        ++calls;
      });
  std::printf("%d hostile calls\n", calls);
}

TEST_CASE("a refused call launches nothing and writes nothing") {
  REQUIRE_GPU();
  using Args = goldenrule_gpu_recurrent_args;
  const std::vector<std::function<void(Args&)>> spoils = {
      [](Args& a) { a.K = 257; },
      [](Args& a) { a.V = -1; },
      [](Args& a) { a.q.data = nullptr; },
      [](Args& a) { a.state.dtype = GOLDENRULE_GPU_F16; },
      [](Args& a) { a.o.stride[0] = a.o.stride[1] = a.o.stride[2] = 1; },
      [](Args& a) { a.k.data = static_cast<char*>(a.k.data) + 1; },
  };
  const call::Record record = record_of("op=gdn mode=mtp B=2 T=2 H=2 HV=4 K=128 V=128");
  const WriteSet nothing{
      .o = false, .final_state = std::vector<bool>(2), .kept_states = std::vector<bool>(4)};
  const std::uint64_t hits = goldenrule_gpu_dispatch_hits();
  for (const auto& spoil : spoils) {
    LiveCall live(record);
    Args args = live.args();
    spoil(args);
    char message[256] = "";
    CHECK(goldenrule_gpu_recurrent(&args, message, sizeof message) != GOLDENRULE_GPU_OK);
    CHECK(message[0] != '\0');
    live.synchronize();
    CHECK(live.stray_write(nothing) == "");
  }
  CHECK(goldenrule_gpu_dispatch_hits() == hits);
}

}  // namespace
}  // namespace goldenrule::test
