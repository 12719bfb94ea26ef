// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include "tests/call/support.hpp"

using namespace goldenrule;
using namespace goldenrule::call;
using test::check_refused;

TEST_CASE("tensor: element counts, also absurd ones") {
  CHECK(element_count({}) == 1);
  CHECK(element_count({2, 0, 5}) == 0);
  CHECK(element_count({2, 3, 4}) == 24);
  const std::string expected = "extents >= 0 with a product below 2^63";
  check_refused(
      [] {
        (void)element_count({2, -1});
      },
      {ErrorKind::kShape, "shape", expected, "[2,-1]"});
  check_refused(
      [] {
        (void)element_count({std::int64_t{1} << 32, std::int64_t{1} << 31});
      },
      {ErrorKind::kShape, "shape", expected, "[4294967296,2147483648]"});
}

TEST_CASE("tensor: values are rounded once to the storage type, in storage order") {
  const Tensor t(DType::kBF16, {2, 2},
                 std::vector<double>{1.0 + 0x1p-8 + 0x1p-40, -3.0, 0.1, 1e39});
  CHECK(t.size() == 4);
  CHECK(t.bytes().size() == 8);
  CHECK(t[0] == 1.0 + 0x1p-7);
  CHECK(t.to_doubles() == std::vector<double>{1.0 + 0x1p-7, -3.0, round_to(DType::kBF16, 0.1),
                                              std::numeric_limits<double>::infinity()});
  Tensor zero(DType::kF16, {3});
  zero.set(1, 2.5);
  CHECK(zero.to_doubles() == std::vector<double>{0.0, 2.5, 0.0});
  check_refused([] { (void)Tensor(DType::kF32, {3}, std::vector<double>{1.0}); },
                {ErrorKind::kShape, "tensor", "3 values", "1"});
}

TEST_CASE("tensor: integers keep all their bits") {
  Tensor wide(DType::kI64, {2});
  const std::int64_t odd = (std::int64_t{1} << 62) + 1;  // no double
  std::memcpy(wide.bytes().data() + 8, &odd, sizeof odd);
  CHECK(wide.to_integers() == std::vector<std::int64_t>{0, odd});
  CHECK(test::integers({-1, 7}, DType::kI32).to_integers() == std::vector<std::int64_t>{-1, 7});
  check_refused([] { (void)Tensor(DType::kF16, {1}).to_integers(); },
                {ErrorKind::kType, "tensor", "i32 or i64", "f16"});
}

TEST_CASE("tensor: coordinates of a flat index") {
  const Shape shape{2, 3, 4};
  std::int64_t flat = 0;
  for (std::int64_t a = 0; a < 2; ++a) {
    for (std::int64_t b = 0; b < 3; ++b) {
      for (std::int64_t c = 0; c < 4; ++c) CHECK(unravel(shape, flat++) == Shape{a, b, c});
    }
  }
  CHECK(to_string(shape) == "[2,3,4]");
  CHECK(to_string({}) == "[]");
}
