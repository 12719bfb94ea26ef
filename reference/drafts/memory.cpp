// SPDX-License-Identifier: Apache-2.0
#include "reference/drafts/memory.hpp"

#include <algorithm>

namespace goldenrule::drafts {
namespace {

constexpr double kMebibyte = 1 << 20;
constexpr double kProcess = 48 * kMebibyte;
constexpr double kPerThread = 8 * kMebibyte;
constexpr double kPerNumber = 64;  // as optional, with what is certain of it, and as expectation
constexpr double kCounts = 6;      // outputs of one number a row
constexpr double kPerRow = 512;
constexpr double kExplanationPerElement = 200;

// The extent of an input along an axis, or 0.
double extent(const verdict::Declared& call, const char* name, std::size_t axis) {
  const auto it = call.inputs.find(name);
  return it == call.inputs.end() || it->second.size() <= axis
             ? 0.0
             : static_cast<double>(it->second[axis]);
}

}  // namespace

verdict::Need memory_needed(const verdict::Declared& call, int threads) {
  const double rows = std::max(extent(call, "draft_tokens", 0), extent(call, "start", 0));
  const double drafts = extent(call, "draft_tokens", 1);
  const double Z = std::max(extent(call, "target_probs", 2), extent(call, "recover_noise", 1));
  const double numbers = rows * (2 * (drafts + 1) + kCounts);
  const double of_rule = threads * 4 * Z * static_cast<double>(sizeof(double));
  const double values = rows * (drafts + 1) * 3 * static_cast<double>(sizeof(double));
  verdict::Need need;
  need.verdict =
      kProcess + threads * kPerThread +
      std::max(call.file_bytes + 2 * call.tensor_bytes,
               call.tensor_bytes + of_rule + values + numbers * kPerNumber + rows * kPerRow);
  need.explanation = 2 * call.tensor_bytes + numbers * kExplanationPerElement + rows * kPerRow;
  return need;
}

}  // namespace goldenrule::drafts
