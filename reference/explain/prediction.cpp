// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/prediction.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "fixtures/call/error.hpp"
#include "fixtures/call/plan.hpp"
#include "reference/explain/overflow.hpp"

namespace goldenrule::explain {
namespace {

call::TensorMap commit(std::span<const calls::Mistake* const> chain, const call::Record& record,
                       const calls::Kernel& kernel) {
  if (chain.empty()) return kernel(record);
  const calls::Kernel inner = [&](const call::Record& changed) {
    return commit(chain.subspan(1), changed, kernel);
  };
  // The outer mistake may have left a call in which the inner one cannot be made.
  return chain.front()->applies(record) ? chain.front()->commit(record, inner) : inner(record);
}

// The root mean square of the finite values of one row and head.
double magnitude(std::span<const double> block) {
  double sum = 0.0;
  std::int64_t n = 0;
  for (const double x : block) {
    if (!std::isfinite(x)) continue;
    sum += x * x;
    ++n;
  }
  return n == 0 ? 0.0 : std::sqrt(sum / static_cast<double>(n));
}

std::vector<double> magnitudes(const std::vector<double>& values, std::size_t block) {
  std::vector<double> result;
  for (std::size_t first = 0; first < values.size(); first += block) {
    result.push_back(magnitude({values.data() + first, block}));
  }
  return result;
}

constexpr std::uint64_t kSignPatterns = 8;  // each and its opposite

std::vector<Signs> common_signs() { return {{.common = 1.0}, {.common = -1.0}}; }

std::vector<Signs> common_and_random_signs() {
  std::vector<Signs> signs = common_signs();
  for (std::uint64_t i = 0; i < kSignPatterns; ++i) {
    for (const double common : {1.0, -1.0}) signs.push_back({.common = common, .pattern = i});
  }
  return signs;
}

// Widens the spread to the distance of `shifted`. A shift that makes a number NaN has no bound.
void widen(const call::TensorMap& shifted, Prediction& prediction) {
  for (auto& [name, output] : prediction.outputs) {
    const call::Tensor& t = shifted.at(name);
    for (std::size_t i = 0; i < output.value.size(); ++i) {
      if (!std::isfinite(output.value[i])) continue;
      const double distance = std::fabs(t[static_cast<std::int64_t>(i)] - output.value[i]);
      output.spread[i] = std::isnan(distance)
                             ? std::numeric_limits<float>::infinity()
                             : std::max(output.spread[i], static_cast<float>(distance));
    }
  }
}

}  // namespace

std::optional<call::TensorMap> commit_all(const Capture& capture, const Hypothesis& hypothesis,
                                          const call::Record& call, const calls::Kernel& kernel) {
  try {
    call::TensorMap outputs = commit(hypothesis, call, kernel);
    call::TensorMap wanted;
    for (const auto& [name, tensor] : capture.outputs) {
      const auto found = outputs.find(name);
      if (found == outputs.end() || found->second.shape() != tensor.shape()) return std::nullopt;
      wanted[name] = std::move(found->second);
    }
    return wanted;
  } catch (const Error&) {  // the changed call is none
    return std::nullopt;
  }
}

std::size_t block_size(const call::Shape& shape, const std::string& name) {
  const std::size_t inner = call::has_states(name) ? 2 : 1;
  std::int64_t block = 1;
  for (std::size_t i = shape.size() - inner; i < shape.size(); ++i) block *= shape[i];
  return static_cast<std::size_t>(std::max<std::int64_t>(block, 1));
}

Predictor::Predictor(const Capture& capture) : capture_(capture), overflowed_(overflowed(capture)) {
  for (const auto& [name, e] : capture.expected.outputs) {
    Right& right = right_[name];
    right.spread = e.exact.radius;
    for (std::size_t i = 0; i < e.grant.spread.size(); ++i) right.spread[i] += e.grant.spread[i];
    right.magnitudes = magnitudes(e.exact.golden, block_size(e.exact.shape, name));
  }
}

void Predictor::add_scaled_spread(Prediction& prediction) const {
  for (auto& [name, output] : prediction.outputs) {
    const Right& right = right_.at(name);
    output.spread = right.spread;
    const std::size_t block = block_size(capture_.expected.outputs.at(name).exact.shape, name);
    const std::vector<double> own = magnitudes(output.value, block);
    for (std::size_t b = 0; b < own.size(); ++b) {
      if (!(right.magnitudes[b] > 0.0) || own[b] <= right.magnitudes[b]) continue;
      const auto growth = static_cast<float>(own[b] / right.magnitudes[b]);
      for (std::size_t i = b * block; i < (b + 1) * block; ++i) output.spread[i] *= growth;
    }
  }
}

std::optional<Prediction> Predictor::predict(const Hypothesis& hypothesis, SpreadBy by) const {
  OracleKernel kernel(*capture_.slice, by == SpreadBy::kKernel ? capture_.contract : nullptr);
  return predict(hypothesis, kernel, by);
}

std::optional<Prediction> Predictor::predict(const Hypothesis& hypothesis, OracleKernel& kernel,
                                             SpreadBy by) const {
  const std::int64_t before = kernel.calls();
  const auto commit_with = [&](const Signs& signs) {
    return commit_all(capture_, hypothesis, capture_.call,
                      [&](const call::Record& changed) { return kernel(changed, signs); });
  };
  const auto values = commit_with({});
  if (!values) return std::nullopt;
  Prediction prediction;
  const std::int64_t calls = kernel.calls() - before;
  prediction.called_kernel = calls > 0;
  for (const auto& [name, tensor] : *values) {
    prediction.outputs[name].value = tensor.to_doubles();
  }
  if (by == SpreadBy::kScaling || !prediction.called_kernel) {
    add_scaled_spread(prediction);
  } else {
    for (auto& [name, output] : prediction.outputs) output.spread.resize(output.value.size());
    const auto patterns = calls == 1 ? common_signs() : common_and_random_signs();
    for (const Signs& signs : patterns) {
      const auto shifted = commit_with(signs);
      if (!shifted) return std::nullopt;
      widen(*shifted, prediction);
    }
  }
  mark_overflows(capture_, prediction);
  if (overflowed_ && prediction.called_kernel) {
    constexpr std::uint64_t kSeed = 1;
    const auto emulated =
        commit_all(capture_, hypothesis, capture_.call, [&](const call::Record& changed) {
          return capture_.slice->emulate(changed, *capture_.contract, kSeed);
        });
    if (emulated) mark_overflows(*emulated, prediction);
  }
  return prediction;
}

}  // namespace goldenrule::explain
