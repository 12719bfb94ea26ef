// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_host/simt/products.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/gpu_host/simt/fragments.hpp"
#include "tests/gpu_host/simt/grid.hpp"
#include "tests/gpu_host/simt/shared_memory.hpp"
#include "tests/gpu_host/simt/tensor_map.hpp"

namespace goldenrule::simt {
namespace {

constexpr int kMostColumns = 256;

/// A descriptor of an operand in shared memory with the 128-byte or the 32-byte swizzle.
struct Operand {
  explicit Operand(std::uint64_t d)
      : row_bytes(d >> 62 == 3 ? 32 : 128),
        start(static_cast<std::uint32_t>(d & 0x3fffU) << 4),
        leading(static_cast<std::uint32_t>(d >> 16 & 0x3fffU) << 4),
        stride(static_cast<std::uint32_t>(d >> 32 & 0x3fffU) << 4) {
    if (d >> 62 != 1 && d >> 62 != 3) fail("a descriptor without the 128-byte or 32-byte swizzle");
    if ((d >> 49 & 7U) != 0) fail("a descriptor with a base offset");
  }
  /// Contiguous along the inner dimension: groups of eight rows lie `stride` apart.
  template <class Type>
  [[nodiscard]] float along_inner(int row, int k) const {
    return at<Type>(static_cast<std::uint32_t>(row / 8) * stride +
                    static_cast<std::uint32_t>(row % 8) * row_bytes +
                    static_cast<std::uint32_t>(2 * k));
  }
  /// Contiguous along the columns: 64 of them, the next 64 `leading` further on; groups of eight
  /// steps of the inner dimension lie `stride` apart.
  template <class Type>
  [[nodiscard]] float along_columns(int column, int k) const {
    if (row_bytes != 128) fail("columns without the 128-byte swizzle");
    return at<Type>(static_cast<std::uint32_t>(column / 64) * leading +
                    static_cast<std::uint32_t>(k / 8) * stride +
                    static_cast<std::uint32_t>(k % 8 * 128 + column % 64 * 2));
  }

 private:
  template <class Type>
  [[nodiscard]] float at(std::uint32_t offset) const {
    std::uint16_t x = 0;
    const std::uint32_t address = start + offset;
    const std::uint32_t place =
        row_bytes == 32 ? address ^ (address >> 7 & 1U) << 4 : swizzled(address);
    std::memcpy(&x, shared_pointer(place), sizeof x);
    return Type::low(x);
  }
  std::uint32_t row_bytes, start, leading, stride;
};

}  // namespace

std::shared_ptr<Products::Result> Products::result_at(float* place, int columns) {
  const auto known = std::find_if(results_.begin(), results_.end(),
                                  [&](const auto& r) { return r->place == place; });
  if (known != results_.end()) return *known;
  const std::size_t count = static_cast<std::size_t>(columns) / 2;
  auto result =
      std::make_shared<Result>(Result{place, columns, 0, std::vector<float>(place, place + count)});
  std::memset(place, 0xff, count * sizeof(float));
  results_.push_back(result);
  return result;
}

void Products::begin(float* c, int columns, bool add, LeftOperand a, std::uint64_t b,
                     bool along_columns) {
  if (!arranged_) fail("a product of a warpgroup without a fence behind the last wait");
  Product p{.c = result_at(c, columns),
            .add = add,
            .from_registers = a.registers != nullptr,
            .f16 = a.f16,
            .a = {},
            .a_descriptor = a.descriptor,
            .b_descriptor = b,
            .along_columns = along_columns};
  if (p.from_registers) std::copy_n(a.registers, 4, p.a);
  ++p.c->pending;
  open_.push_back(std::move(p));
}

void Products::commit() {
  groups_.push_back(std::move(open_));
  open_.clear();
}

void Products::wait_for_all_but(int keep) {
  keep_ = keep;
  arranged_ = false;
  this_block().meet(kAllLanes, finish_groups, "wgmma.wait_group", this);
}

void Products::finish_groups(const Lanes& lanes) {
  const auto of = [&](std::size_t lane) { return static_cast<Products*>(lanes[lane]); };
  const auto& first = *of(0);
  while (of(0)->groups_.size() > static_cast<std::size_t>(first.keep_)) {
    const std::size_t count = of(0)->groups_.front().size();
    for (std::size_t i = 0; i < count; ++i) {
      std::array<Product*, kWarpSize> same{};
      for (std::size_t lane = 0; lane < kWarpSize; ++lane) {
        if (of(lane)->groups_.empty() || of(lane)->groups_.front().size() != count) {
          fail("lanes of a warp have begun different products");
        }
        same[lane] = &of(lane)->groups_.front()[i];
      }
      multiply(same);
    }
    for (std::size_t lane = 0; lane < kWarpSize; ++lane) {
      Products& mine = *of(lane);
      mine.groups_.erase(mine.groups_.begin());
      std::erase_if(mine.results_, [](const auto& r) {
        if (r->pending > 0) return false;
        std::copy(r->values.begin(), r->values.end(), r->place);
        return true;
      });
    }
  }
}

template <class Type>
void Products::read_left(const std::array<Product*, 32>& lanes, float (&a)[16][kInner]) {
  if (lanes[0]->from_registers) {
    gather_left<Type>([&](int lane) { return lanes[static_cast<std::size_t>(lane)]->a; }, a);
    return;
  }
  const Operand left(lanes[0]->a_descriptor);
  const int row0 = static_cast<int>(this_thread().place.x) / kWarpSize % 4 * 16;
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < kInner; ++k) a[row][k] = left.along_inner<Type>(row0 + row, k);
  }
}

void Products::multiply(const std::array<Product*, 32>& lanes) {
  const Product& first = *lanes[0];
  const int columns = first.c->columns;
  float a[16][kInner];
  static float b[kInner][kMostColumns];
  const auto read = [&]<class Type>(Type) {
    read_left<Type>(lanes, a);
    const Operand right(first.b_descriptor);
    for (int n = 0; n < columns; ++n) {
      for (int k = 0; k < kInner; ++k) {
        b[k][n] =
            first.along_columns ? right.along_columns<Type>(n, k) : right.along_inner<Type>(n, k);
      }
    }
  };
  if (first.f16) {
    read(F16Pair{});
  } else {
    read(BF16Pair{});
  }
  static double c[16][kMostColumns];
  const auto each_value = [&](auto&& f) {
    for (int lane = 0; lane < kWarpSize; ++lane) {
      const auto [g, t] = place_of(lane);
      std::vector<float>& values = lanes[static_cast<std::size_t>(lane)]->c->values;
      for (int i = 0; i < columns / 2; ++i) {
        f(values[static_cast<std::size_t>(i)], c[g + i / 2 % 2 * 8][i / 4 * 8 + 2 * t + i % 2]);
      }
    }
  };
  each_value([&](float x, double& sum) { sum = first.add ? static_cast<double>(x) : 0.0; });
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < kInner; ++k) {
      const auto factor = static_cast<double>(a[row][k]);
      for (int n = 0; n < columns; ++n) c[row][n] += factor * static_cast<double>(b[k][n]);
    }
  }
  each_value([](float& x, double sum) { x = truncated(sum); });
  for (Product* p : lanes) --p->c->pending;
}

}  // namespace goldenrule::simt
