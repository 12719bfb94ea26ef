// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/prediction.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "fixtures/call/error.hpp"
#include "reference/explain/oracle_kernel.hpp"

namespace goldenrule::explain {
namespace {

call::TensorMap commit(std::span<const mistakes::Mistake* const> chain, const call::Record& record,
                       const mistakes::Kernel& kernel) {
  if (chain.empty()) return kernel(record);
  const mistakes::Kernel inner = [&](const call::Record& changed) {
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

void add_scaled_spread(const Capture& capture, Prediction& prediction) {
  for (auto& [name, output] : prediction.outputs) {
    const oracle::Expected& e = capture.expected.outputs.at(name);
    output.spread.resize(output.value.size());
    const std::size_t block = block_size(e.shape, name);
    for (std::size_t first = 0; first < output.value.size(); first += block) {
      const double own = magnitude({output.value.data() + first, block});
      const double right = magnitude({e.golden.data() + first, block});
      const double growth = right > 0.0 ? std::max(1.0, own / right) : 1.0;
      for (std::size_t i = first; i < first + block; ++i) {
        output.spread[i] = static_cast<float>(growth * right_spread(e, i));
      }
    }
  }
}

}  // namespace

std::optional<call::TensorMap> commit_all(const Capture& capture, const Hypothesis& hypothesis,
                                          const call::Record& call,
                                          const mistakes::Kernel& kernel) {
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
  const std::size_t inner = name == "o" ? 1 : 2;
  std::int64_t block = 1;
  for (std::size_t i = shape.size() - inner; i < shape.size(); ++i) block *= shape[i];
  return static_cast<std::size_t>(std::max<std::int64_t>(block, 1));
}

double right_spread(const oracle::Expected& expected, std::size_t i) {
  const auto radius = static_cast<double>(expected.radius[i]);
  if (expected.sigma.empty()) return radius;
  return radius + expected.multiple * static_cast<double>(expected.sigma[i]) +
         static_cast<double>(expected.bias[i]);
}

std::optional<Prediction> predict(const Capture& capture, const Hypothesis& hypothesis,
                                  SpreadBy by) {
  OracleKernel kernel(by == SpreadBy::kKernel ? capture.contract : nullptr);
  const auto commit_with = [&](double shift) {
    return commit_all(capture, hypothesis, capture.call,
                      [&](const call::Record& changed) { return kernel(changed, shift); });
  };
  const auto values = commit_with(0.0);
  if (!values) return std::nullopt;
  Prediction prediction;
  prediction.called_kernel = kernel.calls() > 0;
  for (const auto& [name, tensor] : *values) {
    prediction.outputs[name] = {
        .value = tensor.to_doubles(),
        .spread = std::vector<float>(static_cast<std::size_t>(tensor.size()), 0.0F)};
  }
  if (by == SpreadBy::kScaling || !prediction.called_kernel) {
    add_scaled_spread(capture, prediction);
    return prediction;
  }
  for (const double shift : {-1.0, 1.0}) {
    const auto shifted = commit_with(shift);
    if (!shifted) return std::nullopt;
    for (auto& [name, output] : prediction.outputs) {
      const call::Tensor& t = shifted->at(name);
      for (std::size_t i = 0; i < output.value.size(); ++i) {
        const double distance = std::fabs(t[static_cast<std::int64_t>(i)] - output.value[i]);
        if (std::isnan(distance)) continue;
        output.spread[i] = std::max(output.spread[i], static_cast<float>(distance));
      }
    }
  }
  return prediction;
}

}  // namespace goldenrule::explain
