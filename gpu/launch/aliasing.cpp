// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/aliasing.hpp"

#include <algorithm>
#include <limits>

namespace goldenrule::gpu {
namespace {

/// Above any address and any span that memory has: distances of what is below fit 64 bits.
constexpr std::int64_t kFar = std::int64_t{1} << 60;

/// Bytes from the first to the last, counted from an axis inwards.
std::int64_t span_from(const Region& region, int axis) {
  std::int64_t span = region.run;
  for (auto i = static_cast<std::size_t>(axis); i < static_cast<std::size_t>(region.size); ++i) {
    span += (region.axes[i].count - 1) * region.axes[i].stride;
  }
  return span;
}

/// The step of an axis, 0 behind the last.
std::int64_t step_of(const Region& region, int axis) {
  return axis < region.size ? region.axes[static_cast<std::size_t>(axis)].stride : 0;
}

/// The longest step of what is left of a region, or none, if `step` is longer: one row of it.
struct Rows {
  std::int64_t count = 1, span;  ///< span: bytes of a row
  int next;                      ///< axis within a row
};
Rows rows_by(const Region& region, int axis, std::int64_t step) {
  if (step_of(region, axis) != step) return {.span = span_from(region, axis), .next = axis};
  return {.count = region.axes[static_cast<std::size_t>(axis)].count,
          .span = span_from(region, axis + 1),
          .next = axis + 1};
}

/// Of the parts of a and b from these axes inwards, b's beginning `distance` bytes behind a's.
bool meet(const Region& a, int axis_a, const Region& b, int axis_b, std::int64_t distance) {
  if (distance >= span_from(a, axis_a) || -distance >= span_from(b, axis_b)) return false;
  const std::int64_t step = std::max(step_of(a, axis_a), step_of(b, axis_b));
  if (step == 0) return true;
  const Rows of_a = rows_by(a, axis_a, step), of_b = rows_by(b, axis_b, step);
  if (of_a.span > step || of_b.span > step) return true;  // rows of more than a step: not decided
  // Row j of b lies distance + (j - i) steps behind row i of a: only two of these can touch it.
  const std::int64_t down = distance >= 0 ? distance / step : -((step - 1 - distance) / step);
  for (const std::int64_t steps : {down, down + 1}) {
    const bool there = steps <= of_a.count - 1 && -steps <= of_b.count - 1;
    if (there && meet(a, of_a.next, b, of_b.next, distance - steps * step)) return true;
  }
  return false;
}

/// Behind the axes of longer steps.
void insert(Region& region, Region::Axis axis) {
  auto at = static_cast<std::size_t>(region.size++);
  for (; at > 0 && region.axes[at - 1].stride < axis.stride; --at) {
    region.axes[at] = region.axes[at - 1];
  }
  region.axes[at] = axis;
}

}  // namespace

Region region_of(const goldenrule_gpu_tensor& tensor, const TensorRule& rule,
                 const Strides& strides) {
  Region region;
  const std::int64_t size = dtype_size(tensor.dtype);
  const bool empty = std::ranges::any_of(rule.extents, [](std::int64_t n) { return n == 0; });
  if (tensor.data == nullptr || empty) return region;
  region.first = reinterpret_cast<std::uintptr_t>(tensor.data);
  region.run = size;
  for (std::size_t a = 0; a < rule.extents.size(); ++a) {
    const bool strided = a < static_cast<std::size_t>(rule.strided);
    if (!strided) {
      region.run *= rule.extents[a];
    } else if (rule.extents[a] > 1) {
      insert(region, {rule.extents[a], strides[a] * size, static_cast<int>(a)});
    }
  }
  return region;
}

Region region_of(const void* data, std::uint64_t bytes) {
  Region region;
  region.first = reinterpret_cast<std::uintptr_t>(data);
  region.run = static_cast<std::int64_t>(
      std::min<std::uint64_t>(bytes, std::numeric_limits<std::int64_t>::max()));
  return region;
}

Range range_of(const Region& region) {
  return {.first = region.first, .size = static_cast<std::uintptr_t>(span_from(region, 0))};
}

bool share_memory(const Region& a, const Region& b) {
  const Range of_a = range_of(a), of_b = range_of(b);
  if (are_apart(of_a, of_b)) return false;
  constexpr auto kMost = static_cast<std::uintptr_t>(kFar);
  for (const Range& bytes : {of_a, of_b}) {
    if (bytes.first >= kMost || bytes.size >= kMost) return true;
  }
  return meet(a, 0, b, 0, static_cast<std::int64_t>(b.first) - static_cast<std::int64_t>(a.first));
}

}  // namespace goldenrule::gpu
