// SPDX-License-Identifier: Apache-2.0
//
// A list of integers on the device in guarded memory, as the interface takes it, for what no record
// says: slots and checkpoints of any value, beside a call that a record describes.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "fixtures/call/record.hpp"
#include "gpu/goldenrule_gpu.h"
#include "tests/gpu/guarded_buffer.hpp"

namespace goldenrule::test {

class DeviceList {
 public:
  DeviceList(const std::string& name, const std::vector<std::int64_t>& values, bool wide)
      : wide_(wide), buffer_(name, values.size() * size(), 11) {
    Bytes bytes(values.size() * size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::memcpy(&bytes[i * size()], &values[i], size());  // the low half comes first
    }
    buffer_.upload(bytes);
  }

  [[nodiscard]] goldenrule_gpu_tensor tensor() const {
    return {.data = buffer_.data(),
            .stride = {},
            .dtype = wide_ ? GOLDENRULE_GPU_I64 : GOLDENRULE_GPU_I32,
            .dense = 1};
  }
  [[nodiscard]] std::string violation() const { return buffer_.violation(); }

 private:
  [[nodiscard]] std::size_t size() const { return wide_ ? 8 : 4; }

  bool wide_;
  GuardedBuffer buffer_;
};

/// Dense blocks of states [count,HV,..] in guarded memory, poison but for those that were put
/// there.
class DeviceStates {
 public:
  /// As the states of this call, which has initial_state.
  DeviceStates(const std::string& name, std::size_t count, const call::Record& record)
      : block_(block_bytes(record)),
        dtype_(static_cast<std::int32_t>(record.inputs.at("initial_state").dtype())),
        image_(make_poison(count * block_, 5)),
        buffer_(name, count * block_, 13) {}

  /// Block `from` of dense states.
  void put(std::size_t block, std::span<const std::byte> states, std::size_t from) {
    std::memcpy(&image_[block * block_], &states[from * block_], block_);
  }
  void upload() { buffer_.upload(image_); }
  [[nodiscard]] Bytes download() const { return buffer_.download(); }
  [[nodiscard]] const Bytes& image() const { return image_; }
  [[nodiscard]] std::size_t block() const { return block_; }
  [[nodiscard]] goldenrule_gpu_tensor tensor() const {
    return {.data = buffer_.data(), .stride = {}, .dtype = dtype_, .dense = 1};
  }
  [[nodiscard]] std::string violation() const { return buffer_.violation(); }

 private:
  static std::size_t block_bytes(const call::Record& record) {
    const call::Dims d = call::validate(record);
    return static_cast<std::size_t>(d.HV * d.state_size()) *
           call::info(record.inputs.at("initial_state").dtype()).bytes;
  }

  std::size_t block_;  // bytes of a state of all heads
  std::int32_t dtype_;
  Bytes image_;
  GuardedBuffer buffer_;
};

}  // namespace goldenrule::test
