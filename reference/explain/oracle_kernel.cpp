// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/oracle_kernel.hpp"

#include <bit>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "fixtures/random/philox.hpp"
#include "reference/calls/unwritten.hpp"
#include "reference/verdict/kernels.hpp"

namespace goldenrule::explain {
namespace {

constexpr std::uint64_t kOffset = 0xcbf29ce484222325U;

// FNV-1a over words; twice with different offsets, so that two calls of one explanation do not
// meet by chance.
std::uint64_t hash(std::span<const std::byte> bytes, std::uint64_t h) {
  constexpr std::uint64_t kPrime = 0x100000001b3U;
  std::size_t i = 0;
  for (; i + sizeof(std::uint64_t) <= bytes.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    h = (h ^ word) * kPrime;
    h ^= h >> 29;  // multiplication alone never brings high bits down
  }
  for (; i < bytes.size(); ++i) h = (h ^ static_cast<std::uint64_t>(bytes[i])) * kPrime;
  return h;
}

// Everything that an evaluation depends on.
OracleKernel::Key key_of(const call::Record& record) {
  OracleKernel::Key key{static_cast<std::uint64_t>(record.op),
                        static_cast<std::uint64_t>(record.mode)};
  call::for_each_field(record.convention, [&](const char*, const auto& value) {
    using Field = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Field, std::optional<double>>) {
      key.push_back(value ? 1 : 0);
      key.push_back(std::bit_cast<std::uint64_t>(value.value_or(0.0)));
    } else if constexpr (std::is_same_v<Field, double>) {
      key.push_back(std::bit_cast<std::uint64_t>(value));
    } else {
      key.push_back(static_cast<std::uint64_t>(value));
    }
  });
  for (const auto& [name, tensor] : record.inputs) {
    key.push_back(hash(std::as_bytes(std::span(name)), kOffset));
    key.push_back(static_cast<std::uint64_t>(tensor.dtype()));
    for (const std::int64_t extent : tensor.shape()) {
      key.push_back(static_cast<std::uint64_t>(extent));
    }
    key.push_back(hash(tensor.bytes(), kOffset));
    key.push_back(hash(tensor.bytes(), ~kOffset));
  }
  return key;
}

}  // namespace

const verdict::Expectations& OracleKernel::expect(const call::Record& record) {
  Key key = key_of(record);
  for (const Entry& entry : kept_) {
    if (entry.key == key) return entry.expected;
  }
  if (kept_.size() >= kKept) kept_.pop_back();
  kept_.push_front(
      {.key = std::move(key),
       .expected = verdict::expect(*slice_, record, *contract_, scalar::Precision::kDouble)});
  return kept_.front().expected;
}

call::TensorMap OracleKernel::exact(const call::Record& record) {
  if (remembered_ == 0) return verdict::exact_outputs(*slice_, record);
  Key key = key_of(record);
  for (const auto& [of, outputs] : exact_) {
    if (of == key) return outputs;
  }
  if (exact_.size() >= remembered_) exact_.pop_back();
  exact_.emplace_front(std::move(key), verdict::exact_outputs(*slice_, record));
  return exact_.front().second;
}

call::TensorMap OracleKernel::operator()(const call::Record& record, const Signs& signs) {
  ++calls_;
  if (contract_ == nullptr) return exact(record);
  call::TensorMap outputs;
  for (const auto& [name, e] : expect(record).outputs) {
    std::vector<double> values = e.exact.golden;
    const random::Stream stream(signs.pattern.value_or(0), name);
    std::uint64_t minus = 0;  // of 64 elements, one bit each
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (signs.pattern && i % 64 == 0) minus = stream.bits(static_cast<std::int64_t>(i / 64));
      if (!e.exact.is_defined(i) && slice_->settle == nullptr) {
        values[i] = calls::kUnwritten;
      } else if (signs.common != 0.0) {
        double spread = static_cast<double>(e.exact.radius[i]);
        if (!e.grant.spread.empty()) spread += static_cast<double>(e.grant.spread[i]);
        values[i] += (minus >> i % 64 & 1U) == 0 ? signs.common * spread : -signs.common * spread;
      }
    }
    outputs[name] = call::Tensor(call::DType::kF64, e.exact.shape, values);
  }
  return outputs;
}

}  // namespace goldenrule::explain
