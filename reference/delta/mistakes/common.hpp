// SPDX-License-Identifier: Apache-2.0
//
// What the parts of the table ask of a call.
#pragma once

#include <cstdint>

#include "fixtures/call/dtype.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/call/record.hpp"

namespace goldenrule::delta {

inline constexpr std::int64_t kChunk = 64;  ///< tokens of a chunk of most kernels
inline constexpr double kLog2OfE = 1.4426950408889634;

[[nodiscard]] inline bool always(const call::Record&) { return true; }
[[nodiscard]] inline double scale_of(const call::Record& r) {
  return call::resolved_scale(r.convention, call::validate(r).K);
}
[[nodiscard]] inline bool has_two_axes(const call::Record& r) {
  const call::Dims d = call::validate(r);
  return d.K > 1 && d.V > 1;
}
/// MTP with the states of its own tokens.
[[nodiscard]] inline bool leaves_states(const call::Record& r) {
  return r.mode == call::Mode::kMtp && !call::has_ring(r) && call::validate(r).tokens > 0;
}
/// Elements of one sequence's state.
[[nodiscard]] inline std::int64_t block_size(const call::Dims& d) { return d.HV * d.state_size(); }
[[nodiscard]] inline double bf16(double x) { return call::round_to(call::DType::kBF16, x); }

}  // namespace goldenrule::delta
