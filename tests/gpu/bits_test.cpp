// SPDX-License-Identifier: Apache-2.0
//
// Claims about bits: exact worlds, repeatability, independence of the rest of the batch, of poison
// and of the kernel that served the call, isolation of NaN, replayed graphs.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "tests/gpu/gpu_test.hpp"

namespace goldenrule::test {
namespace {

TEST_CASE("exact worlds are exact to the bit") {
  REQUIRE_GPU();
  for_each_family([](Case c) {
    c.values = Values::kExact;
    c.gate = Gate::kLinear;
    c.beta = BetaForm::kDirect;
    c.norm = QkNorm::kNone;
    for (const std::int64_t K : {128, 64, 96, 256}) {
      for (const std::int64_t T : {1, 2}) {
        c.K = K;
        c.T = T;
        const Scenario s(c);
        Expected expected = expect(s);
        // No tolerance but the one rounding of the store.
        for (auto& [tensor, type] :
             {std::pair{&expected.o, c.io}, std::pair{&expected.final_state, c.state}}) {
          for (std::size_t i = 0; i < tensor->value.size(); ++i) {
            tensor->value[i] = call::round_to(type, tensor->value[i]);
            tensor->tolerance[i] = 0;
          }
        }
        LiveCall live(s);
        live.launch();
        live.synchronize();
        const std::string complaint = live.judge(expected);
        CHECK_MESSAGE(complaint.empty(), c.name() << ": " << complaint);
      }
    }
  });
}

TEST_CASE("another poison gives the same bits") {
  REQUIRE_GPU();
  for_each_family([](Case c) {
    if (!c.kda) c.gap = 3;
    if (!c.kda) c.K = 100;
    c.B = 9;
    c.T = c.kda ? 5 : 1;
    c.slots = Slots::kPadded;
    c.separate_final = true;
    c.intermediates = c.T > 1;
    const Expected expected = expect(Scenario(c));
    const auto written = [&](std::uint64_t poison) {
      const Scenario s(c, poison);
      LiveCall live(s);
      live.launch();
      live.synchronize();
      const Outputs out = live.outputs();
      Bytes bytes;
      const auto keep = [&](const HostTensor& tensor, const ExpectedTensor& e, const Bytes& from) {
        for (std::size_t i = 0; i < e.value.size(); ++i) {
          if (e.written[i] == 0) continue;
          const std::size_t at = tensor.offset(static_cast<std::int64_t>(i));
          bytes.insert(bytes.end(), &from[at], &from[at] + call::info(tensor.dtype()).bytes);
        }
      };
      keep(s.o, expected.o, out.o);
      keep(s.final_state, expected.final_state, out.final_state);
      if (c.intermediates) keep(s.intermediates, expected.intermediates, out.intermediates);
      return bytes;
    };
    const Bytes first = written(1);
    REQUIRE(!first.empty());
    int different = 0;
    for (std::uint64_t run = 0; run < 6; ++run) different += written(run) != first ? 1 : 0;
    CHECK(different == 0);
  });
}

TEST_CASE("100 runs give the same bits") {
  REQUIRE_GPU();
  for_each_family([](Case c) {
    c.B = 70;
    c.separate_final = true;  // so that each run starts from the same states
    c.T = c.kda ? 5 : 1;
    LiveCall live{Scenario(c)};
    live.launch();
    live.synchronize();
    const Outputs first = live.outputs();
    int different = 0;
    for (int run = 0; run < 100; ++run) {
      live.launch();
      live.synchronize();
      different += live.outputs() == first ? 0 : 1;
    }
    CHECK(different == 0);
  });
}

/// Bytes of o and of the state of row b.
Bytes row_bits(const Case& c, std::int64_t b, const Outputs& out) {
  const std::size_t o_row = out.o.size() / static_cast<std::size_t>(c.B);
  const std::size_t s_row = out.final_state.size() / static_cast<std::size_t>(c.B);
  const auto at = static_cast<std::ptrdiff_t>(b);
  Bytes bytes(out.o.begin() + at * static_cast<std::ptrdiff_t>(o_row),
              out.o.begin() + (at + 1) * static_cast<std::ptrdiff_t>(o_row));
  bytes.insert(bytes.end(), out.final_state.begin() + at * static_cast<std::ptrdiff_t>(s_row),
               out.final_state.begin() + (at + 1) * static_cast<std::ptrdiff_t>(s_row));
  return bytes;
}

/// Whether the tensor cores serve this case of K = 128 and aligned bf16: their sums have another
/// order than those of all other kernels.
bool by_matrices(const Case& c) { return !c.kda && c.K == 128 && c.T >= 2 && c.T <= 8; }

/// The same row 0 in another batch: the values of a tensor are a function of position, and row 0
/// comes first.
TEST_CASE("a row does not depend on the batch, nor on the alignment") {
  REQUIRE_GPU();
  for_each_family([](Case c) {
    for (const std::int64_t T : {1, 6, 9}) {
      c.T = T;
      c.B = 1;
      const Bytes alone = row_bits(c, 0, outputs_of(c));
      for (const std::int64_t B : {2, 40, 70}) {
        c.B = B;
        CHECK_MESSAGE(row_bits(c, 0, outputs_of(c)) == alone, c.name());
      }
      c.B = 1;
      if (!by_matrices(c)) {
        c.shift = 1;  // off every alignment: the general kernel
        CHECK_MESSAGE(row_bits(c, 0, outputs_of(c)) == alone, c.name());
      }
      c.shift = 0;
      c.dependent = true;
      CHECK_MESSAGE(row_bits(c, 0, outputs_of(c)) == alone, c.name());
      c.dependent = false;
    }
  });
}

TEST_CASE("a row does not depend on how many heads keep all their states") {
  REQUIRE_GPU();
  for_each_family([](Case c) {
    if (c.kda) return;
    c.T = 4;
    c.intermediates = true;
    c.B = 1;
    const Bytes alone = row_bits(c, 0, outputs_of(c));
    const std::string kept = std::string(c.layout == StateLayout::kVK ? "vk_" : "kv_") +
                             (c.state == DType::kBF16 ? "bf16" : "f32") +
                             "_head_few_write_bound_r128x8";
    const std::uint64_t before = hits_by_name().at(kept);
    c.B = 270;  // 1,080 heads
    CHECK_MESSAGE(row_bits(c, 0, outputs_of(c)) == alone, c.name());
    CHECK_MESSAGE(hits_by_name().at(kept) > before, kept);
  });
}

template <class F>
void for_each_fp32_case(F&& f) {
  for (const bool kda : {false, true}) {
    for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
      for (const std::int64_t K : {128, 100}) {
        Case c;
        c.kda = kda;
        c.layout = layout;
        c.K = K;
        c.B = 1;
        c.T = 11;
        f(c);
      }
    }
  }
}

/// The first c.T tokens of `whole`, as a case of their own.
Scenario prefix(const Case& c, const Scenario& whole, std::int64_t first = 0) {
  Scenario part(c);
  for (HostTensor Scenario::*tensor :
       {&Scenario::q, &Scenario::k, &Scenario::v, &Scenario::gate, &Scenario::beta}) {
    Bytes& to = (part.*tensor).bytes();
    const std::size_t token = to.size() / static_cast<std::size_t>(c.T);
    std::memcpy(to.data(), (whole.*tensor).bytes().data() + static_cast<std::size_t>(first) * token,
                to.size());
  }
  return part;
}

Outputs run(const Scenario& s) {
  LiveCall live(s);
  live.launch();
  live.synchronize();
  return live.outputs();
}

TEST_CASE("MTP gives a token the same bits however many follow") {
  REQUIRE_GPU();
  for_each_fp32_case([](Case c) {
    c.intermediates = true;
    const Scenario whole(c);
    const Outputs all_tokens = run(whole);
    Case eight = c;
    eight.T = 8;
    const Outputs first_eight = run(prefix(eight, whole));
    for (const std::int64_t T : {1, 2, 7, 8, 9}) {
      Case some = c;
      some.T = T;
      const Outputs& all = by_matrices(some) ? first_eight : all_tokens;
      const Outputs out = run(prefix(some, whole));
      const auto same = [&](const Bytes& part, const Bytes& of) {
        return !part.empty() && std::memcmp(part.data(), of.data(), part.size()) == 0;
      };
      CHECK_MESSAGE(same(out.o, all.o), some.name());
      CHECK_MESSAGE(same(out.intermediates, all.intermediates), some.name());
      // The state after the last token is what is kept after it.
      const std::size_t state = out.final_state.size();
      CHECK_MESSAGE(
          std::memcmp(out.final_state.data(),
                      all.intermediates.data() + (static_cast<std::size_t>(T) - 1) * state,
                      state) == 0,
          some.name());
    }
  });
}

/// Both are within their budget of the exact result, so within two of each other.
TEST_CASE("MTP is repeated decode") {
  REQUIRE_GPU();
  for_each_fp32_case([](const Case& c) {
    const Scenario whole(c);
    const Outputs at_once = run(whole);
    const Expected expected = expect(whole);
    Case one = c;
    one.T = 1;
    Bytes o, state = whole.state.bytes();
    for (std::int64_t t = 0; t < c.T; ++t) {
      Scenario step = prefix(one, whole, t);
      step.state.bytes() = state;
      const Outputs out = run(step);
      o.insert(o.end(), out.o.begin(), out.o.end());
      state = out.final_state;
    }
    Scenario stepwise = whole, together = whole;
    stepwise.o.bytes() = o;
    stepwise.state.bytes() = state;
    together.o.bytes() = at_once.o;
    together.state.bytes() = at_once.final_state;
    const auto outside = [](const HostTensor& a, const HostTensor& b, const ExpectedTensor& e) {
      std::int64_t count = 0;
      for (std::int64_t i = 0; i < a.count(); ++i) {
        const double difference = std::abs(a.get(i) - b.get(i));
        count += difference <= 2 * e.tolerance[static_cast<std::size_t>(i)] ? 0 : 1;
      }
      return count;
    };
    CHECK_MESSAGE(outside(stepwise.o, together.o, expected.o) == 0, c.name());
    CHECK_MESSAGE(outside(stepwise.state, together.state, expected.final_state) == 0, c.name());
  });
}

TEST_CASE("NaN and infinity stay in their row") {
  REQUIRE_GPU();
  for_each_family([](Case c) {
    for (const std::int64_t K : {128, 60}) {
      c.K = K;
      c.B = 3;
      c.T = 2;
      const Outputs clean = outputs_of(c);
      for (HostTensor Scenario::*tensor : {&Scenario::q, &Scenario::k, &Scenario::v,
                                           &Scenario::gate, &Scenario::beta, &Scenario::state}) {
        for (const double bad :
             {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
          Scenario s(c);
          HostTensor& x = s.*tensor;
          const std::int64_t row = x.count() / c.B;
          for (std::int64_t i = row; i < 2 * row; ++i) x.set(i, bad);
          LiveCall live(s);
          live.launch();
          live.synchronize();
          const Outputs out = live.outputs();
          CHECK(row_bits(c, 0, out) == row_bits(c, 0, clean));
          CHECK(row_bits(c, 2, out) == row_bits(c, 2, clean));
          // Otherwise the test would not see a kernel that ignores the tensor.
          CHECK(row_bits(c, 1, out) != row_bits(c, 1, clean));
        }
      }
    }
  });
}

TEST_CASE("a replayed graph follows the slots and counts of the moment") {
  REQUIRE_GPU();
  for (const bool dependent : {false, true}) {
    Case c;
    c.B = 4;
    c.T = 3;
    c.slots = Slots::kPermuted;
    c.accepted = true;
    c.separate_final = true;
    c.dependent = dependent;
    Scenario s(c);
    LiveCall live(s);
    const gpu::Stream stream = gpu::make_stream();
    const gpu::GraphExec graph =
        gpu::capture(stream.get(), [&](cudaStream_t at) { live.launch(at); });
    gpu::check_cuda(cudaGraphLaunch(graph.get(), stream.get()), "cudaGraphLaunch");
    live.synchronize();
    CHECK(live.judge(expect(s)) == "");

    for (std::int64_t b = 0; b < c.B; ++b) {
      s.state_indices.set(b, static_cast<double>(b == 2 ? -1 : 2 * (c.B - b)));
      s.accepted.set(b, static_cast<double>(c.T - b));
    }
    s.accepted.set(3, 2);
    live.reset(s);
    gpu::check_cuda(cudaGraphLaunch(graph.get(), stream.get()), "cudaGraphLaunch");
    live.synchronize();
    CHECK(live.judge(expect(s)) == "");
  }
}

}  // namespace
}  // namespace goldenrule::test
