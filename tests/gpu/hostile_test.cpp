// SPDX-License-Identifier: Apache-2.0
//
// What only the device can see: slots and counts of any value. A call with them may have no defined
// result, but it touches nothing outside its buffers, and no slot that no index names. And calls
// that the host refuses write nothing at all.
#include <algorithm>
#include <functional>
#include <limits>
#include <set>

#include "tests/gpu/gpu_test.hpp"
#include "tests/gpu/random.hpp"

namespace goldenrule::test {
namespace {

/// Slots, counts, and what lies around them and around the ends of the types.
std::int64_t hostile(const Scenario& s, std::uint64_t seed, std::uint64_t i) {
  using Wide = std::numeric_limits<std::int64_t>;
  using Narrow = std::numeric_limits<std::int32_t>;
  const std::int64_t values[] = {0,
                                 1,
                                 s.c.T,
                                 s.c.T + 1,
                                 s.pool - 1,
                                 s.pool,
                                 s.pool + 1,
                                 -1,
                                 -2,
                                 Narrow::max(),
                                 Narrow::min(),
                                 s.c.wide_indices ? Wide::max() : 2,
                                 s.c.wide_indices ? Wide::min() : 3,
                                 s.c.wide_indices ? std::int64_t{1} << 32 : 1};  // 0 in 32 bits
  return values[random_bits(seed, i) % std::size(values)];
}

/// Not by way of double, which cannot hold the largest.
void set_integer(HostTensor& tensor, std::int64_t i, std::int64_t x) {
  std::byte* to = &tensor.bytes()[tensor.offset(i)];
  const auto narrow = static_cast<std::int32_t>(x);
  if (tensor.dtype() == DType::kI64) {
    std::copy_n(reinterpret_cast<const std::byte*>(&x), sizeof x, to);
  } else {
    std::copy_n(reinterpret_cast<const std::byte*>(&narrow), sizeof narrow, to);
  }
}

/// Everything may be written but the slots of the pool that no index names.
Expected unnamed_slots_stay(const Scenario& s, const std::set<std::int64_t>& named) {
  Expected e;
  e.o = ExpectedTensor(s.o.count());
  e.final_state = ExpectedTensor(s.state.count());
  e.intermediates = ExpectedTensor(s.intermediates.count());
  std::ranges::fill(e.o.written, 1);
  std::ranges::fill(e.intermediates.written, 1);
  const std::size_t block = e.final_state.written.size() / static_cast<std::size_t>(s.pool);
  for (const std::int64_t slot : named) {
    if (slot < 0 || slot >= s.pool || slot == s.c.pad_slot) continue;
    std::fill_n(e.final_state.written.begin() +
                    static_cast<std::ptrdiff_t>(block * static_cast<std::size_t>(slot)),
                block, 1);
  }
  return e;
}

TEST_CASE("any slot and any count: nothing outside the buffers is touched") {
  REQUIRE_GPU();
  int calls = 0;
  for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
    for (const std::int64_t K : {128, 60}) {
      for (const Slots slots : {Slots::kPermuted, Slots::kOutput, Slots::kScatter}) {
        for (const bool wide : {false, true}) {
          for (std::uint64_t seed = 1; seed <= 6; ++seed) {
            Case c;
            c.layout = layout;
            c.state = seed % 2 == 0 ? DType::kF32 : DType::kBF16;
            c.K = K;
            c.V = 64;
            c.H = c.HV = 1;
            c.B = 7;
            c.T = seed % 3 == 0 ? 1 : 4;
            c.slots = slots;
            c.wide_indices = wide;
            c.accepted = slots != Slots::kScatter;
            c.pad_slot = seed == 5 ? 2 : -1;
            Scenario s(c);
            std::set<std::int64_t> named;
            std::uint64_t stream = seed * 64;
            for (HostTensor* tensor : {&s.state_indices, &s.output_state_indices,
                                       &s.ssm_state_indices, &s.num_accepted, &s.accepted}) {
              ++stream;
              for (std::int64_t i = 0; i < tensor->count(); ++i) {
                const std::int64_t x = hostile(s, stream, static_cast<std::uint64_t>(i));
                set_integer(*tensor, i, x);
                if (tensor != &s.num_accepted && tensor != &s.accepted) named.insert(x);
              }
            }
            LiveCall live(s);
            live.launch();
            live.synchronize();
            const std::string complaint = live.stray_write(unnamed_slots_stay(s, named));
            CHECK_MESSAGE(complaint.empty(), c.name() << ": " << complaint);
            ++calls;
          }
        }
      }
    }
  }
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
  Case c;
  c.T = 2;
  c.intermediates = true;
  const Scenario s(c);
  Expected nothing;
  nothing.o = ExpectedTensor(s.o.count());
  nothing.final_state = ExpectedTensor(s.state.count());
  nothing.intermediates = ExpectedTensor(s.intermediates.count());
  const std::uint64_t hits = goldenrule_gpu_dispatch_hits();
  for (const auto& spoil : spoils) {
    LiveCall live(s);
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
