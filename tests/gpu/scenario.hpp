// SPDX-License-Identifier: Apache-2.0
//
// The tensors of a case on the host, in the types, strides and poison that the device will see.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/gpu/case.hpp"
#include "tests/gpu/guarded_buffer.hpp"

namespace goldenrule::test {

/// A strided tensor of up to five axes, the last contiguous; what lies between its elements is
/// poison.
class HostTensor {
 public:
  HostTensor() = default;
  /// `gap` elements behind every axis but the last; `contiguous` axes at the end have none between.
  HostTensor(DType dtype, std::vector<std::int64_t> extents, std::int64_t gap,
             std::uint64_t poison_seed, int contiguous = 1);

  [[nodiscard]] bool present() const { return !extents_.empty(); }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const std::vector<std::int64_t>& extents() const { return extents_; }
  [[nodiscard]] const std::vector<std::int64_t>& strides() const { return strides_; }
  [[nodiscard]] std::int64_t count() const;
  [[nodiscard]] const Bytes& bytes() const { return bytes_; }
  [[nodiscard]] Bytes& bytes() { return bytes_; }

  /// Byte offset of element `i` in row-major order of the extents.
  [[nodiscard]] std::size_t offset(std::int64_t i) const;
  [[nodiscard]] double get(std::int64_t i) const {
    return call::decode(dtype_, &bytes_[offset(i)]);
  }
  void set(std::int64_t i, double x);
  [[nodiscard]] double at(std::initializer_list<std::int64_t> index) const;

 private:
  DType dtype_ = DType::kF32;
  std::vector<std::int64_t> extents_, strides_;
  bool dense_ = true;
  Bytes bytes_;
};

struct Scenario {
  /// Deterministic in `c`; `poison_seed` chooses what unwritten memory holds.
  explicit Scenario(const Case& c, std::uint64_t poison_seed = 1);

  Case c;
  std::uint64_t poison = 1;
  double scale = 1;
  std::int64_t pool = 0;  ///< slots
  HostTensor q, k, v, gate, A_log, dt_bias, beta, o;
  HostTensor state, final_state, intermediates;
  HostTensor state_indices, output_state_indices, ssm_state_indices, num_accepted, accepted;

  [[nodiscard]] std::int64_t qk_head(std::int64_t j) const {
    return c.head_map == HeadMap::kGrouped ? j / (c.HV / c.H) : j % c.H;
  }

 private:
  void fill_tokens();
  void fill_gates();
  void fill_indices(std::uint64_t poison_seed);
};

}  // namespace goldenrule::test
