// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/nan_words.hpp"

#include <cmath>
#include <cstring>
#include <optional>
#include <set>

namespace goldenrule::explain {
namespace {

// The bits of element i, little-endian.
std::uint64_t bits_of(const call::Tensor& t, std::int64_t i) {
  const std::size_t bytes = call::info(t.dtype()).bytes;
  std::uint64_t bits = 0;
  std::memcpy(&bits, t.bytes().data() + static_cast<std::size_t>(i) * bytes, bytes);
  return bits;
}

bool made_by_arithmetic(call::DType type, std::uint64_t bits) {
  const std::uint64_t sign = std::uint64_t{1} << (8 * call::info(type).bytes - 1);
  const bool x86 = (bits & sign) != 0;
  const bool cuda = bits == sign - 1;
  return x86 || cuda;
}

}  // namespace

std::string nan_words(const call::Tensor& output, const Grid& grid, const Failures& failures) {
  std::set<std::int64_t> rows;
  for (std::int64_t i = 0; i < std::ssize(failures.failing); ++i) {
    if (failures.failing[static_cast<std::size_t>(i)] == 0) continue;
    if (!std::isnan(output[i])) return "";
    rows.insert(grid.row_of(i));
  }
  if (grid.heads_first) return "all NaN";
  std::optional<std::uint64_t> payload;
  bool one_payload = true;
  for (const std::int64_t row : rows) {
    for (std::int64_t i = row * grid.row_stride(); i < (row + 1) * grid.row_stride(); ++i) {
      if (!std::isnan(output[i])) return "all NaN";
      const std::uint64_t bits = bits_of(output, i);
      one_payload = one_payload && payload.value_or(bits) == bits;
      payload = bits;
    }
  }
  if (!payload) return "";
  return one_payload && !made_by_arithmetic(output.dtype(), *payload)
             ? "all NaN: never written"
             : "all NaN (computed or never written)";
}

}  // namespace goldenrule::explain
