// SPDX-License-Identifier: Apache-2.0
//
// The roundings of one emulated kernel of the backward pass, which computes in fp32. To nearest, as
// hardware does; or random, each rounding error drawn uniform over half an ulp to either side as a
// function of what the chunk brings (delta/budget/spread.hpp says why both are needed). A value
// that no point rounds is the result of a few fp32 operations: in a random run it errs by 2u more.
#pragma once

#include <cstdint>
#include <optional>

#include "fixtures/call/dtype.hpp"
#include "reference/backward/emulation/matrix.hpp"
#include "reference/contract/contract.hpp"
#include "reference/delta/emulation/noise_table.hpp"

namespace goldenrule::backward {

/// The format of a rounding in a kernel whose q has type `io`.
[[nodiscard]] contract::Rounding format_of(contract::AdjointRounding rounding, call::DType io);

class Rounder {
 public:
  /// `io` is the type of q.
  Rounder(const contract::ChunkedAdjoint& model, call::DType io, bool random, std::uint64_t seed);

  [[nodiscard]] bool is_random() const { return random_; }
  /// What follows belongs to a chunk with this content.
  void begin(std::uint64_t content) { places_ = delta::NoisePlaces(seed_ ^ content); }
  [[nodiscard]] bool rounds(contract::AdjointPoint point) const {
    return formats_[static_cast<std::size_t>(point)].has_value();
  }
  /// In place, as the contract does at `point`.
  void apply(contract::AdjointPoint point, Floats& x) { apply(point, x.data(), x.size()); }
  void apply(contract::AdjointPoint point, float* x, std::int64_t count);
  /// Of a sum of numbers that may cancel: what the fp32 sums behind each of them leave. Only a
  /// random run puts it in, a nearest one has its own.
  [[nodiscard]] Floats summand(Floats x);
  /// Results of fp32 sums, of which only differences count, each with its error of half an ulp.
  [[nodiscard]] Sums sum(Sums x);
  [[nodiscard]] Floats rounded(contract::AdjointPoint point, Floats x) {
    apply(point, x);
    return x;
  }

 private:
  std::array<std::optional<contract::Format>, contract::kAdjointPoints> formats_;
  bool random_;
  std::uint64_t seed_;
  delta::NoisePlaces places_;
};

}  // namespace goldenrule::backward
