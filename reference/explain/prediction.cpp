// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/prediction.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/philox.hpp"
#include "reference/explain/oracle_kernel.hpp"

namespace goldenrule::explain {
namespace {

constexpr std::uint64_t kJitterSeed = 0x6a69747465720000U;

call::TensorMap commit(std::span<const mistakes::Mistake* const> chain, const call::Record& record,
                       const mistakes::Kernel& kernel) {
  if (chain.empty() || !chain.front()->applies(record)) return kernel(record);
  return chain.front()->commit(record, [&](const call::Record& changed) {
    return commit(chain.subspan(1), changed, kernel);
  });
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

double budgeted_spread(const oracle::Expected& e, std::size_t i) {
  const double radius = static_cast<double>(e.radius[i]);
  if (e.sigma.empty()) return radius;
  return radius + e.multiple * static_cast<double>(e.sigma[i]) + static_cast<double>(e.bias[i]);
}

class Predictor {
 public:
  Predictor(const Capture& capture, const Hypothesis& hypothesis)
      : capture_(capture), hypothesis_(hypothesis) {}

  std::optional<Prediction> run(SpreadBy by) {
    OracleKernel kernel(by == SpreadBy::kKernel ? capture_.contract : nullptr);
    const auto values = commit_with(kernel, capture_.call, 0.0);
    if (!values) return std::nullopt;
    Prediction prediction;
    prediction.called_kernel = kernel.calls() > 0;
    for (const auto& [name, tensor] : *values) {
      prediction.outputs[name] = {.value = tensor.to_doubles(), .spread = {}};
    }
    if (by == SpreadBy::kKernel && prediction.called_kernel) {
      add_kernel_spread(kernel, prediction);
    } else {
      add_scaled_spread(prediction);
    }
    if (by == SpreadBy::kJitter) add_jitter(prediction);
    return prediction;
  }

 private:
  // The outputs of the call only, or nothing if the mistake gives others.
  std::optional<call::TensorMap> commit_with(OracleKernel& kernel, const call::Record& record,
                                             double shift) {
    try {
      call::TensorMap outputs = commit(hypothesis_, record, [&](const call::Record& changed) {
        return kernel(changed, shift);
      });
      call::TensorMap wanted;
      for (const auto& [name, tensor] : capture_.outputs) {
        const auto found = outputs.find(name);
        if (found == outputs.end() || found->second.shape() != tensor.shape()) return std::nullopt;
        wanted[name] = std::move(found->second);
      }
      return wanted;
    } catch (const Error&) {  // the changed call is none
      return std::nullopt;
    }
  }

  void add_kernel_spread(OracleKernel& kernel, Prediction& prediction) {
    for (auto& [name, output] : prediction.outputs) output.spread.assign(output.value.size(), 0.0F);
    for (const double shift : {-1.0, 1.0}) {
      const auto shifted = commit_with(kernel, capture_.call, shift);
      if (!shifted) continue;
      for (auto& [name, output] : prediction.outputs) {
        const call::Tensor& t = shifted->at(name);
        for (std::size_t i = 0; i < output.value.size(); ++i) {
          const double distance = std::fabs(t[static_cast<std::int64_t>(i)] - output.value[i]);
          if (!std::isnan(distance)) {
            output.spread[i] = std::max(output.spread[i], static_cast<float>(distance));
          }
        }
      }
    }
  }

  void add_scaled_spread(Prediction& prediction) {
    for (auto& [name, output] : prediction.outputs) {
      const oracle::Expected& e = capture_.expected.outputs.at(name);
      output.spread.resize(output.value.size());
      const std::size_t block = block_of(e.shape, name);
      for (std::size_t first = 0; first < output.value.size(); first += block) {
        const double own = magnitude({output.value.data() + first, block});
        const double right = magnitude({e.golden.data() + first, block});
        const double growth = right > 0.0 ? std::max(1.0, own / right) : 1.0;
        for (std::size_t i = first; i < first + block; ++i) {
          output.spread[i] = static_cast<float>(growth * budgeted_spread(e, i));
        }
      }
    }
  }

  // Elements of one row and head.
  static std::size_t block_of(const call::Shape& shape, const std::string& name) {
    const std::size_t inner = name == "o" ? 1 : 2;
    std::int64_t block = 1;
    for (std::size_t i = shape.size() - inner; i < shape.size(); ++i) block *= shape[i];
    return static_cast<std::size_t>(std::max<std::int64_t>(block, 1));
  }

  // What the contract rounds first, as a relative error: the type of q^ and k^, or fp32 itself.
  [[nodiscard]] double first_rounding() const {
    const auto& type = capture_.contract->at(bounds::Point::kKey);
    if (type) return std::ldexp(1.0, -call::info(*type).significand_bits);
    return capture_.contract->unit_roundoff;
  }

  [[nodiscard]] call::Record perturbed(int run) const {
    call::Record changed = capture_.call;
    const double u = first_rounding();
    for (const char* name : {"q", "k", "v", "initial_state"}) {
      const auto found = changed.inputs.find(name);
      if (found == changed.inputs.end()) continue;
      const cases::Stream stream(kJitterSeed + static_cast<std::uint64_t>(run), name);
      std::vector<double> x = found->second.to_doubles();
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] *= 1.0 + u * stream.uniform(static_cast<std::int64_t>(i), -1.0, 1.0);
      }
      found->second = call::Tensor(call::DType::kF64, found->second.shape(), x);
    }
    return changed;
  }

  void add_jitter(Prediction& prediction) {
    std::map<std::string, std::vector<double>> squares;
    for (const auto& [name, output] : prediction.outputs) {
      squares[name].assign(output.value.size(), 0.0);
    }
    OracleKernel kernel(nullptr);
    for (int run = 0; run < kJitterRuns; ++run) {
      const auto outcome = commit_with(kernel, perturbed(run), 0.0);
      if (!outcome) return;
      for (auto& [name, square] : squares) {
        const call::Tensor& t = outcome->at(name);
        const std::vector<double>& value = prediction.outputs.at(name).value;
        for (std::size_t i = 0; i < square.size(); ++i) {
          const double distance = t[static_cast<std::int64_t>(i)] - value[i];
          if (std::isfinite(distance)) square[i] += distance * distance;
        }
      }
    }
    for (auto& [name, output] : prediction.outputs) widen(output, squares.at(name), name);
  }

  // sigma of an element half and half with its row and head, as in the chunk budgets.
  void widen(PredictedOutput& output, const std::vector<double>& square, const std::string& name) {
    const oracle::Expected& e = capture_.expected.outputs.at(name);
    const std::size_t block = block_of(e.shape, name);
    for (std::size_t first = 0; first < square.size(); first += block) {
      double sum = 0.0;
      for (std::size_t i = first; i < first + block; ++i) sum += square[i];
      const double mean = sum / static_cast<double>(block);
      for (std::size_t i = first; i < first + block; ++i) {
        const double sigma = std::sqrt(0.5 * (square[i] + mean) / kJitterRuns);
        output.spread[i] += static_cast<float>(e.multiple * sigma);
      }
    }
  }

  const Capture& capture_;
  const Hypothesis& hypothesis_;
};

}  // namespace

std::optional<Prediction> predict(const Capture& capture, const Hypothesis& hypothesis,
                                  SpreadBy by) {
  return Predictor(capture, hypothesis).run(by);
}

}  // namespace goldenrule::explain
