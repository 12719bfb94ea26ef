// SPDX-License-Identifier: Apache-2.0
//
// Products of a warpgroup (wgmma). They are done when their group is waited for, and not before:
// from the moment one begins its result is NaN, operands in shared memory are read at the wait, and
// what the result held before was read at the beginning. Operands in registers are read at the
// beginning: the compiler keeps track of those, and its warnings C75xx tell of mistakes with them.
//
// Products of two numbers are exact; 16 of them and what was there before are summed exactly enough
// (fp64) and truncated to fp32, as the tensor cores do at best.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace goldenrule::simt {

/// The left operand of a product of a warpgroup: registers, or a descriptor.
struct LeftOperand {
  const std::uint32_t* registers = nullptr;
  std::uint64_t descriptor = 0;
  bool f16 = false;  ///< both operands are of f16, not bf16
};

/// What one thread has begun of the products of its warpgroup.
class Products {
 public:
  void arrange() { arranged_ = true; }
  /// C (+)= A B with C [64 x columns] and 16 products a number; `along_columns`: B is contiguous
  /// along the columns of C, else along the inner dimension.
  void begin(float* c, int columns, bool add, LeftOperand a, std::uint64_t b, bool along_columns);
  void commit();
  /// All groups but the latest `keep`; all lanes of the warp.
  void wait_for_all_but(int keep);
  [[nodiscard]] std::size_t pending() const { return open_.size() + groups_.size(); }

 private:
  /// A result that is under way.
  struct Result {
    float* place;
    int columns;
    int pending;
    std::vector<float> values;
  };
  struct Product {
    std::shared_ptr<Result> c;
    bool add;
    bool from_registers, f16;
    std::uint32_t a[4];
    std::uint64_t a_descriptor, b_descriptor;
    bool along_columns;
  };
  using Group = std::vector<Product>;

  static void finish_groups(const std::array<void*, 32>& lanes);
  static void multiply(const std::array<Product*, 32>& lanes);
  template <class Type>
  static void read_left(const std::array<Product*, 32>& lanes, float (&a)[16][16]);
  [[nodiscard]] std::shared_ptr<Result> result_at(float* place, int columns);

  Group open_;
  std::vector<Group> groups_;
  std::vector<std::shared_ptr<Result>> results_;
  bool arranged_ = false;
  int keep_ = 0;
};

}  // namespace goldenrule::simt
