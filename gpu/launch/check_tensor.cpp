// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/check_tensor.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace goldenrule::gpu {
namespace {

std::string dtype_name(std::int32_t dtype) {
  switch (dtype) {
    case 0:
      return "f64";
    case GOLDENRULE_GPU_F32:
      return "f32";
    case GOLDENRULE_GPU_F16:
      return "f16";
    case GOLDENRULE_GPU_BF16:
      return "bf16";
    case GOLDENRULE_GPU_I64:
      return "i64";
    case GOLDENRULE_GPU_I32:
      return "i32";
    default:
      return "dtype " + std::to_string(dtype);
  }
}

void check_dtype(const goldenrule_gpu_tensor& tensor, const TensorRule& rule, Problem& problem) {
  const std::int32_t d = tensor.dtype;
  const bool real = d == GOLDENRULE_GPU_F32 || d == GOLDENRULE_GPU_F16 || d == GOLDENRULE_GPU_BF16;
  const bool state = d == GOLDENRULE_GPU_F32 || d == GOLDENRULE_GPU_BF16;
  const bool index = d == GOLDENRULE_GPU_I32 || d == GOLDENRULE_GPU_I64;
  const std::string argument = std::string(rule.name) + ".dtype";
  const auto refuse = [&](const char* expected) {
    problem.report(GOLDENRULE_GPU_UNSUPPORTED, argument, expected, dtype_name(d));
  };
  switch (rule.types) {
    case Types::kFloat:
      if (!real) refuse("f32, f16 or bf16");
      break;
    case Types::kState:
      if (!state) refuse("f32 or bf16");
      break;
    case Types::kIndex:
      if (!index) refuse("i32 or i64");
      break;
  }
}

Strides dense_strides(const TensorRule& rule) {
  Strides strides{};
  std::int64_t step = 1;
  for (auto axis = static_cast<int>(rule.extents.size()) - 1; axis >= 0; --axis) {
    const auto a = static_cast<std::size_t>(axis);
    if (axis < rule.strided) strides[a] = step;
    if (axis > 0) step *= rule.extents[a];
  }
  return strides;
}

/// The bytes from the first element to the last must be countable: offsets are 64-bit.
void check_span(const TensorRule& rule, const Strides& strides, std::int64_t size,
                Problem& problem) {
  std::int64_t left = std::numeric_limits<std::int64_t>::max() / size;
  for (std::size_t a = 0; a < static_cast<std::size_t>(rule.strided); ++a) {
    const std::int64_t steps = rule.extents[a] - 1;
    if (steps <= 0) continue;
    if (strides[a] > left / steps) {
      problem.invalid(std::string(rule.name) + ".stride[" + std::to_string(a) + "]",
                      "at most " + std::to_string(left / steps) + " (64-bit offsets)", strides[a]);
      return;
    }
    left -= strides[a] * steps;
  }
}

/// Two elements of a written tensor must not share memory: sorted by stride, each axis has to step
/// over the whole extent of those below it. That is sufficient, and necessary for axes that nest.
void check_overlap(const TensorRule& rule, const Strides& strides, Problem& problem) {
  if (std::ranges::any_of(rule.extents, [](std::int64_t n) { return n == 0; })) return;
  std::int64_t covered = 1;  // elements spanned by the contiguous axes
  for (auto a = static_cast<std::size_t>(rule.strided); a < rule.extents.size(); ++a) {
    covered *= rule.extents[a];
  }
  std::vector<std::pair<std::int64_t, std::size_t>> order;
  for (std::size_t a = 0; a < static_cast<std::size_t>(rule.strided); ++a) {
    if (rule.extents[a] > 1) order.emplace_back(strides[a], a);
  }
  std::ranges::sort(order);
  for (const auto& [stride, axis] : order) {
    if (stride < covered) {
      problem.invalid(std::string(rule.name) + ".stride[" + std::to_string(axis) + "]",
                      "at least " + std::to_string(covered) + " (elements overlap)", stride);
      return;
    }
    covered = stride * (rule.extents[axis] - 1) + covered;
  }
}

}  // namespace

int dtype_size(std::int32_t dtype) {
  switch (dtype) {
    case GOLDENRULE_GPU_F32:
    case GOLDENRULE_GPU_I32:
      return 4;
    case GOLDENRULE_GPU_F16:
    case GOLDENRULE_GPU_BF16:
      return 2;
    case GOLDENRULE_GPU_I64:
      return 8;
    default:
      return 0;
  }
}

Strides check_tensor(const goldenrule_gpu_tensor& tensor, const TensorRule& rule,
                     const std::string& why, Problem& problem) {
  if (!problem.ok()) return {};
  const std::string name = rule.name;
  if (tensor.data == nullptr) {
    const bool empty = std::ranges::any_of(rule.extents, [](std::int64_t n) { return n == 0; });
    if (rule.need == Need::kRequired && !empty) {
      problem.invalid(name + ".data", "a device pointer" + why, "NULL");
    }
    return {};
  }
  if (rule.need == Need::kForbidden) {
    problem.invalid(name + ".data", "NULL" + why, "a pointer");
    return {};
  }
  if (tensor.reserved != 0) problem.invalid(name + ".reserved", "0", tensor.reserved);
  check_dtype(tensor, rule, problem);
  if (!problem.ok()) return {};
  const auto size = static_cast<std::uintptr_t>(dtype_size(tensor.dtype));
  if (const auto rest = reinterpret_cast<std::uintptr_t>(tensor.data) % size; rest != 0) {
    problem.invalid(name + ".data", "alignment to " + std::to_string(size) + " bytes",
                    "an address " + std::to_string(rest) + " beyond it");
  }
  const bool dense = std::ranges::all_of(tensor.stride, [](std::int64_t s) { return s == 0; });
  Strides strides = dense_strides(rule);
  for (std::size_t a = 0; a < static_cast<std::size_t>(rule.strided); ++a) {
    if (!dense) strides[a] = tensor.stride[a];
    if (strides[a] < 0) {
      problem.invalid(name + ".stride[" + std::to_string(a) + "]", "0 or more", strides[a]);
    }
  }
  if (problem.ok()) check_span(rule, strides, static_cast<std::int64_t>(size), problem);
  if (rule.use == Use::kWritten && problem.ok()) check_overlap(rule, strides, problem);
  return strides;
}

}  // namespace goldenrule::gpu
