// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/guarded_buffer.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace goldenrule::test {
namespace {

std::string hex(std::byte b) {
  char text[8];
  std::snprintf(text, sizeof text, "0x%02x", static_cast<unsigned>(b));
  return text;
}

/// splitmix64 of seed and position: cheap, and the same whatever the order.
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t x = (seed * 0x9e3779b97f4a7c15ULL + i + 1) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
  return x ^ x >> 31;
}

}  // namespace

Bytes make_poison(std::size_t count, std::uint64_t seed) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; i += 2) {
    // 0x7f81..0x7fff: exponent all ones and a payload, in each of the three float types.
    const auto payload = static_cast<std::uint16_t>(0x7f81U + random_bits(seed, i) % 0x7fU);
    std::memcpy(&bytes[i], &payload, std::min<std::size_t>(2, count - i));
  }
  return bytes;
}

GuardedBuffer::GuardedBuffer(std::string name, std::size_t bytes, std::uint64_t seed,
                             std::size_t shift, Memory memory)
    : name_(std::move(name)),
      size_(bytes),
      shift_(shift),
      redzone_(memory == Memory::kBare ? 0 : kRedzone),
      image_(make_poison(memory == Memory::kBare ? 0 : bytes + 2 * kRedzone, seed)) {
  if (memory == Memory::kHost) {
    host_ = image_;
    memory_ = host_.data();
    return;
  }
  device_ = gpu::allocate_device(memory == Memory::kBare ? bytes + shift : image_.size());
  memory_ = static_cast<std::byte*>(device_.get());
  if (!image_.empty()) copy(memory_, image_.data(), image_.size());
}

void GuardedBuffer::copy(void* to, const void* from, std::size_t count) const {
  if (!host_.empty()) {
    std::memcpy(to, from, count);
  } else {
    gpu::check_cuda(cudaMemcpy(to, from, count, cudaMemcpyDefault), name_.c_str());
  }
}

void* GuardedBuffer::data() const { return memory_ + redzone_ + shift_; }

void GuardedBuffer::upload(std::span<const std::byte> bytes) {
  copy(data(), bytes.data(), bytes.size());
}

Bytes GuardedBuffer::download() const {
  Bytes bytes(size_);
  copy(bytes.data(), data(), size_);
  return bytes;
}

std::string GuardedBuffer::violation() const {
  Bytes now(image_.size());
  if (now.empty()) return "";
  copy(now.data(), memory_, now.size());
  const std::size_t begin = redzone_ + shift_, end = begin + size_;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if ((i >= begin && i < end) || now[i] == image_[i]) continue;
    const bool before = i < begin;
    return name_ + ": byte " + std::to_string(before ? begin - i : i - end + 1) +
           (before ? " before its start" : " after its end") + ": expected " + hex(image_[i]) +
           ", actual " + hex(now[i]);
  }
  return "";
}

std::string first_difference(const std::string& where, std::span<const std::byte> expected,
                             std::span<const std::byte> actual) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] != actual[i]) {
      return where + ": byte " + std::to_string(i) + ": expected " + hex(expected[i]) +
             ", actual " + hex(actual[i]);
    }
  }
  return "";
}

}  // namespace goldenrule::test
