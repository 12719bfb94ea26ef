// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/long_keys.hpp"

#include <array>
#include <cstdio>
#include <vector>

#include "fixtures/call/plan.hpp"

namespace goldenrule::delta {

std::string long_keys(const call::Record& record) {
  const call::Tensor* keys = record.find_input("k");
  if (keys == nullptr || record.convention.qk_l2norm != call::QkNorm::kNone) return {};
  const std::int64_t K = call::validate(record).K;
  double longest = 0.0;
  std::int64_t at = 0;
  std::vector<double> key(static_cast<std::size_t>(K));
  for (std::int64_t first = 0; K > 0 && first < keys->size(); first += K) {
    keys->read(first, K, key.data());
    double square = 0.0;
    for (const double x : key) square += x * x;
    if (square > longest) {
      longest = square;
      at = first;
    }
  }
  const double beta = record.convention.beta == call::BetaForm::kSigmoid2 ? 2.0 : 1.0;
  if (!(beta * longest > 2.0)) return {};
  call::Shape index = call::unravel(keys->shape(), at);
  index.pop_back();
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", longest);
  return "keys are not normalised (|k|^2 = " + std::string(text.data()) + " at k" +
         call::to_string(index) +
         ", qk_l2norm is none), so that a token multiplies states by up to 1 - beta |k|^2 and they "
         "grow: normalise the keys, or say which norm the kernel applies";
}

}  // namespace goldenrule::delta
