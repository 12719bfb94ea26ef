// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/memory.hpp"

#include <algorithm>
#include <cmath>

#include "reference/scalar/tier.hpp"

namespace goldenrule::backward {
namespace {

constexpr double kMebibyte = 1 << 20;
constexpr double kProcess = 48 * kMebibyte;
constexpr double kPerThread = 8 * kMebibyte;
constexpr double kPerElement = 8 + 4 + 4 + 4 + 4 + 4;  // golden, radius, unit, and a grant
constexpr double kPerStage = 2 * (8 + 4 + 4 + 1);      // the same and its reach; in another form
constexpr double kExplanationPerElement = 200;

double extent(const verdict::Declared& call, const char* name, std::size_t axis) {
  const auto it = call.inputs.find(name);
  return it == call.inputs.end() || it->second.size() <= axis
             ? 0.0
             : static_cast<double>(it->second[axis]);
}

// Elements of the stages of a kernel, which are judged beside the gradients.
double stage_elements(const verdict::Declared& call) {
  double all = 0.0;
  for (const auto& [name, shape] : call.stages) {
    double elements = 1.0;
    for (const std::int64_t n : shape) elements *= static_cast<double>(n);
    all += elements;
  }
  return all;
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
  const double beside = std::min<double>(threads, std::max(sequences * H, 1.0));
  verdict::Need need;
  need.verdict = kProcess + threads * kPerThread +
                 std::max(call.file_bytes + 2 * call.tensor_bytes,
                          call.tensor_bytes + elements * kPerElement +
                              stage_elements(call) * kPerStage + parameters + beside * of_lane);
  need.explanation = elements * kExplanationPerElement + 2 * call.tensor_bytes;
  return need;
}

}  // namespace goldenrule::backward
