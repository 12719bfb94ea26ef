// SPDX-License-Identifier: Apache-2.0
//
// Every rounding of the project goes through round_to, so it is held against two implementations
// that share nothing with it: the processor's own double -> float conversion, and rounding of the
// 53-bit significand as an integer.
#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "fixtures/call/dtype.hpp"
#include "tests/call/support.hpp"

using namespace goldenrule;
using namespace goldenrule::call;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }

std::array<std::byte, 2> bytes_of(std::uint16_t pattern) {
  return std::bit_cast<std::array<std::byte, 2>>(pattern);
}

double decode16(DType dtype, std::uint16_t pattern) {
  return decode(dtype, bytes_of(pattern).data());
}

std::uint16_t encode16(DType dtype, double x) {
  std::array<std::byte, 2> bytes{};
  encode(dtype, x, bytes.data());
  return std::bit_cast<std::uint16_t>(bytes);
}

struct Format {
  DType dtype;
  int fraction_bits, exponent_bits;
};
constexpr std::array kHalves{Format{DType::kBF16, 7, 8}, Format{DType::kF16, 10, 5}};

// The value of a finite pattern, from its fields: an integer times a power of two.
double value_of(const Format& f, std::uint16_t pattern) {
  const int fraction = pattern & ((1 << f.fraction_bits) - 1);
  const int biased = (pattern >> f.fraction_bits) & ((1 << f.exponent_bits) - 1);
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int significand = biased == 0 ? fraction : fraction + (1 << f.fraction_bits);
  const double magnitude = std::ldexp(significand, std::max(biased, 1) - bias - f.fraction_bits);
  return (pattern & 0x8000) != 0 ? -magnitude : magnitude;
}

// Round to nearest, ties to even, on the integer significand of x.
double round_by_integers(const Format& f, double x) {
  if (x == 0.0 || !std::isfinite(x)) return x;
  int exponent = 0;
  const double scaled = std::frexp(std::fabs(x), &exponent);              // in [1/2, 1)
  auto significand = static_cast<std::uint64_t>(std::ldexp(scaled, 53));  // exact
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int lowest = 1 - bias - f.fraction_bits;  // exponent of the last place of subnormals
  const int last = std::max(exponent - 1 - f.fraction_bits, lowest);
  const int drop = last - (exponent - 53);  // bits below the last place
  if (drop > 54) return std::copysign(0.0, x);
  const std::uint64_t half = std::uint64_t{1} << (drop - 1);
  const std::uint64_t rest = significand & (2 * half - 1);
  significand >>= drop;
  if (rest > half || (rest == half && (significand & 1) != 0)) ++significand;
  const double magnitude = std::ldexp(static_cast<double>(significand), last);
  return std::copysign(magnitude >= std::ldexp(1.0, bias + 1) ? kInf : magnitude, x);
}

// Doubles over the range of a format and beyond both ends; half of them near or on ties, which
// random significands would never meet.
class Doubles {
 public:
  Doubles(int fraction_bits, int low, int high)
      : fraction_bits_(fraction_bits), exponent_(low, high) {}

  double operator()() {
    std::uint64_t fraction = random_() >> 12;
    const int below = 52 - fraction_bits_;
    if (random_() % 2 == 0) {
      const std::uint64_t half = std::uint64_t{1} << (below - 1);
      fraction = (fraction & ~(2 * half - 1)) | half;
      fraction += random_() % 3 - 1;  // the tie itself and its two neighbours
    }
    // Where the result is subnormal, the tie lies higher: shift the pattern up.
    const double x = std::ldexp(static_cast<double>(fraction | std::uint64_t{1} << 52), -52);
    const double y = std::ldexp(x, exponent_(random_));
    return random_() % 2 == 0 ? y : -y;
  }

 private:
  int fraction_bits_;
  std::mt19937_64 random_{20};
  std::uniform_int_distribution<int> exponent_;
};

}  // namespace

TEST_CASE("dtype: every 16-bit pattern decodes to its fields and encodes back") {
  for (const Format& f : kHalves) {
    CAPTURE(info(f.dtype).name);
    int wrong = 0;
    int nans = 0;
    for (std::uint32_t p = 0; p < 65536; ++p) {
      const auto pattern = static_cast<std::uint16_t>(p);
      const double x = decode16(f.dtype, pattern);
      const std::uint32_t exponent_mask = ((1U << f.exponent_bits) - 1U) << f.fraction_bits;
      if ((p & exponent_mask) != exponent_mask) {
        wrong += bits(x) == bits(value_of(f, pattern)) ? 0 : 1;
        wrong += encode16(f.dtype, x) == pattern ? 0 : 1;
      } else if ((p & ((1U << f.fraction_bits) - 1U)) == 0) {
        wrong += bits(x) == bits((p & 0x8000U) != 0 ? -kInf : kInf) ? 0 : 1;
        wrong += encode16(f.dtype, x) == pattern ? 0 : 1;
      } else {
        ++nans;
        wrong += std::isnan(x) && std::isnan(decode16(f.dtype, encode16(f.dtype, x))) ? 0 : 1;
      }
    }
    CHECK(wrong == 0);
    CHECK(nans == 2 * ((1 << f.fraction_bits) - 1));
  }
}

TEST_CASE("dtype: round_to f32 is the processor's conversion") {
  Doubles doubles(23, -160, 130);
  int wrong = 0;
  for (int i = 0; i < 2000000; ++i) {
    const double x = doubles();
    const auto hardware = static_cast<double>(static_cast<float>(x));
    wrong += bits(round_to(DType::kF32, x)) == bits(hardware) ? 0 : 1;
    // Ties of subnormal results: a float subnormal and a half.
    const double tie = (static_cast<double>(i) + 0.5) * 0x1p-149;
    wrong += round_to(DType::kF32, tie) == static_cast<double>(static_cast<float>(tie)) ? 0 : 1;
  }
  for (const double x : {0x1.fffffeffffffp127, 0x1.ffffffp127, 0x1p128, 0x1p-150, 0x1.8p-150,
                         0x1p-1074, -0.0, kInf, -kInf}) {
    wrong +=
        bits(round_to(DType::kF32, x)) == bits(static_cast<double>(static_cast<float>(x))) ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(std::isnan(round_to(DType::kF32, kNaN)));
}

TEST_CASE("dtype: round_to and encode of bf16 and f16 against integer arithmetic") {
  for (const Format& f : kHalves) {
    CAPTURE(info(f.dtype).name);
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    Doubles doubles(f.fraction_bits, -bias - f.fraction_bits - 6, bias + 2);
    int wrong = 0;
    int subnormal = 0;
    int overflown = 0;
    const auto check = [&](double x) {
      const double expected = round_by_integers(f, x);
      wrong += bits(round_to(f.dtype, x)) == bits(expected) ? 0 : 1;
      wrong += bits(decode16(f.dtype, encode16(f.dtype, x))) == bits(expected) ? 0 : 1;
      subnormal += expected != 0.0 && std::fabs(expected) < std::ldexp(1.0, 1 - bias) ? 1 : 0;
      overflown += std::isinf(expected) ? 1 : 0;
    };
    for (int i = 0; i < 2000000; ++i) check(doubles());
    // All midpoints of neighbours and the doubles next to them, subnormals and overflow included.
    const auto largest =
        static_cast<std::uint16_t>((((1 << f.exponent_bits) - 1) << f.fraction_bits) - 1);
    for (std::uint16_t p = 0; p <= largest; ++p) {
      const double here = decode16(f.dtype, p);
      const double middle = here + 0.5 * ulp(f.dtype, here);  // exact in double
      for (const double x : {std::nextafter(middle, 0.0), middle, std::nextafter(middle, kInf)}) {
        check(x);
        check(-x);
      }
    }
    CHECK(wrong == 0);
    CHECK(subnormal > 1000);  // the generator reaches both ends
    CHECK(overflown > 1000);
  }
}

TEST_CASE("dtype: going through float would round twice") {
  // Just above the middle of 1 and its upper neighbour; float lands on the middle, and even is 1.
  const double bf16 = 1.0 + 0x1p-8 + 0x1p-40;
  CHECK(round_to(DType::kBF16, static_cast<double>(static_cast<float>(bf16))) == 1.0);
  CHECK(round_to(DType::kBF16, bf16) == 1.0 + 0x1p-7);
  CHECK(encode16(DType::kBF16, bf16) == 0x3f81);
  const double f16 = 1.0 + 0x1p-11 + 0x1p-40;
  CHECK(round_to(DType::kF16, f16) == 1.0 + 0x1p-10);
  CHECK(encode16(DType::kF16, f16) == 0x3c01);
}

TEST_CASE("dtype: ulp is the distance to the next number") {
  for (const Format& f : kHalves) {
    CAPTURE(info(f.dtype).name);
    const int largest = (((1 << f.exponent_bits) - 1) << f.fraction_bits) - 1;
    int wrong = 0;
    for (int p = 0; p < largest; ++p) {
      const double here = decode16(f.dtype, static_cast<std::uint16_t>(p));
      const double next = decode16(f.dtype, static_cast<std::uint16_t>(p + 1));
      wrong += ulp(f.dtype, here) == next - here && ulp(f.dtype, -here) == next - here ? 0 : 1;
      // Between two neighbours the spacing is theirs.
      wrong += ulp(f.dtype, std::nextafter(next, 0.0)) == next - here ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
  for (const float x : {0.0F, 0x1p-149F, 0x1p-126F, 1.0F, 0x1.fffffep0F, 3.0e38F}) {
    const float next = std::nextafter(x, std::numeric_limits<float>::infinity());
    CHECK(ulp(DType::kF32, static_cast<double>(x)) ==
          static_cast<double>(next) - static_cast<double>(x));
  }
  for (const double x : {0.0, 0x1p-1074, 0x1p-1022, 1.0, 0x1.fffffffffffffp0, 1e300}) {
    CHECK(ulp(DType::kF64, x) == std::nextafter(x, kInf) - x);
  }
  for (const double x : {kNaN, kInf, -kInf}) CHECK(std::isnan(ulp(DType::kBF16, x)));
}

TEST_CASE("dtype: the smallest f32 that is not below") {
  for (const double x : {0.1, 0.7, 1.0, 1.0 + 0x1p-52, 1.0 + 0x1p-23, 0x1p-1074, 0x1p-149, 3.3e38,
                         0.0, -0.1, -0.7, -1.0 - 0x1p-52}) {
    CAPTURE(x);
    const float up = f32_not_below(x);
    CHECK(static_cast<double>(up) >= x);
    CHECK(static_cast<double>(std::nextafter(up, -std::numeric_limits<float>::infinity())) < x);
  }
  CHECK(std::isinf(f32_not_below(kInf)));
  CHECK(std::isinf(f32_not_below(0x1.fffffe0000001p127)));  // beyond the largest
  CHECK(std::bit_cast<std::uint32_t>(f32_not_below(-std::nan("7"))) == 0x7fc00000U);
}

TEST_CASE("dtype: f64, f32 and integers are stored as they are") {
  std::array<std::byte, 8> bytes{};
  for (const double x : {0x1.123456789abcdp-3, -0.0, 0x1p-1074, kInf}) {
    encode(DType::kF64, x, bytes.data());
    CHECK(bits(decode(DType::kF64, bytes.data())) == bits(x));
  }
  encode(DType::kF32, 0.1, bytes.data());
  CHECK(decode(DType::kF32, bytes.data()) == static_cast<double>(0.1F));
  for (const double x : {-0x1p31, 0x1p31 - 1, 0.0, -1.0}) {
    encode(DType::kI32, x, bytes.data());
    CHECK(decode(DType::kI32, bytes.data()) == x);
  }
  encode(DType::kI64, -0x1p63, bytes.data());
  CHECK(decode(DType::kI64, bytes.data()) == -0x1p63);
  for (const double x : {0x1p31, -0x1p31 - 1, 0.5, kNaN, kInf}) {
    CAPTURE(x);
    const auto error = test::error_of([&] { encode(DType::kI32, x, bytes.data()); });
    REQUIRE(error);
    CHECK(error->kind() == ErrorKind::kValue);
    CHECK(error->where() == "i32");
  }
  CHECK(test::error_of([&] { encode(DType::kI64, 0x1p63, bytes.data()); }));
}

TEST_CASE("dtype: names and sizes") {
  for (const DType t :
       {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64, DType::kI32}) {
    CHECK(info(t).dtype == t);
    CHECK(parse_dtype(info(t).name) == t);
  }
  test::check_refused([] { (void)parse_dtype("fp8"); },
                      {ErrorKind::kValue, "dtype", "one of f64, f32, f16, bf16, i64, i32", "fp8"});
}
