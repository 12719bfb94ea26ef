// SPDX-License-Identifier: Apache-2.0
//
// Small records of every mode, and one way to look at a refusal: an error is right when its kind
// and its three texts are, since those texts are all that a user sees.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/call/plan.hpp"

namespace goldenrule::call::test {

// Extents that differ pairwise, so that no two axes can be taken for one another.
inline constexpr std::int64_t kRows = 3, kT = 4, kH = 2, kHV = 6, kK = 5, kV = 7, kSlots = 9;

inline Tensor floats(Shape shape) { return {DType::kF32, std::move(shape)}; }

inline Tensor integers(std::initializer_list<double> values, DType dtype = DType::kI64) {
  return {dtype, Shape{static_cast<std::int64_t>(values.size())}, std::vector<double>(values)};
}

/// [rows,T] integers.
inline Tensor integer_rows(std::int64_t rows, std::initializer_list<double> values) {
  return {DType::kI64, Shape{rows, static_cast<std::int64_t>(values.size()) / rows},
          std::vector<double>(values)};
}

/// q, k, v, a, A_log, dt_bias, b on the given token axes.
inline Record with_tokens(Op op, Mode mode, const Shape& tokens) {
  const auto on_tokens = [&](std::initializer_list<std::int64_t> tail) {
    Shape shape = tokens;
    shape.insert(shape.end(), tail);
    return floats(shape);
  };
  const bool kda = op == Op::kKda;
  Record r;
  r.op = op;
  r.mode = mode;
  r.inputs["q"] = on_tokens({kH, kK});
  r.inputs["k"] = on_tokens({kH, kK});
  r.inputs["v"] = on_tokens({kHV, kV});
  r.inputs["a"] = kda ? on_tokens({kHV, kK}) : on_tokens({kHV});
  r.inputs["A_log"] = floats({kHV});
  r.inputs["dt_bias"] = kda ? floats({kHV, kK}) : floats({kHV});
  r.inputs["b"] = on_tokens({kHV});
  return r;
}

inline Record mtp(Op op = Op::kGatedDeltaRule) {
  Record r = with_tokens(op, Mode::kMtp, {kRows, kT});
  r.inputs["initial_state"] = floats({kSlots, kHV, kV, kK});
  return r;
}

inline Record decode(Op op = Op::kGatedDeltaRule) {
  Record r = with_tokens(op, Mode::kDecode, {kRows, 1});
  r.inputs["initial_state"] = floats({kSlots, kHV, kV, kK});
  return r;
}

/// 8 tokens in three sequences of 3, 0 and 5.
inline Record prefill(Op op = Op::kGatedDeltaRule) {
  Record r = with_tokens(op, Mode::kPrefill, {8});
  r.inputs["cu_seqlens"] = integers({0, 3, 3, 8});
  return r;
}

inline std::optional<Error> error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  return std::nullopt;
}

struct Refusal {
  ErrorKind kind;
  std::string where, expected, actual;
};

inline void check_refused(const std::function<void()>& f, const Refusal& refusal) {
  const std::optional<Error> error = error_of(f);
  CAPTURE(refusal.where);
  CAPTURE(refusal.actual);
  REQUIRE(error.has_value());
  CHECK(error->kind() == refusal.kind);
  CHECK(error->where() == refusal.where);
  CHECK(error->expected() == refusal.expected);
  CHECK(error->actual() == refusal.actual);
  CHECK(std::string(error->what()) ==
        refusal.where + ": expected " + refusal.expected + ", actual " + refusal.actual);
}

}  // namespace goldenrule::call::test
