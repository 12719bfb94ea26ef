// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "reference/explain/screening.hpp"
#include "reference/explain/search.hpp"

namespace goldenrule::explain {
namespace {

// Of one prediction: for each visit of a state element, for each compared number, and for any.
constexpr double kPerStep = 4e-9, kPerNumber = 40e-9, kPerPrediction = 1e-4;

double predicting_seconds(const Capture& capture) {
  double numbers = 0.0;
  for (const auto& [name, output] : capture.outputs) numbers += static_cast<double>(output.size());
  return kPerPrediction + kPerStep * static_cast<double>(steps_of(capture)) + kPerNumber * numbers;
}

}  // namespace

Trial::Trial(Capture c)
    : capture(std::make_unique<Capture>(std::move(c))),
      predictor(*capture),
      matcher(*capture),
      prediction_seconds(predicting_seconds(*capture)),
      spread_seconds(capture->slice->grant_seconds == nullptr
                         ? 0.0
                         : capture->slice->grant_seconds(capture->call, *capture->contract)) {}

}  // namespace goldenrule::explain
