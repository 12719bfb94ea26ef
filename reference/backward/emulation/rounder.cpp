// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/emulation/rounder.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "fixtures/random/philox.hpp"

namespace goldenrule::backward {
namespace {

using contract::AdjointRounding;
using contract::Format;

// Half the spacing of the format at x.
float half_ulp(const contract::FormatInfo& f, float x) {
  const auto field = static_cast<int>(std::bit_cast<std::uint32_t>(x) >> 23 & 0xffU);
  const int exponent = std::max(field, f.min_exponent + 127) - f.significand_bits;
  if (x == 0.0F || exponent <= 0) return 0.0F;
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent) << 23);
}

// To nearest even, for formats with the exponents of fp32: `dropped` bits go.
float without_bits(float x, int dropped) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7f800000U) == 0x7f800000U) return x;
  const std::uint32_t half = (1U << (dropped - 1)) - 1U + (bits >> dropped & 1U);
  return std::bit_cast<float>((bits + half) & ~((1U << dropped) - 1U));
}

}  // namespace

contract::Rounding format_of(AdjointRounding rounding, call::DType io) {
  if (rounding == AdjointRounding::kNone) return std::nullopt;
  if (rounding == AdjointRounding::kTF32) return Format::kTF32;
  if (rounding == AdjointRounding::kTwoBF16) return Format::kTwoBF16;
  if (io == call::DType::kBF16) return Format::kBF16;
  if (io == call::DType::kF16) return Format::kF16;
  return std::nullopt;  // fp32 as everything else
}

Rounder::Rounder(const contract::ChunkedAdjoint& model, call::DType io, bool random,
                 std::uint64_t seed)
    : random_(random), seed_(random::Stream(seed, "adjoint").bits(0)), places_(seed_) {
  for (std::size_t i = 0; i < formats_.size(); ++i) formats_[i] = format_of(model.points[i], io);
}

Floats Rounder::summand(Floats x) {
  if (!random_) return x;
  for (std::int64_t first = 0; first < x.size(); first += delta::kNoiseRun) {
    const double* noise = places_.three(delta::noise_table())[0];
    const std::int64_t n = std::min<std::int64_t>(delta::kNoiseRun, x.size() - first);
    for (std::int64_t i = 0; i < n; ++i) {
      x.data()[first + i] *= 1.0F + 0x1p-22F * static_cast<float>(noise[i]);
    }
  }
  return x;
}

Sums Rounder::sum(Sums x) {
  const contract::FormatInfo& f = contract::info(Format::kF32);
  for (std::int64_t first = 0; first < x.size(); first += delta::kNoiseRun) {
    const double* noise = places_.three(delta::noise_table())[0];
    const std::int64_t n = std::min<std::int64_t>(delta::kNoiseRun, x.size() - first);
    for (std::int64_t i = 0; i < n; ++i) {
      double& to = x.data()[first + i];
      to += static_cast<double>(half_ulp(f, static_cast<float>(to))) * noise[i];
    }
  }
  return x;
}

void Rounder::apply(contract::AdjointPoint point, float* x, std::int64_t count) {
  const std::optional<Format>& format = formats_[static_cast<std::size_t>(point)];
  if (random_) {
    const contract::FormatInfo& f = contract::info(format.value_or(Format::kF32));
    for (std::int64_t first = 0; first < count; first += delta::kNoiseRun) {
      const double* noise = places_.three(delta::noise_table())[0];
      const std::int64_t n = std::min(delta::kNoiseRun, count - first);
      for (std::int64_t i = 0; i < n; ++i) {
        const auto draw = static_cast<float>(noise[i]);
        x[first + i] += format ? half_ulp(f, x[first + i]) * draw : x[first + i] * 0x1p-23F * draw;
      }
    }
    return;
  }
  if (!format) return;
  if (*format == Format::kBF16 || *format == Format::kTF32 || *format == Format::kTwoBF16) {
    const int dropped = 24 - contract::info(*format).significand_bits;
    for (std::int64_t i = 0; i < count; ++i) x[i] = without_bits(x[i], dropped);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    x[i] = static_cast<float>(contract::round_to(*format, static_cast<double>(x[i])));
  }
}

}  // namespace goldenrule::backward
