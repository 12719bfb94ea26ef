// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/check_tensor.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "gpu/launch/aliasing.hpp"

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
  const auto refuse = [&](const char* expected) {
    problem.report(GOLDENRULE_GPU_UNSUPPORTED, std::string(rule.name) + ".dtype", expected,
                   dtype_name(d));
  };
  switch (rule.types) {
    case Types::kFloat:
      if (!real) refuse("f32, f16 or bf16");
      break;
    case Types::kState:
    case Types::kKept:
      if (!state) refuse("f32 or bf16");
      break;
    case Types::kHalf:
    case Types::kHalfPool:
      if (d != GOLDENRULE_GPU_F16 && d != GOLDENRULE_GPU_BF16) refuse("f16 or bf16");
      break;
    case Types::kF32:
      if (d != GOLDENRULE_GPU_F32) refuse("f32");
      break;
    case Types::kIndex:
    case Types::kRowIndex:
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

Strides given_strides(const goldenrule_gpu_tensor& tensor, const TensorRule& rule) {
  Strides strides{};
  std::copy_n(std::begin(tensor.stride), rule.strided, strides.begin());
  return strides;
}

/// A stride of zero along an axis of several elements is an aggregate that was never filled in, or
/// a broadcast: neither may be read as something else.
void check_steps_up(const TensorRule& rule, const Strides& strides, Problem& problem) {
  for (std::size_t a = 0; a < static_cast<std::size_t>(rule.strided); ++a) {
    if (strides[a] > 0 || rule.extents[a] <= 1) continue;
    problem.invalid(stride_name(rule.name, static_cast<int>(a)),
                    "1 or more for " + std::to_string(rule.extents[a]) +
                        " elements (dense = 1: no strides; there is no broadcast)",
                    strides[a]);
  }
}

bool is_empty(const TensorRule& rule) {
  return std::ranges::any_of(rule.extents, [](std::int64_t n) { return n == 0; });
}

/// The bytes from the first element to the last must be countable: offsets are 64-bit.
void check_span(const TensorRule& rule, const Strides& strides, std::int64_t size,
                Problem& problem) {
  std::int64_t left = std::numeric_limits<std::int64_t>::max() / size;
  std::int64_t run = 1;  // elements of the contiguous axes, at most K V
  for (auto a = static_cast<std::size_t>(rule.strided); a < rule.extents.size(); ++a) {
    run *= rule.extents[a];
  }
  left -= run;
  for (std::size_t a = 0; a < static_cast<std::size_t>(rule.strided); ++a) {
    const std::int64_t steps = rule.extents[a] - 1;
    if (steps <= 0) continue;
    std::int64_t reached = 0;  // no division where the call is fine: these checks delay its kernel
    if (__builtin_mul_overflow(strides[a], steps, &reached) || reached > left) {
      problem.invalid(stride_name(rule.name, static_cast<int>(a)),
                      "at most " + std::to_string(left / steps) + " (64-bit offsets)", strides[a]);
      return;
    }
    left -= reached;
  }
}

/// Two elements of a written tensor must not share memory: from the shortest step on, each axis has
/// to step over the whole extent of those below it. That is sufficient, and necessary for axes that
/// nest.
void check_overlap(const goldenrule_gpu_tensor& tensor, const TensorRule& rule,
                   const Strides& strides, Problem& problem) {
  const Region region = region_of(tensor, rule, strides);
  const std::int64_t size = dtype_size(tensor.dtype);
  std::int64_t covered = region.run;
  for (auto i = static_cast<std::size_t>(region.size); i-- > 0;) {
    const Region::Axis& axis = region.axes[i];
    if (axis.stride < covered) {
      problem.invalid(stride_name(rule.name, axis.number),
                      "at least " + std::to_string(covered / size) + " (elements overlap)",
                      axis.stride / size);
      return;
    }
    covered += axis.stride * (axis.count - 1);
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

std::string stride_name(const char* tensor, int axis) {
  return std::string(tensor) + ".stride[" + std::to_string(axis) + "]";
}

Strides check_tensor(const goldenrule_gpu_tensor& tensor, const TensorRule& rule, const char* why,
                     Problem& problem) {
  if (!problem.ok()) return {};
  if (tensor.data == nullptr) {
    if (rule.need == Need::kRequired && !is_empty(rule)) {
      problem.invalid(std::string(rule.name) + ".data", std::string("a device pointer") + why,
                      "NULL");
    }
    return {};
  }
  if (rule.need == Need::kForbidden) {
    problem.invalid(std::string(rule.name) + ".data", std::string("NULL") + why, "a pointer");
    return {};
  }
  if (tensor.dense != 0 && tensor.dense != 1) {
    problem.invalid(std::string(rule.name) + ".dense", "0 or 1", tensor.dense);
  }
  check_dtype(tensor, rule, problem);
  if (!problem.ok()) return {};
  const auto size = static_cast<std::uintptr_t>(dtype_size(tensor.dtype));
  if (const auto rest = reinterpret_cast<std::uintptr_t>(tensor.data) & (size - 1); rest != 0) {
    problem.invalid(std::string(rule.name) + ".data",
                    "alignment to " + std::to_string(size) + " bytes",
                    "an address " + std::to_string(rest) + " beyond it");
  }
  const Strides strides = tensor.dense != 0 ? dense_strides(rule) : given_strides(tensor, rule);
  // Where there is no token a dense row has no length, and nobody steps over it.
  if (problem.ok() && !is_empty(rule)) check_steps_up(rule, strides, problem);
  if (problem.ok()) check_span(rule, strides, static_cast<std::int64_t>(size), problem);
  if (rule.use == Use::kWritten && problem.ok()) check_overlap(tensor, rule, strides, problem);
  return strides;
}

}  // namespace goldenrule::gpu
