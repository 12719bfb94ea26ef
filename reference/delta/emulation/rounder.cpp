// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "fixtures/random/philox.hpp"
#include "reference/delta/emulation/chunk_emulator.hpp"

namespace goldenrule::delta {

double Rounder::uniform() {
  if (left_ == 0) {
    bits_ = random::philox4x32(
        {static_cast<std::uint32_t>(block_), static_cast<std::uint32_t>(block_ >> 32),
         static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
        {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
    ++block_;
    left_ = 16;
  }
  --left_;
  const std::uint32_t word = bits_[static_cast<std::size_t>(left_ / 4)];
  const std::uint32_t byte = (word >> (8 * (left_ % 4))) & 0xffU;
  // Odd multiples of 2^-8: symmetric about 0, variance 1/3 to 2^-16.
  return (static_cast<double>(byte) - 127.5) * 0x1p-7;
}

void Rounder::apply(const contract::Rounding& format, double* x, std::int64_t count) {
  if (mode_ == RoundingMode::kExact) return;
  if (mode_ == RoundingMode::kTruncated) {
    if (format != contract::Format::kTF32) return;
    for (std::int64_t i = 0; i < count; ++i) {
      x[i] -= std::copysign(contract::half_ulp(info(contract::Format::kTF32), x[i]), x[i]);
    }
    return;
  }
  if (!format) return apply_arithmetic(x, count);
  if (mode_ == RoundingMode::kNearest) {
    for (std::int64_t i = 0; i < count; ++i) {
      x[i] = round_to(*format, x[i] * (1.0 + 0x1p-22 * uniform()));
    }
    return;
  }
  const contract::FormatInfo f = info(*format);
  for_each_noise(count, [&](std::int64_t first, std::int64_t n, const double* noise) {
    double* part = x + first;
    for (std::int64_t i = 0; i < n; ++i) part[i] += contract::half_ulp(f, part[i]) * noise[i];
  });
}

void Rounder::apply_arithmetic(double* x, std::int64_t count) {
  const double u = 2.0 * chunked_->unit_roundoff;
  if (mode_ == RoundingMode::kNearest) {
    for (std::int64_t i = 0; u > 0.0 && i < count; ++i)
      x[i] = round_to(contract::Format::kF32, x[i]);
    return;
  }
  for_each_noise(count, [&](std::int64_t first, std::int64_t n, const double* noise) {
    for (std::int64_t i = 0; i < n; ++i) x[first + i] *= 1.0 + u * noise[i];
  });
}

double Rounder::error(contract::Point point, double magnitude) {
  const contract::Rounding& format = chunked_->at(point);
  if (!format || mode_ == RoundingMode::kExact || mode_ == RoundingMode::kTruncated) return 0.0;
  if (mode_ == RoundingMode::kNearest) return round_to(*format, magnitude) - magnitude;
  return contract::half_ulp(info(*format), magnitude) * uniform();
}

}  // namespace goldenrule::delta
