// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/guarded_buffer.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/gpu/random.hpp"

namespace goldenrule::test {
namespace {

std::string hex(std::byte b) {
  char text[8];
  std::snprintf(text, sizeof text, "0x%02x", static_cast<unsigned>(b));
  return text;
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
      redzone_(memory == Memory::kGuarded ? kRedzone : 0),
      image_(make_poison(memory == Memory::kGuarded ? bytes + 2 * kRedzone : 0, seed)),
      memory_(gpu::allocate_device(memory == Memory::kGuarded ? image_.size() : bytes + shift)) {
  if (image_.empty()) return;
  gpu::check_cuda(cudaMemcpy(memory_.get(), image_.data(), image_.size(), cudaMemcpyHostToDevice),
                  "upload");
}

void* GuardedBuffer::data() const {
  return static_cast<std::byte*>(memory_.get()) + redzone_ + shift_;
}

void GuardedBuffer::upload(std::span<const std::byte> bytes) {
  gpu::check_cuda(cudaMemcpy(data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "upload");
}

Bytes GuardedBuffer::download() const {
  Bytes bytes(size_);
  gpu::check_cuda(cudaMemcpy(bytes.data(), data(), size_, cudaMemcpyDeviceToHost), "download");
  return bytes;
}

std::string GuardedBuffer::violation() const {
  Bytes now(image_.size());
  if (now.empty()) return "";
  gpu::check_cuda(cudaMemcpy(now.data(), memory_.get(), now.size(), cudaMemcpyDeviceToHost),
                  "download");
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
