// SPDX-License-Identifier: Apache-2.0
//
// What a suite sees of one call: its honest kernels and its mistakes, judged as `check` judges. The
// expectation is made once, since the mistakes of one call are many.
#pragma once

#include <cstdint>
#include <string>

#include "reference/verdict/slice.hpp"

namespace goldenrule::suites {

struct Finding {
  std::int64_t out_of_budget = 0, compared = 0;  ///< elements, of all outputs
  double max_ratio = 0.0;
  std::string worst_tensor;
};

/// One record, judged many times against one expectation. Both arguments must outlive it.
class CaseJudge {
 public:
  CaseJudge(const call::Record& record, const contract::Contract& contract);

  /// What the honest kernels store: the exact one, and the emulated one of the contract.
  [[nodiscard]] call::TensorMap exact_outputs() const;
  [[nodiscard]] call::TensorMap emulated_outputs() const;

  [[nodiscard]] Finding judge(const call::TensorMap& outputs) const;

  /// The exact kernel with this mistake. Where nothing is out of budget, max_ratio is what the
  /// mistake alone takes of it.
  [[nodiscard]] Finding commit(const calls::Mistake& mistake) const;

 private:
  [[nodiscard]] double deviation(const call::TensorMap& wrong,
                                 const call::TensorMap& outputs) const;

  const call::Record& record_;
  const contract::Contract& contract_;
  const verdict::Slice& slice_;
  const calls::Kernel exact_;
  const verdict::Expectations expected_;
};

}  // namespace goldenrule::suites
