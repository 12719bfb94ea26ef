// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic that the host decides calls by: divisors, units of copies, shared memory between
// views. Needs no GPU.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "fixtures/random/philox.hpp"
#include "gpu/launch/aliasing.hpp"
#include "gpu/launch/pack_call.hpp"

namespace goldenrule::test {
namespace {

using gpu::Divisor;
using gpu::Region;

constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();

/// Where a quotient changes, for this divisor, and at both ends.
void check_divisor(std::int32_t d) {
  const Divisor divisor = Divisor::of(d);
  const std::int64_t last = kMost / d;
  std::int64_t wrong = 0;
  const auto check = [&](std::int64_t n) {
    if (n < 0 || n > kMost) return;
    wrong += divisor.quotient(static_cast<std::int32_t>(n)) != n / d ? 1 : 0;
  };
  for (const std::int64_t q : {std::int64_t{0}, std::int64_t{1}, last / 2, last - 1, last}) {
    for (const std::int64_t by : {-1, 0, 1}) check(q * d + by);
  }
  check(kMost);
  CHECK_MESSAGE(wrong == 0, d);
}

TEST_CASE("a divisor divides: every small one, and around every power of two") {
  for (std::int32_t d = 1; d <= 4096; ++d) check_divisor(d);
  for (int bit = 12; bit < 31; ++bit) {
    for (std::int64_t by = -300; by <= 300; ++by) {
      const std::int64_t d = (std::int64_t{1} << bit) + by;
      if (d <= kMost) check_divisor(static_cast<std::int32_t>(d));
    }
  }
  for (std::int32_t by = 0; by < 300; ++by) check_divisor(kMost - by);
  const random::Stream stream(1, "divisors");
  for (std::int64_t i = 0; i < 20'000; ++i) {
    check_divisor(1 + static_cast<std::int32_t>(stream.bits(i) % kMost));
  }
}

TEST_CASE("a divisor of every small number, for every numerator below 2^16") {
  for (std::int32_t d = 1; d < 200; ++d) {
    const Divisor divisor = Divisor::of(d);
    std::int32_t wrong = 0;
    for (std::int32_t n = 0; n < 1 << 16; ++n) wrong += divisor.quotient(n) != n / d ? 1 : 0;
    CHECK_MESSAGE(wrong == 0, d);
  }
}

TEST_CASE("the unit of a copy divides the address, every stride and the length of a row") {
  const auto fits = [](const gpu::TokenView& view, std::int64_t bytes, std::int64_t unit) {
    const auto address = reinterpret_cast<std::uintptr_t>(view.data);
    return address % static_cast<std::uintptr_t>(unit) == 0 && view.row % unit == 0 &&
           view.token % unit == 0 && view.head % unit == 0 && bytes % unit == 0;
  };
  for (const std::int32_t dtype : {GOLDENRULE_GPU_F32, GOLDENRULE_GPU_BF16, GOLDENRULE_GPU_F16}) {
    const int size = gpu::dtype_size(dtype);
    for (std::uint64_t run = 0; run < 4'000; ++run) {
      const random::Stream stream(run, "units");
      const auto draw = [&](std::int64_t i) {
        return static_cast<std::uint32_t>((1 + stream.bits(i) % 9) << (stream.bits(i) >> 32) % 5) *
               static_cast<std::uint32_t>(size);
      };
      const gpu::TokenView view{reinterpret_cast<char*>(std::uintptr_t{1} << 40) + draw(0),
                                run % 3 == 0 ? 0 : draw(1), draw(2), draw(3)};
      const std::int64_t row = draw(4) / static_cast<std::uint32_t>(size);
      const std::int64_t unit = gpu::copy_unit(view, dtype, row);
      std::int64_t expected = 2;  // no asynchronous copy is that short
      for (const std::int64_t one : {4, 8, 16}) {
        if (fits(view, row * size, one)) expected = one;
      }
      CHECK(unit == expected);
    }
  }
}

/// All bytes of a region, from its first.
std::set<std::int64_t> bytes_of(const Region& region, std::int64_t origin) {
  std::set<std::int64_t> starts{static_cast<std::int64_t>(region.first) - origin};
  for (int axis = 0; axis < region.size; ++axis) {
    std::set<std::int64_t> more;
    const Region::Axis& a = region.axes[static_cast<std::size_t>(axis)];
    for (const std::int64_t start : starts) {
      for (std::int64_t i = 0; i < a.count; ++i) more.insert(start + i * a.stride);
    }
    starts = more;
  }
  std::set<std::int64_t> bytes;
  for (const std::int64_t start : starts) {
    for (std::int64_t i = 0; i < region.run; ++i) bytes.insert(start + i);
  }
  return bytes;
}

goldenrule_gpu_tensor at(std::int64_t address) {
  goldenrule_gpu_tensor t{};
  t.data = reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
  t.dtype = GOLDENRULE_GPU_BF16;
  return t;
}

Region region(std::int64_t address, const std::vector<std::int64_t>& extents,
              const std::vector<std::int64_t>& strides) {
  gpu::Strides given{};
  std::ranges::copy(strides, given.begin());
  const gpu::TensorRule rule{.name = "x",
                             .need = gpu::Need::kRequired,
                             .use = gpu::Use::kWritten,
                             .types = gpu::Types::kFloat,
                             .extents = extents,
                             .strided = static_cast<int>(strides.size())};
  return gpu::region_of(at(address), rule, given);
}

TEST_CASE("views share memory if a byte of one is a byte of the other") {
  constexpr std::int64_t kOrigin = 1 << 20;
  int shared = 0, apart = 0, undecided = 0;
  for (std::uint64_t run = 0; run < 20'000; ++run) {
    const random::Stream stream(run, "regions");
    const auto draw = [&](std::int64_t i, std::uint64_t n) {
      return static_cast<std::int64_t>(stream.bits(i) % n);
    };
    // Rows of one pitch, or now and then of two, which may then lie between each other anyhow.
    const std::int64_t pitch = 20 + draw(0, 12), width = 3 + draw(1, 3);
    const bool alike = draw(2, 4) != 0;
    const auto view = [&](std::int64_t i) {
      const std::int64_t own_pitch = alike ? pitch : pitch + draw(i, 5);
      const std::int64_t own_width = alike ? width : width + draw(i + 1, 3);
      return region(kOrigin + 2 * draw(i + 2, 60),
                    {1 + draw(i + 3, 4), 1 + draw(i + 4, 3), 1 + draw(i + 5, 3)},
                    {own_pitch, own_width});
    };
    const Region a = view(10), b = view(20);
    const std::set<std::int64_t> of_a = bytes_of(a, kOrigin), of_b = bytes_of(b, kOrigin);
    const bool truth = std::ranges::any_of(of_a, [&](std::int64_t x) { return of_b.contains(x); });
    const bool answer = gpu::share_memory(a, b);
    CHECK(answer == gpu::share_memory(b, a));
    if (truth) CHECK(answer);           // it may not miss a byte
    if (alike) CHECK(answer == truth);  // and is exact where both step alike
    (truth ? shared : answer ? undecided : apart) += 1;
  }
  CHECK(shared > 2'000);
  CHECK(apart > 2'000);
  CHECK(undecided > 0);
}

TEST_CASE("q, k, v and o of one row are apart, and one element too far is not") {
  // [4, 3, q 2 x 8 | k 2 x 8 | v 4 x 6 | o 4 x 6]
  const std::int64_t pitch = 16 + 16 + 24 + 24;
  const auto part = [&](std::int64_t first, std::int64_t heads, std::int64_t size) {
    return region(4096 + 2 * first, {4, 3, heads, size}, {3 * pitch, pitch, size});
  };
  const Region q = part(0, 2, 8), k = part(16, 2, 8), v = part(32, 4, 6), o = part(56, 4, 6);
  for (const Region& other : {q, k, v}) CHECK_FALSE(gpu::share_memory(o, other));
  CHECK(gpu::share_memory(part(55, 4, 6), v));
  CHECK(gpu::share_memory(part(57, 4, 6), q));  // its last head ends in the next row
  CHECK(gpu::share_memory(o, o));
  CHECK_FALSE(gpu::share_memory(o, region(4096, {0, 3, 4, 6}, {1, 1, 1})));
  const Region far{.first = ~std::uintptr_t{0} - 7, .run = 8, .axes = {}, .size = 0};
  CHECK(gpu::share_memory(far, far));
  CHECK_FALSE(gpu::share_memory(far, o));
}

}  // namespace
}  // namespace goldenrule::test
