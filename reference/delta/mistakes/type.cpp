// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in types, and calls that run with what was compiled for another call. The latter are
// modelled on the second call: what it returns when the scale, the type or the head count that the
// first one was specialised for is used again.
#include <algorithm>
#include <array>
#include <cstring>

#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/calls/outputs.hpp"
#include "reference/delta/mistakes/common.hpp"
#include "reference/delta/mistakes/permits.hpp"
#include "reference/delta/mistakes/tables.hpp"
#include "reference/delta/mistakes/variant.hpp"

namespace goldenrule::delta {
namespace {

using call::DType;
using call::Record;
using call::TensorMap;
using contract::Activation;
using contract::Point;

constexpr const char* kOperands[] = {"q", "k", "v"};

// The bytes of `t` read as `type`, as many elements as it has; a wider type gives the first of its
// halves.
call::Tensor reinterpreted(const call::Tensor& t, DType type) {
  call::Tensor read(type, t.shape());
  if (read.size() == 0) return read;  // memcpy must not be given a null pointer
  std::memcpy(read.bytes().data(), t.bytes().data(),
              std::min(read.bytes().size(), t.bytes().size()));
  return read;
}

bool is_fp16(const Record& r) { return r.inputs.at("v").dtype() == DType::kF16; }
TensorMap with_operands_as(const Record& r, const calls::Kernel& kernel, DType type) {
  Record changed = calls::without_outputs(r);
  for (const char* name : kOperands) {
    changed.inputs[name] = reinterpreted(r.inputs.at(name), type);
  }
  return kernel(changed);
}
TensorMap fp16_bits_as_bf16(const Record& r, const calls::Kernel& kernel) {
  return with_operands_as(r, kernel, DType::kBF16);
}

TensorMap change_o(const Record& r, const calls::Kernel& kernel, double (*f)(double)) {
  TensorMap outputs = kernel(r);
  call::Tensor& o = outputs.at("o");
  for (std::int64_t i = 0; i < o.size(); ++i) o.set(i, f(o[i]));
  return outputs;
}
TensorMap output_bf16_for_fp16(const Record& r, const calls::Kernel& kernel) {
  return change_o(r, kernel, [](double x) { return call::round_to(DType::kBF16, x); });
}
TensorMap output_zero(const Record& r, const calls::Kernel& kernel) {
  return change_o(r, kernel, [](double) { return 0.0; });
}
TensorMap output_uninitialised(const Record& r, const calls::Kernel& kernel) {
  return change_o(r, kernel, [](double) { return calls::kUnwritten; });
}

// The first call had twice the scale (the default, where this one's is 0).
TensorMap cache_key_scale(const Record& r, const calls::Kernel& kernel) {
  const double scale = call::resolved_scale(r.convention, call::validate(r).K);
  Record changed = calls::without_outputs(r);
  changed.convention.scale = scale == 0.0 ? std::nullopt : std::optional(2.0 * scale);
  return kernel(changed);
}

// The first call had the other 16-bit type, or bf16 where this one has fp32.
bool is_cached_type(const Record& r) {
  return std::ranges::all_of(kOperands, [&](const char* name) {
    const DType type = r.inputs.at(name).dtype();
    return type == DType::kF16 || type == DType::kBF16 || type == DType::kF32;
  });
}
TensorMap cache_key_dtype(const Record& r, const calls::Kernel& kernel) {
  const bool bf16 = r.inputs.at("v").dtype() == DType::kBF16;
  return with_operands_as(r, kernel, bf16 ? DType::kF16 : DType::kBF16);
}

// The first call had one value head per q/k head (two, where this one has one).
TensorMap cache_key_heads(const Record& r, const calls::Kernel& kernel) {
  const call::Dims d = call::validate(r);
  const std::int64_t group = d.HV > d.H ? 1 : 2;
  return kernel(
      calls::with_qk_heads(r, [&](std::int64_t j) { return std::min(j / group, d.H - 1); }));
}

TensorMap tf32_operands(const Record& r, const calls::Kernel&) {
  return run_lanes(r, step_variant({.tf32_operands = true}));
}

// o is a sum of products with operands that are rounded to 8 bits themselves, v_new among them,
// whose error is common to all keys of a value column and so reaches o undiminished. The state is
// multiplied by q: one of them is enough.
std::string_view output_bf16_permitted(const contract::Contract& c) {
  const bool state_term =
      keeps_at_most(8, c, Point::kStateOperand) || keeps_at_most(8, c, Activation::kQuery);
  if (!state_term || !keeps_at_most(8, c, Point::kVNew, Point::kAttention)) return {};
  return "o is made of operands that are rounded to 8 bits, and the budget covers several such "
         "errors";
}
// tf32 keeps 11 bits and truncates: an error of at most 2^-10, where rounding to 8 bits grants
// 2^-9. A state operand of 16 bits (two bf16 terms) is multiplied by q and k alone, so that each of
// its products has the larger error already.
std::string_view tf32_permitted(const contract::Contract& c) {
  if (!keeps_at_most(8, c, Activation::kQuery, Activation::kKey)) return {};
  if (!keeps_at_most(16, c, Point::kStateOperand)) return {};
  return "every product has a factor that is rounded to 8 bits, tf32 keeps 11";
}

constexpr std::string_view kTypeGroup = "Types and compilation";
constexpr std::array kTypeMistakes{
    calls::Mistake{"fp16_bits_as_bf16", kTypeGroup, "the bits of fp16 q, k and v are read as bf16",
                   is_fp16, fp16_bits_as_bf16},
    calls::Mistake{"output_bf16_for_fp16",
                   kTypeGroup,
                   "o is rounded to bf16 on its way to an fp16 output",
                   is_fp16,
                   output_bf16_for_fp16,
                   {},
                   calls::kRounds,
                   output_bf16_permitted},
    calls::Mistake{"cache_key_scale", kTypeGroup,
                   "the kernel compiled for an earlier call with another scale is used again",
                   [](const Record&) { return true; }, cache_key_scale},
    calls::Mistake{
        "cache_key_dtype", kTypeGroup,
        "the kernel compiled for an earlier call with another type of q, k and v is used again",
        is_cached_type, cache_key_dtype},
    calls::Mistake{
        "cache_key_heads", kTypeGroup,
        "the kernel compiled for an earlier call with another number of value heads per q/k "
        "head is used again",
        [](const Record& r) { return call::validate(r).H > 1; }, cache_key_heads},
    calls::Mistake{"tf32_operands",
                   kTypeGroup,
                   "the products over K truncate the state, q and k to tf32",
                   always,
                   tf32_operands,
                   {},
                   calls::kRounds,
                   tf32_permitted},
    calls::Mistake{"output_zero", kTypeGroup, "o is all zeros", always, output_zero},
    calls::Mistake{"output_uninitialised", kTypeGroup, "o is never written", always,
                   output_uninitialised},
};

}  // namespace

std::span<const calls::Mistake> type_mistakes() { return kTypeMistakes; }

}  // namespace goldenrule::delta
