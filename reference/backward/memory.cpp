// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/memory.hpp"

#include <algorithm>
#include <cmath>

#include "reference/scalar/tier.hpp"
#include "reference/verdict/tally.hpp"

namespace goldenrule::backward {
namespace {

constexpr double kMebibyte = 1 << 20;
constexpr double kProcess = 48 * kMebibyte;
constexpr double kPerThread = 8 * kMebibyte;
constexpr double kPerElement = 8 + 4 + 4 + 4 + 4 + 4;  // golden, radius, unit, and a grant
// A stage of the heads at hand: golden, radius, reach, a grant (spread, flushed, overflows),
// whether it is defined, and the sum of the squares of what runs leave.
constexpr double kPerStage = 8 + 4 + 4 + (4 + 4 + 1) + 1 + 8;
// One of them at a time in another form, or its mean squares; its part of the kernel's tensor and
// the ratios that its comparison leaves.
constexpr double kPerStageAtHand = 8 + 4 + 4 + 4 + 4 + 8 + 4;
constexpr double kExplanationPerElement = 200;

double extent(const verdict::Declared& call, const char* name, std::size_t axis) {
  const auto it = call.inputs.find(name);
  return it == call.inputs.end() || it->second.size() <= axis
             ? 0.0
             : static_cast<double>(it->second[axis]);
}

// Beside the gradients, the stages of a kernel of `heads` query/key heads of H at a time.
double of_stages(const verdict::Declared& call, double heads, double H) {
  double all = 0.0;
  double largest = 0.0;
  double ratios = 0.0;
  for (const auto& [name, shape] : call.stages) {
    double elements = 1.0;
    for (const std::int64_t n : shape) elements *= static_cast<double>(n);
    all += elements;
    largest = std::max(largest, elements);
    // Of each form, with what a growing array leaves free; in their place counts of 2 MiB.
    const double few = std::min(elements, static_cast<double>(verdict::kFewRatios));
    ratios += 2 * 2 * sizeof(float) * few;
  }
  return heads / std::max(H, 1.0) * (all * kPerStage + largest * kPerStageAtHand) + ratios;
}

}  // namespace

verdict::Need memory_needed(const verdict::Declared& call, int threads) {
  const double tokens = extent(call, "q", 0);
  const double H = extent(call, "q", 1);
  const double K = extent(call, "q", 2);
  const double HV = extent(call, "v", 1);
  const double V = extent(call, "v", 2);
  const double sequences = std::max(extent(call, "cu_seqlens", 0) - 1.0, 0.0);
  const double gates = std::max({extent(call, "a", 2), extent(call, "g", 2), 1.0});
  const double states = sequences * HV * K * V;
  const double elements = tokens * (2 * H * K + HV * (V + gates + 1)) + HV * (1 + gates) + states;
  const double wide = sizeof(scalar::Multi);
  const double parameters = sequences * HV * (1 + gates) * (wide + 32);
  // q^, k^, gates, the gradients by them, and the states of two blocks; chunk by chunk in fp32.
  const double of_lane = tokens * ((5 * K + V + 4 * gates) * wide + 16 * V) +
                         (2 * std::sqrt(tokens) + 4) * K * 64 * wide +
                         tokens * (12 * K + 12 * V + 8 * 64) * 4 +
                         (tokens / 64 + 2) * 2 * K * V * 4;
  // Values and radii of A, T, P, dP, dM, w, u, v_new, o, du, dw, dq, dk, raw, G, h and dh.
  const double chunk = call.stage_chunk > 0 ? static_cast<double>(call.stage_chunk) : 64.0;
  const double stages_of_lane =
      (tokens * (4 * K + 4 * V + 2 * gates + 5 * chunk) + (tokens / chunk + 2) * 2 * K * V) *
      (call.stages.empty() ? 0.0 : wide + 8);
  const double beside = std::min<double>(threads, std::max(sequences * H, 1.0));
  verdict::Need need;
  need.verdict = kProcess + threads * kPerThread +
                 std::max(call.file_bytes + 2 * call.tensor_bytes,
                          call.tensor_bytes + elements * kPerElement + of_stages(call, beside, H) +
                              parameters + beside * (of_lane + stages_of_lane));
  need.explanation = elements * kExplanationPerElement + 2 * call.tensor_bytes;
  return need;
}

}  // namespace goldenrule::backward
