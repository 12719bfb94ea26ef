// SPDX-License-Identifier: Apache-2.0
//
// Device memory that tells who touched what. A buffer lies between two redzones; redzones and
// contents start as NaNs with random payloads: NaN as f32, f16 and bf16, and out of range as an
// index. So a stray read poisons a result, a stray write leaves a mark, and nothing that a kernel
// fails to write looks right by accident.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpu/host/cuda_handles.hpp"

namespace goldenrule::test {

using Bytes = std::vector<std::byte>;

/// `count` bytes of poison; another seed gives other payloads.
[[nodiscard]] Bytes make_poison(std::size_t count, std::uint64_t seed);

enum class Memory {
  kGuarded,  ///< poisoned, between two redzones
  kBare,     ///< exactly its bytes, uninitialised: redzones would hide from memcheck the accesses
             ///< that lie in them, and poison from initcheck what nobody wrote
  kHost,     ///< guarded, in the host's memory: for tests of the harness without a device
};

class GuardedBuffer {
 public:
  static constexpr std::size_t kRedzone = 4096;

  /// `shift` bytes (below 256) move the contents off their alignment.
  GuardedBuffer(std::string name, std::size_t bytes, std::uint64_t seed, std::size_t shift = 0,
                Memory memory = Memory::kGuarded);

  [[nodiscard]] void* data() const;
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const std::string& name() const { return name_; }

  void upload(std::span<const std::byte> bytes);
  [[nodiscard]] Bytes download() const;
  /// "" if both redzones are intact, else one line: buffer, side, first byte, expected, actual.
  [[nodiscard]] std::string violation() const;

 private:
  void copy(void* to, const void* from, std::size_t count) const;

  std::string name_;
  std::size_t size_, shift_, redzone_;
  Bytes image_;  // what was in the memory, redzones included, when it was made
  gpu::DeviceMemory device_;
  Bytes host_;
  std::byte* memory_ = nullptr;
};

/// "" if equal, else one line naming the first byte that differs. `where` is put in front.
[[nodiscard]] std::string first_difference(const std::string& where,
                                           std::span<const std::byte> expected,
                                           std::span<const std::byte> actual);

}  // namespace goldenrule::test
